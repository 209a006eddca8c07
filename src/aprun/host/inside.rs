//! `aprun --inside`: what psched and an apinit are to another aprun, this one is to itself.
//!
//! The course is the same ([`crate::aprun::decide::session`]): it is told at once that it has a place, on the processors of
//! this process, and where it would speak with an apinit it speaks with an apshepherd of this process's own.

use super::Failure;
use super::note::Note;
use crate::apinit::host::inside::{Inside, Within};
use crate::aprun::decide::closing::Ended;
use crate::aprun::decide::inside;
use crate::aprun::decide::options::Options;
use crate::aprun::decide::session::{Event, Placement, PschedEvent};
use crate::apshepherd::decide::mapping::process_mapping;
use crate::apteam::Ticket;
use crate::apteam::binding::Binding;
use crate::apteam::bounds::Bounds;
use crate::apteam::ending::{Cause, Decisive, HostEnd};
use crate::apteam::fault::Fault;
use crate::apteam::launch::{HostLaunch, Launch, LocalPe, Spawned};
use crate::apteam::launcher_variables::{Rendezvous, THREADS};
use crate::apteam::oversubscribe::Oversubscribe;
use crate::apteam::place::{HostPart, Place, PlacementList};
use crate::apteam::protocol::attach::{FromApinit, FrontReason, ToApinit};
use crate::apteam::protocol::shepherd::{FromShepherd, ToShepherd, misfit};
use crate::apteam::protocol::stacks::{Made, Placed};
use crate::os::host::monotonic_ns;
use crate::os::pmix_folder;
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// From TERM to KILL, as long as a site's `kill_grace` is where nothing else is set.
const KILL_GRACE: Duration = Duration::from_secs(5);

/// Why the apshepherd could not tell how it ended, and the signal by which it was asked to end.
struct Lost(String, Option<i32>);

impl From<String> for Lost {
    fn from(text: String) -> Lost {
        Lost(text, None)
    }
}

/// A name of a PMIx namespace that nobody can guess.
fn pmix_name() -> Result<String, String> {
    let mut secret = [0u8; 16];
    rustix::rand::getrandom(&mut secret[..], rustix::rand::GetRandomFlags::empty())
        .map_err(|e| format!("the kernel gives no random number: {e}"))?;
    let secret: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("psched.inside.{secret}"))
}

/// The application in which PEs are started, and where they go.
#[derive(Clone, Debug)]
pub struct Home {
    within: Within,
    place: Place,
    cpu_limit: Option<Duration>,
    /// A PE of the application has spawned what is to be started; whether that may share processors with what it spawns.
    spawned: Option<(Spawned, bool)>,
}

impl Home {
    /// The one in which this process runs.
    ///
    /// # Errors
    /// It runs in none, or has too few processors.
    pub fn find(options: &Options) -> Result<Home, Failure> {
        let within = Within::find().map_err(Failure::failed)?;
        let place = inside::place(
            &options.posting.shape,
            options.posting.oversubscribe != Oversubscribe::No,
            within.nid,
            &within.cpus,
            within.depth,
        );
        let place = place.map_err(Failure::failed)?;
        let spawned = std::env::var_os(Spawned::VARIABLE);
        let spawned = spawned.and_then(|text| Spawned::parse(text.as_bytes()));
        Ok(Home { within, place, cpu_limit: options.posting.cpu_limit, spawned })
    }

    /// As psched would say it.
    pub fn placement(&self) -> Placement {
        Placement {
            key: self.within.key,
            places: PlacementList([self.place.clone()].into()),
            hosts: vec![HostPart { nids: vec![self.within.nid], ..HostPart::default() }],
            ticket: Ticket([0; 16]),
            front_host: String::new(),
        }
    }

    /// What psched would say at once.
    pub fn events(&self) -> [Event; 3] {
        let key = self.within.key;
        [
            // (No process has this number: no signal is taken for psched's.)
            Event::PschedUp { pid: -1 },
            Event::Psched(PschedEvent::Accepted(key.apid)),
            Event::Psched(PschedEvent::Placed(key.incarnation.0)),
        ]
    }

