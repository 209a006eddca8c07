//! A user's folder, while root writes a checkpoint into it.

use super::{Dir, entries, system};
use crate::checkpoint::Flaw;
use rustix::fs::{Gid, Mode, Uid, fchmod, fchown};
use std::os::fd::{AsFd, OwnedFd};

/// A folder that its user has made, empty, and that is root's until this is dropped: nobody else can look
/// into it or change anything. Then it is the user's again, with nothing in it, unless it was [sealed].
///
/// [sealed]: Dir::seal
#[derive(Debug)]
pub struct BorrowedDir {
    dir: Dir,
    user: (u32, u32),
    kept: bool,
}

impl BorrowedDir {
    /// Borrows it from this user, uid and gid, who has passed the descriptor. One in which something is, is
    /// left as it is: it is not taken for a moment either, in which its user could not enter it.
    ///
    /// # Errors
    /// It is not his, it is not empty, or the system refuses.
    pub fn new(fd: OwnedFd, user: (u32, u32)) -> Result<BorrowedDir, Flaw> {
        let dir = Dir::new(fd)?;
        if dir.uid() != user.0 {
            let text = format!(
                "is made in a folder of its user, and this one belongs to user {}",
                dir.uid()
            );
            return Err(Flaw::Unfit(text));
        }
        let full =
            |name: &str| Flaw::Unfit(format!("is made in an empty folder, and {name} is there"));
        if let Some((name, _)) = entries(dir.as_fd())?.first() {
            return Err(full(name));
        }
        let own = rustix::process::geteuid();
        let taking = |e| system("taking the folder of the checkpoint", e);
        let lent = BorrowedDir { dir, user, kept: false };
        fchown(&lent.dir, Some(own), None).map_err(taking)?;
        fchmod(&lent.dir, Mode::RWXU).map_err(taking)?;
        // From here on nobody puts anything into it; until here somebody may have.
        match entries(lent.dir.as_fd())?.first() {
            None => Ok(lent),
            Some((name, _)) => {
                let flaw = full(name);
                // What is there is not ours to remove.
                lent.give_back();
                Err(flaw)
            }
        }
    }

    /// The folder.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// It is a checkpoint, and its user's already.
    pub fn keep(mut self) {
        self.kept = true;
    }

    fn give_back(mut self) {
        self.kept = true;
        self.hand();
    }

    fn hand(&self) {
        let (uid, gid) = (Uid::from_raw(self.user.0), Gid::from_raw(self.user.1));
        if let Err(error) = fchown(&self.dir, Some(uid), Some(gid)) {
            tracing::warn!(%error, "the folder of a checkpoint stays root's");
        }
    }
}

impl Drop for BorrowedDir {
    fn drop(&mut self) {
        if !self.kept {
            let _ = super::remove::empty(&self.dir);
            self.hand();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    const ANNA: (u32, u32) = (61_301, 61_401);

    /// Whose it is, how closed, and when that was changed last.
    fn owner(folder: &Path) -> (u32, u32, (i64, i64)) {
        let found = fs::metadata(folder).expect("there");
        (found.uid(), found.mode() & 0o7777, (found.ctime(), found.ctime_nsec()))
    }

    fn lent(folder: &Path, user: (u32, u32)) -> Result<BorrowedDir, Flaw> {
        BorrowedDir::new(File::open(folder).expect("opened").into(), user)
    }

    #[test]
    fn it_is_given_back_empty_unless_it_is_kept() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().expect("made");
        std::os::unix::fs::chown(folder.path(), Some(ANNA.0), Some(ANNA.1)).expect("root may");
        for keeps in [false, true] {
            let mine = lent(folder.path(), ANNA).expect("hers, and empty");
            assert_eq!((owner(folder.path()).0, owner(folder.path()).1), (0, 0o700));
            fs::write(folder.path().join("image"), "").expect("ours");
            match keeps {
                true => mine.keep(),
                false => drop(mine),
            }
            assert_eq!(folder.path().join("image").exists(), keeps);
            // Whoever keeps it has sealed it, by which it is hers again.
            assert_eq!(owner(folder.path()).0, if keeps { 0 } else { ANNA.0 });
        }
    }

    #[test]
    fn what_is_anothers_or_not_empty_is_not_touched() {
        let folder = tempfile::tempdir().expect("made");
        let own = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        let before = owner(folder.path());
        let said = lent(folder.path(), (own + 1, gid)).expect_err("not his").to_string();
        assert!(said.contains(&format!("this one belongs to user {own}")), "{said}");
        fs::write(folder.path().join("notes"), "mine").expect("written");
        let said = lent(folder.path(), (own, gid)).expect_err("not empty").to_string();
        assert!(said.contains("an empty folder, and notes is there"), "{said}");
        assert_eq!(owner(folder.path()).1, before.1);
        assert!(folder.path().join("notes").exists());
        // Not even for a moment: that would be a change.
        let changed = owner(folder.path());
        lent(folder.path(), (own, gid)).expect_err("not empty");
        assert_eq!(owner(folder.path()), changed);
    }
}
