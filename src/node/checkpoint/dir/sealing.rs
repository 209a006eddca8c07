//! Making a checkpoint of what has been written into a folder.

use super::each::at_once;
use super::{Dir, FOLDER, open_plain, pour, system};
use crate::checkpoint::{Files, Flaw, Image, MANIFEST, Manifest, SealKey, Summing, name_fits};
use rustix::fs::{Gid, Mode, OFlags, Uid, mkdirat, openat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What a file of a checkpoint may be used for: its user reads it, and may remove it.
const FILE: Mode = Mode::RUSR.union(Mode::WUSR);

impl Dir {
    /// A folder in it, made if it is not there: each host's images are in one of their own.
    ///
    /// # Errors
    /// The name is none for a file of a checkpoint, or it can't be made.
    pub fn folder(&self, name: &str) -> Result<OwnedFd, Flaw> {
        if !name_fits(name) || name.contains('/') {
            return Err(Flaw::Unfit(format!("can't have a folder named {name:?}")));
        }
        let doing = |e: Errno| system(format!("making a folder {name}"), e);
        match mkdirat(self, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(doing(e)),
        }
        openat(self, name, FOLDER, Mode::empty()).map_err(doing)
    }

    /// Makes a checkpoint of what has been written: lists every file in the manifest, whose own list does
    /// not count, with its size and checksum, seals it, and puts all of it on disk. The files are given to
    /// their user, uid and gid, if that is another one: the folder itself last of all.
    ///
    /// # Errors
    /// Something there can't be of a checkpoint, or the system refuses.
    pub fn seal(
        &self,
        manifest: Manifest,
        key: &SealKey,
        user: Option<(u32, u32)>,
    ) -> Result<Manifest, Flaw> {
        let files = self.images(user)?;
        self.seal_with(files, manifest, key, user)
    }

    /// The same of what is in another folder, which nobody else can enter or change: it is copied
    /// here, and what is summed up is what is read there. Whatever this folder's file system gives
    /// back later, only that is what was sealed.
    ///
    /// # Errors
    /// As of [`Dir::seal`].
    pub fn seal_copies(
        &self,
        from: &Dir,
        manifest: Manifest,
        key: &SealKey,
        user: Option<(u32, u32)>,
    ) -> Result<Manifest, Flaw> {
        let files = self.copies(from, user)?;
        self.seal_with(files, manifest, key, user)
    }

    fn seal_with(
        &self,
        files: Vec<Image>,
        manifest: Manifest,
        key: &SealKey,
        user: Option<(u32, u32)>,
    ) -> Result<Manifest, Flaw> {
        let manifest = Manifest { files, ..manifest };
        let text = manifest.seal(key)?;
        let mut rest = vec![(MANIFEST, OwnedFd::from(self.put_manifest(&text)?), FILE)];
        for name in manifest.folders() {
            rest.push((name, self.folder(name)?, Mode::RWXU));
        }
        for (name, fd, mode) in &rest {
            give(fd.as_fd(), *mode, user).map_err(|e| keeping(name, e))?;
        }
        at_once(&rest, |(name, fd, _)| rustix::fs::fsync(fd).map_err(|e| keeping(name, e)))?;
        give(self.as_fd(), Mode::RWXU, user)
            .and_then(|()| rustix::fs::fsync(self))
            .map_err(|e| system("keeping the folder", e))?;
        Ok(manifest)
    }

    /// The same of a part, which has the whole folder, and that is to be one of this name in the folder of the
    /// checkpoint: its files by their names there. There is no manifest before that of all parts.
    ///
    /// # Errors
    /// As of the whole.
    pub fn seal_part(
        &self,
        from: &Dir,
        folder: &str,
        user: Option<(u32, u32)>,
    ) -> Result<Vec<Image>, Flaw> {
        let mut files = self.copies(from, user)?;
        give(self.as_fd(), Mode::RWXU, user)
            .and_then(|()| rustix::fs::fsync(self))
            .map_err(|e| keeping(folder, e))?;
        for file in &mut files {
            file.name = format!("{folder}/{}", file.name);
        }
        match files.iter().find(|file| !name_fits(&file.name)) {
            Some(file) => Err(Flaw::Unfit(format!("can't have a file named {:?}", file.name))),
            None => Ok(files),
        }
    }

    /// All files in it, in order of their names, given to their user and on disk.
    fn images(&self, user: Option<(u32, u32)>) -> Result<Vec<Image>, Flaw> {
        let mut names = self.names()?;
        names.sort();
        if let Some(name) = names.iter().find(|name| !name_fits(name)) {
            return Err(Flaw::Unfit(format!("can't have a file named {name:?}")));
        }
        // Before the first is put on disk: whose they are goes there with it, all at once. In between, each
        // would have the disk wait for itself. (Nobody else can enter the folder in which they are.)
        for name in &names {
            let file = self.plain(name)?;
            give(file.as_fd(), FILE, user).map_err(|e| keeping(name, e))?;
        }
        at_once(&names, |name| self.kept(name))
    }

    /// Copies all files of another folder, and puts the copies on disk, given to their user: what
    /// was read there, in order of the names.
    fn copies(&self, from: &Dir, user: Option<(u32, u32)>) -> Result<Vec<Image>, Flaw> {
        let mut names = from.names()?;
        names.sort();
        for name in &names {
            if !name_fits(name) {
                return Err(Flaw::Unfit(format!("can't have a file named {name:?}")));
            }
            if let Some((folder, _)) = name.split_once('/') {
                self.folder(folder)?;
            }
        }
        let create = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        at_once(&names, |name| {
            let writing = |e: std::io::Error| system(format!("writing {name}"), e);
            let source = from.plain(name)?;
            // (Whatever is above it has just been made, in a folder that is ours.)
            let to = openat(self, name, create | OFlags::CLOEXEC, FILE);
            let mut to = File::from(to.map_err(|e| writing(e.into()))?);
            let (mut sum, mut written) = (Summing::default(), Ok(()));
            let size = pour(source, name, &mut |piece| {
                sum.add(piece);
                if written.is_ok() {
                    written = to.write_all(piece);
                }
            })?;
            written.map_err(writing)?;
            give(to.as_fd(), FILE, user).map_err(|e| keeping(name, e))?;
            rustix::fs::fsync(&to).map_err(|e| keeping(name, e))?;
            Ok(Image { name: name.clone(), size, sum: sum.done() })
        })
    }

    /// Puts the folder itself on disk, for who has written the manifest and not the rest.
    ///
    /// # Errors
    /// The system refuses.
    pub fn sync(&self) -> Result<(), Flaw> {
        rustix::fs::fsync(self).map_err(|e| system("keeping the folder", e))
    }

    /// A file of it, for reading.
    pub(super) fn plain(&self, name: &str) -> Result<File, Flaw> {
        let there = self.place(name)?;
        let opened = there.map(|(folder, file)| open_plain(folder.as_fd(), file, name));
        opened.transpose()?.flatten().ok_or_else(|| Flaw::Missing { file: name.to_owned() })
    }

    /// Puts one on disk: what the manifest has of it.
    fn kept(&self, name: &str) -> Result<Image, Flaw> {
        let mut file = self.plain(name)?;
        let (mut size, mut sum) = (0, Summing::default());
        let mut piece = vec![0; super::PIECE];
        loop {
            match file.read(&mut piece) {
                Ok(0) => break,
                Ok(n) => {
                    size += n as u64;
                    sum.add(&piece[..n]);
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(system(format!("reading {name}"), e)),
            }
        }
        rustix::fs::fsync(&file).map_err(|e| keeping(name, e))?;
        Ok(Image { name: name.to_owned(), size, sum: sum.done() })
    }

    /// Writes a manifest into it, of which it has the files, and puts it on disk.
    ///
    /// # Errors
    /// There is one, or the system refuses.
    pub fn write_manifest(&self, text: &str) -> Result<(), Flaw> {
        let file = self.put_manifest(text)?;
        file.sync_all().map_err(|e| system(format!("writing {MANIFEST}"), e))
    }

    fn put_manifest(&self, text: &str) -> Result<File, Flaw> {
        let doing = |e: std::io::Error| system(format!("writing {MANIFEST}"), e);
        let create = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let file = openat(self, MANIFEST, create | OFlags::CLOEXEC, FILE);
        let mut file = File::from(file.map_err(|e| doing(e.into()))?);
        file.write_all(text.as_bytes()).map_err(doing)?;
        Ok(file)
    }
}

fn keeping(name: &str, error: Errno) -> Flaw {
    system(format!("keeping {name}"), error)
}

/// Makes it its user's.
fn give(fd: BorrowedFd<'_>, mode: Mode, user: Option<(u32, u32)>) -> Result<(), Errno> {
    rustix::fs::fchmod(fd, mode)?;
    match user {
        Some((uid, gid)) => {
            rustix::fs::fchown(fd, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
        }
        None => Ok(()),
    }
}
