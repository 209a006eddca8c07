//! The whole of a small program: it executes another program of psched's, from its own folder, in its own place.
//!
//! apstat, apkill, cpr, psmgr, psview and snflv are one program, `psched-commands`, and mpirun and mpiexec are aprun. Programs of
//! their own would have the same megabytes of gRPC in each. cargo installs no links, so each name is a program that
//! looks for the other one beside itself (never in PATH) and calls it by this name: the first word of the command line
//! is as the user typed it, and everything else that a process has (descriptors, environment, what is done about
//! signals) goes on as it was.
//!
//! For that reason it does without Rust's runtime, which opens `/dev/null` in place of closed descriptors and ignores
//! SIGPIPE before `main`, and without anything that can panic, which would bring 300 KB of unwinding and printing with
//! it. It is not a module of the library, but of each of these programs (`src/bin/apstat.rs`), which say what they are
//! called (`NAME`), what they execute (`PROGRAM`) and which status says that it can't be executed (`STATUS`).
#![allow(unsafe_code)]

use super::{NAME, PROGRAM, STATUS};
use std::ffi::{CStr, c_char, c_int, c_void};

/// The longest path that the kernel takes, with its end.
const PATH_MAX: usize = libc::PATH_MAX as usize;

/// What the C library calls. It comes back only where the program can't be executed.
// SAFETY: no other `main` is in the program, for it has `no_main`; the C library calls it with its own two arguments.
#[unsafe(no_mangle)]
pub extern "C" fn main(_count: c_int, words: *mut *mut c_char) -> c_int {
    let mut path = [0; PATH_MAX];
    let error = match beside(&mut path) {
        Ok(()) if is_itself(&path) => libc::ELOOP,
        Ok(()) => {
            // SAFETY: the C library gives an array of texts with a null at its end, which is this program's to change;
            // the first text is there unless that null comes first.
            unsafe {
                let first = *words;
                if !first.is_null() && !is_called(CStr::from_ptr(first).to_bytes(), NAME.to_bytes())
                {
                    *words = NAME.as_ptr().cast_mut();
                }
                libc::execv(path.as_ptr().cast(), words.cast_const().cast());
            }
            errno()
        }
        Err(error) => error,
    };
    say(&path, error);
    STATUS
}

/// Whether a command's first word, a path or a name, ends in this name.
fn is_called(word: &[u8], name: &[u8]) -> bool {
    match word.strip_suffix(name) {
        Some(folder) => folder.last().is_none_or(|last| *last == b'/'),
        None => false,
    }
}

/// Writes the path of the other program, with a zero at its end; where there is none it is empty.
fn beside(path: &mut [u8; PATH_MAX]) -> Result<(), c_int> {
    // SAFETY: the call writes no more than so many bytes there.
    let size =
        unsafe { libc::readlink(c"/proc/self/exe".as_ptr(), path.as_mut_ptr().cast(), path.len()) };
    let error = if size < 0 { errno() } else { libc::ENAMETOOLONG };
    let own = usize::try_from(size).ok().and_then(|size| path.get(..size)).unwrap_or_default();
    let folder = own.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let name = PROGRAM.to_bytes_with_nul();
    match path.get_mut(folder..folder + name.len()) {
        Some(place) if folder > 0 => {
            place.copy_from_slice(name);
            Ok(())
        }
        _ => {
            path[0] = 0;
            Err(error)
        }
    }
}

/// Whether this path is this program itself, for example because the other program is a link to it. Then it
/// would execute itself for ever.
fn is_itself(path: &[u8; PATH_MAX]) -> bool {
    let file = |path: *const c_char| {
        let mut file = std::mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the path has a zero at its end; where the call does well it has filled in the file.
        unsafe {
            match libc::stat(path, file.as_mut_ptr()) {
                0 => Some(file.assume_init()),
                _ => None,
            }
        }
    };
    match (file(path.as_ptr().cast()), file(c"/proc/self/exe".as_ptr())) {
        (Some(one), Some(own)) => (one.st_dev, one.st_ino) == (own.st_dev, own.st_ino),
        _ => false,
    }
}

/// Says on stderr that this program can't be executed, and what to do about it.
fn say(path: &[u8; PATH_MAX], error: c_int) {
    // SAFETY: it has a zero at its end; and that text is the C library's, and stays until its next call.
    let (path, why) = unsafe {
        (CStr::from_ptr(path.as_ptr().cast()).to_bytes(), CStr::from_ptr(libc::strerror(error)))
    };
    let (path, fails): (&[u8], &[u8]) = match path {
        b"" => (b"/proc/self/exe", b" does not tell the folder of this program: "),
        path => (path, b" can't be executed: "),
    };
    let words = [
        NAME.to_bytes(),
        b": ",
        path,
        fails,
        why.to_bytes(),
        b"; ",
        NAME.to_bytes(),
        b" needs ",
        PROGRAM.to_bytes(),
        b" of the same release in its own folder: install all programs of psched there\n",
    ];
    let parts = words.map(|word| libc::iovec {
        iov_base: word.as_ptr().cast_mut().cast::<c_void>(),
        iov_len: word.len(),
    });
    // SAFETY: the call reads these bytes. (An Err: where stderr is closed there is nobody to tell.)
    let _ = unsafe { libc::writev(2, parts.as_ptr(), parts.len() as c_int) };
}

fn errno() -> c_int {
    // SAFETY: it is this thread's own.
    unsafe { *libc::__errno_location() }
}
