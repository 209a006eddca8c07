//! The runtime directory: what an apinit that is started again has to know.

use super::obeyed::Obeyed;
use crate::apteam::Key;
use crate::apteam::protocol::node::PlaceCommand;
use crate::apteam::protocol::turns::SlicePlan;
use crate::os::instance::RUNTIMES;
use crate::os::peer::{open_process, process_started};
use crate::os::pmix_folder;
use crate::rpc::pb;
use anyhow::Context;
use prost::Message;
use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The directory of all applications of this apinit. It is closed to everybody else.
#[derive(Debug)]
pub(super) struct Runtime {
    path: PathBuf,
    /// Which psched is obeyed.
    pub obeyed: Obeyed,
}

/// A process by pid and start time: together they name it for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Process {
    pub pid: i32,
    pub started: u64,
}

impl Process {
    /// The process that has this pid now.
    pub fn now(pid: i32) -> Process {
        Process { pid, started: process_started(pid).unwrap_or(0) }
    }

    fn line(self) -> String {
        format!("{} {}", self.pid, self.started)
    }

    fn parse(text: &str) -> Option<Process> {
        let (pid, started) = text.split_once(' ')?;
        Some(Process { pid: pid.parse().ok()?, started: started.parse().ok()? })
    }

    /// A descriptor of it; `None`: it has ended.
    ///
    /// # Errors
    /// It may live: no descriptors are left, say.
    pub fn open(self) -> io::Result<Option<OwnedFd>> {
        open_process(self.pid, self.started)
    }

    /// The process, opened, if it lives. An error that leaves this unknown goes to the log, and gives none.
    pub fn opened(self) -> Option<OwnedFd> {
        let failed = |error: &io::Error| {
            tracing::warn!(pid = self.pid, %error, "can't open a process");
        };
        self.open().inspect_err(failed).ok().flatten()
    }
}

/// The directory of one application.
#[derive(Clone, Debug)]
pub(super) struct AppDirectory {
    path: PathBuf,
}

/// Replaces a file as a whole.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let written = fs::write(&new, bytes).and_then(|()| fs::rename(&new, path));
    // (What is left of an attempt takes room on a full disk.)
    written.inspect_err(|_| drop(fs::remove_file(&new)))
}

/// What the names of folders begin with in which images are made.
const STAGE: &str = "dump-";

/// An empty folder, opened, which is apinit's alone. What was there is removed.
pub(super) fn fresh_folder(path: &Path) -> io::Result<OwnedFd> {
    let _ = fs::remove_dir_all(path);
    DirBuilder::new().mode(0o700).create(path)?;
    fs::File::open(path).map(OwnedFd::from)
}

