//! The files that are ours among the images of a back end, in a folder that is root's alone.

use rustix::fs::{Mode, OFlags, openat};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::BorrowedFd;

/// A new one, to be written.
///
/// # Errors
/// Those of open; one that is there already.
pub fn create(images: BorrowedFd<'_>, name: &str) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    Ok(File::from(openat(images, name, flags, Mode::RUSR | Mode::WUSR)?))
}

/// One that is there, to be read.
///
/// # Errors
/// Those of open; a link.
pub fn open(images: BorrowedFd<'_>, name: &str) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(File::from(openat(images, name, flags, Mode::empty())?))
}

/// One that is there, to be written from its beginning.
///
/// # Errors
/// Those of open; a link.
pub fn change(images: BorrowedFd<'_>, name: &str) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(File::from(openat(images, name, flags, Mode::empty())?))
}

/// What is in one, up to so many bytes.
///
/// # Errors
/// Those of open and read.
pub fn read(images: BorrowedFd<'_>, name: &str, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(images, name)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}
