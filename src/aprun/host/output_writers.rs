//! Writing output: in order, on threads of its own, because a reader that stops must stop neither
//! this process nor another stream.
//!
//! A *lane* is a queue and, once it is needed, a thread. stdout has one, stderr has one, and all
//! files of `--output` and `--error` have one. Where stdout and stderr are the same file (a
//! terminal, `2>&1`), or are to be kept in step (-T), they share one. What is small and can be
//! written at once is written by the caller, as long as the lane has no thread: an application that
//! writes a line and ends starts none.
//!
//! What is queued is bounded by the window of output that is on its way from an apshepherd and not
//! reported as taken: a piece is reported only when write(2) has returned.

use super::files::Files;
use super::note::Note;
use super::program::plain;
use crate::aprun::decide::options::Options;
use crate::aprun::decide::output::{Labels, Template};
use crate::aprun::decide::session::{Event, Loss};
use crate::apteam::Apid;
use crate::apteam::place::PlacementList;
use crate::apteam::protocol::attach::Output;
use crate::console::stderr::columns;
use crate::console::table::clean;
use crate::console::wrap::at_blanks;
use crate::os::standard::closed_at_start;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::write;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc as threads;
use tokio::sync::{mpsc, oneshot};

/// What a pipe or a terminal that is ready takes without waiting.
const AT_ONCE: usize = 4096;
/// Blanks before what a terminal has no room for on a line of aprun's own.
const INDENT: usize = 8;

/// One thing to write, or to tell when all before it is written.
#[derive(Debug)]
enum Job {
    Output(Output),
    /// A line of aprun's own, for stderr.
    Line(String),
    Flush(oneshot::Sender<()>),
}

impl Job {
    /// What is said in this line may be in another host's words.
    fn line(text: &str) -> Job {
        Job::Line(clean(text))
    }
}

/// A lane's state: at home with the caller until the lane has a thread.
#[derive(Debug, Default)]
struct Writer {
    label: bool,
    /// stdout and stderr are one file: lines of both are told apart by the same labels.
    same: bool,
    labels: [Labels; 2],
    /// Writing there has failed: what comes is thrown away.
    dead: [bool; 2],
    files: Option<Files>,
}

enum State {
    Here(Box<Writer>),
    Thread(threads::Sender<Job>),
}

struct Lane {
    state: State,
    notes: mpsc::Sender<Note>,
}

/// All output of this process.
pub struct OutputWriters {
    stdout: Lane,
    /// `None`: shared with stdout.
    stderr: Option<Lane>,
    files: Option<Lane>,
    to_files: [bool; 2],
    /// The files that an application of this process has made, if another one may take its place.
    made: Option<BTreeSet<Vec<u8>>>,
    templates: [Option<Template>; 2],
    label: bool,
    notes: mpsc::Sender<Note>,
}

impl OutputWriters {
    /// Nothing is written yet. `notes` gets a [`Event::Written`] for each piece, and what goes
    /// wrong. `several`: another application may take the place of the first.
    pub fn new(options: &Options, several: bool, notes: mpsc::Sender<Note>) -> OutputWriters {
        let files = Files::new(options.output.clone(), options.error.clone());
        let same = is_same_file();
        let writer = || Writer { label: options.label, same, ..Writer::default() };
        let lane = |writer| Lane { state: State::Here(Box::new(writer)), notes: notes.clone() };
        OutputWriters {
            stdout: lane(writer()),
            stderr: (!same && !options.whole_lines).then(|| lane(writer())),
            to_files: [files.takes(false), files.takes(true)],
            files: files.any().then(|| lane(Writer { files: Some(files), ..writer() })),
            made: several.then(BTreeSet::new),
            templates: [options.output.clone(), options.error.clone()],
            label: options.label,
            notes,
        }
    }

    /// Another application takes the place of the one before, all of whose output has been written.
    pub fn next(&mut self) {
        let [output, error] = self.templates.clone();
        if let Some(lane) = &mut self.files {
            let files = Some(Files::new(output, error));
            let writer = Writer { label: self.label, files, ..Writer::default() };
            *lane = Lane { state: State::Here(Box::new(writer)), notes: self.notes.clone() };
        }
    }

