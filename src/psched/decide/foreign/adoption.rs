//! What an adoption changes: applications of a foreign node are put on record as they run there.
//!
//! While a node is foreign nothing is added to what it holds and nothing goes, so what it told when
//! it called is enough to judge an adoption, all or nothing: each application must be whole (all of
//! its nodes are adopted with it), its number free here, and its processors free on our records.
//!
//! One that is on our records already may sit elsewhere by now: they are an old copy, and it has been moved
//! since. Then the record follows its node, which knows where it is and how often it was moved; what the
//! record gave it is free for others of the same adoption. (Where this psched has placed it anew meanwhile, on
//! nodes of another apinit, there are two of it by one number: that is refused.)

use super::{APID_MAX, Order, name, next_after, nids_text};
use crate::apteam::Apid;
use crate::apteam::layout::Layout;
use crate::apteam::oversubscribe::Oversubscribe;
use crate::apteam::part::{MappedNode, Part};
use crate::apteam::place::{Place, PlacementList};
use crate::apteam::posting::{COMMAND_MAX, Posting, cut};
use crate::apteam::protocol::node::{ForeignApplication, Phase, PlaceCommand};
use crate::apteam::record::{Apteam, Moves, State};
use crate::machine::{Nid, format_nids};
use crate::occupancy::{Claim, Occupancy};
use crate::psched::decide::ends::first_signal;
use crate::psched::decide::{Effect, LinkId, Now, Record, Scheduler};
use crate::psched::reason::name_list;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// An application that is to be ours: what its nodes say of it, put together.
struct Candidate {
    /// All of it. (Of nodes that have not told their part no processors are known.)
    place: PlaceCommand,
    /// What nodes have told of their places.
    told: BTreeMap<Nid, Place>,
    phase: Phase,
    run: Duration,
    /// The nodes that have it.
    on: BTreeSet<Nid>,
}

impl Candidate {
    /// Nodes say that it is elsewhere than those that have been heard.
    fn is_another(&self, place: &PlaceCommand) -> bool {
        let differs = |own: &Place| self.told.get(&own.nid).is_some_and(|told| told != own);
        // (The index of a part says nothing here, and a whole has the same map as its parts.)
        self.place.part.map != place.part.map || place.places.0.iter().any(differs)
    }

    /// All its places, in rank order.
    fn places(&self) -> PlacementList {
        let place = |node: MappedNode| {
            let unknown = || Place { nid: node.nid, processors: Vec::new(), pes: node.pes };
            self.told.get(&node.nid).cloned().unwrap_or_else(unknown)
        };
        PlacementList(self.place.part.map.all().map(place).collect())
    }
}

/// All that an adoption changes, found to be possible.
pub(super) struct Plan {
    /// Applications of ours that the records place on these nodes, and the nodes don't have.
    gone: Vec<Apid>,
    /// Those that are to be on record.
    new: Vec<Candidate>,
    /// Those that are, and sit elsewhere than it says.
    elsewhere: Vec<Candidate>,
    /// Names of all that go on.
    names: Vec<String>,
}

/// How it sits on its processors.
fn claim(place: &PlaceCommand) -> Claim {
    let PlaceCommand { shares, memory_per_pe, exclusive, .. } = *place;
    Claim { shares, memory_per_pe, exclusive }
}

