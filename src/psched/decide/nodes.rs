//! Nodes: their links, their inventories, their reports.
//!
//! A node is *offered* while the link of an apinit stands and its inventory has been put together
//! with the records; only then does it take new applications. A link that breaks frees nothing:
//! what the node holds may still run. What is found when it comes back is treated by the table of
//! the house:
//!
//! | the node's inventory against the records | what is done |
//! | --- | --- |
//! | node has X, the records do not | `Discard` |
//! | node has an older incarnation of X | `Discard` that one |
//! | records have X running, the node (same boot) lacks it | X lost: ends with 125, the NID named |
//! | the same, other boot | X died with the host |
//! | the host of PE 0, whose part has ended, has another boot | the rest of X is ended |
//! | placed, and the node lacks it | the placement is sent again, its ticket's rest with it |
//! | running, and the node has it as placed, or was given its place again | asked to give it back: if it does, lost |
//! | launching, and a node that is not the head's lacks it | the placement is sent again |
//! | running, and is to be moved | the move is said again |
//! | taken back | asked again |
//! | taken back, and a host without PE 0 has its PEs | ended there, once the host of PE 0 has given it back |
//! | exit report for an X that has ended | `Discard`: nothing of it is waited for |
//!
//! A node that obeys another store is foreign (`foreign.rs`): it has no inventory for us.

use super::ends::Said;
use super::unheard::Unheard;
use super::{Effect, Link, LinkId, News, Now, Record, Scheduler};
use crate::apteam::ending::{Cause, Decisive, HostEnd};
use crate::apteam::posting::cut;
use crate::apteam::protocol::node::{ClockTold, Command, Hello, PROTOCOL, Phase, Report, SAID_MAX};
use crate::apteam::record::{Apteam, State};
use crate::apteam::{Apid, Key};
use crate::machine::{Machine, Nid, NidSet, format_nids, nids_text};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Apinits that are named of those that a configuration refuses.
const REFUSED_MAX: usize = 100;
/// What is said of an application that was lost because its apinit does not have it.
pub const LACKS: &str = "its apinit no longer knows it";
/// What is said of one whose part is gone, by a restart of its apinit or of its host.
const NOTHING_LEFT: &str = "nothing of it is left there";

/// Bytes of a list of nodes in what is said of an apinit that is refused.
const NIDS_SHOWN: usize = 200;

/// What the log says of applications that nodes hold and that are not on record.
fn not_on_record(nids: &[Nid], unknown: &[Key]) -> String {
    const NAMED_MAX: usize = 16;
    let (one, hold) = (unknown.len() == 1, if nids.len() == 1 { "holds" } else { "hold" });
    let named: Vec<String> = unknown.iter().take(NAMED_MAX).map(Key::to_string).collect();
    let more = match unknown.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "{} {hold} {} {}{more}, which {} not on record: {} ended",
        nids_text(nids.iter().copied()),
        if one { "application" } else { "applications" },
        named.join(", "),
        if one { "is" } else { "are" },
        if one { "it is" } else { "they are" },
    )
}

impl Scheduler {
    pub(super) fn link_opened(
        &mut self,
        now: Now,
        link: LinkId,
        hello: Hello,
        out: &mut Vec<Effect>,
    ) {
        let refuse = |why: String| Effect::RefuseLink { link, why };
        if hello.protocol != PROTOCOL {
            out.push(refuse(format!(
                "this psched speaks version {PROTOCOL} of the node protocol, the apinit version {}: install the same release",
                hello.protocol
            )));
            return;
        }
        let unknown: Vec<Nid> =
            hello.nids.iter().copied().filter(|n| !self.machine.nodes.contains_key(n)).collect();
        if hello.nids.is_empty() || !unknown.is_empty() {
            let why = format!(
                "psched.yaml has no {}: change --nids or the configuration",
                nids_text(unknown)
            );
            self.note_refused(&hello, &why);
            out.push(refuse(why));
            return;
        }
        if let Some(why) = self.not_of_its_host(&hello) {
            self.note_refused(&hello, &why);
            out.push(refuse(why));
            return;
        }
        // A node has one apinit. The newest connection of it speaks for it: the older one is of a life before,
        // or on the far side of what is broken.
        let older: BTreeSet<LinkId> =
            hello.nids.iter().filter_map(|n| self.offered.get(n).copied()).collect();
        if let Some(why) = self.held_by_another(now, &hello, &older) {
            out.push(refuse(why));
            return;
        }
        for older in older.into_iter().filter(|older| *older != link) {
            self.link_closed(now, older, out);
            out.push(Effect::CloseLink { link: older });
        }
        // (Called twice by one number, it offers what it has said last.)
        self.link_closed(now, link, out);
        self.find_memory(now, &hello);
        for nid in &hello.nids {
            self.offered.insert(*nid, link);
            self.refused.remove(nid);
        }
        self.relink_opened(link, &hello.nids);
        out.push(Effect::Welcome { link, nids: hello.nids.clone() });
        self.links
            .insert(link, Link { hello, known: false, foreign: None, clock: ClockTold::default() });
        self.note_roll_out(link);
    }

