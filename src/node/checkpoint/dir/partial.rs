//! A checkpoint while it is written.

use super::remove::{partial_name, removable, remove_listed};
use super::{Dir, FOLDER, Spot, entries, stat, system};
use crate::checkpoint::Flaw;
use rustix::fs::{Mode, RenameFlags, mkdirat, openat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd};

/// A folder beside a checkpoint that is to be, locked by who writes it. Dropped, it is removed.
///
/// ```no_run
/// # use psched::checkpoint::*;
/// # use psched::node::checkpoint::dir::*;
/// # use std::os::fd::AsFd;
/// # fn images(_: std::os::fd::BorrowedFd) {}
/// # fn main() -> Result<(), Flaw> {
/// # let (manifest, key, force) = (example(), SealKey([0; 32]), false);
/// let spot = Spot::of("work/tonight".as_ref())?;
/// let partial = Partial::create(spot)?;
/// images(partial.dir().folder("host-0")?.as_fd());     // the back end writes its files
/// partial.dir().seal(manifest, &key, Some((1000, 100)))?;
/// partial.publish(force)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Partial {
    spot: Spot,
    name: OsString,
    dir: Dir,
    kept: bool,
}

impl Partial {
    /// An empty one, which only this user may enter.
    ///
    /// # Errors
    /// It can't be made.
    pub fn create(spot: Spot) -> Result<Partial, Flaw> {
        let name = partial_name(&spot.name)?;
        let doing = || format!("making a folder beside {}", spot.shown());
        mkdirat(&spot.parent, &name, Mode::RWXU).map_err(|e| system(doing(), e))?;
        let opened = openat(&spot.parent, &name, FOLDER, Mode::empty());
        let dir = opened.map_err(|e| system(doing(), e)).and_then(Dir::new);
        let dir = match dir {
            Ok(dir) => dir,
            Err(flaw) => {
                let _ = rustix::fs::unlinkat(&spot.parent, &name, rustix::fs::AtFlags::REMOVEDIR);
                return Err(flaw);
            }
        };
        // Another folder that its user has put there meanwhile is not written to, nor removed.
        let ours = dir.uid() == rustix::process::geteuid().as_raw();
        if !ours || !entries(dir.as_fd())?.is_empty() {
            return Err(system(doing(), Errno::EXIST));
        }
        rustix::fs::fchmod(&dir, Mode::RWXU).map_err(|e| system(doing(), e))?;
        // Where there are no locks a leftover can't be told from one that is written; as it is there.
        let _ = dir.hold();
        Ok(Partial { spot, name, dir, kept: false })
    }

    /// Gives it its name, as [`publish`].
    ///
    /// # Errors
    /// As there; it is removed then.
    pub fn publish(mut self, force: bool) -> Result<(), Flaw> {
        publish(&self.spot, &self.name, force)?;
        self.kept = true;
        Ok(())
    }

    /// The folder itself.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// Leaves it to another process, its user's, to publish it by this name.
    pub fn leave(mut self) -> OsString {
        self.kept = true;
        std::mem::take(&mut self.name)
    }
}

impl AsFd for Partial {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.kept {
            let _ = super::remove::empty(&self.dir);
            let flag = rustix::fs::AtFlags::REMOVEDIR;
            let _ = rustix::fs::unlinkat(&self.spot.parent, &self.name, flag);
        }
    }
}

/// Something has the name.
fn taken(shown: &str) -> Flaw {
    Flaw::Unfit(format!(
        "needs a name that is not in use, and {shown} exists; -f replaces an older checkpoint"
    ))
}

impl Spot {
    /// Whether a checkpoint can be given this name now, as [`publish`] will look at it again.
    ///
    /// # Errors
    /// Something has it.
    pub fn free(&self, force: bool) -> Result<(), Flaw> {
        let shown = self.shown();
        match self.open()? {
            None => Ok(()),
            Some(_) if !force => Err(taken(&shown)),
            Some(older) => {
                removable(&older, &shown).map(|_| ()).map_err(|flaw| replaces(&shown, &flaw))
            }
        }
    }
}

/// What has the name is no checkpoint that may go.
fn replaces(shown: &str, flaw: &Flaw) -> Flaw {
    Flaw::Unfit(format!(
        "replaces only a checkpoint that can be removed, and {shown} can't: {flaw}"
    ))
}

/// Gives a sealed one beside a spot the name that it is to have. With `force` it takes the place of a
/// checkpoint, which is then removed; what is no checkpoint is not replaced.
///
/// Best called as the user: to whom the folder above belongs he can do no harm there.
///
/// # Errors
/// Something has the name already, or the system refuses.
pub fn publish(spot: &Spot, partial: &OsStr, force: bool) -> Result<(), Flaw> {
    let shown = spot.shown();
    let failed = |e: Errno| system(format!("renaming the checkpoint to {shown}"), e);
    let rename =
        |flags| rustix::fs::renameat_with(&spot.parent, partial, &spot.parent, &spot.name, flags);
    let synced = || rustix::fs::fsync(&spot.parent).map_err(failed);
    let done = match rename(RenameFlags::NOREPLACE) {
        // A file system that knows no flags: a folder replaces no other that has something in it.
        Err(Errno::INVAL) if stat(spot.parent(), &*spot.name)?.is_none() => {
            rename(RenameFlags::empty())
        }
        Err(Errno::INVAL) => Err(Errno::EXIST),
        other => other,
    };
    match done {
        Ok(()) => return synced(),
        Err(Errno::EXIST) if force => {}
        Err(Errno::EXIST) => {
            return Err(taken(&shown));
        }
        Err(e) => return Err(failed(e)),
    }
    let older = spot.open()?.ok_or_else(|| failed(Errno::NOENT))?;
    let manifest = removable(&older, &shown).map_err(|flaw| replaces(&shown, &flaw))?;
    match rename(RenameFlags::EXCHANGE) {
        Ok(()) => synced()?,
        Err(Errno::INVAL) => {
            return Err(Flaw::Unfit(format!(
                "can't take another's place on this file system; remove that first: cpr -D {shown}"
            )));
        }
        Err(e) => return Err(failed(e)),
    }
    // What had the name has the partial one now.
    remove_listed(spot, partial, &older, &manifest)
}