    /// What the apshepherd is to do.
    fn launch(&self, mut launch: Launch) -> Result<HostLaunch, String> {
        let Home { within, place, cpu_limit, spawned } = self;
        if let Some((_, shares)) = spawned {
            launch.shares = *shares;
        }
        let list = PlacementList([place.clone()].into());
        launch.binding.fits(&list)?;
        let depth = place.depth();
        // (A caller that is not bound may share its processors with others that call aprun as well.)
        let bound = within.cpus.len() as u64 <= u64::from(within.depth.max(1));
        if launch.binding == Binding::Usual && !bound {
            launch.binding = Binding::None;
            // (Others may run on these processors, too. That of the outer application is not passed on; one that gives its
            // PEs several processors has given a number that may be the user's as well.)
            let one_each = depth == 1 && within.depth <= 1;
            if one_each && launch.rendezvous.is_some() && !launch.sets(THREADS.as_bytes()) {
                launch.environment.push(format!("{THREADS}=1").into_bytes());
            }
        }
        let numa = |cpu: u32| within.numa.get(&cpu).copied();
        let sets = launch.binding.sets(&place.processors, place.pes, depth, numa);
        let sets: Vec<Vec<u32>> = sets.map_err(|_| "-cc names no processor".to_owned())?.collect();
        let pe = |(rank, set): (u32, Vec<u32>)| {
            // One that is bound to none has all of the caller's.
            let set: BTreeSet<u32> = set.into_iter().collect();
            let cpus = match set.is_empty() {
                true => within.cpus.clone(),
                false => set.into_iter().collect(),
            };
            LocalPe { rank, nid: within.nid, cpus, nice: 0, depth }
        };
        let pes = (0..).zip(sets).map(pe).collect();
        if launch.binding != Binding::None {
            launch.binding = Binding::Cpu;
        }
        if let Some(rendezvous) = &mut launch.rendezvous {
            // (Others may run inside the same application.)
            *rendezvous = Rendezvous::inside(within.key.apid, std::process::id().into());
        }
        Ok(HostLaunch {
            key: within.key,
            width: place.pes,
            depth,
            launch,
            pes,
            process_mapping: process_mapping([("", place.pes.into())]),
            alone: true,
            others: Vec::new(),
            cpu_limit: *cpu_limit,
            stdin: true,
            kill_grace: KILL_GRACE,
            marker: within.marker.clone(),
            // (The application's own limits hold.)
            memory_per_pe: None,
            pids_max: None,
            bounds: Bounds::default(),
            pmix_name: pmix_name()?,
            host_index: 0,
            pmix_folder: pmix_folder::new_path_inside().map_err(|e| e.to_string())?,
            spawned: spawned.as_ref().map(|(spawned, _)| spawned.clone()),
        })
    }

    /// Has an apshepherd launch it, and stays until its end.
    pub async fn converse(
        self,
        link: u32,
        first: ToApinit,
        mut hears: mpsc::UnboundedReceiver<ToApinit>,
        notes: mpsc::Sender<Note>,
    ) {
        let end = match first {
            ToApinit::Launch { launch, .. } => self.talk(link, *launch, &mut hears, &notes).await,
            // Nothing is kept of what went before.
            _ => Err(Lost("a part of its output is missing".to_owned(), None)),
        };
        let nids = vec![self.within.nid];
        let end = end.unwrap_or_else(|Lost(text, signal)| {
            let uid = nix::unistd::getuid().as_raw();
            let cause = match signal {
                Some(signal) => Cause::Kill { signal, uid },
                None => Cause::ShepherdLost { nid: self.within.nid, text, fault: Fault::User },
            };
            let first = Some(Decisive { at_ns: monotonic_ns(), cause });
            HostEnd { launched: true, first, lost: nids.clone(), ..HostEnd::default() }
        });
        let end = HostEnd { key: self.within.key, nids, ..end };
        let ended = Ended {
            status: end.status(),
            end,
            told: false,
            by_name: String::new(),
            host: String::new(),
            no_copy: false,
        };
        let ended = Event::Psched(PschedEvent::Ended(Box::new(ended)));
        for event in [ended, Event::Apinit(FromApinit::Done)] {
            // An Err: this process is at its end.
            let _ = notes.send(Note::Apinit { link, event }).await;
        }
    }