    /// Why an apinit may not offer its nodes: psched.yaml gives them to another host than its
    /// certificate names. What root says on psched's own host is believed for nodes without a host.
    fn not_of_its_host(&self, hello: &Hello) -> Option<String> {
        if hello.host.is_empty() && !hello.remote {
            return None;
        }
        let belongs = |nid: &Nid| {
            let host = self.machine.nodes.get(nid).map_or("", |node| &node.host);
            host == hello.host || host.is_empty() && !hello.remote
        };
        let strange: Vec<Nid> = hello.nids.iter().copied().filter(|nid| !belongs(nid)).collect();
        let first = strange.first()?;
        let host = match self.machine.nodes.get(first).map_or("", |node| &*node.host) {
            "" => "the host of psched",
            host => host,
        };
        Some(format!(
            "{} {} not of the host {}, whose certificate it presents: psched.yaml gives NID {first} \
             to {host}; correct --nids, or `host` in psched.yaml",
            cut(nids_text(strange.iter().copied()), NIDS_SHOWN),
            if strange.len() == 1 { "is" } else { "are" },
            hello.host,
        ))
    }

    /// Of the nodes that nobody else offers it is told why they are not there.
    fn note_refused(&mut self, hello: &Hello, why: &str) {
        let host = &hello.hostname;
        // (It is told of each of its nodes, and may name a hundred thousand.)
        let nids = cut(nids_text(hello.nids.iter().copied()), NIDS_SHOWN);
        let why = cut(format!("the apinit of {nids} on host {host}: {why}"), SAID_MAX);
        let why = Unheard::Unfit(why);
        let known = |nid: &&Nid| self.machine.nodes.contains_key(nid);
        let nids = hello.nids.iter().filter(known).filter(|nid| !self.offered.contains_key(nid));
        self.refused.extend(nids.map(|nid| (*nid, why.clone())).collect::<Vec<_>>());
    }

    /// The certificate of this link's host has been revoked: no apinit of it offers its nodes
    /// before it has another.
    pub(super) fn is_revoked(&mut self, link: LinkId) {
        let Some(Link { hello, .. }) = self.links.get(&link) else { return };
        let host = &hello.host;
        let why = Unheard::Revoked(host.clone());
        let own = |nid: &&Nid| self.offered.get(nid) == Some(&link);
        self.refused.extend(hello.nids.iter().filter(own).map(|nid| (*nid, why.clone())));
    }

    /// The linked apinits that would be refused with this configuration, in a sentence each: they
    /// offer nodes that it has and nodes that it has not.
    pub fn apinits_refused_by(&self, machine: &Machine) -> Vec<String> {
        let one = |link: &Link| {
            let nids = link.hello.nids.iter().copied();
            let (known, unknown): (Vec<Nid>, Vec<Nid>) =
                nids.clone().partition(|nid| machine.nodes.contains_key(nid));
            (!known.is_empty() && !unknown.is_empty()).then(|| {
                format!(
                    "the apinit that offers {} on host {} is refused until it is started with --nids {}: \
                     psched.yaml does not have {}",
                    nids_text(nids),
                    link.hello.hostname,
                    format_nids(known),
                    nids_text(unknown)
                )
            })
        };
        self.links.values().filter_map(one).take(REFUSED_MAX).collect()
    }

