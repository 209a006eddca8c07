//! Nodes that obey another psched: what `psmgr adopt` and `psmgr purge` do.
//!
//! # Problem
//! A psched that is started with an empty, a wrong or an old state directory knows nothing of what
//! runs on its nodes. By the ordinary table it would end all of it. So a node that has obeyed
//! another store, or a later start of this one, does not obey ([`crate::agent`]): it stays linked
//! and tells what it holds ([`Event::Foreign`](super::Event::Foreign)). Nothing is placed there and
//! nothing is commanded until an administrator has said what it is to be.
//!
//! # Approach
//! While a node is foreign nothing is added to what it holds and nothing goes, so what it told when
//! it called is enough to judge an adoption, all or nothing: each application must be whole (all of
//! its nodes are adopted with it), its number free here, and its processors free on our records.
//! The records are saved first; the command leaves once they are durable, like every effect; the
//! node answers with an ordinary inventory, and with that it is ours.
//!
//! ```text
//!   psmgr adopt 0-1 ->  SaveAdopted(12: running on 0-1)  Log(adopted)  Command(Adopt)
//!   inventory       ->  SaveBoot  Managed("NIDs 0-1 obey this psched now ...")
//! ```
//!
//! A psched that is killed in between finds the record when it starts again, and the node foreign
//! still: the same application, known by the random number of its posting, is adopted again.
//!
//! Numbers of foreign applications are not given to new ones, so that they don't collide later.

use super::postings::Said;
use super::{Effect, Link, LinkId, Manage, Now, Refusal, ReplyId, Scheduler};
use crate::apteam::posting::{Explanation, Posting};
use crate::apteam::record::{Apteam, State};
use crate::apteam::talk::node::{
    Command, Foreign, ForeignApplication, Phase, PlaceCommand, Report,
};
use crate::apteam::{Apid, Key};
use crate::machine::{Nid, format_nids};
use crate::occupancy::Occupancy;
use crate::variables::raise;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Applications that a sentence names.
const NAMED_MAX: usize = 16;

/// A foreign node, or several of one apinit.
#[derive(Clone, Debug)]
pub(super) struct Stranger {
    foreign: Foreign,
    /// What it has been told to do.
    told: Option<Manage>,
}

/// An answer that waits until all of these nodes have an inventory for us.
#[derive(Clone, Debug)]
pub(super) struct Managed {
    reply: ReplyId,
    what: Manage,
    waits: BTreeSet<LinkId>,
    done: Vec<String>,
}

/// What an administrator wants.
pub(super) struct Order {
    pub reply: ReplyId,
    pub what: Manage,
    pub nids: BTreeSet<Nid>,
    pub uid: u32,
    pub administrator: bool,
    pub used: BTreeSet<Apid>,
}

/// An application that is to be ours: what its nodes say of it, put together.
struct Candidate {
    place: PlaceCommand,
    phase: Phase,
    run: Duration,
    /// The nodes that have it.
    on: BTreeSet<Nid>,
}

/// All that an adoption changes, found to be possible.
struct Plan {
    /// Applications of ours that the records place on these nodes, and the nodes don't have.
    gone: Vec<Apid>,
    /// Those that are to be on record.
    new: Vec<Candidate>,
    /// Names of all that go on.
    names: Vec<String>,
}

impl Stranger {
    /// Why it is foreign, what runs there, and the cure.
    pub(super) fn note(&self, nids: &[Nid]) -> String {
        let names = name_list(self.names());
        let list = format_nids(nids.iter().copied());
        match (self.told, names.is_empty()) {
            (Some(Manage::Purge), _) => format!("foreign, being purged of {names}"),
            (_, true) => format!(
                "foreign: {}; nothing runs there: psmgr adopt {list} takes it over",
                self.foreign.why
            ),
            (_, false) => format!(
                "foreign: {}; it runs {names}: psmgr adopt {list} takes it over with them, psmgr \
                 purge {list} ends them",
                self.foreign.why
            ),
        }
    }

    fn names(&self) -> Vec<String> {
        self.foreign.applications.iter().map(|a| name(&a.place)).collect()
    }
}

/// `12 of alice`.
fn name(place: &PlaceCommand) -> String {
    format!("{} of {}", place.key.apid, place.owner.name)
}

/// `application 12 of alice`, `applications 12 of alice, 13 of bob and 4 others`; empty of none.
fn name_list(mut names: Vec<String>) -> String {
    names.dedup();
    let others = names.len().saturating_sub(NAMED_MAX);
    names.truncate(NAMED_MAX);
    let noun = if names.len() + others == 1 { "application" } else { "applications" };
    match (names.is_empty(), others) {
        (true, _) => String::new(),
        (false, 0) => format!("{noun} {}", names.join(", ")),
        (false, n) => format!("{noun} {} and {n} others", names.join(", ")),
    }
}