impl Scheduler {
    /// What an adoption would change.
    ///
    /// # Errors
    /// Each thing that stands in its way.
    pub(super) fn plan(
        &self,
        order: &Order,
        links: &BTreeSet<LinkId>,
    ) -> Result<Plan, Vec<String>> {
        let mut problems = Vec::new();
        let candidates = self.candidates(links, &mut problems);
        let adopted: BTreeSet<Nid> = links
            .iter()
            .filter_map(|l| self.links.get(l))
            .flat_map(|l| l.hello.nids.iter().copied())
            .collect();
        let gone: Vec<Apid> = self
            .teams
            .values()
            .filter(|t| t.state.holds_processors())
            .filter(|t| t.places.nids().any(|n| adopted.contains(&n)))
            .filter(|t| !candidates.get(&t.apid).is_some_and(|c| self.is_recorded(c)))
            .map(|t| t.apid)
            .collect();
        let mut occupancy = self.occupancy.clone();
        for apid in &gone {
            if self.teams[apid].places.nids().all(|n| adopted.contains(&n)) {
                occupancy.release(*apid);
            }
        }
        let names = candidates.values().map(|c| name(&c.place)).collect();
        let (recorded, others): (Vec<_>, Vec<_>) =
            candidates.into_values().partition(|candidate| self.is_recorded(candidate));
        let (mut new, mut elsewhere) = (Vec::new(), Vec::new());
        let moved = recorded.into_iter().filter(|candidate| self.has_moved(candidate));
        // (Nobody is moved from one apinit to another: who has a place there was given it anew.)
        let adopts = |candidate: &Candidate| {
            let team = self.teams.get(&candidate.place.key.apid);
            team.is_some_and(|team| team.places.nids().all(|nid| adopted.contains(&nid)))
        };
        let (moved, anew): (Vec<Candidate>, Vec<Candidate>) = moved.partition(adopts);
        moved.iter().for_each(|candidate| occupancy.release(candidate.place.key.apid));
        let others = anew.into_iter().chain(others).collect();
        for (candidates, fit, known) in [(moved, &mut elsewhere, true), (others, &mut new, false)] {
            for candidate in candidates {
                let found = match known {
                    true => self.has_room(order, &candidate, &mut occupancy),
                    false => self.admissible(order, &candidate, &mut occupancy),
                };
                match found {
                    Ok(()) => fit.push(candidate),
                    Err(problem) => problems.push(format!(
                        "application {} on {}: {problem}",
                        name(&candidate.place),
                        nids_text(candidate.on.iter().copied())
                    )),
                }
            }
        }
        if problems.is_empty() { Ok(Plan { gone, new, elsewhere, names }) } else { Err(problems) }
    }

    /// One that is on record sits elsewhere, or was told moves of which the record has none.
    fn has_moved(&self, candidate: &Candidate) -> bool {
        let PlaceCommand { key, places, moved, .. } = &candidate.place;
        self.teams.get(&key.apid).is_some_and(|team| {
            let known = team.places.0.iter().map(|place| (place.nid, place));
            let known: BTreeMap<Nid, &Place> = known.collect();
            let same = |(nid, told): (&Nid, &Place)| known.get(nid) == Some(&told);
            known.len() != places.0.len()
                || !candidate.told.iter().all(same)
                || team.moves.told < moved.number
        })
    }

    /// What the nodes of these links hold, each application once, in its newest incarnation.
    fn candidates(
        &self,
        links: &BTreeSet<LinkId>,
        problems: &mut Vec<String>,
    ) -> BTreeMap<Apid, Candidate> {
        let mut all: BTreeMap<Apid, Candidate> = BTreeMap::new();
        for link in links.iter().filter_map(|l| self.links.get(l)) {
            let Some(stranger) = &link.foreign else { continue };
            for ForeignApplication { place, phase, run } in &stranger.foreign.applications {
                let apid = place.key.apid;
                let here = place.places.nids().filter(|n| link.hello.nids.contains(n));
                let first = place.part.map.all().next().map(|node| node.nid);
                // (Whether it is launched, and runs, only the host of PE 0 says.)
                let head = first.is_some_and(|nid| link.hello.nids.contains(&nid));
                let found = Candidate {
                    place: place.clone(),
                    told: place.places.0.iter().map(|own| (own.nid, own.clone())).collect(),
                    phase: if head { *phase } else { Phase::Placed },
                    run: *run,
                    on: here.collect(),
                };
                match all.get_mut(&apid) {
                    None => {
                        all.insert(apid, found);
                    }
                    Some(known) if known.place.request_id != place.request_id => {
                        problems.push(format!(
                            "there are two applications {apid}, {} on {} and {} on {}, of different \
                             stores: purge the nodes of one of them",
                            name(&known.place),
                            nids_text(known.on.iter().copied()),
                            name(place),
                            nids_text(found.on)
                        ));
                    }
                    Some(known) if known.place.key < place.key => *known = found,
                    Some(known) if known.place.key > place.key => {}
                    Some(known) if known.is_another(place) => {
                        problems.push(format!(
                            "application {} runs twice, on {} and on {}: purge the nodes of one \
                             of the two",
                            name(place),
                            nids_text(known.on.iter().copied()),
                            nids_text(found.on)
                        ));
                    }
                    Some(known) => {
                        known.phase = known.phase.max(found.phase);
                        known.run = known.run.max(found.run);
                        known.on.extend(found.on);
                        known.told.extend(found.told);
                    }
                }
            }
        }
        for candidate in all.values_mut() {
            let places = candidate.places();
            let hosts = self.hosts_of(&places).into();
            let place = candidate.place.clone();
            candidate.place = PlaceCommand { places, hosts, part: Part::default(), ..place };
        }
        all
    }

