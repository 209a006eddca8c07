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

/// The first bytes of one, up to so many.
///
/// # Errors
/// Those of open and read.
pub fn first(images: BorrowedFd<'_>, name: &str, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(images, name)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// All that is in one, which has no more than so many bytes.
///
/// # Errors
/// Those of open and read; `FileTooLarge` for a file with more bytes than `most`.
pub fn read(images: BorrowedFd<'_>, name: &str, most: u64) -> io::Result<Vec<u8>> {
    let bytes = first(images, name, most.saturating_add(1))?;
    match bytes.len() as u64 > most {
        true => Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it has more than {most} bytes"),
        )),
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn no_image_is_cut_off() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("image"), "12345").expect("written");
        let images = File::open(folder.path()).expect("opened");
        let read = |most| read(images.as_fd(), "image", most);
        assert_eq!(read(5).expect("all of it"), b"12345");
        assert_eq!(read(4).expect_err("it has 5").to_string(), "it has more than 4 bytes");
        assert_eq!(first(images.as_fd(), "image", 4).expect("its head"), b"1234");
    }
}