    /// Why an apinit may not have the nodes that it offers: another has them, or has what runs there and may come
    /// back. `linked`: the links that offer them now.
    fn held_by_another(
        &self,
        now: Now,
        hello: &Hello,
        linked: &BTreeSet<LinkId>,
    ) -> Option<String> {
        let mut others = linked.iter().filter_map(|link| self.links.get(link)).map(|l| &l.hello);
        if let Some(other) = others.find(|other| !is_same_apinit(other, hello)) {
            let both: Vec<Nid> =
                hello.nids.iter().copied().filter(|nid| other.nids.contains(nid)).collect();
            let pid =
                if other.pid > 0 { format!(", process {}", other.pid) } else { String::new() };
            return Some(format!(
                "{} offered by another apinit, which is linked: the apinit of {} on host {} \
                 ({}{pid}). Stop that one, or give one of the two other --nids",
                match both.len() {
                    1 => format!("{} is", nids_text(both)),
                    _ => format!("{} are", nids_text(both)),
                },
                nids_text(other.nids.iter().copied()),
                other.hostname,
                other.socket,
            ));
        }
        // Whose connection has broken has as long to come back as it may be silent.
        let lease = self.settings.host_bounds.silence;
        let offered = NidSet::of(&hello.nids);
        let holds = self.teams.values().filter(|team| team.state.holds_processors());
        holds.flat_map(|team| team.hosts.iter().map(move |host| (team, host))).find_map(
            |(team, host)| {
                let is_its = |nid: &&Nid| offered.contains(**nid) && !self.is_down(**nid);
                let nid = host.nids.iter().find(is_its)?;
                let left_ns = self.left_ns.get(nid).copied().unwrap_or(self.born_ns);
                let lease_ns = crate::variables::units::nanos(lease).saturating_add(left_ns);
                let of_host = host.host_name();
                let same = host.socket.is_empty()
                    || host.socket == hello.socket && of_host == hello.hostname;
                (!same && now.mono_ns < lease_ns).then(|| {
                    format!(
                        "NID {nid} has application {}, which another apinit runs, and that \
                         apinit has {} s to come back: the apinit of {} on host {of_host}. \
                         Start that one, or give this one other --nids",
                        self.name_of(team.apid),
                        lease.as_secs(),
                        host.socket,
                    )
                })
            },
        )
    }

    pub(super) fn link_closed(&mut self, now: Now, link: LinkId, out: &mut Vec<Effect>) {
        let Some(Link { hello, .. }) = self.links.remove(&link) else { return };
        self.note_roll_out(link);
        let own = |nid: &Nid| self.offered.get(nid) == Some(&link);
        let nids: BTreeSet<Nid> = hello.nids.into_iter().filter(own).collect();
        let nids: Vec<Nid> = nids.into_iter().collect();
        self.left_ns.extend(nids.iter().map(|nid| (*nid, now.mono_ns)));
        self.turns_away(now, &nids);
        for nid in nids {
            self.offered.remove(&nid);
            self.occupancy.set_open(nid, false);
        }
        self.relink_closed(link);
        self.placed_again.retain(|_, links| {
            links.remove(&link);
            !links.is_empty()
        });
        self.managed_link_closed(link, out);
        self.moves_link_closed(now, link, out);
    }

    /// Closes the link of an apinit that says what no apinit says.
    pub(super) fn hang_up(&mut self, now: Now, link: LinkId, why: &str, out: &mut Vec<Effect>) {
        let Some(Link { hello, .. }) = self.links.get(&link) else { return };
        let nids = nids_text(hello.nids.iter().copied());
        let text = format!(
            "the connection of the apinit of {nids} on host {} is closed: {why}",
            hello.hostname
        );
        self.link_closed(now, link, out);
        out.push(Effect::Warn(text));
        out.push(Effect::CloseLink { link });
    }

    pub(super) fn inventory(
        &mut self,
        now: Now,
        link: LinkId,
        items: &[(Key, Phase)],
        out: &mut Vec<Effect>,
    ) {
        let Some(entry) = self.links.get_mut(&link) else { return };
        if entry.known {
            // An apinit says what it has once, when it begins to obey. Each inventory costs as much
            // as the link has applications.
            return self.hang_up(now, link, "it sent a second inventory", out);
        }
        (entry.known, entry.foreign) = (true, None);
        let (nids, boot) = (entry.hello.nids.clone(), entry.hello.boot_id.clone());
        let own = NidSet::of(&nids);
        let mut held: BTreeMap<Key, Phase> = BTreeMap::new();
        let mut unknown = Vec::new();
        for (key, phase) in items {
            let team = self.teams.get(&key.apid);
            let here = |t: &&Apteam| t.places.nids().any(|n| own.contains(n));
            match team.filter(|t| t.key() == *key && t.state.holds_processors()).filter(here) {
                Some(_) => {
                    held.insert(*key, *phase);
                }
                // It has ended here and there: its node lacks the word that its report has come.
                None if *phase == Phase::Ended => {
                    out.push(Effect::Command { link, command: Command::Discard(*key) });
                }
                None => unknown.push(*key),
            }
        }
        if !unknown.is_empty() {
            out.push(Effect::Warn(not_on_record(&nids, &unknown)));
        }
        out.extend(
            unknown.iter().map(|key| Effect::Command { link, command: Command::Discard(*key) }),
        );
        let concerned: Vec<Apid> = self
            .teams
            .values()
            .filter(|t| t.state.holds_processors() && t.places.nids().any(|n| own.contains(n)))
            .map(|t| t.apid)
            .collect();
        for apid in concerned {
            self.put_together(now, link, (&nids, &own), &boot, apid, &held, out);
        }
        if nids.iter().any(|n| self.boots.get(n) != Some(&boot)) {
            out.push(Effect::Keep(Record::Boot(nids.clone(), boot.clone())));
        }
        self.turns_back(link, &nids, out);
        for nid in nids {
            self.boots.insert(nid, boot.clone());
            self.open_or_not(nid);
        }
        self.managed_link_known(link, out);
        self.want_decisions();
    }