    /// It is on our records as its nodes have it.
    fn is_recorded(&self, candidate: &Candidate) -> bool {
        let Candidate { place, .. } = candidate;
        self.teams.get(&place.key.apid).is_some_and(|t| {
            t.posting.request_id == place.request_id
                && t.key() == place.key
                && t.state.holds_processors()
        })
    }

    /// # Errors
    /// Why it can't be ours, and the cure.
    fn admissible(
        &self,
        order: &Order,
        candidate: &Candidate,
        occupancy: &mut Occupancy,
    ) -> Result<(), String> {
        let Candidate { place, on, .. } = candidate;
        let apid = place.key.apid;
        let nids = format_nids(order.nids.iter().copied());
        if apid.0 > APID_MAX {
            return Err(format!("no psched gives numbers above {APID_MAX}: psmgr purge {nids}"));
        }
        if let Some(team) = self.teams.get(&apid) {
            if team.posting.request_id != place.request_id {
                return Err(format!(
                    "this psched has another application {apid}, of {}: psmgr purge {nids} ends the one \
                     that is there",
                    team.owner.name
                ));
            }
            if team.incarnation > place.key.incarnation || team.state.holds_processors() {
                return Err(format!(
                    "this psched has placed it again, on {}: psmgr purge {nids} ends the former \
                     one",
                    nids_text(team.places.nids())
                ));
            }
        } else if order.used.contains(&apid) {
            return Err(format!(
                "this psched's history has another application {apid}: psmgr purge {nids} ends \
                 the one that is there"
            ));
        }
        let missing: Vec<Nid> = place.places.nids().filter(|n| !on.contains(n)).collect();
        // (Those obey this psched already, and do not have it.)
        let obeys = |nid: &&Nid| {
            let link = self.offered.get(nid).and_then(|link| self.links.get(link));
            link.is_some_and(|link| link.known && link.foreign.is_none())
        };
        let lost: Vec<Nid> = missing.iter().filter(obeys).copied().collect();
        if !lost.is_empty() {
            return Err(format!(
                "its part on {} is lost: psmgr purge {nids} ends what is left of it",
                nids_text(lost)
            ));
        }
        if !missing.is_empty() {
            let all = format_nids(order.nids.iter().copied().chain(missing.iter().copied()));
            return Err(format!(
                "its part on {} is missing: psmgr adopt {all} adopts all its nodes together; or \
                 psmgr purge {nids}",
                nids_text(missing)
            ));
        }
        self.has_room(order, candidate, occupancy)
    }

