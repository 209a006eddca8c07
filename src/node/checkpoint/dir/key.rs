//! The key of the seal: a file that its user, root as a rule, alone can read.

use super::{random, system};
use crate::checkpoint::{Flaw, SealKey};
use rustix::fs::{FileType, Mode, OFlags, RenameFlags, fstat, open};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

/// The name of the file in psched's state directory.
pub const KEY_FILE: &str = "checkpoint.key";

/// The key in this file; none: there is no file.
///
/// # Errors
/// Others may read or change it, it is no key, or the system refuses.
pub fn load_key(path: &Path) -> Result<Option<SealKey>, Flaw> {
    let shown = path.display();
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd = match open(path, flags | OFlags::CLOEXEC, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Ok(None),
        Err(e) => return Err(system(format!("opening the key {shown}"), e)),
    };
    let refuse = |why: String| Flaw::System { doing: format!("reading the key {shown}"), why };
    let found = fstat(&fd).map_err(|e| refuse(e.to_string()))?;
    let own = rustix::process::geteuid().as_raw();
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile || found.st_nlink != 1 {
        return Err(refuse("it is not a plain file with one name; move it away".into()));
    }
    if found.st_uid != own {
        return Err(refuse(format!(
            "it belongs to user {}, and that user could seal any checkpoint; move it away",
            found.st_uid
        )));
    }
    if found.st_mode & 0o077 != 0 {
        return Err(refuse(format!(
            "other users may read or change it (mode {:04o}), and so seal any checkpoint; \
             remove it: psched makes a new key, which does not accept older checkpoints",
            found.st_mode & 0o7777
        )));
    }
    // One more than it has, and a line's end.
    let mut text = String::new();
    let read = File::from(fd).take(66).read_to_string(&mut text);
    read.map_err(|e| refuse(e.to_string()))?;
    match parse(text.trim_end()) {
        Some(key) => Ok(Some(SealKey(key))),
        None => Err(refuse("it does not have 64 hexadecimal digits; move it away".into())),
    }
}

fn parse(text: &str) -> Option<[u8; 32]> {
    crate::checkpoint::Checksum::parse(text).map(|sum| sum.0)
}

/// The key in this file, which is made if there is none.
///
/// # Errors
/// As [`load_key`], or it can't be written.
pub fn load_or_make_key(path: &Path) -> Result<SealKey, Flaw> {
    if let Some(key) = load_key(path)? {
        return Ok(key);
    }
    let making = |e: std::io::Error| system(format!("making the key {}", path.display()), e);
    let mut key = [0; 32];
    random(&mut key)?;
    let text: String = key.iter().map(|b| format!("{b:02x}")).collect();
    // Beside it, and renamed when it is whole, unless another was first.
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", super::chance()?));
    let write = || -> std::io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let file = open(&*beside, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)?;
        let mut file = File::from(file);
        file.write_all(format!("{text}\n").as_bytes())?;
        file.sync_all()?;
        let here = rustix::fs::CWD;
        match rustix::fs::renameat_with(here, &*beside, here, path, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => std::fs::remove_file(&beside)?,
            other => other?,
        }
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    };
    if let Err(error) = write() {
        let _ = std::fs::remove_file(&beside);
        return Err(making(error));
    }
    load_key(path)?.ok_or_else(|| making(Errno::NOENT.into()))
}