    /// One application that the records place on this link's nodes, against what the link has.
    #[allow(clippy::too_many_arguments)]
    fn put_together(
        &mut self,
        now: Now,
        link: LinkId,
        (nids, of_link): (&[Nid], &NidSet),
        boot: &str,
        apid: Apid,
        held: &BTreeMap<Key, Phase>,
        out: &mut Vec<Effect>,
    ) {
        let Some(team) = self.teams.get(&apid) else { return };
        let key = team.key();
        let phase = held.get(&key).copied();
        let head = team.places.nids().next().is_some_and(|n| of_link.contains(n));
        match (team.state, phase) {
            // A part that could not be made is over, and is not made again.
            (State::Placed, None) if team.doomed.is_some() => {
                let own = team.places.nids().filter(|n| of_link.contains(*n)).collect();
                let end = HostEnd { key, nids: own, ..HostEnd::default() };
                self.part_ended(now, end, Said::ByPsched, out);
            }
            (State::Placed, None) => {
                self.placed_again.entry(key).or_default().insert(link, 0);
                self.send_place(now, apid, Some(link), out);
            }
            // All went together: whether it has gone here, or this node has lost what went.
            (State::Running, Some(Phase::Placed)) => self.ask_whether_it_has(link, key, out),
            (State::TakingBack, None | Some(Phase::Placed)) => {
                self.say_take_back(link, key, out);
            }
            // (Whether it is launched, and runs, only the host of PE 0 says.)
            (State::Placed | State::TakingBack, Some(Phase::Launched)) if head => {
                self.launched(now, apid, out);
            }
            (State::Placed | State::TakingBack | State::Launching, Some(Phase::Running))
                if head =>
            {
                self.running(now, apid, out);
            }
            (State::TakingBack, Some(Phase::Launched | Phase::Running)) => {
                self.has_without_head(link, key, out);
            }
            (State::Launching | State::Running, None) => {
                let ended = team.end.as_ref().is_some_and(|e| {
                    let ended = NidSet::of(&e.nids);
                    team.places.nids().filter(|n| of_link.contains(*n)).all(|n| ended.contains(n))
                });
                let rebooted = nids.iter().any(|n| self.boots.get(n).is_some_and(|b| b != boot));
                if !ended
                    && !rebooted
                    && !head
                    && team.state == State::Launching
                    && team.doomed.is_none()
                {
                    // Its apinit died before it had heard of it. None goes before all are there, so
                    // nothing has run; the head brings the launch.
                    self.send_place(now, apid, Some(link), out);
                } else if !ended
                    && !rebooted
                    && team.state == State::Launching
                    && team.doomed.is_some()
                {
                    // Nothing has run there, and nothing will; why is known.
                    let own = team.places.nids().filter(|n| of_link.contains(*n)).collect();
                    let end = HostEnd { key, nids: own, ..HostEnd::default() };
                    self.part_ended(now, end, Said::ByPsched, out);
                } else if !ended || head && rebooted {
                    let why = if rebooted { "its host was restarted" } else { LACKS };
                    self.lose_nodes(now, apid, Some(nids), why, out);
                    if ended {
                        // What is left can't go on: nobody lets it out of its barriers or takes its
                        // output any more.
                        self.save(apid, false, out);
                    }
                }
            }
            (State::Running, Some(Phase::Running)) => self.send_move(apid, out),
            _ => {}
        }
        // Signals that the head may not have heard. (Its own part may have ended: it passes them on.)
        if let Some(team) = self.teams.get(&apid)
            && team.places.nids().next().is_some_and(|n| of_link.contains(n))
        {
            self.say_signals(apid, &team.signals, out);
        }
        self.say_roll_out(apid, link, out);
        // A decision to end it that the node may not have heard.
        if let Some(team) = self.teams.get(&apid)
            && let Some(doom) = &team.doomed
            && matches!(team.state, State::Placed | State::Launching | State::Running)
            && phase.is_some_and(|p| p != Phase::Ended)
        {
            self.say_doom(team, doom, link, out);
        }
    }

