//! Postings: from arrival to a place, and what stands in the way of one.
//!
//! Postings wait in order of arrival. Each decision puts the postings and the gangs of a domain in
//! order of turn and gives a place to every posting that fits, also past others
//! ([`super::decisions`]). So that a wide posting does not wait for ever, psched keeps nodes for each
//! posting that has waited for `longest_wait` and is among the first [`HEAD_MAX`] of its domain:
//! later postings get none of the nodes that it could use.

use super::domain::DomainId;
use super::ends::first_signal;
use super::regions::of_shared;
use super::{Effect, Looked, News, Now, Origin, Record, Refusal, ReplyId, Scheduler};
use crate::apteam::ending::Cause;
use crate::apteam::place::{HostPart, PlacementList};
use crate::apteam::posting::{Owner, Posting};
use crate::apteam::protocol::node::Command;
use crate::apteam::record::{Apteam, FrontProcess, State};
use crate::apteam::shape::Shape;
use crate::apteam::{Apid, Ticket};
use crate::machine::Nid;
use crate::occupancy::Occupancy;
use crate::placement::packing::KEEPERS_MAX;
use crate::placement::{self, Wanted};
use crate::psched::reason::{AppName, Denial, Reason, Wait, shape_text};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// How many postings at the head of a domain's queue psched keeps nodes for, or places on nodes
/// that they have chosen. A bound on the work of one event: a posting that is further back has to
/// move up first.
pub(super) const HEAD_MAX: usize = KEEPERS_MAX;

impl Scheduler {
    #[allow(clippy::too_many_arguments)]
    pub(super) fn posted(
        &mut self,
        now: Now,
        reply: ReplyId,
        posting: Posting,
        owner: Owner,
        front: FrontProcess,
        secret: Ticket,
        origin: Option<Origin>,
        out: &mut Vec<Effect>,
    ) {
        let same = self.requests.get(&posting.request_id).and_then(|a| self.teams.get(a));
        if let Some(team) = same {
            // Sent again by a front end that was cut off before it had its answer.
            if team.owner.uid == owner.uid {
                let apid = team.apid;
                out.push(Effect::Accept { reply, apid });
                if matches!(team.state, State::Placed | State::Lapsed) {
                    // It has not heard of its place either.
                    out.push(Effect::Tell { apid, news: News::Placed });
                }
            } else {
                refuse(out, reply, Refusal::NotAllowed, Denial::RequestInUse);
            }
            return;
        }
        self.learn(&posting, &owner);
        // (One that is restored has as many processors as it had: its processes are bound to them.)
        let restored = matches!(origin, Some(Origin::Running(_)));
        let shared = if restored { Ok(posting) } else { self.shared(posting, &owner) };
        let admitted = shared.and_then(|posting| {
            self.learn(&posting, &owner);
            self.admit(&posting, &owner).map(|()| posting)
        });
        let posting = match admitted {
            Ok(posting) => posting,
            Err((refusal, reason)) => {
                refuse(out, reply, refusal, reason);
                return;
            }
        };
        let domain = self.domain_for(&posting, &owner);
        if posting.immediate {
            let kept = self.kept(domain);
            let wanted = self.wanted_by(&posting, &owner, domain);
            if place_of(&mut self.occupancy, &wanted, &posting, &kept).is_none() {
                let mut why = self.why_not_now(&wanted, &posting, &owner, &kept);
                if origin.is_none() {
                    let or = |why| self.or_flexible(why, &posting, &owner, (domain, &kept));
                    why = why.map(or);
                }
                refuse(out, reply, Refusal::NoRoom, why.unwrap_or_else(|| Wait::NoRoom.into()));
                return;
            }
        }
        let (apid, incarnation) = self.number_for(origin.as_ref());
        let shape = posting.shape;
        self.requests.insert(posting.request_id, apid);
        let detail = format!("{} by {}: {}", shape_text(&shape), owner.name, posting.command);
        let log = |name, detail| Effect::Log { apid, name, detail };
        let (logs, restart) = match origin {
            None => (vec![log("posted", detail)], None),
            Some(Origin::Waiting { apid: from, .. }) => {
                let detail =
                    format!("{detail}; from a checkpoint of application {from}, which waited");
                (vec![log("posted", detail)], None)
            }
            Some(Origin::Running(restart)) => {
                let run = restart.run.as_secs_f64();
                let from = format!(
                    "from a checkpoint of application {}, which had run for {run:.3} s; locked",
                    restart.from
                );
                (vec![log("created", from), log("managed", detail)], Some(restart))
            }
        };
        let team = Apteam {
            apid,
            incarnation,
            state: State::Posted,
            posting,
            owner,
            front: Some(front),
            front_gone: false,
            places: PlacementList::default(),
            hosts: Arc::default(),
            shares: false,
            ticket: secret,
            ticket_until_ns: 0,
            posted_at_ns: now.wall_ns,
            running_at_ns: 0,
            ended_at_ns: 0,
            end: None,
            doomed: None,
            signals: Vec::new(),
            last_signal: first_signal(now),
            held: None,
            stopped: None,
            domain: self.domain(domain).name.clone(),
            moves: Default::default(),
            restart,
            retries: Default::default(),
        };
        let record = Box::new(team.clone());
        // (A restart may have the number of an ended application that is still known.)
        out.push(Effect::Keep(match self.teams.insert(apid, team) {
            None => Record::Posted(record),
            Some(_) => Record::Update { team: record, lazy: false },
        }));
        self.kept_bytes.add(&self.teams[&apid]);
        self.queue.insert(apid);
        out.extend(logs);
        out.push(Effect::Accept { reply, apid });
        self.place_newcomer(now, apid, out);
    }

