//! A space of its own for each application on a host: System V IPC, POSIX message queues, /dev/shm,
//! and no service manager of the user's.
//!
//! # The problem
//! Programs that share memory leave it behind when they are killed: segments in /dev/shm, System V
//! segments and semaphores, which hold memory until somebody removes them. And names there are
//! everybody's: two applications may choose the same one.
//!
//! # The approach
//! The shepherd, and so the PEs, which are its children, have an IPC namespace and a mount namespace
//! of their own, in which a fresh tmpfs lies over /dev/shm, and a fresh mqueue over /dev/mqueue if
//! that is mounted. All PEs of the application on this host share them; nobody else sees them; when
//! the last process is gone, the kernel takes the memory back. The host's /dev/shm is not touched.
//!
//! Mounts still come in from the host (propagation `slave`): an automounter's, say, without which a
//! home directory would stay out of reach. None goes out.
//!
//! **Session bus.** A user's service manager starts processes for whoever asks it, and takes processes
//! into its own control groups: out of their application's, its turns and its limits. It is asked at
//! sockets below /run/user. In a space that is made for a user ([`Space::of_user`]) a fresh tmpfs with
//! nothing but an empty folder of his lies over that. Root alone can have it so: in a user namespace
//! the mount could be taken away again.
//!
//! Root makes such namespaces as it likes. An ordinary user may where the kernel gives him a user
//! namespace, in which he is himself ([`Space::prepare`] with `own_user`). There no other id exists:
//! other users' files show as 65534's, set-user-ID programs give no rights, and supplementary
//! groups, although they still open doors, have no number. Whether all this works is tried at the
//! start ([`Space::probe`]): a container, a limit (user.max_ipc_namespaces) or a security module may
//! say no to any part of it.

use std::ffi::{CStr, CString, c_int, c_ulong};
use std::io;

/// Where programs expect shared memory.
const SHM: &CStr = c"/dev/shm";
/// Where the folders are in which users' service managers and session buses listen.
const RUN_USER: &CStr = c"/run/user";
/// The folder that systemd has where it is the init system.
const SYSTEMD: &str = "/run/systemd/system";
/// What the fresh one may hold: files that have a name.
const RUN_USER_OPTIONS: &CStr = c"mode=755,size=16m,nr_inodes=4k";
/// Where message queues are seen, if at all.
const MQUEUE: &CStr = c"/dev/mqueue";

/// What a child was about when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Step {
    /// unshare.
    Namespaces = 1,
    /// uid_map and its like.
    Ids = 2,
    /// Mounts.
    Mounts = 3,
}

impl Step {
    /// From its number.
    pub(super) fn parse(number: u32) -> Option<Step> {
        [Step::Namespaces, Step::Ids, Step::Mounts].into_iter().find(|s| *s as u32 == number)
    }

    /// Why there is no space, in words.
    pub fn explain(self, error: &io::Error) -> String {
        match (self, error.raw_os_error()) {
            (Step::Namespaces, Some(libc::ENOSPC)) => format!(
                "no more namespaces can be made ({error}): raise the sysctls user.max_*_namespaces"
            ),
            (Step::Namespaces, _) => format!("no namespaces can be made ({error})"),
            (Step::Ids, _) => format!("a user namespace takes no ids ({error})"),
            (Step::Mounts, _) => format!("nothing can be mounted in it ({error})"),
        }
    }
}

/// What is needed to make one, laid out before the fork.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Space {
    /// uid_map and gid_map of a user namespace.
    ids: Option<(CString, CString)>,
    /// Flags and options of the tmpfs; `None`: the host has no /dev/shm.
    shm: Option<(c_ulong, CString)>,
    mqueue: bool,
    /// The folder of a user below [`RUN_USER`], and his ids; `None`: the host's is seen.
    run_user: Option<(CString, u32, u32)>,
}

/// What /proc/self/mountinfo says of the mount that is seen at `point`.
struct Mount<'a> {
    flags: &'a str,
    kind: &'a str,
    options: &'a str,
}

fn mount_at<'a>(mountinfo: &'a str, point: &str) -> Option<Mount<'a>> {
    let parse = |line: &'a str| {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(4);
        let found = before.next()? == point;
        let flags = before.next()?;
        let mut after = after.split(' ');
        let mount = Mount { flags, kind: after.next()?, options: after.nth(1)? };
        found.then_some(mount)
    };
    // Of several, one over the other, the last is seen.
    mountinfo.lines().rev().find_map(parse)
}