    /// # Errors
    /// Why its processors can't be its own on our records too, and the cure.
    fn has_room(
        &self,
        order: &Order,
        candidate: &Candidate,
        occupancy: &mut Occupancy,
    ) -> Result<(), String> {
        let Candidate { place, .. } = candidate;
        let apid = place.key.apid;
        let nids = format_nids(order.nids.iter().copied());
        for part in place.places.0.iter() {
            let processors = self.machine.nodes.get(&part.nid).map_or(0, |n| n.processors);
            if let Some(p) = part.processors.iter().find(|p| **p >= processors) {
                return Err(format!(
                    "it has processor {p} of NID {}, and psched.yaml gives that node {processors}: \
                     correct it, or psmgr purge {nids}",
                    part.nid
                ));
            }
        }
        occupancy.take_found(apid, &place.places, claim(place)).map_err(|conflict| {
            let holders = occupancy.holders(conflict.nid);
            let holders = holders.iter().filter(|a| **a != apid).map(|a| self.name_of(*a));
            format!(
                "{conflict}: this psched's records give it to {}; end that with apkill first, or \
                 psmgr purge {nids}",
                name_list(holders.collect())
            )
        })
    }

    pub(super) fn carry_out(
        &mut self,
        now: Now,
        order: &Order,
        plan: Plan,
        links: &BTreeSet<LinkId>,
        done: &mut Vec<String>,
        out: &mut Vec<Effect>,
    ) {
        let nids: Vec<Nid> = links
            .iter()
            .filter_map(|l| self.links.get(l))
            .flat_map(|l| l.hello.nids.iter().copied())
            .collect();
        for apid in plan.gone {
            self.not_on_adopted(now, apid, &nids, out);
        }
        let actor = order.actor();
        // All of them leave before the first is seated, and nobody else is placed in between.
        for candidate in &plan.elsewhere {
            self.occupancy.release(candidate.place.key.apid);
        }
        for Candidate { place, .. } in &plan.elsewhere {
            if let Err(conflict) =
                self.occupancy.take_found(place.key.apid, &place.places, claim(place))
            {
                // The plan has tried it: a fault of ours.
                out.push(Effect::Warn(format!("application {}: {conflict}", place.key.apid)));
            }
        }
        for candidate in plan.new {
            let apid = candidate.place.key.apid;
            let detail = format!(
                "incarnation {} on {}, by {actor}",
                candidate.place.key.incarnation.0,
                nids_text(candidate.place.places.nids())
            );
            self.put_on_record(now, candidate, out);
            out.push(Effect::Log { apid, name: "adopted", detail });
        }
        for candidate in plan.elsewhere {
            self.found_elsewhere(now, &candidate.place, out);
        }
        if links.is_empty() {
            return;
        }
        let (nids, names) = (nids_text(nids), name_list(plan.names));
        let with = if names.is_empty() { String::new() } else { format!(", with {names}") };
        out.push(Effect::Warn(format!("{actor} adopted {nids}{with}")));
        done.push(match names.is_empty() {
            true => format!("{nids}: its apinit obeys this psched now; no application ran there"),
            false => format!("{nids}: its apinit obeys this psched now; {names} on record here"),
        });
    }

