//! Copies of programs for this host and for others of an application.
//!
//! ```text
//!   apshepherd        apinit here              apinit of a source        head               front end
//!   ProgramsWanted -> Action::TakeProgram
//!                     (the shell) Fetch   -->  ProgramAsked
//!                                              Action::TakeProgram
//!                                              (the shell) Fetch    -->  ProgramAsked
//!                                                                        ProgramWanted  --> Hand
//!                     <-- bytes --             <-- bytes --              <-- bytes --
//!                     ProgramTaken             (also if its own PEs need no copy)
//!   <- Programs
//! ```
//!
//! Bytes never come here: the shell keeps them, and passes them on as they come. What can't be copied is executed at its
//! path, where that leads to the same program, and the user is told.

use super::application::App;
use super::fronts::same_ticket;
use super::streams::Told;
use super::{Action, Agent, Out};
use crate::apteam::Key;
use crate::apteam::launch::{Launch, PARTS_MAX};
use crate::apteam::place::HostAddress;
use crate::apteam::protocol::attach::FromApinit;
use crate::apteam::protocol::notice::Notice;
use crate::apteam::protocol::peers::ToPeer;
use crate::apteam::protocol::programs::{GivenProgram, ProgramOf, WantedProgram, name_of, sources};
use crate::apteam::protocol::shepherd::ToShepherd;
use std::collections::BTreeMap;

/// The programs of an application of which copies are wanted.
#[derive(Debug, Default)]
pub(super) struct Programs {
    /// Its launch allows copies.
    allowed: bool,
    /// Its programs as the launch has them, of which hosts may have copies: none if it allows no
    /// copies. `None`: the launch has not come, or it came to a former life of this apinit.
    posted: Option<Vec<WantedProgram>>,
    /// (Not of the head.) From where they come, the first before the next.
    sources: Vec<HostAddress>,
    /// Those that come, by part, and what has come. `None`: it is on its way.
    come: BTreeMap<u32, Option<GivenProgram>>,
    /// Those for which the apshepherd here waits.
    wanted: BTreeMap<u32, WantedProgram>,
}

impl Programs {
    /// Its launch has come, for the first time or again.
    pub fn launched(&mut self, launch: &Launch) {
        self.allowed |= launch.copies;
        let parts = if launch.copies { launch.parts() } else { 0 };
        let programs = || (0..parts).filter_map(|part| posted(launch, part)).collect();
        self.posted.get_or_insert_with(programs);
    }

    /// What its apshepherd is to be given, once all of it has come.
    fn given(&self) -> Option<Vec<GivenProgram>> {
        let each = self.wanted.keys().map(|part| self.come.get(part).cloned().flatten());
        each.collect::<Option<Vec<_>>>().filter(|given| !given.is_empty())
    }

    /// Parts that are on their way.
    fn on_the_way(&self) -> impl Iterator<Item = u32> {
        self.come.iter().filter(|(_, come)| come.is_none()).map(|(part, _)| *part)
    }
}

/// A program as its launch has it, of which a host may want a copy, if aprun looked at it when it
/// was posted.
fn posted(launch: &Launch, part: usize) -> Option<WantedProgram> {
    let program = launch.program(part);
    let name = name_of(program.executable)?.to_vec();
    Some(WantedProgram { part: u32::try_from(part).ok()?, size: program.identity?.size, name })
}

impl App {
    /// From where a host of this application has its programs.
    fn sources_of(&self, index: u32) -> ToPeer {
        let at = |index: u32| self.place.hosts.get(index as usize).map(|host| host.at());
        ToPeer::Sources { hosts: sources(index).into_iter().filter_map(at).collect() }
    }
}

impl Agent {
    /// Whether this names an application that is here, with its ticket.
    pub fn knows_ticket(&self, of: &ProgramOf) -> bool {
        self.apps.get(&of.key).is_some_and(|app| same_ticket(&of.ticket, &app.place.ticket))
    }

    /// Whether PE 0 of an application is here.
    pub fn is_head_of(&self, key: Key) -> bool {
        self.apps.get(&key).is_some_and(App::head)
    }

