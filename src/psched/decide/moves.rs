//! Moves: a running application goes to other nodes, or other processors, and runs on there.
//!
//! # Problem
//! A move takes its nodes a moment, it may fail, its nodes may be out of reach, and psched may be killed
//! before it hears how it went. At no time may somebody else be given a processor that the application
//! still has, or is about to have.
//!
//! # Approach
//! The record says where it sits and where it is to sit ([`Moves`]), before its nodes are told. It holds both
//! places until they have answered; then it holds one.
//!
//! ```text
//!   move_to    Save(to)  Command(Move 1)      holds from and to, has no turn
//!   Moved      Save                           sits at `to`
//!   MoveFailed Save                           sits at `from`, and stays there from then on
//!   inventory                                 the move is said again: nodes know its number
//! ```
//!
//! Moves that an administrator wants are made one after the other ([`Sequence`]): each has been confirmed
//! before the next is told. If one fails the rest is given up, and everybody runs where he is. Nothing of a
//! sequence is on record: a psched that is started again knows nothing of it.
//!
//! Whether an application can be moved its nodes say, with the reason ([`Report::Movable`]); only those of one
//! apinit can.
//!
//! [`Moves`]: crate::apteam::record::Moves
//! [`Report::Movable`]: crate::apteam::protocol::node::Report::Movable

mod orders;

use super::decisions::seated;
use super::move_sequence::{Order, Sequence};
use super::{Effect, LinkId, Now, Scheduler};
use crate::apteam::Apid;
use crate::apteam::migration_blocker::MigrationBlocker;
use crate::apteam::oversubscribe::Oversubscribe;
use crate::apteam::place::PlacementList;
use crate::apteam::protocol::node::{Command, MoveCommand, PlaceCommand};
use crate::apteam::record::{Apteam, State};
use crate::machine::nids_text;
use crate::psched::reason::Immovable;
use std::time::Duration;

impl Scheduler {
    /// Why an application can't be moved; `None`: it can.
    pub(super) fn immovable(&self, team: &Apteam) -> Option<Immovable> {
        let apid = team.apid;
        let why = match team.state {
            State::Posted | State::Lapsed => Immovable::NoPlace,
            State::Placed | State::Launching => Immovable::NotRunning,
            _ if team.doomed.is_some() || team.end.is_some() => Immovable::Ending,
            State::TakingBack | State::Ended => Immovable::Ending,
            State::Running if team.moves.to.is_some() => Immovable::Moving,
            State::Running if self.schedule.decision.is_out(apid) => Immovable::MemoryOut,
            State::Running if !team.posting.choice.is_any() => Immovable::NodesChosen,
            State::Running if matches!(team.posting.oversubscribe, Oversubscribe::Shares(_)) => {
                Immovable::ProcessorsShared
            }
            State::Running if team.stays_put() => Immovable::InPieces,
            State::Running if self.domain_has_gone(team) => Immovable::NoDomain,
            State::Running => return self.blocker_said(apid),
        };
        Some(why)
    }

    /// The same for those who look at a running one: not what will be over in a moment.
    pub fn why_it_stays(&self, team: &Apteam) -> Option<Immovable> {
        let known = team.stays_put()
            || self.domain_has_gone(team)
            || self.migration_blockers.contains_key(&team.apid);
        let runs = team.state == State::Running && team.moves.to.is_none();
        if runs && known { self.immovable(team) } else { None }
    }

    /// What its nodes say of that.
    pub(super) fn blocker_said(&self, apid: Apid) -> Option<Immovable> {
        match self.migration_blockers.get(&apid) {
            Some(said) => said.clone().map(Immovable::OfNode),
            None if self.settings.abilities.says => Some(Immovable::NotSaid),
            None => None,
        }
    }

    /// Whether it is left where it is, when nobody orders a move of it: a plan may bring it to any node of its
    /// regions, and only those of its own apinit can be told to take it.
    pub(super) fn stays(&self, team: &Apteam) -> bool {
        let all_in_one = || match self.links_of(team)[..] {
            [link] => {
                let offers = self.links.get(&link).map_or(0, |link| link.hello.nids.len());
                offers == self.machine.nodes.len()
            }
            _ => false,
        };
        team.stays_put()
            || self.domain_has_gone(team)
            || team.state == State::Running
                && self.settings.abilities.says
                && (self.migration_blockers.get(&team.apid) != Some(&None) || !all_in_one())
    }