    /// What is refused before anything is recorded.
    fn admit(&self, posting: &Posting, owner: &Owner) -> Result<(), (Refusal, Box<Reason>)> {
        let no = |refusal, denial: Denial| Err((refusal, denial.into()));
        let shape = &posting.shape;
        if shape.width == 0 || shape.depth == 0 || shape.per_node == Some(0) {
            return no(Refusal::Impossible, Denial::Zero);
        }
        if let Some(only) = self.settings.only_uid.filter(|only| *only != owner.uid) {
            return no(Refusal::NotAllowed, Denial::OtherUser { only });
        }
        let most = self.settings.postings_max;
        if self.queue.len() >= most {
            return no(Refusal::TooMany, Denial::QueueFull { most });
        }
        let most = self.settings.postings_user_max;
        let own = self.queue.iter().filter(|a| self.teams[*a].owner.uid == owner.uid).take(most);
        if self.queue.len() >= most && own.count() >= most {
            return no(Refusal::TooMany, Denial::QueueFullOfUser { most });
        }
        let (most, more) = (self.settings.records_user_max, posting.kept_bytes());
        if self.kept_bytes.of(owner.uid).saturating_add(more) > most {
            return no(Refusal::TooMany, Denial::RecordsFull { most });
        }
        let too_wide = |(refusal, why): (_, Box<Reason>)| match refusal {
            Refusal::Impossible => (refusal, Box::new(self.or_shares(*why, posting, owner))),
            _ => (refusal, why),
        };
        self.may_ever(posting, owner).map_err(too_wide)
    }

    /// Where a posting would go now.
    ///
    /// # Errors
    /// Why it is refused, or what it would wait for.
    pub fn dry_run(
        &self,
        posting: &Posting,
        owner: &Owner,
    ) -> Result<(PlacementList, Vec<HostPart>), (Refusal, Box<Reason>)> {
        let posting = &self.shared(posting.clone(), owner)?;
        self.admit(posting, owner)?;
        // A copy, for its index changes with what is asked.
        let mut occupancy = self.occupancy.clone();
        let domain = self.domain_for(posting, owner);
        let (wanted, kept) = (self.wanted_by(posting, owner, domain), self.kept(domain));
        match place_of(&mut occupancy, &wanted, posting, &kept) {
            Some(places) => {
                let hosts = self.hosts_of(&places);
                Ok((places, hosts))
            }
            None => {
                let why = self.why_not_now(&wanted, posting, owner, &kept);
                let why = why.map(|why| self.or_flexible(why, posting, owner, (domain, &kept)));
                Err((Refusal::NoRoom, Box::new(why.unwrap_or_else(|| Wait::NoRoom.into()))))
            }
        }
    }

