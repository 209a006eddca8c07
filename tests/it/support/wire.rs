//! A unix socket in front of psched's, which passes everything on and counts what apinits and
//! psched send each other: bytes, and frames of HTTP/2 that carry data.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What went in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    /// All bytes: headers and acknowledgements of HTTP/2 too.
    pub bytes: u64,
    /// Frames with data: one for each message, if it is no longer than a frame.
    pub data: u64,
}

impl std::ops::Sub for Traffic {
    type Output = Traffic;

    fn sub(self, before: Traffic) -> Traffic {
        Traffic { bytes: self.bytes - before.bytes, data: self.data - before.data }
    }
}

#[derive(Default)]
struct Counted {
    bytes: AtomicU64,
    data: AtomicU64,
}

impl Counted {
    fn so_far(&self) -> Traffic {
        Traffic {
            bytes: self.bytes.load(Ordering::Relaxed),
            data: self.data.load(Ordering::Relaxed),
        }
    }
}

/// The socket, until it is dropped. Connections last as long as their ends.
pub struct Wire {
    path: PathBuf,
    ends: Arc<AtomicBool>,
    /// To psched, and from it.
    ways: Arc<[Counted; 2]>,
}

impl Wire {
    /// Listens at `path`, in front of psched's socket.
    #[track_caller]
    pub fn start(path: PathBuf, psched: &Path) -> Wire {
        let listener = UnixListener::bind(&path).expect("bound");
        let ends = Arc::new(AtomicBool::new(false));
        let ways: Arc<[Counted; 2]> = Arc::default();
        let (ended, counted, psched) = (ends.clone(), ways.clone(), psched.to_owned());
        std::thread::spawn(move || {
            for caller in listener.incoming() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(caller) = caller else { continue };
                // (Err: psched is not there; the caller sees its end.)
                let Ok(called) = UnixStream::connect(&psched) else { continue };
                for (way, from, to) in [(0, &caller, &called), (1, &called, &caller)] {
                    let (from, to) = (from.try_clone().expect("one"), to.try_clone().expect("one"));
                    let counted = counted.clone();
                    std::thread::spawn(move || pass(from, to, &counted[way], way == 0));
                }
            }
        });
        Wire { path, ends, ways }
    }

    /// What apinits have sent to psched so far.
    pub fn heard(&self) -> Traffic {
        self.ways[0].so_far()
    }

    /// What psched has sent to them.
    pub fn sent(&self) -> Traffic {
        self.ways[1].so_far()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        // It accepts this one, and sees that it is the last.
        let _ = UnixStream::connect(&self.path);
        let _ = std::fs::remove_file(&self.path);
    }
}

fn pass(mut from: UnixStream, mut to: UnixStream, counted: &Counted, calls: bool) {
    let mut frames = Frames::new(calls);
    let mut bytes = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut bytes) {
        counted.bytes.fetch_add(length as u64, Ordering::Relaxed);
        counted.data.fetch_add(frames.take(&bytes[..length]), Ordering::Relaxed);
        if to.write_all(&bytes[..length]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Read), to.shutdown(Shutdown::Write));
}

/// One direction of an HTTP/2 connection.
struct Frames {
    /// Bytes before the next frame.
    skip: usize,
    /// What is known of the header of a frame: three bytes of length, and its type.
    header: Vec<u8>,
}

impl Frames {
    const HEADER: usize = 9;

    fn new(calls: bool) -> Frames {
        // The side that calls says a preface first.
        Frames { skip: if calls { 24 } else { 0 }, header: Vec::new() }
    }

    /// How many frames with data begin in these bytes.
    fn take(&mut self, mut bytes: &[u8]) -> u64 {
        let mut data = 0;
        loop {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            if bytes.is_empty() {
                return data;
            }
            let more = (Self::HEADER - self.header.len()).min(bytes.len());
            self.header.extend_from_slice(&bytes[..more]);
            bytes = &bytes[more..];
            if let [high, middle, low, kind, _, _, _, _, _] = self.header[..] {
                self.skip = u32::from_be_bytes([0, high, middle, low]) as usize;
                data += u64::from(kind == 0 && self.skip > 0);
                self.header.clear();
            }
        }
    }
}

#[test]
fn frames_are_counted_however_they_come() {
    let mut all = vec![b'P'; 24];
    for (length, kind) in [(3u8, 4u8), (5, 0), (0, 0), (2, 0)] {
        all.extend([0, 0, length, kind, 0, 0, 0, 0, 1]);
        all.extend(std::iter::repeat_n(0, length.into()));
    }
    for size in [1, 2, 9, 10, all.len()] {
        let mut frames = Frames::new(true);
        let data: u64 = all.chunks(size).map(|part| frames.take(part)).sum();
        assert_eq!(data, 2, "in pieces of {size} bytes");
    }
}
