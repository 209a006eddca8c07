//! Copies of programs, for applications of this host and for other hosts.

use super::Shell;
use crate::apinit::decide::{Agent, Event};
use crate::apinit::host::events::Answer;
use crate::apinit::host::programs::take;
use crate::apteam::place::HostAddress;
use crate::apteam::protocol::programs::{ProgramOf, WantedProgram};
use crate::apteam::{Key, Ticket};
use std::sync::Arc;

/// Somebody who has asked about a program, whose ticket is good.
#[derive(Debug)]
pub(super) struct AskedAbout {
    key: Key,
    part: u32,
    answer: Answer,
}

impl Shell {
    /// Has a program come from these hosts, or from the front end if there are none.
    pub(super) fn take_program_from(
        &mut self,
        key: Key,
        program: WantedProgram,
        from: Vec<HostAddress>,
        (owner, ticket): (u32, Ticket),
    ) {
        let of = ProgramOf { key, ticket, part: program.part };
        let copy = self.programs.add(key, program, owner, self.programs_room);
        if !from.is_empty() {
            let (network, events) = (self.network.clone(), self.events.clone());
            let task = tokio::spawn(take(Arc::clone(&copy), of, from, network, events));
            self.programs.brought_by(&copy, task);
        }
    }

    /// Another host asks for a program: if it is not here, and the application wants copies, it comes.
    pub(super) fn program_asked(
        &mut self,
        agent: &Agent,
        of: ProgramOf,
        program: WantedProgram,
        answer: Answer,
    ) {
        if !agent.knows_ticket(&of) {
            let _ = answer.send(None);
            return;
        }
        if self.programs.find(of.key, of.part).is_none() {
            self.happens(Event::ProgramAsked(of.key, program));
        }
        self.programs_asked.push(AskedAbout { key: of.key, part: of.part, answer });
    }

    /// A front end brings a program. It is that of its owner, or root's.
    pub(super) fn program_brought(
        &mut self,
        agent: &Agent,
        of: ProgramOf,
        uid: u32,
        answer: Answer,
    ) {
        let owner = agent.owner(of.key).is_some_and(|owner| owner.uid == uid || uid == 0);
        let copy = self.programs.find(of.key, of.part);
        let copy = copy.filter(|_| owner && agent.is_head_of(of.key) && agent.knows_ticket(&of));
        let _ = answer.send(copy);
    }

    /// The driver has heard what was asked.
    pub(super) fn answer_for_programs(&mut self) {
        for AskedAbout { key, part, answer } in std::mem::take(&mut self.programs_asked) {
            let _ = answer.send(self.programs.find(key, part));
        }
    }
}