    /// The apshepherd here wants these. It is its user's, and can ask for anything, as root of
    /// another host can.
    pub(super) fn programs_wanted(
        &mut self,
        key: Key,
        programs: Vec<WantedProgram>,
        out: &mut Out,
    ) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let posted = app.programs.posted.as_ref();
        // (A file of this name is made, and room of this size kept. After a restart the launch is
        // no longer here: then the name is that of a file at least, and the room of its user bounds
        // the size.)
        let is_one = |program: &WantedProgram| match posted {
            Some(posted) => posted.contains(program),
            None => {
                let name = name_of(&program.name);
                (program.part as usize) < PARTS_MAX && name == Some(&program.name[..])
            }
        };
        let wanted = programs.into_iter().filter(is_one).map(|program| (program.part, program));
        let wanted = wanted.collect();
        app.programs.allowed |= app.programs.posted.is_none();
        app.programs.wanted = wanted;
        self.take_programs(key, out);
        self.give_programs(key, out);
    }

    /// Another host of the application asks for a program that is not here. Root of that host can
    /// ask for anything: what is not of the launch would only take room.
    pub(super) fn program_asked(&mut self, key: Key, program: WantedProgram, out: &mut Out) {
        // (A file of this name is made, and room of this size kept.)
        let posted = |app: &App| app.programs.posted.as_ref().is_some_and(|p| p.contains(&program));
        let has = |app: &App| app.programs.allowed && posted(app);
        if self.apps.get(&key).is_some_and(has) {
            self.take_program(key, program, out);
        }
    }

    /// The head has said from where this host has programs.
    pub(super) fn sources_told(&mut self, key: Key, hosts: Vec<HostAddress>, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        app.programs.allowed = true;
        app.programs.sources = hosts;
        self.take_programs(key, out);
    }

    fn take_programs(&mut self, key: Key, out: &mut Out) {
        let Some(app) = self.apps.get(&key) else { return };
        let wanted: Vec<WantedProgram> = app.programs.wanted.values().cloned().collect();
        for program in wanted {
            self.take_program(key, program, out);
        }
    }

    /// Has a program come, unless it does already, or nobody has said from where.
    fn take_program(&mut self, key: Key, program: WantedProgram, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key).filter(|app| app.running()) else { return };
        let head = app.head();
        let part = program.part;
        let unknown = !head && app.programs.sources.is_empty();
        if unknown || app.programs.come.contains_key(&part) {
            return;
        }
        app.programs.come.insert(part, None);
        let from = app.programs.sources.clone();
        out.push(Action::TakeProgram { key, program, from });
        if let Some(front) = app.open_front() {
            out.extend(front.tell_front(FromApinit::ProgramWanted(part)));
        }
    }

    /// A program has come, or can't.
    pub(super) fn program_taken(&mut self, key: Key, given: GivenProgram, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let (part, nid) = (given.part, app.nid());
        let Some(come @ None) = app.programs.come.get_mut(&part) else { return };
        let why = given.path.is_empty().then(|| given.why_not.clone());
        *come = Some(given);
        if !app.programs.wanted.contains_key(&part) {
            return;
        }
        if let Some(why) = why
            && let Some(front) = app.open_front()
        {
            out.push(front.tell(Told::Notice(Notice::NotCopied { nid, why })));
        }
        self.give_programs(key, out);
    }

    fn give_programs(&mut self, key: Key, out: &mut Out) {
        let Some(app) = self.apps.get(&key).filter(|app| app.running()) else { return };
        if let Some(programs) = app.programs.given() {
            out.push(Action::SendShepherd(key, ToShepherd::Programs { programs }));
        }
    }

    /// (Head.) The front end is there, or there again: it is told what is wanted and has not come.
    pub(super) fn ask_for_programs(&self, key: Key, out: &mut Out) {
        let Some(app) = self.apps.get(&key) else { return };
        let Some(front) = app.open_front() else { return };
        let asks = app.programs.on_the_way().map(FromApinit::ProgramWanted);
        out.extend(asks.filter_map(|ask| front.tell_front(ask)));
    }

    /// (Head.) Says to these hosts, whose launch allows copies, from where they have them.
    pub(super) fn tell_sources(&self, key: Key, indices: &[u32], out: &mut Out) {
        let Some(app) = self.apps.get(&key).filter(|app| app.programs.allowed) else { return };
        let waits = app.peers.iter().filter(|peer| !peer.ready && indices.contains(&peer.index));
        let tell = |index: u32| Action::SendPeers(key, vec![index], app.sources_of(index));
        out.extend(waits.map(|peer| tell(peer.index)));
    }
}
