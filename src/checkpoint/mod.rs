//! What a checkpoint says of itself, and whether it is whole and true.
//!
//! A checkpoint is a folder: images that a back end has written, and beside them `manifest.json`, which
//! says what they are images of and has all that psched needs to take the application back: whose it is,
//! what was posted, where it was, what is to be executed. Much can have happened to such a folder before
//! it is used, and each of it has to be told from the others, for each has a cure of its own:
//!
//! | | found by | |
//! | --- | --- | --- |
//! | a disk lost a byte | a SHA-256 of each file, and of the manifest itself | [`Flaw::Damaged`] |
//! | a copy stopped in the middle | a file that is missing or short | [`Flaw::Missing`], [`Flaw::Short`] |
//! | a dump that was never finished | no manifest: it is written last | [`Flaw::NoManifest`] |
//! | another release of psched made it | a version that is read before all else | [`Flaw::Newer`] |
//! | somebody wrote it himself | a seal by a key that only root reads | [`Flaw::Foreign`] |
//! | somebody put more beside it | no file may be there but those of the manifest | [`Flaw::Strange`] |
//! | another user's | ids, against those that the kernel says | [`Flaw::NotOwner`] |
//!
//! The seal is what root's daemons go by: they restore images with root's rights, and an image that its
//! user has made up would give these to him. It is an HMAC-SHA-256 over the manifest, which has the
//! checksums of all files. The checksums alone are for everybody.
//!
//! The same manifest is always the same text ([`Manifest::seal`]), and only that text is read
//! ([`Manifest::read`]): there is no byte in it that could be another.
//!
//! ```
//! # use psched_pure::checkpoint::{Flaw, SealKey, example};
//! let (manifest, key) = (example(), SealKey([7; 32]));
//! let text = manifest.seal(&key).unwrap();
//! # use psched_pure::checkpoint::Manifest;
//! assert_eq!(Manifest::read(text.as_bytes(), Some(&key)).unwrap(), manifest);
//! assert_eq!(Manifest::read(text.as_bytes(), Some(&SealKey([8; 32]))), Err(Flaw::Foreign));
//! let changed = text.replace("\"uid\": 1000", "\"uid\": 0");
//! assert!(matches!(Manifest::read(changed.as_bytes(), None), Err(Flaw::Damaged { .. })));
//! ```
//!
//! Of an application that is on several apinits each writes its part, and says so sealed; of all parts, and of
//! nothing less, one of them makes the manifest ([`Part`]).

mod flaw;
mod form;
mod join;
mod lines;
mod manifest;
mod parts;
mod restart;
mod seal;
mod whole;

#[cfg(test)]
mod tests;

pub use flaw::Flaw;
pub use join::{Part, example_parts, join};
pub use manifest::{
    BackEnd, HostImages, Image, Kind, Made, Manifest, Recovery, example, folders, name_fits,
};
pub use restart::{Restarting, restarting};
pub use seal::{Checksum, SealKey, Summing};
pub use whole::{Files, listed, manifest as manifest_of, verify, whole};

/// The name of the manifest in the folder of a checkpoint.
pub const MANIFEST: &str = "manifest.json";
/// The version of manifests that this psched writes, and the highest that it reads.
pub const VERSION: u64 = 1;
/// The longest manifest, in bytes: an environment of the largest launch, every byte of it escaped, leaves
/// room for as many files as there may be.
pub const MANIFEST_MAX: usize = 32 * 1024 * 1024;
/// Files that a checkpoint may have, the manifest not counted: a back end writes several for each process.
pub const FILES_MAX: usize = 65_536;