    /// Makes the files, before anything is written.
    pub fn make_files(&mut self, apid: Apid, places: &PlacementList) -> Result<(), String> {
        match self.files.as_mut().map(|lane| &mut lane.state) {
            Some(State::Here(writer)) => match &mut writer.files {
                Some(files) => {
                    files.make(apid, places, self.made.as_mut().unwrap_or(&mut BTreeSet::new()))
                }
                None => Ok(()),
            },
            // A second placement: they are there already.
            Some(State::Thread(_)) | None => Ok(()),
        }
    }

    fn stderr(&mut self) -> &mut Lane {
        self.stderr.as_mut().unwrap_or(&mut self.stdout)
    }

    /// Writes a piece; `pending` gets what is done at once.
    pub fn write(&mut self, output: Output, pending: &mut Vec<Event>) {
        let lane = match (&mut self.files, self.to_files[usize::from(output.stderr)]) {
            (Some(files), true) => files,
            _ if output.stderr => self.stderr(),
            _ => &mut self.stdout,
        };
        lane.take(Job::Output(output), pending);
    }

    /// Writes a line on stderr, after what was to be written there before. What another host or
    /// user has a part in (a cause, a notice, a refusal) neither begins a line of its own nor
    /// steers the terminal.
    pub fn say(&mut self, line: &str, pending: &mut Vec<Event>) {
        self.stderr().take(Job::line(line), pending);
    }

    /// Resolves when all that was said has been written, or thrown away.
    pub fn flush(&mut self) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        self.stderr().take(Job::Flush(sender), &mut Vec::new());
        receiver
    }
}

impl Lane {
    fn take(&mut self, job: Job, pending: &mut Vec<Event>) {
        if let State::Here(writer) = &mut self.state {
            if writer.is_quick(&job) {
                writer.do_it(job, &mut |event| pending.push(event));
                return;
            }
            let mut writer = std::mem::take(writer);
            let (sender, jobs) = threads::channel();
            let notes = self.notes.clone();
            let thread = std::thread::Builder::new().name("output".to_owned()).spawn(move || {
                for job in jobs {
                    writer.do_it(job, &mut |event| {
                        let _ = notes.blocking_send(Note::Event(event));
                    });
                }
            });
            if let Err(error) = thread {
                let text = format!("can't start a thread for the output: {}", plain(&error));
                pending.push(Event::OutputLost(Loss::Failed(text)));
            }
            self.state = State::Thread(sender);
        }
        if let State::Thread(sender) = &self.state
            && let Err(threads::SendError(job)) = sender.send(job)
        {
            // There is no thread: thrown away.
            match job {
                Job::Output(output) => pending.push(written(&output)),
                Job::Line(_) | Job::Flush(_) => {}
            }
        }
    }
}

fn written(output: &Output) -> Event {
    Event::Written { source: output.source, end: output.end() }
}

