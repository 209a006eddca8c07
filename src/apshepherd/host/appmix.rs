//! appmix: the server of the PMIx library for the PEs of this host, a child of the apshepherd.
//!
//! # Problem
//! The library has threads of its own and reads what any process of this machine sends it over TCP. It is no part of a
//! process that keeps the order of an application's end, which is linked statically besides.
//!
//! # Approach
//! A program of its own without rights, the user's as the apshepherd is, that no other program of the user's may trace
//! ([`crate::os::untraced`]). It takes the library from where the administrator has it, and its environment keeps it from
//! looking for parts of it in the user's home. Several PEs are told what their host is made of. It ends when its
//! connection does.
//!
//! What the library's threads say is written by them, and one thread reads what the apshepherd says. This one waits for
//! nothing else: while too much waits here to be read, the apshepherd does not read either, and the library's threads wait
//! for it. What waits for one of these has a thread of its own ([`Registrar`]).

use crate::apshepherd::decide::mapping::hosts_of;
use crate::apshepherd::decide::pmix::{FromMix, GIVEN_MAX, Job, ToMix};
use crate::apshepherd::decide::spawn::Program;
use crate::apteam::protocol::letters::{SpawnedPe, Spawning};
use crate::node::frames::{Joiner, PACKET_MAX, pieces};
use crate::os::host::hostname;
use crate::os::inherit;
use crate::os::pmix::{self, DataUpcall, Failure, Rank, Server, Upcall};
use crate::os::pmix_folder;
use crate::os::untraced::{self, OWN_FD};
use crate::rpc::pb;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, sendmsg, setsockopt, sockopt};
use prost::Message;
use std::collections::BTreeMap;
use std::io::{IoSlice, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{Sender as Queue, channel};
use std::sync::{Arc, Mutex};

/// How it is called.
const USAGE: &str = "usage: appmix --help\n(started by apshepherd, which gives it its connection)";
/// Asked of the kernel for what is sent.
const SEND_BUFFER: usize = 1024 * 1024;
/// So many PEs look for longer what their host is made of than appmix does for them: it takes 20 ms, while they wait.
const DESCRIBED_FROM: usize = 4;
/// The folder for files of the application's PEs.
const OWN_FOLDER: &str = "0";

/// Sends messages, each whole: several threads have it. (A PE goes on with PMIx_Finalize when its message has been written: it
/// may end at once.)
#[derive(Clone)]
struct Sender(Arc<Mutex<OwnedFd>>);

impl Sender {
    fn send(&self, message: FromMix) {
        let message = pb::FromMix::from(message).encode_to_vec();
        let fd = self.0.lock().unwrap_or_else(|broken| broken.into_inner());
        for (header, payload) in pieces(&message) {
            let header = [header];
            let parts = [IoSlice::new(&header), IoSlice::new(payload)];
            let flags = MsgFlags::MSG_NOSIGNAL;
            loop {
                match sendmsg::<()>(fd.as_raw_fd(), &parts, &[], flags, None) {
                    Ok(_) => break,
                    Err(Errno::EINTR) => {}
                    // Half a message is none: PEs would wait for ever.
                    Err(_) => untraced::end_at_once(1),
                }
            }
        }
    }
}

/// What the apshepherd says.
struct Messages {
    connection: OwnedFd,
    joiner: Joiner,
    buffer: Vec<u8>,
}

impl Iterator for Messages {
    type Item = ToMix;

    /// Waits for the next; `None`: it has gone, or says what is none.
    fn next(&mut self) -> Option<ToMix> {
        loop {
            let fd = self.connection.as_raw_fd();
            let count = match recv(fd, &mut self.buffer, MsgFlags::empty()) {
                Err(Errno::EINTR) => continue,
                Ok(0) | Err(_) => return None,
                Ok(count) => count,
            };
            if let Some(whole) = self.joiner.push(&self.buffer[..count]).ok()? {
                return ToMix::try_from(pb::ToMix::decode(whole).ok()?).ok();
            }
        }
    }
}

/// appmix, whole: the process's exit code. It has its connection as [`OWN_FD`].
pub fn main(arguments: impl IntoIterator<Item = String>) -> ExitCode {
    if arguments.into_iter().next().is_some_and(|first| first == "--help") {
        // With stdout closed nobody reads it.
        let _ = writeln!(std::io::stdout(), "{USAGE}");
        return ExitCode::SUCCESS;
    }
    let connection = untraced::is_safe().and_then(|()| inherit::take(OWN_FD));
    let connections = connection.and_then(|own| Ok((own.try_clone()?, own)));
    let Ok((writes, connection)) = connections else {
        eprintln!("appmix: it has no connection\n{USAGE}");
        return ExitCode::from(2);
    };
    // Refused: then it has less.
    let _ = setsockopt(&connection, sockopt::SndBuf, &SEND_BUFFER);
    let buffer = vec![0; PACKET_MAX + 1];
    let mut messages = Messages { connection, joiner: Joiner::default(), buffer };
    let sender = Sender(Arc::new(Mutex::new(writes)));
    // (Its end is to be seen before that of its connection.)
    let Some(ToMix::Begin(mut job)) = messages.next() else { untraced::end_at_once(1) };
    match pmix_folder::make(&job.folder) {
        Ok(folder) => job.folder = folder,
        Err(e) => {
            let text = format!("{} can't be made: {e}", job.folder);
            sender.send(FromMix::Fails { missing: false, text });
            untraced::end_at_once(1);
        }
    }
    let mut whole = known(&job);
    match pmix_folder::make_below(&job.folder, OWN_FOLDER) {
        Ok(folder) => whole.own_folder = folder,
        Err(e) => {
            let text = format!("no folder can be made in {}: {e}", job.folder);
            sender.send(FromMix::Fails { missing: false, text });
            untraced::end_at_once(1);
        }
    }
    let began = work(&sender, messages, &job, whole);
    let _ = std::fs::remove_dir_all(&job.folder);
    // Nothing of the library's is run: its threads may be anywhere.
    untraced::end_at_once(if began { 0 } else { 1 })
}

/// Serves until the connection ends. False: it could not begin.
fn work(sender: &Sender, messages: Messages, job: &Job, whole: pmix::Job) -> bool {
    let says = sender.clone();
    let say = move |upcall| said(upcall).into_iter().for_each(|said| says.send(said));
    let started = Server::start(&whole, say);
    let begun = started.and_then(|server| {
        let first = job.ranks.first().copied().unwrap_or_default();
        Ok((server.environment(&job.name, first)?, server))
    });
    let server = match begun {
        Ok((environment, server)) => {
            sender.send(FromMix::Serves { environment, version: server.version() });
            server
        }
        Err(failure) => {
            let (missing, text) = match failure {
                Failure::NoLibrary(text) => (true, text),
                Failure::Refused(text) => (false, text),
            };
            sender.send(FromMix::Fails { missing, text });
            return false;
        }
    };
    let server = Arc::new(server);
    let registrar = Registrar { server: server.clone(), sender: sender.clone(), whole };
    let Some(registrar) = registrar.start() else { return false };
    let mut begun: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    for message in messages {
        match message {
            // (Said twice.)
            ToMix::Begin(_) => {}
            ToMix::FenceOver { number, status, data, last } => {
                let all = begun.entry(number).or_default();
                all.extend_from_slice(&data);
                if last {
                    let all = begun.remove(&number).unwrap_or_default();
                    server.answer(number, status, &all);
                }
            }
            ToMix::ModexFound { number, status, data } => {
                server.answer(number, status, &data);
            }
            ToMix::Spawned { number, status, name } => server.spawned(number, status, &name),
            ToMix::Answered { number, key, status, data } => {
                server.answer_key(number, &key, status, &data);
            }
            ToMix::LookUp { .. } | ToMix::Prepare { .. } | ToMix::Forget(_) => {
                // (It has died: PEs would wait for ever.)
                registrar.send(message).unwrap_or_else(|_| untraced::end_at_once(1));
            }
        }
    }
    true
}

/// Does what waits for the library's threads, or says something itself, in a thread of its own.
struct Registrar {
    server: Arc<Server>,
    sender: Sender,
    /// The application.
    whole: pmix::Job,
}

impl Registrar {
    /// Its queue, in which the apshepherd has a bounded number of questions and programs; `None`: there is no thread for it.
    fn start(self) -> Option<Queue<ToMix>> {
        let (queue, messages) = channel();
        let thread = std::thread::Builder::new();
        thread.spawn(move || messages.into_iter().for_each(|message| self.take(message))).ok()?;
        Some(queue)
    }

    fn take(&self, message: ToMix) {
        match message {
            ToMix::LookUp { number, rank, spawned } => {
                self.server.look_up(number, rank, spawned.map(to_library).as_ref());
            }
            ToMix::Prepare { number, spawning } => {
                let (environment, why_not) = match self.prepare(number, spawning) {
                    Ok(environment) => (environment, String::new()),
                    Err(Failure::NoLibrary(text) | Failure::Refused(text)) => (Vec::new(), text),
                };
                self.sender.send(FromMix::Prepared { number, environment, why_not });
            }
            ToMix::Forget(name) => {
                self.server.forget(&name);
                if let Some(own) = folder_of(&name) {
                    let _ = std::fs::remove_dir_all(Path::new(&self.whole.folder).join(own));
                }
            }
            // (These are others' business.)
            _ => {}
        }
    }

    /// The variables for PEs that are here.
    fn prepare(&self, number: u64, spawning: Spawning) -> Result<Vec<Vec<u8>>, Failure> {
        let mut job = spawned(&self.whole, &spawning);
        if job.is_here() {
            let refused = |why: String| {
                Failure::Refused(format!("no folder can be made in {}: {why}", job.folder))
            };
            let own = folder_of(&job.name).ok_or_else(|| refused("it has no number".into()))?;
            let made = pmix_folder::make_below(&job.folder, &own);
            job.own_folder = made.map_err(|error| refused(error.to_string()))?;
        }
        let spawner = spawning.spawner.map(to_library);
        self.server.add(number, &job, spawning.parent, spawner.as_ref())?;
        if !job.is_here() {
            return Ok(Vec::new());
        }
        self.server.environment(&job.name, 0)
    }
}

/// An application as the library is told of it.
fn known(job: &Job) -> pmix::Job {
    let mut hosts = hosts_of(&job.mapping, job.width);
    let first = job.ranks.first().copied().unwrap_or_default();
    let own = hosts.get(first as usize).copied().unwrap_or_default();
    // PEs that another apinit of this host has are served by another server: to this one they are elsewhere.
    let others = hosts.iter().max().map_or(1, |last| last.saturating_add(1));
    for (rank, host) in (0..).zip(&mut hosts) {
        if *host == own && job.ranks.binary_search(&rank).is_err() {
            *host = others;
        }
    }
    let count = hosts.iter().max().map_or(1, |last| *last as usize + 1);
    let mut next = vec![0u16; count];
    let ranks = (0..).zip(&hosts).map(|(rank, host)| {
        let local = next[*host as usize];
        next[*host as usize] = local.saturating_add(1);
        let program = job.firsts.partition_point(|first| *first <= rank) as u32;
        Rank { rank, local, host: *host, program }
    });
    pmix::Job {
        name: job.name.clone(),
        ranks: ranks.collect(),
        universe: job.universe,
        // Libraries look their own host up by its name, and compare those of others with it.
        hosts: (0..count as u32)
            .map(|host| if host == own { hostname() } else { format!("psched-host-{host}") })
            .collect(),
        own,
        programs: job.firsts.len() as u32 + 1,
        folder: job.folder.clone(),
        own_folder: String::new(),
        describes_host: job.ranks.len() >= DESCRIBED_FROM,
    }
}

/// A program that a PE of this application spawns, all on the host of that PE.
fn spawned(whole: &pmix::Job, spawning: &Spawning) -> pmix::Job {
    let Spawning { space, width, firsts, parent, .. } = spawning;
    let rank = |rank: u32| Rank {
        rank,
        local: u16::try_from(rank).unwrap_or(u16::MAX),
        host: 0,
        program: firsts.partition_point(|first| *first <= rank) as u32,
    };
    let host = whole.ranks.get(*parent as usize).map_or(whole.own, |rank| rank.host);
    pmix::Job {
        name: space.clone(),
        hosts: whole.hosts.get(host as usize).cloned().into_iter().collect(),
        own: u32::from(host != whole.own),
        programs: firsts.len() as u32 + 1,
        ranks: (0..*width).map(rank).collect(),
        universe: *width,
        folder: whole.folder.clone(),
        own_folder: String::new(),
        describes_host: false,
    }
}

/// How the folder of what was spawned is called: as its namespace ends, with two numbers.
fn folder_of(name: &str) -> Option<String> {
    let mut parts = name.rsplit('.').map(str::parse::<u64>);
    let (number, host) = (parts.next()?.ok()?, parts.next()?.ok()?);
    Some(format!("{host}.{number}"))
}

fn to_library(SpawnedPe { space, rank }: SpawnedPe) -> pmix::SpawnedPe {
    pmix::SpawnedPe { space, rank }
}

fn from_library(pmix::SpawnedPe { space, rank }: pmix::SpawnedPe) -> SpawnedPe {
    SpawnedPe { space, rank }
}

fn said(upcall: Upcall) -> Vec<FromMix> {
    vec![match upcall {
        Upcall::Connected(rank) => FromMix::Connected(rank),
        Upcall::Finalized(rank) => FromMix::Finalized(rank),
        Upcall::Abort { rank, code } => FromMix::Abort { rank, code },
        Upcall::Fence { number, ranks, spawned, mut data } => {
            // (More is too much, as the apshepherd will say.)
            data.truncate(GIVEN_MAX + 1);
            let ranks = ranks.unwrap_or_default();
            FromMix::Fence { number, ranks, spawned, data: data.into() }
        }
        Upcall::Modex { number, rank, spawned } => {
            FromMix::Modex { number, rank, spawned: spawned.map(from_library) }
        }
        Upcall::Data { number, about } => {
            let said = |(key, what): (Vec<u8>, _)| {
                let key = key.into();
                match what {
                    DataUpcall::Publish { mut data, once } => {
                        data.truncate(GIVEN_MAX + 1);
                        FromMix::Publish { number, key, data: data.into(), once }
                    }
                    DataUpcall::LookUp { wait, seconds } => {
                        FromMix::LookUp { number, key, wait, seconds }
                    }
                    DataUpcall::Unpublish => FromMix::Unpublish { number, key },
                }
            };
            return about.into_iter().map(said).collect();
        }
        Upcall::Spawn { number, rank, spawner, programs } => {
            let program = |app: pmix::App| Program {
                pes: app.pes,
                command: app.command,
                arguments: app.arguments,
                environment: app.environment,
                folder: app.folder,
                path: Vec::new(),
            };
            let programs = programs.into_iter().map(program).collect();
            FromMix::Spawn { number, rank, spawner: spawner.map(from_library), programs }
        }
        Upcall::SpawnedAbort { number, code } => FromMix::SpawnedAbort { number, code },
        Upcall::Found { number, status, data } => {
            FromMix::Found { number, status, data: data.into() }
        }
    }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_called_by_numbers() {
        assert_eq!(folder_of("psched.7.1.ab.0.12").as_deref(), Some("0.12"));
        for wrong in ["", "12", "a.12", "a.0.", "a..", "0.../..", "0.-1"] {
            assert_eq!(folder_of(wrong), None, "{wrong}");
        }
    }
}
