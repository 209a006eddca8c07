//! Reading stdin: only as much as PE 0 has room for, and never so that this process waits for it.

use super::note::Note;
use super::program::plain;
use crate::aprun::decide::session::Event;
use bytes::Bytes;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{SFlag, fstat};
use nix::unistd::read;
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::mpsc as threads;
use tokio::sync::mpsc;

/// stdin of this process.
pub struct Stdin {
    notes: mpsc::Sender<Note>,
    /// A regular file or /dev/null: reading it does not wait, so it needs no thread.
    at_once: Option<bool>,
    thread: Option<threads::Sender<usize>>,
    /// Nothing is to be read.
    none: bool,
    /// The thread reads.
    reads: bool,
    /// The application that asked for what the thread reads now has been lost.
    early: bool,
    /// What was read meanwhile.
    kept: VecDeque<Event>,
}

impl Stdin {
    /// Nothing is read yet.
    pub fn new(notes: mpsc::Sender<Note>) -> Stdin {
        Stdin {
            notes,
            at_once: None,
            thread: None,
            none: false,
            reads: false,
            early: false,
            kept: VecDeque::new(),
        }
    }

    /// One that is at its end.
    pub fn none(notes: mpsc::Sender<Note>) -> Stdin {
        Stdin { none: true, ..Stdin::new(notes) }
    }

    /// Another application goes on where this process has read to: how much of that the one before has taken is not
    /// known, and nothing is to be read twice. The thread may be waiting for more: what it reads is kept until it is
    /// asked for.
    pub fn next(&mut self) {
        self.early = true;
    }

    /// Takes an event of a thread; none: it is kept.
    pub fn came(&mut self, event: Event) -> Option<Event> {
        match &event {
            Event::Stdin(_) | Event::StdinEnd => self.reads = false,
            _ => return Some(event),
        }
        if !self.early {
            return Some(event);
        }
        self.kept.push_back(event);
        None
    }

    /// Reads at most so many bytes, in the background; what can be had at once goes to `pending`.
    pub fn read(&mut self, most: usize, pending: &mut Vec<Event>) {
        if self.none {
            pending.push(Event::StdinEnd);
            return;
        }
        match self.kept.pop_front() {
            // There may be less room than there was when it was read.
            Some(Event::Stdin(mut bytes)) => {
                let piece = bytes.split_to(most.min(bytes.len()));
                if !bytes.is_empty() {
                    self.kept.push_front(Event::Stdin(bytes));
                }
                pending.push(Event::Stdin(piece));
                return;
            }
            Some(event) => {
                pending.push(event);
                return;
            }
            None => self.early = false,
        }
        if self.reads {
            return;
        }
        if *self.at_once.get_or_insert_with(never_waits) {
            pending.extend(read_some(most));
            return;
        }
        if self.thread.is_none() {
            let (sender, wanted) = threads::channel::<usize>();
            let notes = self.notes.clone();
            let thread = std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
                for most in wanted {
                    for event in read_some(most) {
                        if notes.blocking_send(Note::Event(event)).is_err() {
                            return;
                        }
                    }
                }
            });
            if thread.is_err() {
                pending.push(Event::StdinEnd);
                return;
            }
            self.thread = Some(sender);
        }
        if let Some(thread) = &self.thread {
            self.reads = thread.send(most).is_ok();
            if !self.reads {
                pending.push(Event::StdinEnd);
            }
        }
    }
}

fn never_waits() -> bool {
    let Ok(stat) = fstat(io::stdin().as_fd()) else { return false };
    match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
        SFlag::S_IFREG => true,
        // /dev/null
        SFlag::S_IFCHR => stat.st_rdev == nix::sys::stat::makedev(1, 3),
        _ => false,
    }
}

fn read_some(most: usize) -> Vec<Event> {
    let mut buffer = vec![0; most];
    loop {
        match read(io::stdin(), &mut buffer) {
            Ok(0) => return vec![Event::StdinEnd],
            Ok(n) => {
                buffer.truncate(n);
                return vec![Event::Stdin(Bytes::from(buffer))];
            }
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => {
                let stdin = io::stdin();
                let mut fds = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
                let _ = poll(&mut fds, PollTimeout::NONE);
            }
            // EIO: a terminal of which this process is in the background; TTIN is ignored. EBADF:
            // opened for writing only.
            Err(Errno::EIO | Errno::EBADF) => return vec![Event::StdinEnd],
            Err(error) => {
                let text = format!("can't read standard input: {}", plain(&error.into()));
                return vec![Event::Trouble(text), Event::StdinEnd];
            }
        }
    }
}