/// A tmpfs like the host's: as large, and with the same restrictions.
fn like(mount: Option<Mount<'_>>) -> (c_ulong, CString) {
    let mut flags = libc::MS_NOSUID | libc::MS_NODEV;
    let mut options = String::from("mode=1777");
    if let Some(mount) = mount.filter(|mount| mount.kind == "tmpfs") {
        if mount.flags.split(',').any(|flag| flag == "noexec") {
            flags |= libc::MS_NOEXEC;
        }
        let bounds = ["size=", "nr_blocks=", "nr_inodes=", "huge="];
        for option in mount.options.split(',') {
            if bounds.iter().any(|name| option.starts_with(name)) {
                options.push(',');
                options.push_str(option);
            }
        }
    }
    (flags, CString::new(options).unwrap_or_default())
}

impl Space {
    /// As this host has its /dev/shm. `own_user`: within a user namespace.
    pub fn prepare(own_user: bool) -> Space {
        let mountinfo = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let is_there = |path: &CStr| path.to_str().is_ok_and(|p| std::path::Path::new(p).is_dir());
        let map = |id: u32| CString::new(format!("{id} {id} 1")).unwrap_or_default();
        let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
        Space {
            ids: own_user.then(|| (map(uid), map(gid))),
            shm: is_there(SHM).then(|| like(mount_at(&mountinfo, "/dev/shm"))),
            mqueue: mount_at(&mountinfo, "/dev/mqueue").is_some_and(|m| m.kind == "mqueue"),
            run_user: None,
        }
    }

    /// The same for an application of this user's, with a /run/user in which nobody listens; where
    /// there is one, or will be when the first user logs in.
    pub fn of_user(&self, uid: u32, gid: u32) -> Space {
        let path = std::path::Path::new("/run/user");
        if std::path::Path::new(SYSTEMD).is_dir() {
            // An Err: it is there.
            let _ = std::fs::create_dir(path);
        }
        let run_user = (self.ids.is_none() && path.is_dir()).then(|| {
            let own = CString::new(format!("/run/user/{uid}")).unwrap_or_default();
            (own, uid, gid)
        });
        Space { run_user, ..self.clone() }
    }

    /// Whether that takes a user namespace.
    pub fn own_user(&self) -> bool {
        self.ids.is_some()
    }

    /// Whether a user's service manager is out of reach there.
    pub fn hides_user_bus(&self) -> bool {
        self.run_user.is_some()
    }

