//! What a file is, as launches carry it.

use crate::apteam::launch::FileIdentity;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// The identity of a file of this host, without a digest.
pub fn identity(file: &Metadata) -> FileIdentity {
    FileIdentity {
        device: file.dev(),
        inode: file.ino(),
        size: file.size(),
        mtime_ns: file.mtime().saturating_mul(1_000_000_000).saturating_add(file.mtime_nsec()),
        digest: None,
    }
}