    /// Tries to place a posting that has just come: nothing else can have become possible.
    fn place_newcomer(&mut self, now: Now, apid: Apid, out: &mut Vec<Effect>) {
        let domain = self.domain_of(apid);
        if !self.teams[&apid].posting.immediate {
            self.want_decision(domain);
            return;
        }
        let wanted = self.wanted(&self.teams[&apid]);
        let kept = self.kept(domain);
        if let Some(places) = self.place_for(apid, &wanted, &kept) {
            self.grant(now, apid, places, out);
        }
    }

    /// Nodes kept for postings of a domain that have waited too long, and are not held.
    pub(super) fn kept(&self, domain: DomainId) -> BTreeSet<Nid> {
        self.kept_while(domain, |_| true)
    }

    /// The same, for postings before this one in its line only.
    pub(super) fn kept_before(&self, apid: Apid) -> BTreeSet<Nid> {
        self.kept_while(self.domain_of(apid), |other| other < apid)
    }

    fn kept_while(&self, domain: DomainId, before: impl Fn(Apid) -> bool) -> BTreeSet<Nid> {
        let longest = self.domain(domain).turns.longest_wait;
        let mut kept = BTreeSet::new();
        let head = self.waits(domain, HEAD_MAX).take_while(|(team, _)| before(team.apid));
        for (team, _) in head.filter(|(_, waited)| *waited >= longest) {
            self.keep_for(&self.wanted(team), &team.posting, &mut kept);
        }
        kept
    }

    /// The first postings of a domain that are not held, in order, and for how long each has
    /// waited: never longer than the one before, though a clock that was set back says so. (Else
    /// two of them would keep nodes from each other: by number, and by the order of turns.)
    pub(super) fn waits(
        &self,
        domain: DomainId,
        most: usize,
    ) -> impl Iterator<Item = (&Apteam, Duration)> {
        let line = self.line_of(domain).take(most).filter_map(|apid| self.teams.get(&apid));
        let mut before = Duration::MAX;
        line.filter(|team| team.held.is_none()).map(move |team| {
            before = before.min(self.waited(team));
            (team, before)
        })
    }

    /// Since its posting, by the clock on the wall, which goes on over restarts.
    fn waited(&self, team: &Apteam) -> Duration {
        Duration::from_nanos(self.wall_ns.saturating_sub(team.posted_at_ns))
    }

    /// Whether a posting has waited for `longest_wait`, so that nodes are kept for it, unless a
    /// posting before it has not ([`Scheduler::waits`]). That is days.
    pub(super) fn waits_too_long(&self, team: &Apteam) -> bool {
        self.waited(team) >= self.turns_of(team).longest_wait
    }

    /// Keeps every node that it could use, besides those that are kept already.
    fn keep_for(&self, wanted: &Wanted, posting: &Posting, kept: &mut BTreeSet<Nid>) {
        let Posting { choice, layout, shape, .. } = posting;
        // (One node may do for the least deep of its PEs.)
        let depth = layout.least_depth(shape.depth);
        let wanted = &Wanted { shape: Shape { depth, ..wanted.shape }, ..*wanted };
        let line = self.occupancy.line();
        // Mostly the first who waits for so long could use all of them.
        if kept.len() < line.len() {
            let mut usable = match choice.is_any() {
                true => placement::usable(line, wanted),
                false => placement::usable(&placement::only_among(line, choice), wanted),
            };
            kept.append(&mut usable);
        }
    }

