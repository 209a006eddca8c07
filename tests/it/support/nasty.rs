//! Clients as nobody should write them: connections that never get any further, and callers that
//! never read.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// With this an HTTP/2 connection begins.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;

/// A connection on which this is said and nothing more. (One too many may be closed before that.)
pub fn says(socket: &Path, bytes: &[u8]) -> UnixStream {
    let mut stream = UnixStream::connect(socket).expect("it listens");
    let _ = stream.write_all(bytes);
    stream
}

/// Connections that say nothing, half of a preface, all of it and no more, a frame that never ends,
/// or half of a request.
pub fn half_open(socket: &Path) -> Vec<UnixStream> {
    let request = [PREFACE, &frame(SETTINGS, 0, 0, b""), &headers("/psched.v1.Psched/List")];
    let said: [&[u8]; 5] =
        [b"", &PREFACE[..10], PREFACE, &[PREFACE, b"\0\x40\0\x04\0"].concat(), &request.concat()];
    said.iter().map(|bytes| says(socket, bytes)).collect()
}

/// A connection that stays: HTTP/2 has begun, and nothing is asked.
pub fn idle(socket: &Path) -> UnixStream {
    says(socket, &[PREFACE, &frame(SETTINGS, 0, 0, b"")].concat())
}

/// A call whose answer has begun and can't go on: the caller lets none of it come. `message` is its
/// word, in protobuf, and `more` may follow, but never does.
pub fn never_reads(socket: &Path, method: &str, message: &[u8], more: bool) -> UnixStream {
    // SETTINGS_INITIAL_WINDOW_SIZE is 0.
    let settings = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let mut body = vec![0];
    body.extend(u32::try_from(message.len()).expect("short").to_be_bytes());
    body.extend(message);
    let call =
        [PREFACE, &settings, &headers(method), &frame(DATA, u8::from(!more), 1, &body)].concat();
    let mut stream = says(socket, &call);
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).expect("an answer");
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        std::io::copy(&mut (&stream).take(u64::from(length)), &mut std::io::sink()).expect("whole");
        if head[3] == HEADERS {
            return stream;
        }
    }
}

/// Many calls on one connection whose caller lets all of every answer come, and reads none. `message` is the word
/// of each.
pub fn never_reads_any(socket: &Path, method: &str, message: &[u8], count: u32) -> UnixStream {
    const WINDOW_UPDATE: u8 = 8;
    // SETTINGS_INITIAL_WINDOW_SIZE is as large as can be, and so is what the connection may have.
    let settings = frame(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
    let window = frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0, 0]);
    let mut body = vec![0];
    body.extend(u32::try_from(message.len()).expect("short").to_be_bytes());
    body.extend(message);
    let mut said = [PREFACE, &settings, &window].concat();
    for stream in (0..count).map(|call| 2 * call + 1) {
        said.extend(headers_on(stream, method));
        said.extend(frame(DATA, 1, stream, &body));
    }
    says(socket, &said)
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// The headers of a call, on stream 1; its message is still to come.
fn headers(method: &str) -> Vec<u8> {
    headers_on(1, method)
}

fn headers_on(stream: u32, method: &str) -> Vec<u8> {
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    // HPACK: POST and http from its table, then names from there with values of our own.
    let block = [
        vec![0x83, 0x86, 0x04],
        text(method),
        vec![0x01],
        text("localhost"),
        vec![0x0f, 0x10],
        text("application/grpc"),
        vec![0x00],
        text("te"),
        text("trailers"),
    ];
    const END_HEADERS: u8 = 4;
    frame(HEADERS, END_HEADERS, stream, &block.concat())
}