    /// Tells a host why an application is to end, and if its front end has died, that as well: for
    /// whatever reason it ends, its head keeps no output for that one.
    fn say_doom(&self, team: &Apteam, doom: &Decisive, link: LinkId, out: &mut Vec<Effect>) {
        let also = team.front_gone && doom.cause != Cause::FrontGone;
        let causes = [Some(doom.cause.clone()), also.then_some(Cause::FrontGone)];
        for cause in causes.into_iter().flatten() {
            let kill_after = self.kill_after(&cause);
            let command = Command::Terminate { key: team.key(), cause, kill_after };
            out.push(Effect::Command { link, command });
        }
    }

    /// Counts some of an application's nodes (`None`: all) as empty because they have lost it.
    pub(super) fn lose_nodes(
        &mut self,
        now: Now,
        apid: Apid,
        nids: Option<&[Nid]>,
        why: &str,
        out: &mut Vec<Effect>,
    ) {
        let Some(team) = self.teams.get(&apid) else { return };
        let of = nids.map(NidSet::of);
        let is_of = |nid: &Nid| of.as_ref().is_none_or(|of| of.contains(*nid));
        let lost: Vec<Nid> = team.places.nids().filter(is_of).collect();
        let Some(nid) = lost.first().copied() else { return };
        let cause = Cause::NodeLost { nid, text: why.to_owned() };
        out.push(Effect::Log { apid, name: "lost", detail: cause.to_string() });
        let doom = Decisive { at_ns: now.mono_ns, cause: cause.clone() };
        let key = team.key();
        let others = self.links_with(team, |nid| !is_of(&nid));
        self.failed_launches.found(key, nid);
        let launched = team.running_at_ns != 0;
        if let Some(team) = self.teams.get_mut(&apid) {
            team.doomed = Decisive::earlier(team.doomed.take(), Some(doom.clone()));
            // (PEs of the host of PE 0 go first, and psched may not have heard of it.)
            team.retries.may_have_run |= team.places.nids().next().is_some_and(|n| is_of(&n));
        }
        self.turn_to_end(now, apid);
        let kill_after = self.kill_after(&cause);
        for link in others {
            let command = Command::Terminate { key, cause: cause.clone(), kill_after };
            out.push(Effect::Command { link, command });
        }
        let first = Some(doom);
        let end = HostEnd { key, nids: lost.clone(), launched, first, lost, ..HostEnd::default() };
        self.part_ended(now, end, Said::ByPsched, out);
    }

    pub(super) fn report(&mut self, now: Now, link: LinkId, report: Report, out: &mut Vec<Effect>) {
        let Some(report) = self.counted(now, link, report) else { return };
        if self.links.get(&link).is_some_and(|l| l.foreign.is_some()) {
            return self.foreign_report(now, link, report, out);
        }
        match report {
            Report::Launched(key) if self.current(key) => {
                let running = self.teams.get(&key.apid).map(|team| team.state);
                if running == Some(State::Running) {
                    self.it_has(link, key);
                }
                match self.has_head(link, key) {
                    true => self.launched(now, key.apid, out),
                    false => self.has_without_head(link, key, out),
                }
            }
            Report::Running(key) if self.current(key) => self.running(now, key.apid, out),
            Report::TakenBack { key, number } if self.current(key) => {
                self.part_taken_back(now, link, (key, number), out)
            }
            Report::SignalsTaken { key, number } if self.current(key) => {
                self.signals_taken(key.apid, number, out);
            }
            Report::Stuck { key, nid, processes } if self.current(key) => {
                self.stuck.entry(key.apid).or_default().insert(nid, processes);
            }
            Report::Ended(end) => {
                let key = end.key;
                if self.current(key) && !end.nids.is_empty() {
                    self.failed_launches.note(&end);
                    if let Some(stuck) = self.stuck.get_mut(&key.apid) {
                        stuck.retain(|nid, _| !end.nids.contains(nid));
                    }
                    // It had it: there is nothing to ask.
                    self.it_has(link, key);
                    self.part_ended(now, *end, Said::ByItsNodes, out);
                    // This leaves psched after the record is durable, like every effect.
                    out.push(Effect::Command { link, command: Command::AcknowledgeEnd(key) });
                } else {
                    // All of it has ended, or it is an older incarnation, or has no part there: the node need not
                    // wait for what other hosts have of it.
                    out.push(Effect::Command { link, command: Command::Discard(key) });
                }
            }
            Report::ToHear { key, ends: true } if self.current(key) => {
                self.turn_to_end(now, key.apid)
            }
            Report::ToHear { key, .. } if self.current(key) => self.turn_early(now, key.apid),
            Report::Movable { key, blocker } if self.current(key) => {
                self.migration_blockers.insert(key.apid, blocker);
                self.want_decision_for(key.apid);
            }
            Report::Moved { key, number, frozen } if self.current(key) => {
                self.moved(now, key.apid, number, frozen, out);
            }
            Report::MoveFailed { key, number, why } if self.current(key) => {
                self.move_failed(now, key.apid, number, why, out);
            }
            Report::RolledOut { key, bytes, why } if self.current(key) => {
                self.rolled_out(link, key.apid, bytes, why, out);
            }
            Report::PlanTaken(generation) => self.plan_taken(link, generation, out),
            Report::Switches(told) => self.switched(now, link, *told, out),
            // Of an older incarnation: no effect.
            Report::Launched(_)
            | Report::Running(_)
            | Report::TakenBack { .. }
            | Report::ToHear { .. }
            | Report::SignalsTaken { .. }
            | Report::Stuck { .. }
            | Report::Movable { .. }
            | Report::Moved { .. }
            | Report::MoveFailed { .. }
            | Report::RolledOut { .. } => {}
        }
    }

