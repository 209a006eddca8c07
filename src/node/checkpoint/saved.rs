//! What has to be known beside CRIU's images to restore an application on this host: which of the
//! shepherd's files are to be given anew, and who was in which group. A file of JSON among the images.

use super::binding::Bound;
use super::tcp::Link;
use super::{CheckpointError, image_files};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::os::fd::BorrowedFd;

/// The name of the file.
pub const FILE: &str = "application.json";
/// The form of it that this release writes, and the only one that it reads.
const FORM: u32 = 1;
/// The largest that is read: a line for each process.
const BYTES_MAX: u64 = 64 * 1024 * 1024;

/// What a file of the shepherd's is, that is another one after a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// /dev/null.
    Null,
    /// Its stderr: where apinit's diagnostics went.
    Log,
    /// The pipe at whose end it ends.
    Lifeline,
    /// The socket on which it listens for apinit.
    Listener,
    /// The directory of a node's group.
    Group(u32),
    /// By which it hears that memory was short there, where that is limited.
    MemoryEvents(u32),
    /// By which it hears that a fork was refused there, likewise.
    ForkEvents(u32),
}

impl Role {
    /// The files of a node's group that a shepherd has open, if they are there.
    pub fn of_group(nid: u32) -> [(Role, &'static str); 2] {
        [(Role::MemoryEvents(nid), "memory.events"), (Role::ForkEvents(nid), "pids.events")]
    }
}

/// A file that is given anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedFile {
    /// CRIU's name of it.
    pub key: String,
    /// What it is.
    pub role: Role,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Saved {
    form: u32,
    /// The version of CRIU that has made the images.
    pub criu: String,
    /// The shepherd's pid in its PID namespace, which it keeps.
    pub shepherd: i32,
    /// Files that are given anew.
    pub files: Vec<SavedFile>,
    /// The processes of each node's group, by their pids in that namespace. The nodes are called as when it
    /// was launched.
    pub groups: Vec<(u32, Vec<i32>)>,
    /// The threads of each group that are bound to some of the processors, by their numbers in that
    /// namespace, and to which: CRIU leaves that out.
    #[serde(default)]
    pub bound: Vec<(u32, Bound)>,
    /// (Of a part of an application.) Its connections to other parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
    /// It had a /dev/shm of its own, whose files are among the images.
    pub own_memory: bool,
}

impl Saved {
    /// In the form of this release.
    pub fn new(criu: String, shepherd: i32) -> Saved {
        let (files, groups, bound, links) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Saved { form: FORM, criu, shepherd, files, groups, bound, links, own_memory: false }
    }

    /// Writes it into the directory of the images.
    ///
    /// # Errors
    /// Those of open and write; one that is there already.
    pub fn write(&self, images: BorrowedFd<'_>) -> Result<(), CheckpointError> {
        let failed = |e: std::io::Error| CheckpointError::new(format!("{FILE}: {e}"));
        let mut file = image_files::create(images, FILE).map_err(failed)?;
        let text = serde_json::to_vec(self).map_err(|e| failed(e.into()))?;
        file.write_all(&text).map_err(failed)
    }

    /// Reads it.
    ///
    /// # Errors
    /// It is missing, or not what this release writes.
    pub fn read(images: BorrowedFd<'_>) -> Result<Saved, CheckpointError> {
        let failed = |e: &dyn std::fmt::Display| {
            CheckpointError::new(format!("this is not a checkpoint of an application: {FILE}: {e}"))
        };
        let text = image_files::read(images, FILE, BYTES_MAX).map_err(|e| failed(&e))?;
        Saved::parse(&text).map_err(|e| failed(&e))
    }

    fn parse(text: &[u8]) -> Result<Saved, String> {
        let any: serde_json::Value = serde_json::from_slice(text).map_err(|e| e.to_string())?;
        let form = any.get("form").and_then(serde_json::Value::as_u64);
        if form != Some(u64::from(FORM)) {
            let found = form.map_or("none".into(), |form| form.to_string());
            return Err(format!("its form is {found}, and this release knows {FORM} only"));
        }
        let saved: Saved = serde_json::from_value(any).map_err(|e| e.to_string())?;
        let pids = saved.groups.iter().flat_map(|(_, pids)| pids);
        if saved.shepherd <= 1 || pids.clone().any(|pid| *pid <= 1) {
            return Err("a process has an impossible process id".into());
        }
        Ok(saved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let mut saved = Saved::new("4.2.1".into(), 200);
        saved.files.push(SavedFile { key: "pipe:[7]".into(), role: Role::Lifeline });
        saved.files.push(SavedFile { key: "file[1:2]".into(), role: Role::Group(3) });
        saved.groups.push((3, vec![201, 202]));
        saved.bound.push((3, vec![(201, vec![0, 1])]));
        // As a release before reads it, and writes it.
        assert!(!serde_json::to_string(&saved).expect("JSON").contains("links"));
        let address = |port| std::net::SocketAddr::from(([127, 0, 0, 1], port));
        saved.links.push(Link { here: address(1), there: address(2) });
        let text = serde_json::to_string(&saved).expect("JSON");
        assert_eq!(Saved::parse(text.as_bytes()), Ok(saved));
        let newer = text.replace("\"form\":1", "\"form\":2");
        let error = Saved::parse(newer.as_bytes()).expect_err("another form");
        assert!(error.contains("knows 1 only"), "{error}");
        for (good, bad) in [("201", "1"), ("201", "-1"), ("201", "\"x\""), ("own_memory", "other")]
        {
            assert!(Saved::parse(text.replace(good, bad).as_bytes()).is_err(), "{bad}");
        }
    }
}
