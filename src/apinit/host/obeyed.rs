//! Which psched an apinit obeys, in its runtime directory: what the next apinit has to know of
//! that.
//!
//! An apinit that does not know it would obey any psched, also one with an old copy of the state.
//! So what can't be written is kept here until it can, and is told meanwhile.

use super::runtime::write_whole;
use crate::apteam::protocol::node::Welcome;
use crate::rpc::pb;
use prost::Message;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

/// What is known of it, and how much of that is written.
#[derive(Debug)]
pub(super) struct Obeyed {
    path: PathBuf,
    /// What it said of itself when it was obeyed.
    welcome: Option<Welcome>,
    /// Where its commits are kept, and the start that they are of.
    commits: Option<(File, String)>,
    /// How many it has, as it has said last since then.
    counted: Option<u64>,
    /// Something of this could not be written, and why; it was logged.
    unwritten: Option<String>,
}

impl Obeyed {
    /// In this directory.
    pub fn new(path: PathBuf) -> Obeyed {
        Obeyed { path, welcome: None, commits: None, counted: None, unwritten: None }
    }

    /// This one is obeyed from now on.
    pub fn remember(&mut self, welcome: Welcome) {
        // The key is psched's to keep.
        let unreadable = Vec::new();
        self.welcome = Some(Welcome { checkpoint_key: None, unreadable, ..welcome });
        // Commits of another start are none of this one's.
        (self.commits, self.counted) = (None, None);
        let written = self.write();
        self.noted(written);
        let _ = fs::remove_file(self.path.join("distrusted"));
    }

    /// It has so many commits. (This comes with each command: a line of always the same length is
    /// written over, which no kill cuts in two.)
    pub fn remember_commits(&mut self, commits: u64) {
        self.counted = Some(commits);
        // (While something is not written, no command waits for another attempt.)
        if self.unwritten.is_none() {
            let written = self.write_commits();
            self.noted(written);
        }
    }

    /// Writes what could not be written before. Returned: why it still can't be.
    pub fn catch_up(&mut self) -> Option<&str> {
        if self.unwritten.is_some() {
            let written = self.write();
            self.noted(written);
        }
        self.unwritten.as_deref()
    }

    fn noted(&mut self, written: io::Result<()>) {
        let path = self.path.display();
        let why = written
            .err()
            .map(|error| format!("which psched is obeyed can't be written to {path}: {error}"));
        match (&why, &self.unwritten) {
            (Some(why), None) => tracing::warn!("{why}; apinit tries again"),
            (None, Some(_)) => tracing::warn!("which psched is obeyed is written to {path} now"),
            _ => {}
        }
        self.unwritten = why;
    }

    fn write(&mut self) -> io::Result<()> {
        let Some(welcome) = self.welcome.clone() else { return Ok(()) };
        let start = welcome.start(welcome.epoch).unwrap_or_default().to_owned();
        let mut options = File::options();
        options.create(true).truncate(false).write(true).mode(0o600);
        self.commits = Some((options.open(self.path.join("commits"))?, start));
        write_whole(&self.path.join("welcome"), &pb::Welcome::from(welcome).encode_to_vec())?;
        self.write_commits()
    }

    fn write_commits(&self) -> io::Result<()> {
        let Some(((file, start), commits)) = self.commits.as_ref().zip(self.counted) else {
            return Ok(());
        };
        file.write_all_at(format!("{start} {commits:020}\n").as_bytes(), 0)
    }

    /// What a former life has written.
    pub fn remembered(&self) -> Option<Welcome> {
        let bytes = fs::read(self.path.join("welcome")).ok()?;
        let mut welcome = Welcome::try_from(pb::Welcome::decode(&*bytes).ok()?).ok()?;
        let start = welcome.start(welcome.epoch).unwrap_or_default();
        if let Some(commits) = self.remembered_commits(start) {
            welcome.commits = welcome.commits.max(commits);
        }
        Some(welcome)
    }

    fn remembered_commits(&self, start: &str) -> Option<u64> {
        let text = fs::read_to_string(self.path.join("commits")).ok()?;
        let (of, commits) = text.lines().next()?.split_once(' ')?;
        commits.parse().ok().filter(|_| of == start)
    }

    /// Starts of psched that are not to be obeyed, a line each; until the next
    /// [`Obeyed::remember`].
    pub fn distrust(&self, starts: &[String]) {
        let path = self.path.join("distrusted");
        if let Err(error) = write_whole(&path, starts.join("\n").as_bytes()) {
            tracing::warn!(%error, "can't write which starts of psched have an old copy of its state");
        }
    }

    /// The starts that a former life of this apinit was told not to obey.
    pub fn distrusted(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path.join("distrusted")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apteam::protocol::node::Start;

    fn welcome(id: &str) -> Welcome {
        let starts = vec![Start { epoch: 3, id: id.into(), commits: 7 }];
        Welcome { store_id: "ab".into(), epoch: 3, commits: 8, starts, ..Welcome::default() }
    }

    #[test]
    fn the_next_life_obeys_the_same_psched() {
        let folder = tempfile::tempdir().expect("a directory");
        let mut obeyed = Obeyed::new(folder.path().to_owned());
        assert_eq!(obeyed.remembered(), None);
        obeyed.remember(welcome("three"));
        assert_eq!(obeyed.remembered(), Some(welcome("three")));
        for commits in [19, 120] {
            obeyed.remember_commits(commits);
            assert_eq!(obeyed.remembered(), Some(Welcome { commits, ..welcome("three") }));
        }
        // Another psched that is obeyed from now on has none of these commits.
        obeyed.remember(welcome("another"));
        assert_eq!(obeyed.remembered(), Some(welcome("another")));
        assert_eq!(obeyed.catch_up(), None);
    }

    /// (As on a full disk.)
    #[test]
    fn what_can_not_be_written_is_written_later() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("apps-0");
        let mut obeyed = Obeyed::new(path.clone());
        obeyed.remember(welcome("three"));
        obeyed.remember_commits(19);
        let why = obeyed.catch_up().expect("there is no such directory").to_owned();
        assert!(why.starts_with("which psched is obeyed can't be written to "), "{why}");
        fs::create_dir(&path).expect("made");
        obeyed.remember_commits(20);
        obeyed.distrust(&["old".to_owned()]);
        assert_eq!(obeyed.remembered(), None);
        assert_eq!(obeyed.catch_up(), None);
        assert_eq!(obeyed.remembered(), Some(Welcome { commits: 20, ..welcome("three") }));
        assert_eq!(obeyed.distrusted(), ["old"], "told since then");
    }
}