    /// The nodes that are kept for one that has chosen some, in rows, by their place on the line.
    pub(super) fn nodes_kept_for(&self, wanted: &Wanted, posting: &Posting) -> Vec<Range<usize>> {
        let mut kept = BTreeSet::new();
        self.keep_for(wanted, posting, &mut kept);
        let at = self.occupancy.line().iter().enumerate();
        at.filter(|(_, slot)| kept.contains(&slot.nid)).map(|(at, _)| at..at + 1).collect()
    }

    /// Why it has no room now; none: it has.
    pub(super) fn why_no_room(
        &self,
        wanted: &Wanted,
        posting: &Posting,
        kept: &BTreeSet<Nid>,
    ) -> Option<Reason> {
        self.why_not_placed(wanted, posting, kept).map(|why| of_shared(posting, why))
    }

    fn why_not_placed(
        &self,
        wanted: &Wanted,
        posting: &Posting,
        kept: &BTreeSet<Nid>,
    ) -> Option<Reason> {
        let Posting { choice, layout, .. } = posting;
        if !layout.is_empty() {
            return self.why_not_laid(wanted, posting, kept);
        }
        if choice.is_any() {
            let no_room = placement::why_not(&self.occupancy, wanted, kept)?;
            return Some(self.explain(wanted, *no_room));
        }
        let among = self.occupancy.only(|nid| choice.has(nid));
        let no_room = placement::why_not(&among, wanted, kept)?;
        Some(self.explain(wanted, *no_room).among(choice))
    }

    fn why_not_laid(
        &self,
        wanted: &Wanted,
        posting: &Posting,
        kept: &BTreeSet<Nid>,
    ) -> Option<Reason> {
        let Posting { choice, layout, .. } = posting;
        if placement::try_place_laid(&self.occupancy, wanted, kept, choice, layout).is_some() {
            return None;
        }
        let line = self.occupancy.line();
        let nearest = placement::nearest_laid(&self.occupancy, line, wanted, choice, layout);
        let (nids, holders) = nearest.unwrap_or_default();
        // (Not all of the window's nodes are theirs.)
        let held = |apid: &Apid| self.occupancy.held(*apid).iter().map(|held| line[held.at].nid);
        let held: BTreeSet<Nid> = holders.iter().flat_map(held).collect();
        let shown: Vec<AppName> = holders.iter().take(4).map(|apid| self.app_name(*apid)).collect();
        let wait = Wait::LayoutFull {
            layout: layout.clone(),
            flexible: wanted.flexible,
            nids: nids.into_iter().filter(|nid| held.contains(nid)).collect(),
            more: holders.len() > shown.len(),
            holders: shown,
        };
        Some(wait.into())
    }

    /// Postings that have chosen their nodes, or laid out their PEs, get places where there is room, whatever
    /// the order of turns: a decision chooses among all nodes. So do those that are flexible: a decision gives
    /// windows, and one of these to a flexible one only where it finds no room in pieces.
    pub(super) fn place_choosers(&mut self, now: Now, domain: DomainId, out: &mut Vec<Effect>) {
        let chooses = |apid: &Apid| {
            let team = self.teams.get(apid).filter(|team| team.held.is_none());
            team.is_some_and(|team| !team.is_plain() || team.posting.flexible)
        };
        let choosers: Vec<Apid> = self.line_of(domain).take(HEAD_MAX).filter(chooses).collect();
        for apid in choosers {
            let kept = self.kept_before(apid);
            let wanted = self.wanted(&self.teams[&apid]);
            if let Some(places) = self.place_for(apid, &wanted, &kept) {
                self.grant(now, apid, places, out);
            }
        }
    }

