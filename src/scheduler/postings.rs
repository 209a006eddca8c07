//! Postings: from arrival to a place, and out again.
//!
//! Postings wait in order of arrival. At each change the line is gone through once, from its head;
//! whoever fits is placed, also past others. So that a wide posting is not passed for ever, each of
//! the first [`COUNTED`] in line counts the starts past it; from `passed_over_max` on, whoever
//! comes later may not use the nodes that it could use.

use super::{Effect, Looked, News, Now, Refusal, ReplyId, Scheduler};
use crate::apteam::ending::{Cause, Decisive, HostEnd};
use crate::apteam::place::{HostPart, PlacementList};
use crate::apteam::posting::{Explanation, Owner, Posting, Shape};
use crate::apteam::record::{Apteam, FrontProcess, State};
use crate::apteam::talk::attach::{NumberedSignal, PSCHED_SIGNALS};
use crate::apteam::talk::node::{Command, PlaceCommand};
use crate::apteam::{Apid, Incarnation, Ticket};
use crate::placement;
use crate::variables::raise;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How many at the head of the line count the starts past them. A bound on the work of one start:
/// whoever is further back is counted for as soon as he has moved up.
const COUNTED: usize = 64;

/// Characters of a command that nodes are told, for display.
const COMMAND_SHOWN: usize = 256;

/// SIGTERM and SIGKILL on every Linux.
const TERM: i32 = 15;
const KILL: i32 = 9;
/// Signals to an application that its nodes are not known to have.
const SIGNALS_MAX: usize = 16;
/// Signals that a posting, which has no process yet, ends by.
const ENDING_SIGNALS: [i32; 6] = [1, 2, 3, 6, KILL, TERM];

