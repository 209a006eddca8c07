//! A place given, and taken back: from the grant to the launch, or to the lapse of the ticket.
//!
//! A place that was given is told to the nodes and to the front end, which has `ticket_time` to launch
//! there. If it does not, or the application is to end, the nodes are asked not to launch it; only when
//! all have said so are its processors another's.

use super::ends::Said;
use super::{Effect, LinkId, News, Now, Scheduler};
use crate::apshepherd::decide::mapping::mapping_of;
use crate::apteam::ending::{Cause, Decisive};
use crate::apteam::part::{Part, RankMap};
use crate::apteam::place::{HostPart, PlacementList};
use crate::apteam::protocol::node::{Command, PlaceCommand};
use crate::apteam::record::{Apteam, State};
use crate::apteam::{Apid, Key, Ticket};
use crate::variables::Isolation;
use crate::variables::units::nanos;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Characters of a command that nodes are told, for display.
const COMMAND_SHOWN: usize = 256;

/// The ticket of a new placement, derived from the one before or from the posting's secret. Two
/// starts of psched on the same copy of its store may use the same key for different placements:
/// their tickets differ, so that an aprun with the placement of one can't launch that of the other.
fn ticket_of(start_id: &str, key: Key, before: Ticket) -> Ticket {
    let mut hash = Sha256::new();
    for part in [&before.0[..], &key.apid.0.to_le_bytes(), &key.incarnation.0.to_le_bytes()] {
        hash.update(part);
    }
    hash.update(start_id);
    let mut ticket = Ticket::default();
    ticket.0.iter_mut().zip(hash.finalize()).for_each(|(to, from)| *to = from);
    ticket
}

impl Scheduler {
    /// Gives a waiting application its place.
    pub(super) fn grant(
        &mut self,
        now: Now,
        apid: Apid,
        places: PlacementList,
        out: &mut Vec<Effect>,
    ) {
        // Where memory can be rolled out one more may come: whoever stands there goes out.
        let domain = self.domain_of(apid);
        let rolls_out = self.rolls_out(domain);
        let most = self.domain(domain).turns.max_resident;
        let several = most > 1 || rolls_out;
        let Some(team) = self.teams.get_mut(&apid) else { return };
        team.shares = several && !team.posting.exclusive;
        let taken = match rolls_out {
            // Somebody who stands there is rolled out.
            true => self.occupancy.take_found(apid, &places, (&*team).into()),
            false => self.occupancy.take(apid, &places, (&*team).into()),
        };
        if let Err(conflict) = taken {
            // Placement and occupancy disagree: a fault of ours, which must not become two gangs
            // on one processor.
            out.push(Effect::Fault(format!("application {apid} was not placed: {conflict}")));
            return;
        }
        let hosts = self.hosts_of(&places);
        let until = now.mono_ns.saturating_add(nanos(self.settings.ticket_time));
        let Some(team) = self.teams.get_mut(&apid) else { return };
        team.incarnation.0 += 1;
        team.ticket = ticket_of(&self.start_id, team.key(), team.ticket);
        team.places = places;
        team.hosts = hosts.into();
        team.ticket_until_ns = until;
        team.end = None;
        let nids = crate::machine::nids_text(team.places.nids());
        let (key, front) = (team.key(), team.front.clone());
        self.become_state(apid, State::Placed);
        self.relink(apid);
        self.save(apid, false, out);
        out.push(Effect::Log {
            apid,
            name: "placed",
            detail: format!("incarnation {} on {nids}", key.incarnation.0),
        });
        self.send_place(now, apid, None, out);
        out.push(Effect::Tell { apid, news: News::Placed });
        if let Some(front) = front {
            out.push(Effect::SignalFront { apid, front });
        }
    }

    /// The placement, for all apinits concerned or for one of them.
    pub(super) fn send_place(
        &self,
        now: Now,
        apid: Apid,
        only: Option<LinkId>,
        out: &mut Vec<Effect>,
    ) {
        let Some(team) = self.teams.get(&apid) else { return };
        let ticket_left = match team.state {
            // The front end has come in time: this is for the head, on its way to other nodes.
            State::Launching => self.settings.ticket_time,
            _ => Duration::from_nanos(team.ticket_until_ns.saturating_sub(now.mono_ns)),
        };
        let map = RankMap::of(&team.places, &team.hosts);
        let apart = self.settings.isolation != Isolation::Off;
        let process_mapping = mapping_of(&map, &team.hosts, apart);
        let (hosts, fan_out) = (team.hosts.len() as u32, self.fan_out(team));
        let command = PlaceCommand {
            part: Part { index: None, map, process_mapping },
            key: team.key(),
            owner: team.owner.clone(),
            shape: team.posting.shape,
            places: team.places.clone(),
            hosts: team.hosts.clone(),
            ticket: team.ticket,
            ticket_left,
            cpu_limit: team.posting.cpu_limit,
            time_limit: team.posting.time_limit,
            kill_grace: self.settings.kill_grace,
            front_kill_grace: self.settings.front_kill_grace,
            memory_per_pe: team.posting.memory_per_pe,
            pids_max: Some(self.settings.pids_max),
            bounds: self.settings.bounds.among(hosts, fan_out),
            isolation: self.settings.isolation,
            user_bus: self.settings.user_bus,
            request_id: team.posting.request_id,
            command: team.posting.command.chars().take(COMMAND_SHOWN).collect(),
            fan_out,
            shares: team.shares,
            exclusive: team.posting.exclusive,
            account: team.posting.account.clone(),
            yields: self.yields(&team.places),
            moved: Default::default(),
            restart: team.restart.clone(),
        };
        let at = |(index, host): (u32, &HostPart)| {
            Some((host.nids.iter().find_map(|nid| self.offered.get(nid).copied())?, index))
        };
        let indices: BTreeMap<LinkId, u32> =
            (0..team.hosts.len() as u32).zip(team.hosts.iter()).rev().filter_map(at).collect();
        for link in self.links_of(team).into_iter().filter(|l| only.is_none_or(|o| o == *l)) {
            let takes_parts = self.links.get(&link).is_some_and(|link| link.hello.parts);
            let index = indices.get(&link).filter(|_| takes_parts);
            let part = index.and_then(|index| command.part_of(*index));
            let place = Box::new(part.unwrap_or_else(|| command.clone()));
            out.push(Effect::Command { link, command: Command::Place(place) });
        }
    }