    /// Whether this is the application's present incarnation.
    pub(super) fn current(&self, key: Key) -> bool {
        self.teams.get(&key.apid).is_some_and(|t| t.key() == key)
    }

    fn launched(&mut self, now: Now, apid: Apid, out: &mut Vec<Effect>) {
        if !self.become_state(apid, State::Launching) {
            return;
        }
        self.save(apid, true, out);
        let name = self.step_name(apid, "launched", "recovering");
        out.push(Effect::Log { apid, name, detail: String::new() });
        self.repeat_doom(now, apid, out);
        // Hosts that gave its place back before the head said that it was too late.
        let Some(key) = self.teams.get(&apid).map(Apteam::key) else { return };
        let back = self.taken_back.remove(&key).unwrap_or_default();
        let links: BTreeSet<LinkId> =
            back.iter().filter_map(|n| self.offered.get(n).copied()).collect();
        for link in links {
            self.part_taken_back(now, link, (key, 0), out);
        }
        self.lose_down(now, apid, out);
    }

    fn running(&mut self, now: Now, apid: Apid, out: &mut Vec<Effect>) {
        if !self.become_state(apid, State::Running) {
            return;
        }
        if let Some(team) = self.teams.get_mut(&apid) {
            team.running_at_ns = now.wall_ns;
            let nids: Vec<Nid> = team.places.nids().collect();
            self.failed_launches.forget(nids);
        }
        self.turns_changed(now, apid);
        self.save(apid, true, out);
        let name = self.step_name(apid, "running", "unlocked");
        out.push(Effect::Log { apid, name, detail: String::new() });
        out.push(Effect::Tell { apid, news: News::Running });
        if let Some(team) = self.teams.get(&apid) {
            self.say_signals(apid, &team.signals, out);
        }
        self.repeat_doom(now, apid, out);
        // All went: a host that has said meanwhile that it has nothing of it has lost it.
        let Some(key) = self.teams.get(&apid).map(Apteam::key) else { return };
        let back: Vec<Nid> = self.taken_back.remove(&key).into_iter().flatten().collect();
        if !back.is_empty() {
            self.lose_nodes(now, apid, Some(&back), LACKS, out);
        }
        // A node that did not have it has been given the place again, in time or after all went.
        for link in self.placed_again.remove(&key).unwrap_or_default().into_keys() {
            self.ask_whether_it_has(link, key, out);
        }
        self.lose_down(now, apid, out);
    }

    /// Tells the nodes that still have it of an application that is to end.
    pub(super) fn repeat_doom(&mut self, now: Now, apid: Apid, out: &mut Vec<Effect>) {
        let Some(team) = self.teams.get(&apid) else { return };
        let Some(doom) = &team.doomed else { return };
        for link in self.links_left(apid) {
            self.say_doom(team, doom, link, out);
        }
        self.turn_to_end(now, apid);
    }