fn nids_text(nids: impl IntoIterator<Item = Nid>) -> String {
    let nids: Vec<Nid> = nids.into_iter().collect();
    let noun = if nids.len() == 1 { "NID" } else { "NIDs" };
    format!("{noun} {}", format_nids(nids))
}

impl Scheduler {
    pub(super) fn is_foreign(&self, nid: Nid) -> bool {
        let link = self.offered.get(&nid).and_then(|l| self.links.get(l));
        link.is_some_and(|l| l.foreign.is_some())
    }

    /// Numbers of the applications on these of the nodes that are foreign: whether the store has
    /// given any of them to an application that has ended is to be told with [`super::Event::Manage`].
    pub fn foreign_apids(&self, nids: &BTreeSet<Nid>) -> BTreeSet<Apid> {
        let links: BTreeSet<LinkId> =
            nids.iter().filter_map(|n| self.offered.get(n).copied()).collect();
        links
            .iter()
            .filter_map(|l| self.links.get(l)?.foreign.as_ref())
            .flat_map(|f| f.foreign.applications.iter().map(|a| a.place.key.apid))
            .collect()
    }

    pub(super) fn foreign_called(&mut self, link: LinkId, foreign: Foreign, out: &mut Vec<Effect>) {
        let newest = foreign.applications.iter().map(|a| a.place.key.apid.0).max().unwrap_or(0);
        let Some(entry) = self.links.get_mut(&link) else { return };
        self.next_apid = self.next_apid.max(newest.saturating_add(1));
        let stranger = Stranger { foreign, told: None };
        let nids = &entry.hello.nids;
        let text = format!("{}: {}", nids_text(nids.iter().copied()), stranger.note(nids));
        out.push(Effect::Warn(text));
        (entry.known, entry.foreign) = (false, Some(stranger));
    }

    pub(super) fn manage(&mut self, now: Now, order: &Order, out: &mut Vec<Effect>) {
        let Order { reply, what, uid, .. } = *order;
        if !order.administrator {
            let explanation = Explanation {
                obstacle: format!("user {uid} is no administrator of this psched"),
                cure:
                    "root, the user that psched runs as and the administrators of psched.yaml may \
                       adopt and purge nodes"
                        .into(),
                ..Explanation::default()
            };
            out.push(Effect::Refuse { reply, refusal: Refusal::NotAllowed, explanation });
            return;
        }
        let mut done = Vec::new();
        let found = self.ordered(order, &mut done).and_then(|links| match what {
            Manage::Adopt => self.plan(order, &links).map(|plan| (links, Some(plan))),
            Manage::Purge => Ok((links, None)),
        });
        let (links, plan) = match found {
            Ok(found) => found,
            Err(problems) => {
                out.push(Effect::Managed { reply, done: Vec::new(), problems });
                return;
            }
        };
        if let Some(plan) = plan {
            self.carry_out(now, order, plan, &links, &mut done, out);
        }
        for link in &links {
            let Some(stranger) = self.links.get_mut(link).and_then(|l| l.foreign.as_mut()) else {
                continue;
            };
            stranger.told = Some(what);
            let names = name_list(stranger.names());
            let nids = self.links.get(link).map(|l| l.hello.nids.clone()).unwrap_or_default();
            let nids = nids_text(nids);
            let command = match what {
                Manage::Adopt => Command::Adopt,
                Manage::Purge => {
                    out.push(Effect::Warn(format!("user {uid} has {nids} purged of {names}")));
                    done.push(match names.is_empty() {
                        true => format!("{nids}: obeyed from now on; nothing ran there"),
                        false => format!("{nids}: obeyed from now on; {names} ended"),
                    });
                    Command::Purge { uid }
                }
            };
            out.push(Effect::Command { link: *link, command });
        }
        if links.is_empty() {
            out.push(Effect::Managed { reply, done, problems: Vec::new() });
        } else {
            self.managed.push(Managed { reply, what, waits: links, done });
        }
    }

