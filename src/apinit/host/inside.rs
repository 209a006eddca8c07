//! The apshepherd of an `aprun --inside`, and how aprun knows in which application it runs.
//!
//! # Problem
//! `aprun --inside` starts PEs without psched and apinit, in the application in which it runs itself (see
//! [`crate::aprun::decide::inside`]). It has to know which application that is, from more than a variable that anybody
//! can set, and to run PEs as an apinit has them run.
//!
//! # Approach
//! Whatever a PE starts descends from the apshepherd of its application, which is a subreaper, and is in a control
//! group that names the application. Where there are no groups, the nearest ancestor that is an apshepherd says on
//! its command line which one that is. Nothing is trusted with that: a user who fakes an ancestor runs his own
//! program in his own processes.
//!
//! aprun starts an apshepherd of its own, as an apinit would: it listens on a socket without a name in the file
//! system, which is connected before it runs, and holds a pipe that ends with aprun. So it ends its PEs when
//! aprun dies, and whatever stays is the application's to end.

use super::hardware;
use super::shepherd_handle::{PROGRAM, not_executed};
use super::shepherd_sockets::{dial_name, listening, wire};
use super::shepherd_writer::ShepherdWriter;
use super::shepherds::{Program, Reader};
use crate::apteam::Key;
use crate::apteam::protocol::shepherd::{FromShepherd, ToShepherd};
use crate::machine::Nid;
use crate::os::instance;
use crate::os::spawn::{Namespaces, Spawn, Spawned, spawn};
use nix::sys::signal::Signal;
use nix::sys::socket::{UnixAddr, getsockname};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What ends it with its application.
const SIGTERM: i32 = Signal::SIGTERM as i32;
/// How many ancestors are looked at: more than processes nest.
const ANCESTORS_MAX: usize = 4096;
/// How long the apshepherd may take to exit once it was released.
const EXIT_WAIT: Duration = Duration::from_secs(2);
/// Variables that the apshepherd gets.
const HANDED_ON: [&str; 3] = ["PSCHED_LOG", "PSCHED_LOG_FORMAT", "RUST_BACKTRACE"];

/// The application in which this process runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Within {
    /// Which.
    pub key: Key,
    /// By what its stray processes are found, in the environment of each.
    pub marker: String,
    /// The node, if a control group says so; else 0.
    pub nid: Nid,
    /// Real processors that this process may run on, ascending.
    pub cpus: Vec<u32>,
    /// Processors of the PE in which it runs, as that one's environment has it: of a private instance there may
    /// be more than real ones.
    pub depth: u32,
    /// Their NUMA nodes, where the host says so.
    pub numa: BTreeMap<u32, u32>,
}

impl Within {
    /// The application in which this process runs.
    ///
    /// # Errors
    /// It runs in none, or that can't be told; in words.
    pub fn find() -> Result<Within, String> {
        let read = |pid: i32, file: &str| std::fs::read(format!("/proc/{pid}/{file}")).ok();
        let own = std::process::id() as i32;
        let ancestor = |pid| Ancestor::parse(&read(pid, "stat")?);
        let line = |pid| read(pid, "cmdline").unwrap_or_default();
        let group = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let marker = std::env::var(instance::APPLICATION).ok();
        let found = found(shepherd_of(own, ancestor, line), &group, marker.as_deref())?;
        let numa = hardware::numa_nodes(Path::new("/sys/devices/system/node"));
        let depth = std::env::var("ALPS_APP_DEPTH").ok().and_then(|depth| depth.parse().ok());
        Ok(Within { cpus: hardware::cpus(), depth: depth.unwrap_or(1), numa, ..found })
    }
}

/// A process, as /proc/PID/stat has it.
struct Ancestor {
    name: String,
    parent: i32,
}

impl Ancestor {
    /// `PID (NAME) STATE PARENT ...`, where a name may hold anything, `)` too.
    fn parse(stat: &[u8]) -> Option<Ancestor> {
        let text = String::from_utf8_lossy(stat);
        let (before, after) = text.rsplit_once(')')?;
        let (_, name) = before.split_once('(')?;
        let parent = after.split_ascii_whitespace().nth(1)?.parse().ok()?;
        Some(Ancestor { name: name.to_owned(), parent })
    }
}

/// What the nearest ancestor that is an apshepherd says it is of.
fn shepherd_of(
    own: i32,
    ancestor: impl Fn(i32) -> Option<Ancestor>,
    line: impl Fn(i32) -> Vec<u8>,
) -> Option<Key> {
    let mut pid = ancestor(own)?.parent;
    for _ in 0..ANCESTORS_MAX {
        let Ancestor { name, parent } = ancestor(pid)?;
        if name == PROGRAM {
            let line = line(pid);
            let key = line.split(|byte| *byte == 0).nth(1)?;
            return Key::parse(std::str::from_utf8(key).ok()?);
        }
        pid = parent;
    }
    None
}