    /// A host without PE 0 has PEs of an application that is taken back, and does not give its part
    /// back. If the host of PE 0 has given its part back, it has lost the application: what is left
    /// is ended.
    fn has_without_head(&self, link: LinkId, key: Key, out: &mut Vec<Effect>) {
        let team = self.teams.get(&key.apid).filter(|team| team.state == State::TakingBack);
        let Some((team, nid)) = team.and_then(|t| Some((t, t.places.nids().next()?))) else {
            return;
        };
        let ended = || team.end.as_ref().is_some_and(|end| end.nids.contains(&nid));
        let back = || self.taken_back.get(&key).is_some_and(|back| back.contains(&nid));
        if back() || ended() || self.is_down(nid) {
            let cause = Cause::NodeLost { nid, text: NOTHING_LEFT.to_owned() };
            let kill_after = self.kill_after(&cause);
            let command = Command::Terminate { key, cause, kill_after };
            out.push(Effect::Command { link, command });
        }
    }

    /// A host has given its part back. `number`: of the command that this answers, as the host
    /// says.
    fn part_taken_back(
        &mut self,
        now: Now,
        link: LinkId,
        (key, number): (Key, u64),
        out: &mut Vec<Effect>,
    ) {
        let Some(nids) = self.links.get(&link).map(|l| l.hello.nids.clone()) else { return };
        let of_link = NidSet::of(&nids);
        let Some(team) = self.teams.get(&key.apid) else { return };
        let head = team.places.nids().next().is_some_and(|n| of_link.contains(n));
        let own: Vec<Nid> = team.places.nids().filter(|n| of_link.contains(*n)).collect();
        let over = team.end.as_ref().is_some_and(|e| own.iter().all(|n| e.nids.contains(n)));
        match team.state {
            // It had its part to the end: what it has forgotten now is not lost. (The question was
            // under way, or its end arrived before the word of the head that all had gone.)
            State::Launching | State::Running if over => {}
            State::TakingBack => {
                self.taken_back.entry(key).or_default().extend(nids);
                let back = self.taken_back.get(&key);
                let left = |nid: Nid| back.is_none_or(|back| !back.contains(&nid));
                let left = if head { self.links_with(team, left) } else { Vec::new() };
                self.part_gone(now, key.apid, out);
                // A host that said that it has PEs of it was not believed: it says so again.
                for link in left {
                    if self.current(key) {
                        self.say_take_back(link, key, out);
                    }
                }
            }
            // Its head was launched in the same moment, and is about to bring the launch. None goes
            // before all are there, so that nothing has run.
            State::Launching if !head && team.doomed.is_none() => {
                self.send_place(now, key.apid, Some(link), out);
            }
            // All have gone, so that this host has lost it, if it says so now. (The report may be an
            // older one, of the time before the host was given the place again.)
            State::Running if team.doomed.is_none() => {
                let asked = self.placed_again.get(&key).and_then(|asked| asked.get(&link));
                match asked.copied() {
                    None => self.ask_whether_it_has(link, key, out),
                    // (An apinit of a release before repeats no number.)
                    Some(asked) if number == asked || number == 0 => {
                        self.lose_nodes(now, key.apid, Some(&nids), LACKS, out);
                    }
                    // An answer to an older command: that to the question is still to come.
                    Some(_) => {}
                }
            }
            // This host's part is over before it began.
            State::Launching | State::Running => {
                let end = HostEnd { key, nids: own, ..HostEnd::default() };
                self.part_ended(now, end, Said::ByPsched, out);
            }
            _ => {}
        }
    }

    /// Asks a host whether it has its part of an application that runs. The question is the command
    /// to give the part back: a host gives back only what has not begun.
    fn ask_whether_it_has(&mut self, link: LinkId, key: Key, out: &mut Vec<Effect>) {
        let number = self.say_take_back(link, key, out);
        self.placed_again.entry(key).or_default().insert(link, number);
    }

    /// Tells a host to give its part of an application back. The command has a number, never 0,
    /// that no other such command has had: the host may still answer one of a psched before this.
    pub(super) fn say_take_back(&mut self, link: LinkId, key: Key, out: &mut Vec<Effect>) -> u64 {
        self.take_backs += 1;
        let number = self.born_ns.saturating_add(self.take_backs);
        out.push(Effect::Command { link, command: Command::TakeBack { key, number } });
        number
    }

    /// A host has an application.
    fn it_has(&mut self, link: LinkId, key: Key) {
        if let Some(asked) = self.placed_again.get_mut(&key) {
            asked.remove(&link);
            if asked.is_empty() {
                self.placed_again.remove(&key);
            }
        }
    }

    /// The time from TERM to KILL that a cause gives. Each command to end an application has it
    /// from here.
    pub(super) fn kill_after(&self, cause: &Cause) -> Duration {
        match cause {
            Cause::Kill { signal: 9, .. } => Duration::ZERO,
            Cause::Kill { .. } => self.settings.apkill_grace,
            Cause::FrontGone => self.settings.front_kill_grace,
            _ => self.settings.kill_grace,
        }
    }