    /// The apinits of a placement, that of PE 0 first.
    pub(super) fn hosts_of(&self, places: &PlacementList) -> Vec<HostPart> {
        let mut hosts: Vec<HostPart> = Vec::new();
        let mut numbers: BTreeMap<Option<LinkId>, usize> = BTreeMap::new();
        let mut latest: Option<(Option<LinkId>, usize)> = None;
        for (nid, link) in self.offering(places) {
            // Nodes of one apinit mostly follow each other.
            if let Some((_, number)) = latest.filter(|(of, _)| *of == link) {
                hosts[number].nids.push(nid);
                continue;
            }
            let number = *numbers.entry(link).or_insert_with(|| {
                let hello = link.and_then(|l| self.links.get(&l)).map(|l| &l.hello);
                hosts.push(HostPart {
                    nids: Vec::new(),
                    socket: hello.map(|h| h.socket.clone()).unwrap_or_default(),
                    host: hello.map(|h| h.host.clone()).unwrap_or_default(),
                    address: hello.map(|h| h.address.clone()).unwrap_or_default(),
                    host_id: hello
                        .map(|h| format!("{}/{}", h.hostname, h.boot_id))
                        .unwrap_or_default(),
                });
                hosts.len() - 1
            });
            hosts[number].nids.push(nid);
            latest = Some((link, number));
        }
        hosts
    }

    /// Through how many hosts its head speaks with all others; 0: it speaks with each of them, for not every
    /// apinit leads on, or not everyone can be reached from wherever another can be.
    fn fan_out(&self, team: &Apteam) -> u32 {
        let leads_on = |host: &HostPart| {
            let link = host.nids.iter().find_map(|nid| self.offered.get(nid));
            link.and_then(|link| self.links.get(link)).is_some_and(|link| link.hello.leads_on)
        };
        let mut hosts = team.hosts.iter();
        let alike = hosts.clone().all(|host| host.address.is_empty())
            || hosts.clone().all(|host| !host.address.is_empty());
        if alike && hosts.all(leads_on) { self.settings.fan_out } else { 0 }
    }

    /// Asks the nodes of a placed application not to launch it.
    pub(super) fn take_back(&mut self, apid: Apid, out: &mut Vec<Effect>) {
        if !self.become_state(apid, State::TakingBack) {
            return;
        }
        let Some(team) = self.teams.get(&apid) else { return };
        let (key, links) = (team.key(), self.links_of(team));
        self.taken_back.insert(key, BTreeSet::new());
        for link in links {
            self.say_take_back(link, key, out);
        }
    }

    pub(super) fn tick(&mut self, now: Now, out: &mut Vec<Effect>) {
        while let Some((at, apid)) = self.tickets.first().copied() {
            if at > now.mono_ns {
                break;
            }
            self.tickets.remove(&(at, apid));
            self.take_back(apid, out);
            self.save(apid, false, out);
            out.push(Effect::Log {
                apid,
                name: "silent",
                detail: "its aprun did not launch it in time: its place is taken back".into(),
            });
        }
    }

    /// Every node of it has said that it was not launched and will not be.
    pub(super) fn all_taken_back(&mut self, now: Now, apid: Apid, out: &mut Vec<Effect>) {
        let Some(team) = self.teams.get_mut(&apid) else { return };
        self.taken_back.remove(&team.key());
        self.placed_again.remove(&team.key());
        self.occupancy.release(apid);
        let left = team.places.clone();
        self.note_left(&left);
        let Some(team) = self.teams.get_mut(&apid) else { return };
        // It sits nowhere: a decision that found it at home there would give it no place.
        self.schedule.decision.seats.remove(&apid);
        if team.doomed.is_some() {
            self.finish(now, apid, Said::ByPsched, out);
            return;
        }
        if team.front.is_none() {
            // Of an adopted one nobody here knows the front end: nobody would ever look.
            team.doomed = Some(Decisive { at_ns: now.mono_ns, cause: Cause::FrontGone });
            self.finish(now, apid, Said::ByPsched, out);
            return;
        }
        team.places = PlacementList::default();
        team.hosts = Arc::default();
        self.relink(apid);
        self.become_state(apid, State::Lapsed);
        self.save(apid, false, out);
        out.push(Effect::Log { apid, name: "lapsed", detail: "waits for its aprun".into() });
        // It may have looked while the place was on its way back, and would not look again.
        out.push(Effect::Tell { apid, news: News::Placed });
        self.want_decision_for(apid);
    }
}