    /// It is to sit elsewhere, and does not run until its nodes say that it is there. False: it can't be told
    /// so now, and nothing is changed.
    pub(super) fn move_to(
        &mut self,
        now: Now,
        apid: Apid,
        to: PlacementList,
        out: &mut Vec<Effect>,
    ) -> bool {
        let Some(team) = self.teams.get(&apid).filter(|team| team.moves.to.is_none()) else {
            return false;
        };
        if team.state != State::Running {
            return false;
        }
        let wanted = self.wanted_at_any_time(team);
        let (claim, from) = (team.into(), team.places.clone());
        self.occupancy.release(apid);
        if self.occupancy.take_found(apid, &from.and(&to), claim).is_err() {
            // Somebody has it who shares with nobody, and goes away himself, most likely.
            let _ = self.occupancy.take_found(apid, &from, claim);
            return false;
        }
        let nids = nids_text(to.nids());
        let Some(team) = self.teams.get_mut(&apid) else { return false };
        team.moves.told = team.moves.told.saturating_add(1);
        team.moves.to = Some(to);
        let seated = seated(&self.occupancy, team, wanted, Some(now.mono_ns));
        self.goes(now, apid, seated);
        self.turns_changed(now, apid);
        self.save(apid, false, out);
        out.push(Effect::Log { apid, name: "moving", detail: format!("to {nids}") });
        self.send_move(apid, out);
        true
    }

    /// Tells its nodes of the move that they have not answered, if there is one.
    pub(super) fn send_move(&self, apid: Apid, out: &mut Vec<Effect>) {
        let Some(team) = self.teams.get(&apid) else { return };
        let Some(places) = team.moves.to.clone() else { return };
        for link in self.links_of(team) {
            let order =
                MoveCommand { key: team.key(), number: team.moves.told, places: places.clone() };
            out.push(Effect::Command { link, command: Command::Move(Box::new(order)) });
        }
    }

    /// It sits where the move of this number was to bring it.
    pub(super) fn moved(
        &mut self,
        now: Now,
        apid: Apid,
        number: u32,
        frozen: Duration,
        out: &mut Vec<Effect>,
    ) {
        let Some(team) = self.teams.get_mut(&apid).filter(|team| team.moves.told == number) else {
            return;
        };
        let Some(to) = team.moves.to.take() else { return };
        let from = std::mem::replace(&mut team.places, to.clone());
        let detail = match frozen.is_zero() {
            true => nids_text(to.nids()),
            false => format!("{}, in {:.1} ms", nids_text(to.nids()), frozen.as_secs_f64() * 1e3),
        };
        out.push(Effect::Log { apid, name: "moved", detail });
        let hosts = self.hosts_of(&to);
        if let Some(team) = self.teams.get_mut(&apid) {
            team.hosts = hosts.into();
        }
        self.settle_move(now, apid, &to, &from, out);
        // (Declared down meanwhile.)
        self.lose_down(now, apid, out);
        let text = format!("application {}: on {}", self.name_of(apid), nids_text(to.nids()));
        self.next_after(now, apid, Ok(text), out);
    }

    /// It sits where it sat, and is not moved again before it is ordered.
    pub(super) fn move_failed(
        &mut self,
        now: Now,
        apid: Apid,
        number: u32,
        why: MigrationBlocker,
        out: &mut Vec<Effect>,
    ) {
        let Some(team) = self.teams.get_mut(&apid).filter(|team| team.moves.told == number) else {
            return;
        };
        let Some(to) = team.moves.to.take() else { return };
        let from = team.places.clone();
        self.migration_blockers.insert(apid, Some(why.clone()));
        out.push(Effect::Log { apid, name: "not-moved", detail: why.to_string() });
        self.settle_move(now, apid, &from, &to, out);
        let text = format!("application {} was not moved: {why}", self.name_of(apid));
        self.next_after(now, apid, Err(text), out);
    }

    /// Its node, which is adopted, has it elsewhere than the record says.
    pub(super) fn found_elsewhere(
        &mut self,
        now: Now,
        place: &PlaceCommand,
        out: &mut Vec<Effect>,
    ) {
        let apid = place.key.apid;
        let hosts = self.hosts_of(&place.places);
        let Some(team) = self.teams.get_mut(&apid) else { return };
        let from = std::mem::replace(&mut team.places, place.places.clone());
        let left = match team.moves.to.take() {
            Some(to) => from.and(&to),
            None => from,
        };
        team.moves.told = team.moves.told.max(place.moved.number);
        team.hosts = hosts.into();
        let detail = format!("{}, found there", nids_text(place.places.nids()));
        out.push(Effect::Log { apid, name: "moved", detail });
        self.settle_move(now, apid, &place.places, &left, out);
        // A node that obeys says a move by its number: the record has to have it.
        self.save(apid, false, out);
        // It may sit on nodes of several domains.
        self.goes_over |= self.has_domains();
    }

