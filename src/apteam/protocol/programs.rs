//! Copies of programs on the hosts of an application that do not have them.
//!
//! A launch names its programs by their paths and says what each was when it was posted
//! ([`FileIdentity`]). A host on which the path leads to something else, or to nothing, wants a copy, if
//! the launch allows it ([`Launch::copies`](crate::apteam::launch::Launch::copies)): its apshepherd says so
//! ([`WantedProgram`]), its apinit has the bytes from another host of the application, the head has them from the front
//! end, and the apshepherd is given the copy ([`GivenProgram`]). aprun leaves out the digest of a large program:
//! who has another file at its path wants a copy then, and need not read that file.

use crate::apteam::launch::FileIdentity;
use crate::apteam::{Key, Ticket};

/// The most bytes of a program in one message: as many front ends may be in the middle of one as of stdin.
pub const PIECE_MAX: usize = 64 * 1024;

/// A program of this size in bytes, or more, has no digest in its launch, if that allows copies. It is not read twice
/// for each launch: the digest is made while its bytes are sent.
pub const LARGE: u64 = 1 << 20;

/// How many hosts have a program from one: the next three have theirs from this one while its own comes. (With more,
/// each of them waits longer for each piece; with less there are more hosts in a row.)
pub const FAN_OUT: u32 = 4;

/// The hosts from which host `index` of an application, at least 1, has its programs, the first before the next. The
/// head, which is host 0, is the last.
///
/// ```
/// # use psched_pure::apteam::protocol::programs::sources;
/// assert_eq!([1, 4, 5, 8, 9, 21].map(sources), [vec![0], vec![0], vec![1, 0], vec![1, 0], vec![2, 0], vec![5, 0]]);
/// ```
pub fn sources(index: u32) -> Vec<u32> {
    match index.saturating_sub(1) / FAN_OUT {
        0 => vec![0],
        parent => vec![parent, 0],
    }
}

/// A program of an application, and the application's secret, which whoever asks for it or brings it has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramOf {
    /// Of which application.
    pub key: Key,
    /// Its secret.
    pub ticket: Ticket,
    /// Its part of the application, counted from 0.
    pub part: u32,
}

/// A program of which a host wants a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedProgram {
    /// Its part of the application, counted from 0.
    pub part: u32,
    /// Bytes, as it was posted.
    pub size: u64,
    /// The last word of its path, under which it is executed.
    pub name: Vec<u8>,
}

/// What an apshepherd is given for that.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct GivenProgram {
    /// Its part.
    pub part: u32,
    /// The path of the copy; empty: there is none.
    pub path: Vec<u8>,
    /// What the copy is by its file.
    pub identity: Option<FileIdentity>,
    /// Why there is none.
    pub why_not: String,
    /// SHA-256 of the program, where that is known.
    pub digest: Option<[u8; 32]>,
}

/// The last word of a path, if it can be the name of a file.
///
/// ```
/// # use psched_pure::apteam::protocol::programs::name_of;
/// assert_eq!(name_of(b"bin/a.out"), Some(&b"a.out"[..]));
/// assert_eq!([&b"bin/"[..], b"..", b".", b"", &[b'x'; 256], b"a\0b"].map(name_of), [None; 6]);
/// ```
pub fn name_of(path: &[u8]) -> Option<&[u8]> {
    let name = path.rsplit(|byte| *byte == b'/').next()?;
    let is_name = !name.is_empty() && name.len() <= 255 && !name.contains(&0);
    (is_name && name != b"." && name != b"..").then_some(name)
}