    /// The connections of the foreign ones of these nodes.
    ///
    /// # Errors
    /// What is wrong with the list.
    fn ordered(
        &self,
        order: &Order,
        done: &mut Vec<String>,
    ) -> Result<BTreeSet<LinkId>, Vec<String>> {
        let mut problems = Vec::new();
        let mut links: BTreeSet<LinkId> = BTreeSet::new();
        let (mut unknown, mut absent, mut new, mut ours) = (vec![], vec![], vec![], vec![]);
        for nid in order.nids.iter().copied() {
            let id = self.offered.get(&nid).copied();
            let link = id.and_then(|l| Some((l, self.links.get(&l)?)));
            match link {
                _ if !self.machine.nodes.contains_key(&nid) => unknown.push(nid),
                None => absent.push(nid),
                Some((id, Link { foreign: Some(_), .. })) => {
                    links.insert(id);
                }
                Some((_, Link { known: true, .. })) => ours.push(nid),
                Some(_) => new.push(nid),
            }
        }
        for (nids, text) in [
            (unknown, "not in psched.yaml (apstat -n shows those that are)"),
            (absent, "no apinit offers it: start apinit there, and try again"),
            (new, "its apinit has only just called: try again"),
        ] {
            if !nids.is_empty() {
                problems.push(format!("{}: {text}", nids_text(nids)));
            }
        }
        for link in links.iter().filter_map(|l| self.links.get(l)) {
            let nids = &link.hello.nids;
            if !nids.iter().all(|n| order.nids.contains(n)) {
                problems.push(format!(
                    "{} belong to one apinit, which obeys as a whole: name them all",
                    nids_text(nids.iter().copied())
                ));
            }
            let told = link.foreign.as_ref().and_then(|f| f.told);
            if told.is_some_and(|told| told != order.what) {
                let now = match order.what {
                    Manage::Adopt => "purged: wait until that is done",
                    Manage::Purge => "adopted: try again",
                };
                problems.push(format!("{}: just being {now}", nids_text(nids.iter().copied())));
            }
        }
        let most = self.settings.orders_max;
        if self.managed.len() >= most {
            let cure = raise("orders_max", most);
            problems.push(format!(
                "{most} such orders wait for their nodes: try again later, or {cure}"
            ));
        }
        if !ours.is_empty() {
            done.push(format!("{}: this psched is obeyed already", nids_text(ours)));
        }
        if problems.is_empty() { Ok(links) } else { Err(problems) }
    }