/// The application and the node that a control group is of: `.../psched.MARK/APID.INCARNATION[.NID]/NID`.
fn group_of(cgroup: &str) -> Option<(String, Key, Nid)> {
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::"))?;
    let parts: Vec<&str> = path.split('/').collect();
    // (A PE may have made groups below.)
    parts.windows(3).rev().find_map(|three| {
        let mark = three[0].strip_prefix("psched.")?;
        let mut numbers = three[1].split('.');
        let key = format!("{}.{}", numbers.next()?, numbers.next()?);
        Some((mark.to_owned(), Key::parse(&key)?, Nid(three[2].parse().ok()?)))
    })
}

/// The application, by an ancestor and the control group of this process. (That one is right too for what was
/// restored from a checkpoint, and has another number than its apshepherd was started with.) Where no group names
/// one, the ancestor and the environment have to say the same.
fn found(shepherd: Option<Key>, cgroup: &str, marker: Option<&str>) -> Result<Within, String> {
    let Some(key) = shepherd else {
        return Err("--inside: this aprun does not run inside an application: start it from a program that \
                    aprun has started, or leave --inside out"
            .to_owned());
    };
    let within = |key, marker, nid| Within {
        key,
        marker,
        nid,
        cpus: Vec::new(),
        depth: 1,
        numa: BTreeMap::new(),
    };
    if let Some((mark, key, nid)) = group_of(cgroup) {
        return Ok(within(key, format!("{mark}.{key}"), nid));
    }
    // By it the application's end finds what it has left, where there are no groups.
    let marked = marker.and_then(|marker| Key::parse(marker.split_once('.')?.1));
    match (marker, marked) {
        (Some(marker), Some(marked)) if marked == key => Ok(within(key, marker.to_owned(), Nid(0))),
        _ => Err(format!(
            "--inside: this aprun descends from application {}, and {} in its environment does not name that \
             one: leave it as it was",
            key.apid,
            instance::APPLICATION
        )),
    }
}

/// An apshepherd that is this process's own.
pub struct Inside {
    mouth: ShepherdWriter,
    reader: Reader,
    pid: Pid,
    failure: Option<OwnedFd>,
    /// Its other end is the apshepherd's: it ends with this.
    _lifeline: OwnedFd,
}

impl Inside {
    /// Starts it. To be called on a tokio runtime.
    ///
    /// # Errors
    /// Why it can't be; in words.
    pub fn start(within: &Within) -> Result<Inside, String> {
        let program = Program::find().map_err(|e| format!("{e:#}"))?;
        let (listener, connection) =
            pair().map_err(|e| format!("can't make the socket of its apshepherd: {e}"))?;
        let (lifeline, own_end) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)
            .map_err(|e| format!("can't make the pipe to its apshepherd: {e}"))?;
        let text = |t: String| CString::new(t).map_err(|e| e.to_string());
        let arguments = [
            PROGRAM.to_owned(),
            within.key.to_string(),
            "--listen".to_owned(),
            listener.as_raw_fd().to_string(),
            "--lifeline".to_owned(),
            lifeline.as_raw_fd().to_string(),
        ];
        let given = |from: &str, name: &str| Some(format!("{name}={}", std::env::var(from).ok()?));
        let environment = HANDED_ON
            .iter()
            .filter_map(|name| given(name, name))
            // What ends with a private instance is known by this.
            .chain(given(instance::INSTANCE, instance::RUNTIME))
            .chain([format!("{}={}", instance::APPLICATION, within.marker)]);
        let path = program.path();
        let Spawned { pid, failure, .. } = spawn(&Spawn {
            program: CString::new(path.as_os_str().as_bytes()).map_err(|e| e.to_string())?,
            arguments: arguments.into_iter().map(text).collect::<Result<_, _>>()?,
            environment: environment.map(text).collect::<Result<_, _>>()?,
            keep: vec![listener.as_fd(), lifeline.as_fd()],
            group: None,
            ids: None,
            space: None,
            soft_files: None,
            within: Namespaces::default(),
        })
        .map_err(|e| format!("can't start {}: {e}", path.display()))?;
        let wire = Arc::new(wire(connection).map_err(|e| e.to_string())?);
        let mouth = ShepherdWriter::open(within.key, &wire);
        let (pid, failure) = (Pid::from_raw(pid), Some(failure));
        Ok(Inside { mouth, reader: Reader::new(wire), pid, failure, _lifeline: own_end })
    }

    /// Tells it; false: too much waits for it already.
    pub fn say(&self, message: ToShepherd) -> bool {
        self.mouth.send(message)
    }

    /// What it says next; `None`: it has hung up. Nothing is lost if this is dropped while it waits.
    ///
    /// # Errors
    /// It says what is not understood.
    pub async fn hear(&mut self) -> Result<Option<FromShepherd>, String> {
        self.reader.next().await
    }

    /// How it ended, in words, after it has hung up, and by which signal it was asked to, if it was: it is waited
    /// for, but not for long.
    pub async fn end(mut self) -> (String, Option<i32>) {
        let until = Instant::now() + EXIT_WAIT;
        loop {
            let (text, signal) = match waitpid(self.pid, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) if Instant::now() < until => {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    continue;
                }
                // It leaves by itself only when its application is being ended.
                Ok(WaitStatus::Exited(_, 0)) => ("it was ended".to_owned(), Some(SIGTERM)),
                Ok(WaitStatus::Exited(_, code)) => (format!("it exited with code {code}"), None),
                Ok(WaitStatus::Signaled(_, signal, _)) => {
                    let ends = matches!(signal, Signal::SIGTERM | Signal::SIGKILL);
                    (format!("it died by {signal}"), ends.then_some(signal as i32))
                }
                _ => ("it has closed its connection".to_owned(), None),
            };
            return match self.failure.take().and_then(not_executed) {
                Some(text) => (text, None),
                None => (text, signal),
            };
        }
    }
}