    pub(super) fn looked(&mut self, now: Now, reply: ReplyId, apid: Apid, out: &mut Vec<Effect>) {
        if self.teams.get(&apid).is_some_and(|t| t.state == State::Lapsed) {
            // The silent front end is back: it waits again, at its old place in line.
            self.become_state(apid, State::Posted);
            self.save(apid, false, out);
            out.push(Effect::Log { apid, name: "waiting", detail: "its aprun is back".into() });
            self.want_decision_for(apid);
            // (What it waits for is known after that.)
            self.go_over(now, out);
            self.decide_if_due(now, out);
        }
        let Some(team) = self.teams.get(&apid) else {
            refuse(out, reply, Refusal::NotFound, Denial::NoApplication(apid));
            return;
        };
        let looked = match team.state {
            State::Placed | State::Launching | State::Running => {
                Looked::Placed(Box::new(team.clone()))
            }
            _ => {
                let why = self.why(apid).unwrap_or_else(|| Denial::NoApplication(apid).into());
                Looked::Waiting(Box::new(why))
            }
        };
        out.push(Effect::Look { reply, looked });
    }

    pub(super) fn front_gone(&mut self, now: Now, apid: Apid, out: &mut Vec<Effect>) {
        let Some(team) = self.teams.get_mut(&apid) else { return };
        let front = team.front.take();
        team.front_gone = true;
        let elsewhere = front.is_some_and(|front| !front.host.is_empty());
        let head = team.places.nids().next();
        // (While its apinit is away psched.yaml says whether it is on psched's host.)
        let is_here = |nid| match self.offered.get(&nid).and_then(|link| self.links.get(link)) {
            Some(link) => !link.hello.remote,
            None => self.machine.nodes.get(&nid).is_some_and(|node| node.host.is_empty()),
        };
        let with_its_head = !elsewhere && head.is_some_and(is_here);
        match team.state {
            // An apinit watches the front ends on its own host: if PE 0 is there too, it ends the
            // application.
            State::Running if with_its_head => self.turn_to_end(now, apid),
            State::Ended => {}
            // No apinit of its nodes watches this front end, or the launch was lost with an apinit
            // that was killed.
            State::Launching | State::Running => {
                self.give_up(now, apid, Cause::FrontGone, out);
                self.repeat_doom(now, apid, out);
            }
            _ => self.give_up(now, apid, Cause::FrontGone, out),
        }
    }

    pub(super) fn store_refused(&mut self, now: Now, apid: Apid, why: &str, out: &mut Vec<Effect>) {
        // Its acceptance has not left psched, so no front end counts on it.
        let domain = self.domain_of(apid);
        let Some(team) = self.teams.remove(&apid) else { return };
        self.kept_bytes.remove(&team);
        self.stuck.remove(&apid);
        self.queue.remove(&apid);
        self.comes_no_more(apid);
        self.tickets.remove(&(team.ticket_until_ns, apid));
        self.requests.remove(&team.posting.request_id);
        self.occupancy.release(apid);
        // Unless something that was recorded after it has placed it.
        for link in self.links_of(&team) {
            out.push(Effect::Command { link, command: Command::Discard(team.key()) });
        }
        self.relink(apid);
        self.turns_changed(now, apid);
        out.push(Effect::Warn(format!("posting {apid} was refused: {why}")));
        self.want_decision(domain);
    }
}

pub(super) fn refuse(
    out: &mut Vec<Effect>,
    reply: ReplyId,
    refusal: Refusal,
    reason: impl Into<Box<Reason>>,
) {
    out.push(Effect::Refuse { reply, refusal, reason: reason.into() });
}

/// Where it goes now, if it has room.
pub(super) fn place_of(
    occupancy: &mut Occupancy,
    wanted: &Wanted,
    posting: &Posting,
    kept: &BTreeSet<Nid>,
) -> Option<PlacementList> {
    let Posting { choice, layout, .. } = posting;
    let given = match (choice.is_any(), layout.is_empty()) {
        (_, false) => placement::try_place_laid(occupancy, wanted, kept, choice, layout),
        (true, true) => placement::try_place(occupancy, wanted, kept),
        (false, true) => placement::try_place_among(occupancy, wanted, kept, choice),
    };
    given.map(|given| posting.spread(given))
}
