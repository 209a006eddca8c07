//! Opening a file that somebody else has named.

use nix::fcntl::OFlag;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a regular file for reading. A FIFO would be waited for, and a device may have no end.
///
/// # Errors
/// It can't be opened, or is something else.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let flags = (OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a regular file")),
    }
}