impl Writer {
    /// Whether this can be done without waiting.
    fn is_quick(&self, job: &Job) -> bool {
        let ready = |fd: BorrowedFd<'_>| {
            let mut fds = [PollFd::new(fd, PollFlags::POLLOUT)];
            poll(&mut fds, PollTimeout::ZERO).is_ok_and(|n| n > 0)
        };
        match job {
            Job::Flush(_) => true,
            Job::Line(line) => line.len() < AT_ONCE && ready(io::stderr().as_fd()),
            Job::Output(_) if self.files.is_some() => false,
            // Labels make it longer, but not of a piece with few lines.
            Job::Output(output) if self.label && output.data.len() > AT_ONCE / 16 => false,
            Job::Output(output) if output.data.len() > AT_ONCE => false,
            Job::Output(output) if output.stderr => ready(io::stderr().as_fd()),
            Job::Output(_) => ready(io::stdout().as_fd()),
        }
    }

    fn do_it(&mut self, job: Job, tell: &mut dyn FnMut(Event)) {
        match job {
            Job::Flush(done) => {
                let _ = done.send(());
            }
            Job::Line(line) => {
                // Where stderr is closed there is nobody left to tell.
                let _ = write_all(
                    io::stderr().as_fd(),
                    (at_blanks(&line, columns(), INDENT) + "\n").as_bytes(),
                );
            }
            Job::Output(output) => {
                if let Some(loss) = self.output(&output) {
                    tell(Event::OutputLost(loss));
                }
                tell(written(&output));
            }
        }
    }

    /// Writes, or throws away. The first failure of a stream is told.
    fn output(&mut self, output: &Output) -> Option<Loss> {
        let stream = usize::from(output.stderr);
        if self.dead[stream] {
            return None;
        }
        if let Some(files) = &mut self.files {
            let mut write = |file: &std::fs::File, data: &[u8]| write_all(file.as_fd(), data);
            let Output { stderr, rank, nid, data, .. } = output;
            let result = files.write(*stderr, *rank, *nid, self.label, data, &mut write);
            self.dead[stream] = result.is_err();
            return result.err().map(Loss::Failed);
        }
        let mut labelled = Vec::new();
        let data = if self.label {
            let labels = &mut self.labels[if self.same { 0 } else { stream }];
            labels.label(output.rank, &output.data, &mut labelled);
            &labelled[..]
        } else {
            &output.data[..]
        };
        if output.stderr {
            let result = write_all(io::stderr().as_fd(), data);
            self.dead[stream] = result.is_err();
            return result.err().and_then(|error| stderr_lost(&error));
        }
        let result = if closed_at_start(1) {
            Err(io::Error::from(Errno::EPIPE))
        } else {
            write_all(io::stdout().as_fd(), data)
        };
        self.dead[stream] = result.is_err();
        match result {
            Ok(()) => None,
            // EIO: the terminal is gone.
            Err(e) if matches!(Errno::from_raw(e.raw_os_error()?), Errno::EPIPE | Errno::EIO) => {
                Some(Loss::StdoutClosed)
            }
            Err(e) => Some(Loss::Failed(format!("can't write standard output: {}", plain(&e)))),
        }
    }
}

/// What is lost with stderr. Where nobody reads it (a closed pipe, a terminal that is gone) nothing
/// is: nobody wants it, and nobody can be told.
fn stderr_lost(error: &io::Error) -> Option<Loss> {
    match error.raw_os_error() {
        Some(libc::EPIPE | libc::EIO | libc::EBADF) => None,
        _ => Some(Loss::Failed(format!("can't write standard error: {}", plain(error)))),
    }
}

/// Writes all of it, also where the descriptor is non-blocking.
fn write_all(fd: BorrowedFd<'_>, mut data: &[u8]) -> io::Result<()> {
    while !data.is_empty() {
        match write(fd, data) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero)),
            Ok(n) => data = &data[n..],
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => {
                // Somebody else has made it so; an error shows at the next write.
                let _ = poll(&mut [PollFd::new(fd, PollFlags::POLLOUT)], PollTimeout::NONE);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Whether stdout and stderr are one file.
fn is_same_file() -> bool {
    let id = |fd: BorrowedFd<'_>| {
        nix::sys::stat::fstat(fd).ok().map(|s| (s.st_dev, s.st_ino, s.st_rdev))
    };
    let out = id(io::stdout().as_fd());
    out.is_some() && out == id(io::stderr().as_fd())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    use std::io::Read;

    #[test]
    fn a_non_blocking_pipe_takes_all() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).expect("a flag");
        let data: Vec<u8> = (0..1_000_000u32).map(|i| i as u8).collect();
        let expected = data.clone();
        let written = std::thread::spawn(move || write_all(writer.as_fd(), &data));
        let mut got = Vec::new();
        reader.read_to_end(&mut got).expect("readable");
        written.join().expect("no panic").expect("written");
        assert!(got == expected);
    }

    #[test]
    fn a_line_stays_one_whatever_a_host_says() {
        let said = "[NID 00002] Apid 12: the node lost the application: \u{1b}[2J\nNID 0: declared down by root";
        let line = match Job::line(said) {
            Job::Line(line) => line,
            Job::Output(_) | Job::Flush(_) => String::new(),
        };
        let clean =
            "[NID 00002] Apid 12: the node lost the application: ?[2J?NID 0: declared down by root";
        assert_eq!(line, clean);
    }

    #[test]
    fn a_closed_pipe_is_an_error() {
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        let error = write_all(writer.as_fd(), b"x").expect_err("closed");
        assert_eq!(error.raw_os_error(), Some(libc::EPIPE));
    }
}