/// A socket that listens, without a name in the file system, and a connection that waits there: nobody else can
/// have been before.
fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let listener = listening(&UnixAddr::new_unnamed())?;
    let connection = dial_name(&getsockname(listener.as_raw_fd())?)?;
    Ok((listener, connection))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::parse(text).expect("a key")
    }

    #[test]
    fn the_nearest_shepherd_counts() {
        let stats = [
            (1, "1 (init) S 0"),
            (10, "10 (apshepherd) S 1 10"),
            (11, "11 (a) b) S 10 11"),
            (12, "12 (apshepherd) S 11 12"),
            (13, "13 (sh) S 12 13"),
            (20, "20 (sh) S 1 20"),
        ];
        let of = |own: i32| {
            let ancestor = |pid| {
                let stat = stats.iter().find(|(of, _)| *of == pid)?;
                Ancestor::parse(stat.1.as_bytes())
            };
            let line = |pid: i32| format!("apshepherd\0{pid}.1\0--listen\0").into_bytes();
            shepherd_of(own, ancestor, line)
        };
        assert_eq!(of(13), Some(key("12.1")));
        assert_eq!(of(11), Some(key("10.1")));
        assert_eq!((of(20), of(1), of(99)), (None, None, None));
        // A circle, which a torn picture of /proc can have.
        let circle = |_| Some(Ancestor { name: "sh".into(), parent: 7 });
        assert_eq!(shepherd_of(7, circle, |_| Vec::new()), None);
    }

    #[test]
    fn a_group_names_the_application_and_the_node() {
        let of = |path: &str| group_of(&format!("0::{path}\n"));
        let is = |mark: &str, of: &str, nid| Some((mark.to_owned(), key(of), Nid(nid)));
        assert_eq!(
            of("/system.slice/apinit.service/psched.5ca1ab1e/12.1/3"),
            is("5ca1ab1e", "12.1", 3)
        );
        assert_eq!(of("/a/psched.5ca1ab1e/12.1.4/4/below"), is("5ca1ab1e", "12.1", 4));
        assert_eq!(of("/user.slice"), None);
        assert_eq!(of("/psched.x/12.1/shepherd"), None);
        assert_eq!(group_of("1:name=x:/psched.x/12.1/0\n"), None);
    }

    #[test]
    fn the_kernel_says_which_application_that_is() {
        let group = "0::/psched.aa/12.1/3\n";
        let is = |marker: &str, nid| Within {
            key: key("12.1"),
            marker: marker.to_owned(),
            nid: Nid(nid),
            cpus: Vec::new(),
            depth: 1,
            numa: BTreeMap::new(),
        };
        let own = Some(key("12.1"));
        assert_eq!(found(own, group, Some("aa.12.1")), Ok(is("aa.12.1", 3)));
        // Restored, with what is left of its former life; and with a variable that somebody has set.
        assert_eq!(found(Some(key("9.1")), group, Some("aa.9.1")), Ok(is("aa.12.1", 3)));
        assert_eq!(found(own, group, None), Ok(is("aa.12.1", 3)));
        // Without groups.
        assert_eq!(found(own, "", Some("aa.12.1")), Ok(is("aa.12.1", 0)));
        let said = |shepherd, group, marker| found(shepherd, group, marker).expect_err("no");
        for marker in [None, Some(""), Some("aa.13.1")] {
            assert!(said(own, "", marker).contains("does not name that one"));
        }
        // A variable alone is nothing, nor is a group that somebody was put into.
        for group in ["", group] {
            assert!(
                said(None, group, Some("aa.12.1")).contains("does not run inside an application")
            );
        }
    }
}
