//! The files of `--output` and `--error`: made before the launch, written in order, and only so
//! many of them open at a time.

use super::program::plain;
use crate::aprun::decide::output::{Labels, Template};
use crate::apteam::Apid;
use crate::apteam::place::PlacementList;
use crate::machine::Nid;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Files that are open at a time.
const OPEN_MAX: usize = 64;

/// All files of an application.
#[derive(Debug, Default)]
pub struct Files {
    output: Option<Template>,
    error: Option<Template>,
    apid: Apid,
    /// The ones that are open, the one used last at the end.
    open: VecDeque<(Vec<u8>, File)>,
    labels: BTreeMap<Vec<u8>, Labels>,
}

impl Files {
    /// None of them is open yet.
    pub fn new(output: Option<Template>, error: Option<Template>) -> Files {
        Files { output, error, ..Files::default() }
    }

    fn template(&self, stderr: bool) -> Option<&Template> {
        if stderr { self.error.as_ref() } else { self.output.as_ref() }
    }

    /// Whether this stream goes to files.
    pub fn takes(&self, stderr: bool) -> bool {
        self.template(stderr).is_some()
    }

    /// Whether there are any.
    pub fn any(&self) -> bool {
        self.takes(false) || self.takes(true)
    }

    /// Creates the file of every rank, or truncates it. Files in `made` stay as they are; `made` gets the others.
    /// The error names the option and the file.
    pub fn make(
        &mut self,
        apid: Apid,
        places: &PlacementList,
        made: &mut BTreeSet<Vec<u8>>,
    ) -> Result<(), String> {
        self.apid = apid;
        let both = [("--output", &self.output), ("--error", &self.error)];
        let given = both.map(|(option, template)| Some((option, template.clone()?)));
        for (option, template) in given.into_iter().flatten() {
            // One file for all needs no look at every rank.
            let ranks = if template.is_for_one() { 1 } else { usize::MAX };
            for pe in places.pes().take(ranks) {
                let name = template.expand(pe.rank, pe.nid, apid);
                if !made.insert(name.clone()) {
                    continue;
                }
                let failed = |e| format!("{option}: {}: {}", shown(&name), plain(&e));
                let file = open(&name, true).map_err(failed)?;
                self.keep(name, file);
            }
        }
        Ok(())
    }

    /// Writes what a rank wrote. The error names the file.
    pub fn write(
        &mut self,
        stderr: bool,
        rank: u32,
        nid: Nid,
        label: bool,
        data: &[u8],
        write: &mut dyn FnMut(&File, &[u8]) -> io::Result<()>,
    ) -> Result<(), String> {
        let Some(template) = self.template(stderr) else { return Ok(()) };
        let name = template.expand(rank, nid, self.apid);
        let labelled;
        let data = if label {
            let mut out = Vec::with_capacity(data.len() + data.len() / 8);
            self.labels.entry(name.clone()).or_default().label(rank, data, &mut out);
            labelled = out;
            &labelled
        } else {
            data
        };
        let written = match self.opened(&name) {
            Ok(file) => write(file, data),
            Err(error) => Err(error),
        };
        written.map_err(|e| format!("{}: {}", shown(&name), plain(&e)))
    }

    fn opened(&mut self, name: &[u8]) -> io::Result<&File> {
        let at = self.open.iter().rposition(|(n, _)| n == name);
        let (name, file) = match at.and_then(|at| self.open.remove(at)) {
            Some(entry) => entry,
            None => (name.to_vec(), open(name, false)?),
        };
        Ok(self.keep(name, file))
    }

    fn keep(&mut self, name: Vec<u8>, file: File) -> &File {
        if self.open.len() >= OPEN_MAX {
            self.open.pop_front();
        }
        self.open.push_back((name, file));
        &self.open[self.open.len() - 1].1
    }
}

fn open(name: &[u8], new: bool) -> io::Result<File> {
    // Appending, so that a file which has been closed in the meantime goes on where it was.
    let path = Path::new(OsStr::from_bytes(name));
    // A FIFO that no process reads yet would keep this thread, and with it the signals that are to end this
    // process. It is opened for reading too; what is written to it waits for its reader.
    let mut options = OpenOptions::new();
    let file = match options.append(true).create(true).custom_flags(libc::O_NONBLOCK).open(path) {
        Err(e) if e.raw_os_error() == Some(libc::ENXIO) => {
            OpenOptions::new().read(true).append(true).open(path)?
        }
        other => other?,
    };
    fcntl(&file, FcntlArg::F_SETFL(OFlag::O_APPEND))?;
    // A pipe or a device has no length to cut.
    if new && file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    Ok(file)
}

fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apteam::place::Place;
    use std::io::Write;

    fn places(pes: u32) -> PlacementList {
        PlacementList(
            [
                Place { nid: Nid(3), processors: vec![], pes },
                Place { nid: Nid(4), processors: vec![], pes: 1 },
            ]
            .into(),
        )
    }

    fn plainly(mut file: &File, data: &[u8]) -> io::Result<()> {
        file.write_all(data)
    }

    #[test]
    fn more_files_than_may_be_open() {
        let directory = tempfile::tempdir().expect("a directory");
        let name = format!("{}/%a.%n.%r", directory.path().display());
        let template = Template::parse(name.as_bytes()).expect("a good name");
        std::fs::write(directory.path().join("12.3.7"), "old").expect("our directory");
        let mut files = Files::new(Some(template), None);
        let pes = 2 * OPEN_MAX as u32;
        files.make(Apid(12), &places(pes), &mut BTreeSet::new()).expect("made");
        for round in 0..2 {
            for rank in 0..=pes {
                let nid = if rank == pes { Nid(4) } else { Nid(3) };
                let text = format!("{round} of {rank}\n");
                files
                    .write(false, rank, nid, false, text.as_bytes(), &mut plainly)
                    .expect("written");
            }
            assert!(files.open.len() <= OPEN_MAX);
        }
        let count = std::fs::read_dir(directory.path()).expect("our directory").count();
        assert_eq!(count, pes as usize + 1);
        for (name, rank) in [("12.3.7", 7), ("12.4.128", 128)] {
            let text = std::fs::read_to_string(directory.path().join(name)).expect(name);
            assert_eq!(text, format!("0 of {rank}\n1 of {rank}\n"));
        }
    }

    /// The next application of the same aprun writes on where the one before has ended.
    #[test]
    fn a_file_that_was_made_is_not_cut_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| format!("{}/{name}", directory.path().display());
        let mut made = BTreeSet::new();
        std::fs::write(at("all"), "old\n").expect("our directory");
        std::fs::write(at("of.2"), "old\n").expect("our directory");
        for apid in [Apid(1), Apid(2)] {
            let template = |name: &str| Template::parse(at(name).as_bytes()).expect("a good name");
            let mut files = Files::new(Some(template("all")), Some(template("of.%a")));
            files.make(apid, &places(1), &mut made).expect("made");
            for stderr in [false, true] {
                let text = format!("{}\n", apid.0);
                files
                    .write(stderr, 0, Nid(3), false, text.as_bytes(), &mut plainly)
                    .expect("written");
            }
        }
        let read = |name: &str| std::fs::read_to_string(at(name)).expect("there");
        assert_eq!([read("all"), read("of.1"), read("of.2")], ["1\n2\n", "1\n", "2\n"]);
    }

    #[test]
    fn one_file_for_both_streams_with_labels() {
        let directory = tempfile::tempdir().expect("a directory");
        let name = format!("{}/all", directory.path().display());
        let template = Template::parse(name.as_bytes()).expect("a good name");
        let mut files = Files::new(Some(template.clone()), Some(template));
        files.make(Apid(1), &places(2), &mut BTreeSet::new()).expect("made");
        let mut put = |stderr, rank, text: &str| {
            files
                .write(stderr, rank, Nid(3), true, text.as_bytes(), &mut plainly)
                .expect("written");
        };
        put(false, 0, "a\n");
        put(true, 1, "b\n");
        assert_eq!(std::fs::read_to_string(&name).expect("there"), "0: a\n1: b\n");
    }

    /// Nothing reads it yet: it is made all the same, and what is written waits.
    #[test]
    fn a_fifo_without_a_reader() {
        let directory = tempfile::tempdir().expect("a directory");
        let fifo = directory.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("made");
        let template = Template::parse(fifo.as_os_str().as_bytes()).expect("a good name");
        let mut files = Files::new(Some(template), None);
        files.make(Apid(1), &places(1), &mut BTreeSet::new()).expect("at once");
        files.write(false, 0, Nid(3), false, b"waits\n", &mut plainly).expect("written");
        let mut reader = File::open(&fifo).expect("read");
        let mut text = [0; 6];
        io::Read::read_exact(&mut reader, &mut text).expect("it is there");
        assert_eq!(&text, b"waits\n");
    }

    #[test]
    fn a_file_that_cannot_be_made() {
        let template = Template::parse(b"/nope/out.%r").expect("a good name");
        let mut files = Files::new(None, Some(template));
        let said =
            files.make(Apid(1), &places(1), &mut BTreeSet::new()).expect_err("no such directory");
        assert_eq!(said, "--error: /nope/out.0: No such file or directory");
    }
}