    /// It holds this place alone.
    fn settle_move(
        &mut self,
        now: Now,
        apid: Apid,
        place: &PlacementList,
        other: &PlacementList,
        out: &mut Vec<Effect>,
    ) {
        let Some(team) = self.teams.get(&apid) else { return };
        let claim = team.into();
        self.occupancy.release(apid);
        if let Err(conflict) = self.occupancy.take_found(apid, place, claim) {
            // It held both: a fault of ours.
            out.push(Effect::Warn(format!("application {apid} has no place: {conflict}")));
        }
        self.note_left(other);
        self.relink(apid);
        self.schedule.decision.away.remove(&apid);
        self.seat(apid);
        self.count_memory(now, apid);
        self.save(apid, true, out);
        self.turns_changed(now, apid);
        self.want_decision_for(apid);
    }

    /// Begins a sequence.
    pub(super) fn begin_moves(&mut self, now: Now, sequence: Sequence, out: &mut Vec<Effect>) {
        self.moving = Some(sequence);
        self.next_move(now, out);
    }

    /// Whether one is under way: another has to wait.
    pub(super) fn is_moving(&self) -> bool {
        self.moving.is_some()
    }

    /// The move of this one is over.
    fn next_after(
        &mut self,
        now: Now,
        apid: Apid,
        how: Result<String, String>,
        out: &mut Vec<Effect>,
    ) {
        let Some(sequence) = self.moving.as_mut().filter(|one| one.waits == Some(apid)) else {
            return;
        };
        sequence.waits = None;
        match how {
            Ok(text) => {
                sequence.done.push(text);
                self.next_move(now, out);
            }
            // What is left of the sequence is not done. Who has been moved stays where he is.
            Err(why) => self.end_moves(vec![why], out),
        }
    }

    /// Tells the next move; after the last it is answered.
    fn next_move(&mut self, now: Now, out: &mut Vec<Effect>) {
        let Some(sequence) = self.moving.as_mut().filter(|one| one.waits.is_none()) else { return };
        let Some((apid, to)) = sequence.steps.pop_front() else {
            return self.end_moves(Vec::new(), out);
        };
        sequence.waits = Some(apid);
        let stands = self.teams.get(&apid).map(|team| self.immovable(team));
        let why = match stands {
            // It has ended, and is not in the way.
            None => {
                return self.next_after(
                    now,
                    apid,
                    Ok(format!("application {apid} has ended")),
                    out,
                );
            }
            Some(Some(why)) => why.to_string(),
            Some(None) if self.move_to(now, apid, to.clone(), out) => return,
            Some(None) => format!("another application has {} now", nids_text(to.nids())),
        };
        let text = format!("application {} was not moved: {why}", self.name_of(apid));
        self.next_after(now, apid, Err(text), out);
    }

    /// The sequence is over, and the administrator is answered.
    fn end_moves(&mut self, problems: Vec<String>, out: &mut Vec<Effect>) {
        if let Some(Sequence { reply, done, .. }) = self.moving.take() {
            out.push(Effect::Managed { reply, done, problems });
        }
    }

    /// An application has ended: it may have been on its way.
    pub(super) fn moves_ended(&mut self, now: Now, apid: Apid, out: &mut Vec<Effect>) {
        self.next_after(now, apid, Ok(format!("application {apid} has ended")), out);
    }

    /// The connection of whoever was to answer has gone. The move itself is said again when it is back.
    pub(super) fn moves_link_closed(&mut self, now: Now, link: LinkId, out: &mut Vec<Effect>) {
        let waits = self.moving.as_ref().and_then(|one| one.waits);
        let Some(team) = waits.and_then(|apid| self.teams.get(&apid)) else { return };
        let (apid, left) = (team.apid, self.links_of(team));
        if left.is_empty() || left == [link] {
            let why = format!(
                "the connection of its apinit broke while application {} was being moved: the \
                 move continues when it is back (apstat -A {apid})",
                self.name_of(apid)
            );
            self.next_after(now, apid, Err(why), out);
        }
    }
}