    /// What an adoption would change.
    ///
    /// # Errors
    /// Each thing that stands in its way.
    fn plan(&self, order: &Order, links: &BTreeSet<LinkId>) -> Result<Plan, Vec<String>> {
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
        let mut new = Vec::new();
        for (_, candidate) in candidates {
            if self.is_recorded(&candidate) {
                continue;
            }
            match self.admissible(order, &candidate, &mut occupancy) {
                Ok(()) => new.push(candidate),
                Err(problem) => problems.push(format!(
                    "application {} on {}: {problem}",
                    name(&candidate.place),
                    nids_text(candidate.on.iter().copied())
                )),
            }
        }
        if problems.is_empty() { Ok(Plan { gone, new, names }) } else { Err(problems) }
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
                let found = Candidate {
                    place: place.clone(),
                    phase: *phase,
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
                    Some(known) => {
                        known.phase = known.phase.max(found.phase);
                        known.run = known.run.max(found.run);
                        known.on.extend(found.on);
                    }
                }
            }
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
        if let Some(team) = self.teams.get(&apid) {
            if team.posting.request_id != place.request_id {
                return Err(format!(
                    "this psched has another application {apid}, of {}: apkill that one first, or \
                     psmgr purge {nids}",
                    team.owner.name
                ));
            }
            if team.incarnation > place.key.incarnation || team.state.holds_processors() {
                return Err(format!(
                    "this psched has placed it anew, on {}: apkill it first, or psmgr purge {nids}",
                    nids_text(team.places.nids())
                ));
            }
        } else if order.used.contains(&apid) {
            return Err(format!(
                "this psched's history has another application {apid}: psmgr purge {nids}"
            ));
        }
        let missing: Vec<Nid> = place.places.nids().filter(|n| !on.contains(n)).collect();
        if !missing.is_empty() {
            let all = format_nids(order.nids.iter().copied().chain(missing.iter().copied()));
            return Err(format!(
                "its part on {} is missing: psmgr adopt {all} takes the nodes together, where they \
                 have it; else psmgr purge {nids}",
                nids_text(missing)
            ));
        }
        for part in &place.places.0 {
            let processors = self.machine.nodes.get(&part.nid).map_or(0, |n| n.processors);
            if let Some(p) = part.processors.iter().find(|p| **p >= processors) {
                return Err(format!(
                    "it has processor {p} of NID {}, and psched.yaml gives that node {processors}: \
                     correct it, or psmgr purge {nids}",
                    part.nid
                ));
            }
        }
        occupancy.take(apid, &place.places).map_err(|conflict| {
            let holders = occupancy.holders(conflict.nid);
            let holders = holders.iter().filter(|a| **a != apid).map(|a| self.name_of(*a));
            format!(
                "{conflict}: {} on this psched's records; apkill first, or psmgr purge {nids}",
                name_list(holders.collect())
            )
        })
    }

    fn carry_out(
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
        let uid = order.uid;
        for candidate in plan.new {
            let apid = candidate.place.key.apid;
            let detail = format!(
                "incarnation {} on {}, by user {uid}",
                candidate.place.key.incarnation.0,
                nids_text(candidate.place.places.nids())
            );
            self.put_on_record(now, candidate, out);
            out.push(Effect::Log { apid, name: "adopted", detail });
        }
        if links.is_empty() {
            return;
        }
        let (nids, names) = (nids_text(nids), name_list(plan.names));
        out.push(Effect::Warn(format!("user {uid} has {nids} adopted, with {names}")));
        done.push(match names.is_empty() {
            true => format!("{nids}: obeyed from now on; nothing ran there"),
            false => format!("{nids}: obeyed from now on; {names} on record here"),
        });
    }

    fn put_on_record(&mut self, now: Now, candidate: Candidate, out: &mut Vec<Effect>) {
        let Candidate { place, phase, run, .. } = candidate;
        let apid = place.key.apid;
        let run_ns = u64::try_from(run.as_nanos()).unwrap_or(u64::MAX);
        let began = now.wall_ns.saturating_sub(run_ns);
        let old = self.teams.remove(&apid);
        let front = old.as_ref().and_then(|team| team.front);
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
        if let Err(conflict) = self.occupancy.take(apid, &place.places) {
            // The plan has tried it: a fault of ours.
            out.push(Effect::Warn(format!("application {apid} was not adopted: {conflict}")));
            self.teams.extend(old.map(|team| (apid, team)));
            return;
        }
        let team = Apteam {
            apid,
            incarnation: place.key.incarnation,
            state,
            posting: match &old {
                Some(team) => team.posting.clone(),
                None => Posting {
                    request_id: place.request_id,
                    shape: place.shape,
                    memory_per_pe: place.memory_per_pe,
                    command: place.command,
                    cpu_limit: place.cpu_limit,
                    time_limit: place.time_limit,
                    immediate: false,
                    executable: Default::default(),
                },
            },
            owner: place.owner,
            front,
            places: place.places,
            hosts: place.hosts,
            ticket: place.ticket,
            ticket_until_ns: now.mono_ns.saturating_add(left),
            passed_over: 0,
            posted_at_ns: old.as_ref().map_or(began, |team| team.posted_at_ns),
            running_at_ns: if state == State::Running { began } else { 0 },
            ended_at_ns: 0,
            end: None,
            doomed: old.and_then(|team| team.doomed),
            signals: Vec::new(),
            last_signal: 0,
        };
        self.next_apid = self.next_apid.max(apid.0.saturating_add(1));
        self.requests.insert(team.posting.request_id, apid);
        if state == State::Placed {
            self.tickets.insert((team.ticket_until_ns, apid));
        }
        out.push(Effect::SaveAdopted { team: Box::new(team.clone()) });
        self.teams.insert(apid, team);
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

    /// An end on a node that is being purged.
    pub(super) fn foreign_report(
        &mut self,
        now: Now,
        link: LinkId,
        report: Report,
        out: &mut Vec<Effect>,
    ) {
        let Report::Ended(end) = report else { return };
        let key: Key = end.key;
        let applications = self
            .links
            .get(&link)
            .and_then(|l| l.foreign.as_ref())
            .map(|f| f.foreign.applications.as_slice())
            .unwrap_or_default();
        let Some(found) = applications.iter().find(|a| a.place.key == key) else { return };
        let same =
            self.current(key) && self.teams[&key.apid].posting.request_id == found.place.request_id;
        let first = end.first.as_ref().map_or_else(|| "by itself".into(), |d| d.cause.to_string());
        out.push(Effect::Warn(format!(
            "foreign application {} has ended on {}: {first}",
            name(&found.place),
            nids_text(end.nids.iter().copied())
        )));
        if same {
            // It is on an old copy of the records.
            self.part_ended(now, *end, Said::ByItsNodes, out);
        }
        out.push(Effect::Command { link, command: Command::AcknowledgeEnd(key) });
    }

    /// A node has an inventory for us: who waits for that is told.
    pub(super) fn managed_link_known(&mut self, link: LinkId, out: &mut Vec<Effect>) {
        for managed in &mut self.managed {
            managed.waits.remove(&link);
        }
        let (over, wait): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.managed).into_iter().partition(|m| m.waits.is_empty());
        self.managed = wait;
        out.extend(over.into_iter().map(|Managed { reply, done, .. }| Effect::Managed {
            reply,
            done,
            problems: Vec::new(),
        }));
    }

    pub(super) fn managed_link_closed(&mut self, link: LinkId, out: &mut Vec<Effect>) {
        let (cut, wait): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.managed).into_iter().partition(|m| m.waits.contains(&link));
        self.managed = wait;
        out.extend(cut.into_iter().map(|Managed { reply, what, .. }| {
            let what = if what == Manage::Adopt { "adopt" } else { "purge" };
            Effect::Managed {
                reply,
                done: Vec::new(),
                problems: vec![format!(
                    "the connection of an apinit broke before it had answered: look at apstat -n, \
                     and repeat psmgr {what}"
                )],
            }
        }));
    }
}
