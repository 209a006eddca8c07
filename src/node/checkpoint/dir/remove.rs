//! Checkpoints are removed, and what is left of those that were never finished.

use super::{Dir, FOLDER, Spot, entries, is_folder, stat, system, walk};
use crate::checkpoint::{Flaw, MANIFEST, Manifest, manifest_of};
use rustix::fs::{
    AtFlags, FlockOperation, Mode, RenameFlags, flock, openat, renameat_with, unlinkat,
};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;

/// Between a checkpoint's name, a dot before it, and the sixteen digits of a partial one.
const PARTIAL: &str = ".partial-";

/// Leftovers that are listed; who has more sees the others once these are removed.
const LEFTOVERS_MAX: usize = 64;

/// A partial checkpoint beside a spot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// Its name.
    pub name: OsString,
    /// Somebody writes or removes it right now.
    pub busy: bool,
}

/// The name of the checkpoint that one of this name would have become; none: it is no partial one.
fn of_partial(name: &OsStr) -> Option<&OsStr> {
    let name = name.as_bytes().strip_prefix(b".")?;
    let digits = name.len().checked_sub(16)?;
    let hex = |b: &u8| b.is_ascii_digit() || (b'a'..=b'f').contains(b);
    let before = name[..digits].strip_suffix(PARTIAL.as_bytes())?;
    (!before.is_empty() && name[digits..].iter().all(hex)).then(|| OsStr::from_bytes(before))
}

/// A name for a partial checkpoint of this name.
pub(super) fn partial_name(name: &OsStr) -> Result<OsString, Flaw> {
    let mut partial = OsString::from(".");
    partial.push(name);
    partial.push(format!("{PARTIAL}{}", super::chance()?));
    Ok(partial)
}

impl Spot {
    /// Whether its name is that of a partial checkpoint.
    pub fn is_partial(&self) -> bool {
        of_partial(&self.name).is_some()
    }
}

/// Partial checkpoints of this name, or the one that has this name, in order of their names.
///
/// # Errors
/// The folder above can't be read.
pub fn leftovers(spot: &Spot) -> Result<Vec<Leftover>, Flaw> {
    let reading = |e: Errno| system(format!("reading the folder of {}", spot.shown()), e);
    let mut all = Vec::new();
    for entry in rustix::fs::Dir::read_from(&spot.parent).map_err(reading)? {
        let entry = entry.map_err(reading)?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        let of = of_partial(name);
        if of != Some(&spot.name) && (of.is_none() || name != spot.name) {
            continue;
        }
        let Ok(fd) = openat(&spot.parent, name, FOLDER, Mode::empty()) else { continue };
        let locked = flock(&fd, FlockOperation::NonBlockingLockShared);
        let busy = locked == Err(Errno::WOULDBLOCK);
        all.push(Leftover { name: name.to_owned(), busy });
        if all.len() == LEFTOVERS_MAX {
            break;
        }
    }
    all.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(all)
}

/// Only one's own, but for root.
fn own(dir: &Dir, shown: &str) -> Result<(), Flaw> {
    let caller = rustix::process::geteuid().as_raw();
    if caller == 0 || caller == dir.uid() {
        return Ok(());
    }
    Err(Flaw::System {
        doing: format!("removing {shown}"),
        why: format!(
            "it belongs to user {}, and you are user {caller}: ask its owner, or root",
            dir.uid()
        ),
    })
}

/// The manifest of a checkpoint that may be removed: one's own, that can be read, with nothing else in it.
///
/// # Errors
/// It is not so.
pub(super) fn removable(dir: &Dir, shown: &str) -> Result<Manifest, Flaw> {
    own(dir, shown)?;
    let manifest = manifest_of(dir, None)?;
    walk(dir.as_fd(), &mut |file, _| match file == MANIFEST || manifest.lists(&file) {
        true => Ok(()),
        false => Err(Flaw::Strange { file }),
    })?;
    Ok(manifest)
}

/// Removes a checkpoint: what its manifest lists, and the folder. Its files need not be whole.
///
/// # Errors
/// It is none or another user's, something else is in it, or the system refuses. Unless it is the last,
/// nothing has been removed then.
pub fn remove(spot: &Spot) -> Result<Manifest, Flaw> {
    let shown = spot.shown();
    let dir = spot.open()?.ok_or(Flaw::NoFolder)?;
    let manifest = removable(&dir, &shown)?;
    dir.hold()?;
    // From here on it does not look like one.
    let name = partial_name(&spot.name)?;
    let rename = |flags| renameat_with(&spot.parent, &spot.name, &spot.parent, &name, flags);
    match rename(RenameFlags::NOREPLACE) {
        Err(Errno::INVAL) => rename(RenameFlags::empty()),
        other => other,
    }
    .map_err(|e| system(format!("removing {shown}"), e))?;
    remove_listed(spot, &name, &dir, &manifest)?;
    Ok(manifest)
}

/// Removes what a manifest lists, and the folder, which has this name now.
pub(super) fn remove_listed(
    spot: &Spot,
    name: &OsStr,
    dir: &Dir,
    manifest: &Manifest,
) -> Result<(), Flaw> {
    let names = manifest.files.iter().map(|file| &file.name[..]);
    for file in names.chain([MANIFEST]) {
        if let Some((folder, name)) = dir.place(file)? {
            unlink(folder.as_fd(), name, AtFlags::empty())?;
        }
    }
    for folder in manifest.folders() {
        unlink(dir.as_fd(), folder, AtFlags::REMOVEDIR)?;
    }
    unlink_os(spot.parent(), name, AtFlags::REMOVEDIR)
}

/// Removes a partial checkpoint and all that is in it, however far it came.
///
/// # Errors
/// It is another user's, somebody writes it, or the system refuses.
pub fn remove_leftover(spot: &Spot, leftover: &Leftover) -> Result<(), Flaw> {
    let shown = leftover.name.to_string_lossy();
    let opened = openat(&spot.parent, &leftover.name, FOLDER, Mode::empty());
    let dir = Dir::new(opened.map_err(|e| system(format!("opening {shown}"), e))?)?;
    own(&dir, &shown)?;
    dir.hold()?;
    empty(&dir)?;
    unlink_os(spot.parent(), &leftover.name, AtFlags::REMOVEDIR)
}

/// Removes what is in a partial checkpoint: files in it and in folders of it, no link being followed.
pub(super) fn empty(dir: &Dir) -> Result<(), Flaw> {
    let files = |folder: BorrowedFd<'_>| -> Result<Vec<String>, Flaw> {
        let mut folders = Vec::new();
        for (name, found) in entries(folder)? {
            match is_folder(&found) {
                true => folders.push(name),
                false => unlink(folder, &name, AtFlags::empty())?,
            }
        }
        Ok(folders)
    };
    for name in files(dir.as_fd())? {
        let below = openat(dir, &name, FOLDER, Mode::empty());
        let below = below.map_err(|e| system(format!("opening {name}"), e))?;
        files(below.as_fd())?;
        unlink(dir.as_fd(), &name, AtFlags::REMOVEDIR)?;
    }
    Ok(())
}

fn unlink(folder: BorrowedFd<'_>, name: &str, flags: AtFlags) -> Result<(), Flaw> {
    unlink_os(folder, OsStr::new(name), flags)
}

/// One that is not there is removed.
fn unlink_os(folder: BorrowedFd<'_>, name: &OsStr, flags: AtFlags) -> Result<(), Flaw> {
    match unlinkat(folder, name, flags) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(e) => match stat(folder, name)? {
            None => Ok(()),
            Some(_) => Err(system(format!("removing {}", name.to_string_lossy()), e)),
        },
    }
}