    /// How long it is from this time of psched's monotonic clock until what is left of it gets
    /// KILL; `None`: it is not being ended.
    pub fn kill_in(&self, team: &Apteam, now_ns: u64) -> Option<Duration> {
        let ends = matches!(team.state, State::Launching | State::Running);
        let doomed = team.doomed.as_ref().filter(|_| ends)?;
        let passed = Duration::from_nanos(now_ns.saturating_sub(doomed.at_ns));
        Some(self.kill_after(&doomed.cause).saturating_sub(passed))
    }

    /// One host's part is empty.
    pub(super) fn part_ended(&mut self, now: Now, end: HostEnd, said: Said, out: &mut Vec<Effect>) {
        let apid = end.key.apid;
        let Some(team) = self.teams.get_mut(&apid) else { return };
        let told =
            team.end.take().unwrap_or_else(|| HostEnd { key: end.key, ..HostEnd::default() });
        // (Only the host of PE 0 says so.)
        let first = team.places.nids().next();
        let went = end.launched && first.is_some_and(|nid| end.nids.contains(&nid));
        let fresh = end.nids.iter().any(|n| !told.nids.contains(n));
        let merged = if fresh { told.and(end) } else { told };
        let whole = super::ends::covered(team, &merged);
        let first = merged.first.clone().filter(|d| d.cause.ends_application());
        team.end = Some(merged);
        if whole {
            if !self.is_tried_again(now, apid, out) {
                self.finish(now, apid, said, out);
            }
            return;
        }
        if !fresh {
            return;
        }
        if went {
            // All went together, whether psched has heard of it or not: what is on the other hosts
            // is not to be taken back any more.
            self.running(now, apid, out);
        }
        let Some(team) = self.teams.get_mut(&apid) else { return };
        let goes = matches!(team.state, State::Placed | State::Launching | State::Running);
        if let Some(first) = first.filter(|_| goes) {
            // The other hosts hear it from the head; unless that has died, and what it had of the
            // application with it, or has not been launched.
            let key = team.key();
            let cause = first.cause.clone();
            // (All were told of an order to end it when it was given: a thousand parts that end by it are
            // not a million messages.)
            let ordered = matches!(cause, Cause::Kill { .. });
            let told = ordered && team.doomed.as_ref().is_some_and(|doom| doom.cause == cause);
            team.doomed = Decisive::earlier(team.doomed.take(), Some(first));
            let kill_after = self.kill_after(&cause);
            self.turn_to_end(now, apid);
            let links = if told { Vec::new() } else { self.links_left(apid) };
            for link in links {
                let command = Command::Terminate { key, cause: cause.clone(), kill_after };
                out.push(Effect::Command { link, command });
            }
        }
        self.save(apid, false, out);
        self.part_gone(now, apid, out);
    }

    /// One host's part of an application whose place is taken back is not there any more: it has
    /// not been launched, or has ended before that (its node was purged, say).
    pub(super) fn part_gone(&mut self, now: Now, apid: Apid, out: &mut Vec<Effect>) {
        let Some(team) = self.teams.get(&apid).filter(|t| t.state == State::TakingBack) else {
            return;
        };
        let back = self.taken_back.get(&team.key());
        let back = |nid: &Nid| back.is_some_and(|back| back.contains(nid));
        let ended: NidSet = team.end.iter().flat_map(|end| end.nids.iter().copied()).collect();
        // What is gone has launched nothing, and will not.
        if !team.places.nids().all(|n| back(&n) || ended.contains(n) || self.is_down(n)) {
            return;
        }
        let Some(end) = &team.end else { return self.all_taken_back(now, apid, out) };
        let unknown: Vec<Nid> = team.places.nids().filter(|n| !ended.contains(*n)).collect();
        if let Some(nid) = unknown.first().filter(|_| end.launched) {
            // PEs ran on other hosts, so all PEs were started. How those of these nodes ended is unknown.
            let order = self.closed.get(nid).filter(|_| self.is_down(*nid));
            let why =
                order.map_or_else(|| NOTHING_LEFT.to_owned(), |order| format!("it was {order}"));
            self.lose_nodes(now, apid, Some(&unknown), &why, out);
        } else if !self.is_tried_again(now, apid, out) {
            self.finish(now, apid, Said::ByPsched, out);
        }
    }
}

/// Whether two hellos are of one apinit: it has one runtime folder, beside its socket, on one host. Another boot of
/// that host is another life of it.
fn is_same_apinit(one: &Hello, other: &Hello) -> bool {
    (&one.socket, &one.hostname) == (&other.socket, &other.hostname)
}