impl Runtime {
    /// Opens it, or makes it.
    pub fn open(path: PathBuf) -> anyhow::Result<Runtime> {
        let made = DirBuilder::new().mode(0o700).create(&path);
        if let Err(error) = made
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(error)
                .with_context(|| format!("can't make the directory {}", path.display()));
        }
        // What is in there is believed, so it must be ours alone.
        let found = fs::symlink_metadata(&path)?;
        let own = nix::unistd::geteuid().as_raw();
        anyhow::ensure!(
            found.is_dir() && found.uid() == own,
            "{} is not a directory of user {own}: remove it, or use another directory for \
             psched's socket",
            path.display()
        );
        fs::set_permissions(&path, Permissions::from_mode(0o700))?;
        Ok(Runtime::at(path))
    }

    fn at(path: PathBuf) -> Runtime {
        Runtime { obeyed: Obeyed::new(path.clone()), path }
    }

    /// Keeps the processors by which nodes are counted.
    pub fn keep_cpus(&self, cpus: &[u32]) {
        let text = cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        if let Err(error) = write_whole(&self.path.join("cpus"), text.as_bytes()) {
            tracing::warn!(%error, "can't write which processors are used");
        }
    }

    pub fn cpus(&self) -> Option<Vec<u32>> {
        let text = fs::read_to_string(self.path.join("cpus")).ok()?;
        text.split(',').map(|cpu| cpu.parse().ok()).collect()
    }

    /// Keeps the slice plans that are held, with times of this host's clock.
    pub fn keep_plans(&self, plans: Vec<SlicePlan>) {
        let mut bytes = Vec::new();
        for plan in plans {
            // Err: the buffer has no room, and this one grows.
            let _ = pb::SlicePlan::from(plan).encode_length_delimited(&mut bytes);
        }
        if let Err(error) = write_whole(&self.path.join("plans"), &bytes) {
            tracing::warn!(%error, "can't write the slice plans");
        }
    }

    pub fn plans(&self) -> Vec<SlicePlan> {
        let bytes = fs::read(self.path.join("plans")).unwrap_or_default();
        let mut rest = &*bytes;
        let next = || {
            let plan = pb::SlicePlan::decode_length_delimited(&mut rest).ok()?;
            SlicePlan::try_from(plan).ok()
        };
        match bytes.is_empty() {
            true => Vec::new(),
            false => std::iter::from_fn(next).collect(),
        }
    }

    /// The applications that have a directory.
    pub fn applications(&self) -> Vec<(Key, AppDirectory)> {
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let mut found: Vec<(Key, AppDirectory)> = entries
            .filter_map(|e| Some((Key::parse(e.file_name().to_str()?)?, e.path())))
            .map(|(key, path)| (key, AppDirectory { path }))
            .collect();
        found.sort_by_key(|(key, _)| *key);
        found
    }

    /// The groups on record of the applications of all apinits of this host that listen beside this
    /// one: an application that was moved from one's nodes to another's keeps its groups' names.
    pub fn groups_on_record(&self) -> BTreeSet<PathBuf> {
        let beside = self.path.parent().and_then(|above| fs::read_dir(above).ok());
        let folders = beside.into_iter().flatten().flatten();
        let runtimes =
            folders.filter(|e| e.file_name().as_encoded_bytes().starts_with(RUNTIMES.as_bytes()));
        let applications = runtimes.flat_map(|e| Runtime::at(e.path()).applications());
        applications.filter_map(|(_, directory)| directory.groups()).collect()
    }

    /// An application's directory, new.
    pub fn make(&self, key: Key) -> io::Result<AppDirectory> {
        let path = self.path.join(key.to_string());
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                pmix_folder::Record::remove_in(&path);
                fs::remove_dir_all(&path)?;
                DirBuilder::new().mode(0o700).create(&path)?;
            }
            other => other?,
        }
        Ok(AppDirectory { path })
    }

    /// Removes all of it.
    pub fn remove(&self) {
        // (Of each goes what is elsewhere, too.)
        self.applications().iter().for_each(|(_, app)| app.remove());
        let _ = fs::remove_dir_all(&self.path);
    }
}

impl AppDirectory {
    #[cfg(test)]
    pub fn at(path: &Path) -> AppDirectory {
        AppDirectory { path: path.to_owned() }
    }

    pub fn socket(&self) -> PathBuf {
        self.path.join("shepherd.sock")
    }

    /// # Errors
    /// There is no room, say. What a restart of apinit would miss must not be begun then.
    fn keep(&self, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
        let path = self.path.join(name);
        fs::write(&path, bytes).with_context(|| format!("can't write {}", path.display()))
    }

    /// Of what runs already: only a restart of apinit would miss it.
    fn keep_if_possible(&self, name: &str, bytes: &[u8]) {
        if let Err(error) = self.keep(name, bytes) {
            tracing::warn!("{error:#}");
        }
    }

