//! Where a front end goes on after a restart: a file of JSON among the images.

use super::{CheckpointError, image_files};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::os::fd::BorrowedFd;

/// The name of the file.
const FILE: &str = "resume.json";
/// The largest that is read.
const BYTES_MAX: u64 = 4096;

/// How far output and stdin were, in bytes since the application's beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resume {
    /// Output up to here had left the shepherd: the front end that it had then has been given it.
    pub output_received: u64,
    /// stdin up to here had come to it.
    pub stdin_taken: u64,
}

/// Writes it among the images.
///
/// # Errors
/// Those of open and write; one that is there already.
pub fn keep_resume(images: BorrowedFd<'_>, resume: Resume) -> Result<(), CheckpointError> {
    let failed = |e: std::io::Error| CheckpointError::new(format!("{FILE}: {e}"));
    let mut file = image_files::create(images, FILE).map_err(failed)?;
    let text = serde_json::to_vec(&resume).map_err(|e| failed(e.into()))?;
    file.write_all(&text).map_err(failed)
}

/// Reads it.
///
/// # Errors
/// It is missing, or not what is written.
pub fn read_resume(images: BorrowedFd<'_>) -> Result<Resume, CheckpointError> {
    let failed = |e: &dyn std::fmt::Display| CheckpointError::new(format!("{FILE}: {e}"));
    let text = image_files::read(images, FILE, BYTES_MAX).map_err(|e| failed(&e))?;
    serde_json::from_slice(&text).map_err(|e| failed(&e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let images = File::open(folder.path()).expect("opened");
        assert!(read_resume(images.as_fd()).is_err());
        let resume = Resume { output_received: 7, stdin_taken: u64::MAX };
        keep_resume(images.as_fd(), resume).expect("written");
        assert_eq!(read_resume(images.as_fd()), Ok(resume));
        assert!(keep_resume(images.as_fd(), resume).is_err());
    }
}