    /// Tries it in a child.
    ///
    /// # Errors
    /// Why it does not work, in words.
    pub fn probe(&self) -> Result<(), String> {
        let lost = |error: io::Error| format!("isolation can't be tried ({error})");
        let mut outcome = [0; 2];
        let mut pipe: [c_int; 2] = [-1, -1];
        // SAFETY: the pointer is to two ints.
        if unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            return Err(lost(io::Error::last_os_error()));
        }
        // SAFETY: the child makes system calls only and ends by _exit; the parent waits for it, and
        // closes what this function has opened.
        unsafe {
            let pid = libc::fork();
            if pid == 0 {
                if let Err(step) = self.enter() {
                    let words = [step as u32, *libc::__errno_location() as u32];
                    libc::write(pipe[1], words.as_ptr().cast(), size_of_val(&words));
                }
                libc::_exit(0);
            }
            let error = io::Error::last_os_error();
            libc::close(pipe[1]);
            let read = match pid {
                -1 => -1,
                _ => libc::read(pipe[0], outcome.as_mut_ptr().cast(), size_of_val(&outcome)),
            };
            libc::close(pipe[0]);
            let mut status = 0;
            while pid > 0
                && libc::waitpid(pid, &mut status, 0) == -1
                && io::Error::last_os_error().raw_os_error() == Some(libc::EINTR)
            {}
            if pid == -1 {
                return Err(lost(error));
            }
            if read == 0 && libc::WIFEXITED(status) {
                return Ok(());
            }
        }
        let [step, errno]: [u32; 2] = outcome;
        let error = io::Error::from_raw_os_error(errno as i32);
        Err(Step::parse(step).map_or_else(
            || "the process that tried isolation died".into(),
            |step| step.explain(&error),
        ))
    }

    /// Makes it, and goes there; errno says why not.
    ///
    /// # Safety
    /// In a forked child with one thread: only system calls, no allocation.
    pub(super) unsafe fn enter(&self) -> Result<(), Step> {
        let done = |ok: bool, step: Step| if ok { Ok(()) } else { Err(step) };
        let none = std::ptr::null::<libc::c_char>();
        // SAFETY (whole block): system calls by thin wrappers, on memory laid out before the fork.
        unsafe {
            let mut flags = libc::CLONE_NEWIPC | libc::CLONE_NEWNS;
            if self.ids.is_some() {
                flags |= libc::CLONE_NEWUSER;
            }
            done(libc::unshare(flags) == 0, Step::Namespaces)?;
            if let Some((uids, gids)) = &self.ids {
                // An ordinary user may map his group only when he can't change groups any more.
                done(put(c"/proc/self/setgroups", c"deny"), Step::Ids)?;
                done(put(c"/proc/self/uid_map", uids), Step::Ids)?;
                done(put(c"/proc/self/gid_map", gids), Step::Ids)?;
            }
            let flags = libc::MS_REC | libc::MS_SLAVE;
            let kept = libc::mount(none, c"/".as_ptr(), none, flags, none.cast());
            done(kept == 0, Step::Mounts)?;
            if let Some((flags, options)) = &self.shm {
                let kind = c"tmpfs".as_ptr();
                let at = SHM.as_ptr();
                let mounted = libc::mount(kind, at, kind, *flags, options.as_ptr().cast());
                done(mounted == 0, Step::Mounts)?;
            }
            if self.mqueue {
                let kind = c"mqueue".as_ptr();
                let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
                let mounted = libc::mount(kind, MQUEUE.as_ptr(), kind, flags, none.cast());
                done(mounted == 0, Step::Mounts)?;
            }
            if let Some((own, uid, gid)) = &self.run_user {
                let kind = c"tmpfs".as_ptr();
                let flags = libc::MS_NOSUID | libc::MS_NODEV;
                let options = RUN_USER_OPTIONS.as_ptr().cast();
                let mounted = libc::mount(kind, RUN_USER.as_ptr(), kind, flags, options);
                done(mounted == 0, Step::Mounts)?;
                done(libc::mkdir(own.as_ptr(), 0o700) == 0, Step::Mounts)?;
                done(libc::chown(own.as_ptr(), *uid, *gid) == 0, Step::Mounts)?;
            }
        }
        Ok(())
    }
}

/// # Safety
/// In a forked child only.
unsafe fn put(path: &CStr, text: &CStr) -> bool {
    // SAFETY: both end in a zero byte; the descriptor is this function's own.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if fd < 0 {
            return false;
        }
        let length = text.count_bytes();
        let wrote = libc::write(fd, text.as_ptr().cast(), length);
        let errno = *libc::__errno_location();
        libc::close(fd);
        *libc::__errno_location() = errno;
        usize::try_from(wrote).is_ok_and(|wrote| wrote == length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_new_one_is_as_large_as_the_hosts() {
        let mountinfo = "25 24 0:23 / /dev/shm rw,nosuid - tmpfs tmpfs rw,size=5k\n\
             30 25 0:27 / /dev/shm rw,nosuid,noexec shared:4 - tmpfs shm rw,size=64k,huge=always,uid=3\n\
             31 24 0:28 / /dev/mqueue rw - mqueue none rw\n";
        let (flags, options) = like(mount_at(mountinfo, "/dev/shm"));
        assert_eq!(options.as_c_str(), c"mode=1777,size=64k,huge=always");
        assert_eq!(flags, libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC);
        assert_eq!(mount_at(mountinfo, "/dev/mqueue").map(|m| m.kind), Some("mqueue"));
        // A plain directory of a container: the kernel's own bound.
        let (flags, options) = like(None);
        assert_eq!(options.as_c_str(), c"mode=1777");
        assert_eq!(flags, libc::MS_NOSUID | libc::MS_NODEV);
    }

    #[test]
    fn what_does_not_work_is_said() {
        let error = io::Error::from_raw_os_error(libc::ENOSPC);
        assert!(Step::Namespaces.explain(&error).contains("user.max_*_namespaces"));
        // Whatever this machine allows, the answer comes, and the host's /dev/shm is as it was.
        let before = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        let own_user = !nix::unistd::geteuid().is_root();
        let outcome = Space::prepare(own_user).probe();
        assert!(outcome.as_ref().err().is_none_or(|why| !why.is_empty()), "{outcome:?}");
        assert_eq!(std::fs::read_to_string("/proc/self/mountinfo").expect("mounts"), before);
        let nonsense =
            Space { shm: Some((0, c"size=nonsense".into())), ..Space::prepare(own_user) };
        assert!(nonsense.probe().is_err());
    }
}