    /// The same, up to the end that the apshepherd tells.
    async fn talk(
        &self,
        link: u32,
        launch: Launch,
        hears: &mut mpsc::UnboundedReceiver<ToApinit>,
        notes: &mpsc::Sender<Note>,
    ) -> Result<HostEnd, Lost> {
        let launch = self.launch(launch)?;
        // (It lives longer than the connection to the apshepherd, which removes the folder as a rule.)
        let _folder = PmixFolder(launch.pmix_folder.clone().into());
        let mut shepherd = Inside::start(&self.within)?;
        let tell = async |message| {
            let event = Event::Apinit(message);
            let _ = notes.send(Note::Apinit { link, event }).await;
        };
        shepherd.say(ToShepherd::Launch(Box::new(launch)));
        tell(FromApinit::Accepted).await;
        let mut going = None;
        loop {
            let heard = tokio::select! {
                heard = shepherd.hear() => heard?,
                Some(message) = hears.recv() => {
                    if let Some(message) = to_shepherd(message) {
                        shepherd.say(message);
                    }
                    continue;
                }
            };
            let Some(message) = heard else {
                let (text, signal) = shepherd.end().await;
                return Err(Lost(text, signal));
            };
            match message {
                FromShepherd::Hello(hello) => {
                    if let Some(text) = misfit(hello.protocol) {
                        return Err(text.into());
                    }
                }
                FromShepherd::Ready => {
                    shepherd.say(ToShepherd::Go);
                    going = Some(Instant::now());
                    tell(FromApinit::Going).await;
                }
                FromShepherd::Failed(Decisive { cause, .. })
                | FromShepherd::Decisive(Decisive { cause, .. }) => {
                    if cause.ends_application() {
                        shepherd.say(ToShepherd::Terminate { cause, kill_after: KILL_GRACE });
                    }
                }
                // (It is where it belongs: this process is in the group of the node.)
                FromShepherd::DebuggerMade(Made { number, spawned: true, .. }) => {
                    let placed = Placed { number, why_not: String::new(), spawned: true };
                    shepherd.say(ToShepherd::DebuggerPlaced(placed));
                }
                FromShepherd::Output(output) => tell(FromApinit::Output(output)).await,
                FromShepherd::StdinCredit(credit) => tell(FromApinit::StdinCredit(credit)).await,
                FromShepherd::SignalsTaken(number) => {
                    tell(FromApinit::SignalsTaken(number)).await;
                }
                FromShepherd::Notice(text) => tell(FromApinit::Notice(text)).await,
                FromShepherd::Ended(end) => {
                    shepherd.say(ToShepherd::Release);
                    shepherd.end().await;
                    // (An apinit measures it, and knows its turns; here they are the outer application's.)
                    let run = going.map_or(Duration::ZERO, |going| going.elapsed());
                    return Ok(HostEnd { run, ..*end });
                }
                // No other host has PEs; and what outlives its KILL is the application's to wait for.
                FromShepherd::BarrierIn(_)
                | FromShepherd::Letter(_)
                | FromShepherd::Stuck(_)
                | FromShepherd::Processes(_)
                | FromShepherd::Stacks(_)
                | FromShepherd::DebuggerMade(_)
                | FromShepherd::ProgramsWanted { .. } => {}
            }
        }
    }
}

/// The folder of files of PMIx, which goes with this.
struct PmixFolder(PathBuf);

impl Drop for PmixFolder {
    fn drop(&mut self) {
        pmix_folder::remove(&self.0, nix::unistd::geteuid().as_raw());
    }
}

/// What is said to an apinit, as one says it to its apshepherd.
fn to_shepherd(message: ToApinit) -> Option<ToShepherd> {
    Some(match message {
        ToApinit::Stdin(piece) => ToShepherd::Stdin(piece),
        ToApinit::StdinEnd(bytes) => ToShepherd::StdinEnd(bytes),
        ToApinit::OutputTaken(taken) => ToShepherd::OutputTaken(taken.offset),
        ToApinit::Signal(signal) => ToShepherd::Signal(signal),
        ToApinit::Terminate { reason, kill_after } => {
            let cause = match reason {
                // Who withdraws it is the user who runs it.
                FrontReason::Withdrawn { signal } => {
                    Cause::Kill { signal, uid: nix::unistd::getuid().as_raw() }
                }
                reason => reason.into(),
            };
            ToShepherd::Terminate { cause, kill_after }
        }
        ToApinit::Launch { .. } | ToApinit::Resume { .. } => return None,
    })
}