    fn put_on_record(&mut self, now: Now, candidate: Candidate, out: &mut Vec<Effect>) {
        let Candidate { place, phase, run, .. } = candidate;
        let apid = place.key.apid;
        // (Of one that was restored its nodes count what it had run before.)
        let before = place.restart.as_ref().map_or(Duration::ZERO, |restart| restart.run);
        let run_ns = u64::try_from(run.saturating_sub(before).as_nanos()).unwrap_or(u64::MAX);
        let began = now.wall_ns.saturating_sub(run_ns);
        let old = self.teams.remove(&apid);
        old.iter().for_each(|team| self.kept_bytes.remove(team));
        let front = old.as_ref().and_then(|team| team.front.clone());
        let state = match phase {
            // Whoever was to launch it asks another psched: it is asked for back with the inventory,
            // unless it has been launched by then.
            Phase::Placed if front.is_none() => State::TakingBack,
            Phase::Placed => State::Placed,
            Phase::Launched => State::Launching,
            Phase::Running => State::Running,
            // Its nodes tell its end as soon as they obey.
            Phase::Ended if run_ns > 0 => State::Running,
            Phase::Ended => State::Launching,
        };
        let left = u64::try_from(place.ticket_left.as_nanos()).unwrap_or(u64::MAX);
        self.queue.remove(&apid);
        if let Err(conflict) = self.occupancy.take_found(apid, &place.places, claim(&place)) {
            // The plan has tried it: a fault of ours.
            out.push(Effect::Warn(format!("application {apid} was not adopted: {conflict}")));
            old.iter().for_each(|team| self.kept_bytes.add(team));
            self.teams.extend(old.map(|team| (apid, team)));
            return;
        }
        let mut team = Apteam {
            apid,
            incarnation: place.key.incarnation,
            state,
            posting: match &old {
                Some(team) => team.posting.clone(),
                None => Posting {
                    memory_per_pe: place.memory_per_pe,
                    command: cut(place.command, COMMAND_MAX),
                    cpu_limit: place.cpu_limit,
                    time_limit: place.time_limit,
                    exclusive: place.exclusive,
                    account: place.account,
                    // (What it has asked for, as far as it can be seen.)
                    layout: Layout::of_depths(&place.places),
                    oversubscribe: Oversubscribe::of_places(&place.places, &place.shape),
                    flexible: !place.places.is_contiguous(),
                    // (No apinit knows how it saves itself: a back end of the node's may dump it.)
                    ..Posting::plain(place.request_id, place.shape)
                },
            },
            owner: place.owner,
            front,
            front_gone: old.as_ref().is_some_and(|team| team.front_gone),
            places: place.places,
            hosts: place.hosts,
            ticket: place.ticket,
            ticket_until_ns: now.mono_ns.saturating_add(left),
            shares: place.shares,
            posted_at_ns: old.as_ref().map_or(began, |team| team.posted_at_ns),
            running_at_ns: if state == State::Running { began } else { 0 },
            ended_at_ns: 0,
            end: None,
            held: old.as_ref().and_then(|team| team.held.clone()),
            stopped: old.as_ref().and_then(|team| team.stopped.clone()),
            doomed: old.and_then(|team| team.doomed),
            signals: Vec::new(),
            last_signal: first_signal(now),
            domain: Default::default(),
            moves: Moves { told: place.moved.number, to: None },
            restart: place.restart,
            retries: Default::default(),
        };
        team.domain = self.domain_by_place(&team);
        self.next_apid = next_after(self.next_apid, apid);
        self.has_numbers_below(apid.0.saturating_add(1));
        self.unreadable.1.remove(&apid);
        self.requests.insert(team.posting.request_id, apid);
        if state == State::Placed {
            self.tickets.insert((team.ticket_until_ns, apid));
        }
        out.push(Effect::Keep(Record::Adopted(Box::new(team.clone()))));
        self.kept_bytes.add(&team);
        self.teams.insert(apid, team);
        self.relink(apid);
        self.turns_changed(now, apid);
        // It may sit on nodes of several domains.
        self.goes_over |= self.has_domains();
    }

    /// An old copy of the records has an application on nodes that say that they don't have it.
    fn not_on_adopted(&mut self, now: Now, apid: Apid, nids: &[Nid], out: &mut Vec<Effect>) {
        let Some(team) = self.teams.get(&apid) else { return };
        match team.state {
            State::Launching | State::Running => {
                let why = "its node was adopted, and does not have it";
                self.lose_nodes(now, apid, Some(nids), why, out);
            }
            // Not launched: once its other nodes, if there are any, have said so too, its aprun
            // looks again, and it waits.
            State::Placed | State::TakingBack => {
                let key = team.key();
                self.take_back(apid, out);
                self.taken_back.entry(key).or_default().extend(nids);
                self.save(apid, false, out);
                self.part_gone(now, apid, out);
            }
            _ => {}
        }
    }
}
