//! The files of a checkpoint as pieces, for a way on which no descriptor can go: to another host and from there.
//!
//! What is read and what is written is the same on both sides: the files come one after the other, each begun by a piece
//! with its name. Where a checkpoint is restored the manifest is the first, so that whoever writes can look at its seal
//! before anything else comes ([`Incoming::expect`]).

use super::{Dir, FOLDER, system};
use crate::checkpoint::{FILES_MAX, Files, Flaw, MANIFEST, MANIFEST_MAX, Manifest, name_fits};
use rustix::fs::{Mode, OFlags, openat};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};

/// Bytes of a piece, at most.
pub const PIECE_MAX: usize = 64 * 1024;
/// Bytes of a file after which it is put on disk: whoever sends it waits for a piece only so long.
const SYNC_EACH: u64 = 32 << 20;

impl Dir {
    /// Reads all files of it, in pieces: `each` gets the name with the first piece of a file, and says whether there is to
    /// be more. The manifest comes first.
    ///
    /// # Errors
    /// A file can't be of a checkpoint, or the system refuses.
    pub fn pieces(&self, each: &mut dyn FnMut(&str, &[u8]) -> bool) -> Result<(), Flaw> {
        let mut names = self.names()?;
        names.sort_by_key(|name| (name != MANIFEST, name.clone()));
        let mut piece = vec![0; PIECE_MAX];
        for name in &names {
            let mut file = self.plain(name)?;
            let mut shown = &name[..];
            loop {
                let read = match file.read(&mut piece) {
                    Ok(read) => read,
                    Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                    Err(e) => return Err(system(format!("reading {name}"), e)),
                };
                // (An empty file has a piece too.)
                if (read > 0 || !shown.is_empty()) && !each(shown, &piece[..read]) {
                    return Ok(());
                }
                shown = "";
                if read == 0 {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// A folder into which such pieces are written, in which they are not yet.
#[derive(Debug)]
pub struct Incoming {
    dir: Dir,
    /// The file of the last piece.
    now: Option<Now>,
    files: usize,
    /// What is still to come, once that is known: the size of each.
    expected: Option<BTreeMap<String, u64>>,
    synced: bool,
}

/// The file that comes.
#[derive(Debug)]
struct Now {
    name: String,
    file: File,
    /// Bytes that it may still have.
    left: u64,
    /// Bytes since it was put on disk.
    unsynced: u64,
}

impl Incoming {
    /// Writes into this folder. `synced`: each file is put on disk.
    pub fn new(dir: Dir, synced: bool) -> Incoming {
        Incoming { dir, now: None, files: 0, expected: None, synced }
    }

    /// The folder.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// The first file, which is the manifest, has come: from now on there may be nothing but its files.
    pub fn expect(&mut self, manifest: &Manifest) {
        let sizes = manifest.files.iter().map(|file| (file.name.clone(), file.size));
        self.expected = Some(sizes.collect());
    }

    /// Writes a piece; with a name it begins a file.
    ///
    /// # Errors
    /// It is no piece of a file of a checkpoint, there is more than there may be, or the system refuses.
    pub fn take(&mut self, name: &str, data: &[u8]) -> Result<(), Flaw> {
        if !name.is_empty() {
            self.close()?;
            self.now = Some(self.begin(name)?);
        }
        if data.len() > PIECE_MAX {
            let text = format!("comes in pieces of at most {PIECE_MAX} bytes");
            return Err(Flaw::Unfit(text));
        }
        let now =
            self.now.as_mut().ok_or_else(|| Flaw::Unfit("has a name for each file".into()))?;
        now.left = now.left.checked_sub(data.len() as u64).ok_or_else(|| {
            Flaw::Unfit(format!(
                "has files of the sizes in its manifest, and {} has more",
                now.name
            ))
        })?;
        let writing = |e| system(format!("writing {}", now.name), e);
        now.file.write_all(data).map_err(writing)?;
        now.unsynced += data.len() as u64;
        if self.synced && now.unsynced >= SYNC_EACH {
            now.unsynced = 0;
            now.file.sync_data().map_err(writing)?;
        }
        Ok(())
    }

    /// How many files have come.
    pub fn files(&self) -> usize {
        self.files
    }

    fn begin(&mut self, name: &str) -> Result<Now, Flaw> {
        let strange = || Flaw::Unfit(format!("can't have a file named {name:?}"));
        let left = match (&mut self.expected, name == MANIFEST) {
            (Some(expected), _) => expected.remove(name).ok_or_else(strange)?,
            (None, true) => MANIFEST_MAX as u64,
            (None, false) if name_fits(name) => u64::MAX,
            (None, false) => return Err(strange()),
        };
        self.files += 1;
        if self.files > FILES_MAX + 1 {
            return Err(Flaw::Unfit(format!("has at most {FILES_MAX} files, and there are more")));
        }
        let writing = |e: std::io::Error| system(format!("writing {name}"), e);
        let (folder, last) = match name.split_once('/') {
            Some((folder, last)) => (Some(self.dir.folder(folder)?), last),
            None => (None, name),
        };
        let create = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let (flags, mode) = (create | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
        let file = match &folder {
            Some(folder) => openat(folder, last, flags, mode),
            None => openat(&self.dir, last, flags, mode),
        };
        let file = File::from(file.map_err(|e| writing(e.into()))?);
        Ok(Now { name: name.to_owned(), file, left, unsynced: 0 })
    }

    /// The last file has come.
    ///
    /// # Errors
    /// The system refuses.
    pub fn close(&mut self) -> Result<(), Flaw> {
        let Some(now) = self.now.take().filter(|_| self.synced) else { return Ok(()) };
        now.file.sync_all().map_err(|e| system(format!("keeping {}", now.name), e))
    }

    /// All files have come.
    ///
    /// # Errors
    /// Some are missing, or the system refuses.
    pub fn done(mut self) -> Result<(), Flaw> {
        self.close()?;
        if let Some((name, _)) = self.expected.as_ref().and_then(BTreeMap::first_key_value) {
            return Err(Flaw::Missing { file: name.clone() });
        }
        if !self.synced {
            return Ok(());
        }
        let mut folders: Vec<String> = self.dir.names()?;
        folders.retain(|name| name.contains('/'));
        folders.iter_mut().for_each(|name| name.truncate(name.find('/').unwrap_or(0)));
        folders.dedup();
        for name in folders {
            let keeping = |e: rustix::io::Errno| system(format!("keeping {name}"), e);
            let folder = openat(&self.dir, &*name, FOLDER, Mode::empty()).map_err(keeping)?;
            rustix::fs::fsync(&folder).map_err(keeping)?;
        }
        self.dir.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::{Checksum, Image, example};
    use std::fs;
    use std::path::Path;

    fn dir(path: &Path) -> Dir {
        Dir::new(fs::File::open(path).expect("opened").into()).expect("a folder")
    }

    fn all(path: &Path) -> Vec<(String, Vec<u8>)> {
        let mut names = dir(path).names().expect("readable");
        names.sort();
        let read = |name: String| {
            let data = fs::read(path.join(&name)).expect("there");
            (name, data)
        };
        names.into_iter().map(read).collect()
    }

    /// What comes out of one folder is, put into another, the same.
    #[test]
    fn pieces_of_a_folder_make_the_same_folder() {
        let (from, to) = (tempfile::tempdir().expect("made"), tempfile::tempdir().expect("made"));
        fs::create_dir(from.path().join("host-0")).expect("made");
        let large: Vec<u8> = (0..3 * PIECE_MAX + 7).map(|n| (n % 251) as u8).collect();
        for (name, data) in
            [("host-0/pages-1.img", &large[..]), ("host-0/empty.img", b""), (MANIFEST, b"{}")]
        {
            fs::write(from.path().join(name), data).expect("written");
        }
        let mut incoming = Incoming::new(dir(to.path()), true);
        let mut first = None;
        let taken = dir(from.path()).pieces(&mut |name, data| {
            first.get_or_insert(name.to_owned());
            assert!(data.len() <= PIECE_MAX);
            incoming.take(name, data).expect("taken");
            true
        });
        taken.expect("read");
        assert_eq!((first.as_deref(), incoming.files()), (Some(MANIFEST), 3));
        incoming.done().expect("kept");
        assert_eq!(all(from.path()), all(to.path()));
    }

    /// Whoever sends has no say in where it goes, nor in how much of it there is.
    #[test]
    fn what_no_checkpoint_has_is_not_written() {
        let to = tempfile::tempdir().expect("made");
        let mut incoming = Incoming::new(dir(to.path()), false);
        for name in ["../x", "/x", "a/b/c", ".", "a/..", "manifest.json/x", "x\0"] {
            let flaw = incoming.take(name, b"x").expect_err(name).to_string();
            assert!(flaw.contains("can't have a file named"), "{flaw}");
        }
        assert!(incoming.take("", b"x").is_err(), "without a name");
        let file = |name: &str, size| Image { name: name.into(), size, sum: Checksum::of(b"") };
        let files = vec![file("host-0/a.img", 3), file("host-0/b.img", 0)];
        let manifest = Manifest { files, ..example() };
        incoming.take(MANIFEST, b"{}").expect("the first");
        incoming.expect(&manifest);
        assert!(incoming.take("host-0/c.img", b"").is_err(), "another");
        incoming.take("host-0/a.img", b"ab").expect("some");
        incoming.take("", b"c").expect("the rest");
        assert!(incoming.take("", b"d").expect_err("more").to_string().contains("has more"));
        assert!(incoming.take("host-0/a.img", b"").is_err(), "twice");
        assert_eq!(incoming.done(), Err(Flaw::Missing { file: "host-0/b.img".into() }));
        // No link leads elsewhere.
        let (elsewhere, to) =
            (tempfile::tempdir().expect("made"), tempfile::tempdir().expect("made"));
        std::os::unix::fs::symlink(elsewhere.path(), to.path().join("host-0")).expect("made");
        let mut incoming = Incoming::new(dir(to.path()), false);
        assert!(incoming.take("host-0/a.img", b"x").is_err());
        assert_eq!(fs::read_dir(elsewhere.path()).expect("there").count(), 0);
    }
}