    fn kept(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.path.join(name)).ok()
    }

    /// Keeps its placement: a crash in the middle leaves the former one.
    ///
    /// # Errors
    /// There is no room, say.
    pub fn keep_place(&self, place: PlaceCommand) -> anyhow::Result<()> {
        let path = self.path.join("place");
        write_whole(&path, &pb::PlaceCommand::from(place).encode_to_vec())
            .with_context(|| format!("can't write {}", path.display()))
    }

    pub fn place(&self) -> Option<PlaceCommand> {
        let bytes = fs::read(self.path.join("place")).ok()?;
        PlaceCommand::try_from(pb::PlaceCommand::decode(&*bytes).ok()?).ok()
    }

    /// A move that is about to be made.
    ///
    /// # Errors
    /// There is no room, say.
    pub fn keep_move(&self, journal: &pb::MoveJournal) -> anyhow::Result<()> {
        write_whole(&self.path.join("move"), &journal.encode_to_vec())
            .with_context(|| format!("can't write {}", self.path.join("move").display()))
    }

    /// One that a former life has begun, and not finished.
    pub fn begun_move(&self) -> Option<pb::MoveJournal> {
        pb::MoveJournal::decode(&*fs::read(self.path.join("move")).ok()?).ok()
    }

    pub fn drop_move(&self) {
        let _ = fs::remove_file(self.path.join("move"));
    }

    /// Without its placement it is no application any more.
    pub fn drop_place(&self) {
        let _ = fs::remove_file(self.path.join("place"));
    }

    pub fn keep_groups(&self, path: &Path) -> anyhow::Result<()> {
        use std::os::unix::ffi::OsStrExt;
        self.keep("groups", path.as_os_str().as_bytes())
    }

    pub fn groups(&self) -> Option<PathBuf> {
        self.kept("groups").map(PathBuf::from)
    }

    pub fn keep_marker(&self, marker: &str) -> anyhow::Result<()> {
        self.keep("marker", marker.as_bytes())
    }

    pub fn marker(&self) -> Option<String> {
        self.kept("marker")
    }

    /// The folder of files of PMIx that its launch is about to be given. With this directory it goes.
    ///
    /// # Errors
    /// There is no room, say, or are no random numbers.
    pub fn new_pmix_folder(&self, uid: u32) -> anyhow::Result<String> {
        let path = pmix_folder::new_path()?;
        let record = pmix_folder::Record { uid, path: path.clone() };
        let file = self.path.join(pmix_folder::Record::FILE);
        write_whole(&file, record.line().as_bytes())
            .with_context(|| format!("can't write {}", file.display()))?;
        Ok(path)
    }

    pub fn keep_going(&self, at_ns: u64) -> anyhow::Result<()> {
        self.keep("going", at_ns.to_string().as_bytes())
    }

    pub fn going(&self) -> Option<u64> {
        self.kept("going")?.parse().ok()
    }

    /// How long it has run, and when that was so; both in nanoseconds. Said each second of each gang that
    /// takes turns, so always as many bytes, over those that are there: a file that is cut to nothing
    /// before it is written is brought to the disk at once.
    pub fn keep_ran(&self, ran_ns: u64, at_ns: u64) {
        use std::os::unix::fs::FileExt;
        let path = self.path.join("ran");
        let file = fs::File::options().write(true).create(true).truncate(false).open(&path);
        let text = format!("{ran_ns:020} {at_ns:020}");
        if let Err(error) = file.and_then(|file| file.write_all_at(text.as_bytes(), 0)) {
            tracing::warn!("can't write {}: {error}", path.display());
        }
    }

    pub fn ran(&self) -> Option<(u64, u64)> {
        let text = self.kept("ran")?;
        let (ran, at) = text.split_once(' ')?;
        Some((ran.parse().ok()?, at.parse().ok()?))
    }

    pub fn keep_sessions(&self, leaders: &[Process]) {
        let line = |p: &Process| p.line() + "\n";
        self.keep_if_possible("sessions", leaders.iter().map(line).collect::<String>().as_bytes());
    }

    pub fn sessions(&self) -> Vec<Process> {
        self.kept("sessions").unwrap_or_default().lines().filter_map(Process::parse).collect()
    }

    pub fn keep_shepherd(&self, process: Process) -> anyhow::Result<()> {
        self.keep("shepherd", process.line().as_bytes())
    }

    pub fn keep_front(&self, process: Process) -> anyhow::Result<()> {
        self.keep("front", process.line().as_bytes())
    }

    pub fn keep_gone(&self) -> anyhow::Result<()> {
        self.keep("gone", b"")
    }

    pub fn keep_adopted(&self) -> anyhow::Result<()> {
        self.keep("adopted", b"")
    }

    /// Another psched has adopted it than placed it.
    pub fn adopted(&self) -> bool {
        self.path.join("adopted").exists()
    }

    /// It is being dumped: whoever comes after us is to let it go on.
    pub fn keep_dumped(&self) {
        self.keep_if_possible("dumped", b"");
    }

    /// It is not any more.
    pub fn drop_dumped(&self) {
        let _ = fs::remove_file(self.path.join("dumped"));
    }

    /// It was when a former life of this apinit ended.
    pub fn dumped(&self) -> bool {
        self.path.join("dumped").exists()
    }

    /// Where a copy of the images may be that it is brought back from.
    pub fn images(&self) -> PathBuf {
        self.path.join("images")
    }

    /// Where images of it may be made, before they are their user's.
    pub fn stage(&self, number: u64) -> PathBuf {
        self.path.join(format!("{STAGE}{number}"))
    }

    /// Removes what a former life of this apinit has left there.
    pub fn drop_stages(&self) {
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(|name| name.starts_with(STAGE)) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }

    /// Its memory is in this folder of images, and no process of it counts any more.
    ///
    /// # Errors
    /// There is no room, say.
    pub fn keep_away(&self, images: &Path) -> anyhow::Result<()> {
        use std::os::unix::ffi::OsStrExt;
        let path = self.path.join("away");
        write_whole(&path, images.as_os_str().as_bytes())
            .with_context(|| format!("can't write {}", path.display()))
    }

    /// Its processes count again.
    pub fn drop_away(&self) {
        let _ = fs::remove_file(self.path.join("away"));
    }

    /// The folder of its images, if these count.
    pub fn away(&self) -> Option<PathBuf> {
        self.kept("away").map(PathBuf::from)
    }

    /// Its front end was given up.
    pub fn gone(&self) -> bool {
        self.path.join("gone").exists()
    }

    /// `name` is `front` or `shepherd`.
    pub fn process(&self, name: &str) -> Option<Process> {
        Process::parse(&self.kept(name)?)
    }

    pub fn remove(&self) {
        if let Some(images) = self.away() {
            let _ = fs::remove_dir_all(images);
        }
        pmix_folder::Record::remove_in(&self.path);
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_comes_back() {
        let directory = tempfile::tempdir().expect("a directory");
        let runtime = Runtime::open(directory.path().join("apps-0")).expect("it is made");
        let runtime_again = Runtime::open(directory.path().join("apps-0"));
        assert!(runtime_again.is_ok(), "and taken up again");
        let key = Key::parse("12.1").expect("a key");
        let app = runtime.make(key).expect("it is made");
        assert_eq!((app.going(), app.groups(), app.process("front")), (None, None, None));
        app.keep_going(5).expect("kept");
        app.keep_groups(Path::new("/sys/fs/cgroup/x")).expect("kept");
        let own = Process::now(std::process::id() as i32);
        app.keep_front(own).expect("kept");
        app.keep_marker("01234567.12.1").expect("kept");
        assert_eq!(app.marker().as_deref(), Some("01234567.12.1"));
        assert_eq!((app.going(), app.groups()), (Some(5), Some("/sys/fs/cgroup/x".into())));
        assert_eq!(app.process("front"), Some(own));
        assert_eq!(app.away(), None);
        let images = directory.path().join("images of it");
        fs::create_dir(&images).expect("made");
        app.keep_away(&images).expect("kept");
        assert_eq!(app.away().as_ref(), Some(&images));
        assert!(!app.gone());
        app.keep_gone().expect("kept");
        assert!(app.gone());
        assert!(!app.adopted());
        app.keep_adopted().expect("kept");
        assert!(app.adopted());
        assert_eq!((app.ran(), runtime.plans()), (None, Vec::new()));
        app.keep_ran(u64::MAX, u64::MAX - 1);
        assert_eq!(app.ran(), Some((u64::MAX, u64::MAX - 1)));
        app.keep_ran(7, 9);
        let plan =
            |generation| SlicePlan { generation, members: vec![key], ..SlicePlan::default() };
        runtime.keep_plans(vec![plan(3), plan(4)]);
        assert_eq!((app.ran(), runtime.plans()), (Some((7, 9)), vec![plan(3), plan(4)]));
        assert_eq!(app.sessions(), []);
        app.keep_sessions(&[own, Process { pid: 7, started: 8 }]);
        assert_eq!(app.sessions(), [own, Process { pid: 7, started: 8 }]);
        assert!(own.opened().is_some());
        assert!(
            Process { started: own.started + 1, ..own }.opened().is_none(),
            "another one's pid"
        );
        let pmix = app.new_pmix_folder(nix::unistd::geteuid().as_raw()).expect("a path");
        fs::create_dir(&pmix).expect("made");
        assert_eq!(runtime.applications().len(), 1);
        app.remove();
        assert!(!Path::new(&pmix).exists(), "with it");
        assert_eq!(runtime.applications().len(), 0);
        assert!(!images.exists(), "with it");
        let error = app.keep_marker("gone").expect_err("there is no such folder");
        assert!(error.to_string().ends_with("12.1/marker"), "{error}");
    }
}