/// Whose word the end of an application is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// psched's alone: nobody would say it again.
    ByPsched,
    /// Its nodes', who repeat it until it is acknowledged.
    ByItsNodes,
}

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
                refuse(out, reply, Refusal::NotAllowed, "this posting's number is in use");
            }
            return;
        }
        if let Err((refusal, explanation)) = self.admit(&posting, &owner) {
            out.push(Effect::Refuse { reply, refusal, explanation });
            return;
        }
        if posting.immediate {
            let kept = self.kept();
            if let Err(no_room) = placement::place(&self.occupancy, &posting.shape, &kept) {
                let explanation = self.explain(&no_room);
                out.push(Effect::Refuse { reply, refusal: Refusal::NoRoom, explanation });
                return;
            }
        }
        let apid = Apid(self.next_apid);
        self.next_apid += 1;
        let shape = posting.shape;
        self.requests.insert(posting.request_id, apid);
        let detail = format!("{} by {}: {}", shape_text(&shape), owner.name, posting.command);
        self.teams.insert(
            apid,
            Apteam {
                apid,
                incarnation: Incarnation(0),
                state: State::Posted,
                posting,
                owner,
                front: Some(front),
                places: PlacementList::default(),
                hosts: Vec::new(),
                ticket: secret,
                ticket_until_ns: 0,
                passed_over: 0,
                posted_at_ns: now.wall_ns,
                running_at_ns: 0,
                ended_at_ns: 0,
                end: None,
                doomed: None,
                signals: Vec::new(),
                last_signal: 0,
            },
        );
        self.queue.insert(apid);
        self.save(apid, false, out);
        out.push(Effect::Log { apid, name: "posted", detail });
        out.push(Effect::Accept { reply, apid });
        self.place_newcomer(now, apid, out);
    }

    /// What is refused before anything is recorded.
    fn admit(&self, posting: &Posting, owner: &Owner) -> Result<(), (Refusal, Explanation)> {
        let no = |refusal, obstacle: String, cure: &str| {
            let cure = cure.to_owned();
            Err((refusal, Explanation { obstacle, holder: String::new(), cure }))
        };
        let shape = &posting.shape;
        if shape.width == 0 || shape.depth == 0 || shape.per_node == Some(0) {
            return no(Refusal::Impossible, "a width, depth or count per node of 0".into(), "");
        }
        if let Some(only) = self.settings.only_uid.filter(|only| *only != owner.uid) {
            return no(
                Refusal::NotAllowed,
                format!(
                    "this psched runs as user {only} and can start programs only for that user"
                ),
                "start one of your own with `psched start`",
            );
        }
        if self.queue.len() >= self.settings.postings_max {
            let most = self.settings.postings_max;
            let obstacle = format!("{most} postings wait already, as many as may");
            let cure = format!("try again later, or {}", raise("postings_max", most));
            return no(Refusal::TooMany, obstacle, &cure);
        }
        let own = self
            .queue
            .iter()
            .filter(|a| self.teams[*a].owner.uid == owner.uid)
            .take(self.settings.postings_user_max);
        if self.queue.len() >= self.settings.postings_user_max
            && own.count() >= self.settings.postings_user_max
        {
            let most = self.settings.postings_user_max;
            let obstacle = format!("{most} postings of yours wait already, as many as may");
            let cure = format!("try again later, or {}", raise("postings_user_max", most));
            return no(Refusal::TooMany, obstacle, &cure);
        }
        placement::possible(&self.configured, shape)
            .map_err(|impossible| (Refusal::Impossible, impossible.explain()))
    }

    /// Where a posting would go now.
    ///
    /// # Errors
    /// Why it is refused, or what it would wait for.
    pub fn dry_run(
        &self,
        posting: &Posting,
        owner: &Owner,
    ) -> Result<(PlacementList, Vec<HostPart>), (Refusal, Explanation)> {
        self.admit(posting, owner)?;
        match placement::place(&self.occupancy, &posting.shape, &self.kept()) {
            Ok(places) => {
                let hosts = self.hosts_of(&places);
                Ok((places, hosts))
            }
            Err(no_room) => Err((Refusal::NoRoom, self.explain(&no_room))),
        }
    }

    /// Tries to place a posting that has just come: nothing else can have become possible.
    fn place_newcomer(&mut self, now: Now, apid: Apid, out: &mut Vec<Effect>) {
        let shape = self.teams[&apid].posting.shape;
        let kept = self.kept();
        if let Some(places) = placement::try_place(&self.occupancy, &shape, &kept) {
            self.grant(now, apid, places, out);
        }
    }

    /// Goes through the line once and places whoever fits.
    pub(super) fn place_waiting(&mut self, now: Now, out: &mut Vec<Effect>) {
        let mut kept = BTreeSet::new();
        // The smallest width that did not fit, by depth and count per node: a wider one will not
        // either, and the line is often many postings of few shapes.
        let mut too_wide: BTreeMap<(u32, Option<u32>), u32> = BTreeMap::new();
        let line: Vec<Apid> = self.queue.iter().copied().collect();
        for apid in line {
            let Some(team) = self.teams.get(&apid) else { continue };
            let shape = team.posting.shape;
            let key = (shape.depth, shape.per_node);
            let hopeless = too_wide.get(&key).is_some_and(|w| shape.width >= *w);
            let place =
                if hopeless { None } else { placement::try_place(&self.occupancy, &shape, &kept) };
            match place {
                Some(places) => self.grant(now, apid, places, out),
                None => {
                    let least = too_wide.entry(key).or_insert(shape.width);
                    *least = (*least).min(shape.width);
                    if self.teams[&apid].passed_over >= self.settings.passed_over_max {
                        kept.extend(placement::usable(&self.machine, &shape));
                    }
                }
            }
        }
    }

    /// Nodes kept for postings that have been passed over too often.
    pub(super) fn kept(&self) -> BTreeSet<crate::machine::Nid> {
        self.kept_before(None)
    }

    /// The same, for postings before this one in line only.
    pub(super) fn kept_before(&self, apid: Option<Apid>) -> BTreeSet<crate::machine::Nid> {
        self.queue
            .iter()
            .take(COUNTED)
            .take_while(|a| apid.is_none_or(|before| **a < before))
            .map(|a| &self.teams[a])
            .filter(|t| t.passed_over >= self.settings.passed_over_max)
            .flat_map(|t| placement::usable(&self.machine, &t.posting.shape))
            .collect()
    }

    /// Gives a waiting application its place.
    fn grant(&mut self, now: Now, apid: Apid, places: PlacementList, out: &mut Vec<Effect>) {
        if let Err(conflict) = self.occupancy.take(apid, &places) {
            // Placement and occupancy disagree: a fault of ours, which must not become two gangs
            // on one processor.
            out.push(Effect::Warn(format!("application {apid} was not placed: {conflict}")));
            return;
        }
        let hosts = self.hosts_of(&places);
        let until = now.mono_ns.saturating_add(nanos(self.settings.ticket_time));
        let passed: Vec<Apid> =
            self.queue.iter().copied().take(COUNTED).take_while(|a| *a < apid).collect();
        let Some(team) = self.teams.get_mut(&apid) else { return };
        team.incarnation.0 += 1;
        team.places = places;
        team.hosts = hosts;
        team.ticket_until_ns = until;
        team.end = None;
        let nids = crate::machine::format_nids(team.places.nids());
        let (key, front) = (team.key(), team.front);
        self.become_state(apid, State::Placed);
        for waiting in passed {
            let Some(team) = self.teams.get_mut(&waiting) else { continue };
            if team.passed_over < self.settings.passed_over_max {
                team.passed_over += 1;
                let passed_over = team.passed_over;
                out.push(Effect::SavePassedOver { apid: waiting, passed_over });
            }
        }
        self.save(apid, false, out);
        out.push(Effect::Log {
            apid,
            name: "placed",
            detail: format!("incarnation {} on NIDs {nids}", key.incarnation.0),
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
        only: Option<super::LinkId>,
        out: &mut Vec<Effect>,
    ) {
        let Some(team) = self.teams.get(&apid) else { return };
        let ticket_left = match team.state {
            // The front end has come in time: this is for the head, on its way to other nodes.
            State::Launching => self.settings.ticket_time,
            _ => Duration::from_nanos(team.ticket_until_ns.saturating_sub(now.mono_ns)),
        };
        let command = PlaceCommand {
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
            bounds: self.settings.bounds,
            isolation: self.settings.isolation,
            request_id: team.posting.request_id,
            command: team.posting.command.chars().take(COMMAND_SHOWN).collect(),
        };
        for link in self.links_of(team).into_iter().filter(|l| only.is_none_or(|o| o == *l)) {
            out.push(Effect::Command { link, command: Command::Place(Box::new(command.clone())) });
        }
    }

    /// The apinits of a placement, that of PE 0 first.
    fn hosts_of(&self, places: &PlacementList) -> Vec<HostPart> {
        let mut hosts: Vec<(Option<super::LinkId>, HostPart)> = Vec::new();
        for nid in places.nids() {
            let link = self.offered.get(&nid).copied();
            match hosts.iter_mut().find(|(l, _)| *l == link) {
                Some((_, part)) => part.nids.push(nid),
                None => {
                    let hello = link.and_then(|l| self.links.get(&l)).map(|l| &l.hello);
                    let part = HostPart {
                        nids: vec![nid],
                        socket: hello.map(|h| h.socket.clone()).unwrap_or_default(),
                        host_id: hello
                            .map(|h| format!("{}/{}", h.hostname, h.boot_id))
                            .unwrap_or_default(),
                    };
                    hosts.push((link, part));
                }
            }
        }
        hosts.into_iter().map(|(_, part)| part).collect()
    }

    pub(super) fn looked(&mut self, now: Now, reply: ReplyId, apid: Apid, out: &mut Vec<Effect>) {
        if self.teams.get(&apid).is_some_and(|t| t.state == State::Lapsed) {
            // The silent front end is back: it waits again, at its old place in line.
            self.become_state(apid, State::Posted);
            self.save(apid, false, out);
            out.push(Effect::Log { apid, name: "waiting", detail: "its aprun is back".into() });
            self.place_waiting(now, out);
        }
        let Some(team) = self.teams.get(&apid) else {
            refuse(out, reply, Refusal::NotFound, &format!("there is no application {apid}"));
            return;
        };
        let looked = match team.state {
            State::Placed | State::Launching | State::Running => {
                Looked::Placed(Box::new(team.clone()))
            }
            _ => Looked::Waiting(self.why(apid).unwrap_or_default()),
        };
        out.push(Effect::Look { reply, looked });
    }

    pub(super) fn front_gone(&mut self, now: Now, apid: Apid, out: &mut Vec<Effect>) {
        let Some(team) = self.teams.get_mut(&apid) else { return };
        team.front = None;
        match team.state {
            // Its nodes watch a launched application's front end themselves.
            State::Running | State::Ended => {}
            // They did; unless the launch was lost again with an apinit that was killed.
            State::Launching => {
                self.give_up(now, apid, Cause::FrontGone, out);
                self.repeat_doom(apid, out);
            }
            _ => self.give_up(now, apid, Cause::FrontGone, out),
        }
    }

    /// Ends an application that has not been launched, or tries to.
    fn give_up(&mut self, now: Now, apid: Apid, cause: Cause, out: &mut Vec<Effect>) {
        let Some(team) = self.teams.get_mut(&apid) else { return };
        let doom = Decisive { at_ns: now.mono_ns, cause };
        team.doomed = Decisive::earlier(team.doomed.take(), Some(doom));
        match team.state {
            State::Posted | State::Lapsed => self.finish(now, apid, Said::ByPsched, out),
            State::Placed => {
                self.take_back(apid, out);
                self.save(apid, false, out);
            }
            _ => self.save(apid, false, out),
        }
    }

    /// Asks the nodes of a placed application not to launch it.
    pub(super) fn take_back(&mut self, apid: Apid, out: &mut Vec<Effect>) {
        if !self.become_state(apid, State::TakingBack) {
            return;
        }
        let Some(team) = self.teams.get(&apid) else { return };
        self.taken_back.insert(team.key(), BTreeSet::new());
        for link in self.links_of(team) {
            out.push(Effect::Command { link, command: Command::TakeBack(team.key()) });
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
        self.occupancy.release(apid);
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
        team.hosts = Vec::new();
        self.become_state(apid, State::Lapsed);
        self.save(apid, false, out);
        out.push(Effect::Log { apid, name: "lapsed", detail: "waits for its aprun".into() });
        // It may have looked while the place was on its way back, and would not look again.
        out.push(Effect::Tell { apid, news: News::Placed });
        self.place_waiting(now, out);
    }

    /// The end of an application: recorded, told, and its processors free.
    pub(super) fn finish(&mut self, now: Now, apid: Apid, said: Said, out: &mut Vec<Effect>) {
        let Some(mut team) = self.teams.remove(&apid) else { return };
        self.stuck.remove(&apid);
        // Whether others may fit now: a waiting posting that goes frees nothing, unless nodes were
        // kept for it.
        let frees =
            team.state.holds_processors() || team.passed_over >= self.settings.passed_over_max;
        self.queue.remove(&apid);
        self.tickets.remove(&(team.ticket_until_ns, apid));
        self.taken_back.remove(&team.key());
        self.requests.remove(&team.posting.request_id);
        self.occupancy.release(apid);
        let mut end = team.end.take().unwrap_or_default();
        end.key = team.key();
        // A decision that came to its nodes when every PE had ended has not made it end.
        let by_themselves =
            end.ends.iter().filter(|e| !e.consequence).map(|e| e.count).sum::<u32>();
        if by_themselves < team.posting.shape.width {
            end.first = Decisive::earlier(end.first, team.doomed.clone());
        }
        let status = end.status();
        let detail = match &end.first {
            Some(decisive) => format!("status {status}: {}", decisive.cause),
            None => format!("status {status}"),
        };
        team.state = State::Ended;
        // What its nodes measured, where psched heard of the end late: it or apinit was away.
        let run = nanos(end.run);
        team.ended_at_ns = match team.running_at_ns {
            began if began > 0 && run > 0 => began.saturating_add(run).min(now.wall_ns),
            _ => now.wall_ns,
        };
        team.end = Some(end.clone());
        out.push(Effect::Save { team: Box::new(team), lazy: false });
        out.push(Effect::Log { apid, name: "ended", detail });
        let end = Box::new(end);
        out.push(if said == Said::ByItsNodes {
            Effect::TellEnd { apid, end, status }
        } else {
            Effect::Tell { apid, news: News::Ended { end, status } }
        });
        if frees {
            self.place_waiting(now, out);
        }
    }

    /// # Errors
    /// Why not, in words for the caller.
    pub(super) fn kill(
        &mut self,
        now: Now,
        apid: Apid,
        signal: i32,
        uid: u32,
        administrator: bool,
        out: &mut Vec<Effect>,
    ) -> Result<(), String> {
        let team = self.teams.get(&apid).ok_or_else(|| {
            format!("there is no application {apid}, or it has ended (apstat --history)")
        })?;
        if !administrator && team.owner.uid != uid {
            return Err(format!(
                "application {apid} belongs to {}: only its owner and administrators may signal it",
                team.owner.name
            ));
        }
        let ends = signal == 0 || signal == KILL;
        let cause = Cause::Kill { signal: if signal == 0 { TERM } else { signal }, uid };
        let detail = format!("{cause}");
        match team.state {
            State::Launching | State::Running => {
                let links = self.links_of(team);
                let key = team.key();
                if ends {
                    let kill_after =
                        if signal == KILL { Duration::ZERO } else { self.settings.apkill_grace };
                    let doom = Decisive { at_ns: now.mono_ns, cause: cause.clone() };
                    if let Some(team) = self.teams.get_mut(&apid) {
                        let before = team.doomed.take();
                        // A KILL after a TERM takes its place, so that a node that hears of it only
                        // when it is back does not wait as long as a TERM would have it.
                        team.doomed = match before {
                            Some(before) if signal == KILL => {
                                Some(Decisive { at_ns: before.at_ns.min(doom.at_ns), ..doom })
                            }
                            before => Decisive::earlier(before, Some(doom)),
                        };
                    }
                    self.save(apid, false, out);
                    for link in links {
                        let cause = cause.clone();
                        let command = Command::Terminate { key, cause, kill_after };
                        out.push(Effect::Command { link, command });
                    }
                } else if links.is_empty() {
                    return Err(format!(
                        "the nodes of application {apid} are not connected; try again when apstat -n shows them"
                    ));
                } else if team.signals.len() >= SIGNALS_MAX {
                    return Err(format!(
                        "{SIGNALS_MAX} signals to application {apid} have not come to all its nodes; try again when apstat -n shows them connected"
                    ));
                } else if let Some(team) = self.teams.get_mut(&apid) {
                    // By the clock, so that another store, which may adopt it, goes on above these.
                    let number = PSCHED_SIGNALS.saturating_add(now.wall_ns);
                    team.last_signal = number.max(team.last_signal.saturating_add(1));
                    let signal = NumberedSignal { number: team.last_signal, signal };
                    team.signals.push(signal);
                    self.save(apid, false, out);
                    self.say_signals(apid, &[signal], out);
                }
                out.push(Effect::Log { apid, name: "signal", detail });
            }
            State::Ended => {}
            _ if signal != 0 && !ENDING_SIGNALS.contains(&signal) => {
                return Err(format!(
                    "application {apid} has not started: it has no process to signal"
                ));
            }
            _ => {
                out.push(Effect::Log { apid, name: "signal", detail });
                self.give_up(now, apid, cause, out);
            }
        }
        Ok(())
    }

    /// Tells the head, which passes signals on to the other hosts. One that is away is told when it is
    /// back, and before the PEs go there is nobody to be told.
    pub(super) fn say_signals(
        &self,
        apid: Apid,
        signals: &[NumberedSignal],
        out: &mut Vec<Effect>,
    ) {
        let running = |team: &&Apteam| team.state == State::Running;
        let Some(team) = self.teams.get(&apid).filter(running) else { return };
        let link = team.places.nids().next().and_then(|nid| self.offered.get(&nid).copied());
        let Some(link) = link.filter(|l| self.links.get(l).is_some_and(|l| l.known)) else {
            return;
        };
        let key = team.key();
        let command = |signal: &NumberedSignal| Command::Signal { key, signal: *signal };
        out.extend(signals.iter().map(|s| Effect::Command { link, command: command(s) }));
    }

    /// All its apshepherds have psched's signals up to this number.
    pub(super) fn signals_taken(&mut self, apid: Apid, number: u64, out: &mut Vec<Effect>) {
        let Some(team) = self.teams.get_mut(&apid) else { return };
        let before = team.signals.len();
        team.signals.retain(|signal| signal.number > number);
        if team.signals.len() < before {
            self.save(apid, true, out);
        }
    }

    pub(super) fn store_refused(&mut self, now: Now, apid: Apid, why: &str, out: &mut Vec<Effect>) {
        // Its acceptance has not left psched, so no front end counts on it.
        let Some(team) = self.teams.remove(&apid) else { return };
        self.stuck.remove(&apid);
        self.queue.remove(&apid);
        self.tickets.remove(&(team.ticket_until_ns, apid));
        self.requests.remove(&team.posting.request_id);
        self.occupancy.release(apid);
        // Unless something that was recorded after it has placed it.
        for link in self.links_of(&team) {
            out.push(Effect::Command { link, command: Command::Discard(team.key()) });
        }
        out.push(Effect::Warn(format!("posting {apid} was refused: {why}")));
        self.place_waiting(now, out);
    }
}

/// A shape in the options of aprun.
pub(super) fn shape_text(shape: &Shape) -> String {
    let per_node = shape.per_node.map(|n| format!(" -N {n}")).unwrap_or_default();
    format!("-n {} -d {}{per_node}", shape.width, shape.depth)
}

fn refuse(out: &mut Vec<Effect>, reply: ReplyId, refusal: Refusal, obstacle: &str) {
    let explanation = Explanation { obstacle: obstacle.into(), ..Explanation::default() };
    out.push(Effect::Refuse { reply, refusal, explanation });
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Hosts that have said how their part ended.
pub(super) fn covered(team: &Apteam, end: &HostEnd) -> bool {
    team.places.nids().all(|nid| end.nids.contains(&nid))
}
