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
pub struct Lent {
    dir: Dir,
    user: (u32, u32),
    kept: bool,
}

impl Lent {
    /// Borrows it from this user, uid and gid, who has passed the descriptor.
    ///
    /// # Errors
    /// It is not his, it is not empty, or the system refuses.
    pub fn new(fd: OwnedFd, user: (u32, u32)) -> Result<Lent, Flaw> {
        let dir = Dir::new(fd)?;
        if dir.uid() != user.0 {
            let text =
                format!("is made in a folder of one's own, and this is user {}'s", dir.uid());
            return Err(Flaw::Unfit(text));
        }
        let own = rustix::process::geteuid();
        let taking = |e| system("taking the folder of the checkpoint", e);
        let lent = Lent { dir, user, kept: false };
        fchown(&lent.dir, Some(own), None).map_err(taking)?;
        fchmod(&lent.dir, Mode::RWXU).map_err(taking)?;
        // From here on nobody puts anything into it.
        match entries(lent.dir.as_fd())?.first() {
            None => Ok(lent),
            Some((name, _)) => {
                // What is there is not ours to remove.
                lent.give_back();
                Err(Flaw::Unfit(format!("is made in an empty folder, and {name} is there")))
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

impl Drop for Lent {
    fn drop(&mut self) {
        if !self.kept {
            let _ = super::remove::empty(&self.dir);
            self.hand();
        }
    }
}
