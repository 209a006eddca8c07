//! Requests as bytes of HTTP/2, of a caller that keeps to no bound and lets all answers come at
//! once: for tests.

/// The preface, and so many requests for the list of all applications.
pub(crate) fn requests(streams: u32) -> Vec<u8> {
    let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    };
    let text = |name: &[u8], value: &str| {
        let length = u8::try_from(value.len()).expect("short");
        [name, &[length], value.as_bytes()].concat()
    };
    // POST, http, and the rest as literals: :path, :authority, content-type, te.
    let headers = [
        vec![0x83, 0x86],
        text(&[0x04], "/psched.v1.Psched/List"),
        text(&[0x01], "localhost"),
        text(&[0x0f, 0x10], "application/grpc"),
        text(&[0x00, 2, b't', b'e'], "trailers"),
    ]
    .concat();
    let mut all = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    // The window of each stream, and that of the connection.
    let window = (1_u32 << 30).to_be_bytes();
    all.extend(frame(4, 0, 0, &[&[0, 4], &window[..]].concat()));
    all.extend(frame(8, 0, 0, &window));
    for stream in (0..streams).map(|n| 2 * n + 1) {
        all.extend(frame(1, 4, stream, &headers));
        all.extend(frame(0, 1, stream, &[0; 5]));
    }
    all
}
