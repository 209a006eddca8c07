//! Other users than the one who runs the tests: only root can be them, and none has a passwd entry.

use super::*;

/// One of them.
#[derive(Clone, Copy, Debug)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
    pub groups: &'static [u32],
}

/// Two that have nothing in common.
pub const ANNA: User = User { uid: 61_301, gid: 61_401, groups: &[61_501, 61_502] };
/// See [`ANNA`].
pub const BERT: User = User { uid: 61_302, gid: 61_402, groups: &[61_503] };

/// The commands of psched, where every user may execute them: the build may be where only root may
/// look.
pub struct Bins(tempfile::TempDir);

impl Bins {
    pub fn new() -> Bins {
        let folder = tempfile::Builder::new().prefix("it").tempdir_in("/tmp").expect("made");
        let mode = |m| std::fs::Permissions::from_mode(m);
        std::fs::set_permissions(folder.path(), mode(0o755)).expect("ours");
        let bins = Bins(folder);
        for name in COPIED {
            bins.add(&binaries().join(name));
        }
        bins
    }

    /// Puts another program there.
    pub fn add(&self, program: &Path) -> PathBuf {
        let to = self.path(program.file_name().and_then(OsStr::to_str).expect("text"));
        if std::fs::hard_link(program, &to).is_err() {
            copy_program(program, &to);
        }
        to
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// psched and an apinit of root's for these NIDs, open to all, and the commands; `None`: the test
/// is skipped.
pub fn daemons(test: &str, config: &str, nids: &str) -> Option<(hand::Hand, Bins)> {
    if !is_root() {
        skip(test, "only root can be two users");
        return None;
    }
    let hand = hand::Hand::start(config, &[(nids, None)]);
    hand.open_to_all();
    Some((hand, Bins::new()))
}

impl User {
    /// A command of this user's; `program` is a path that he may execute.
    pub fn command<S: AsRef<OsStr>>(
        &self,
        program: impl AsRef<OsStr>,
        arguments: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut command = Command::new("setpriv");
        let groups: Vec<String> = self.groups.iter().map(u32::to_string).collect();
        command.args(["--reuid", &self.uid.to_string(), "--regid", &self.gid.to_string()]);
        command.args(["--groups", &groups.join(","), "--"]).arg(program).args(arguments);
        command.env_remove("PSCHED_LOG").env_remove("XDG_RUNTIME_DIR");
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.current_dir("/").stdin(Stdio::null());
        command
    }

    /// Does something as this user, on a thread that is his: what it connects to sees him.
    pub fn does<T: Send>(&self, what: impl FnOnce() -> T + Send) -> T {
        use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
        let User { uid, gid, groups } = *self;
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                let groups: Vec<_> =
                    groups.iter().copied().map(rustix::fs::Gid::from_raw).collect();
                let (uid, gid) = (rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid));
                set_thread_groups(&groups).expect("root may");
                set_thread_res_gid(gid, gid, gid).expect("root may");
                set_thread_res_uid(uid, uid, uid).expect("root may");
                what()
            });
            match thread.join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// A folder of this user's, which nobody else may enter.
    pub fn folder(&self) -> tempfile::TempDir {
        let folder = tempfile::Builder::new().prefix("it").tempdir_in("/tmp").expect("made");
        let mode = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(folder.path(), mode).expect("ours");
        std::os::unix::fs::chown(folder.path(), Some(self.uid), Some(self.gid)).expect("given");
        folder
    }
}
