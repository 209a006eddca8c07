//! At the end of a seed: faults stop, and everything comes to rest, with nothing lost and nothing
//! left.

use super::Checks;
use crate::apteam::place::PlacementList;
use crate::apteam::record::{Apteam, State};
use crate::torture::SECOND;
use crate::torture::store::Disk;
use crate::torture::world::{Ev, World};
use std::collections::BTreeMap;

/// By then everything has ended that will.
const REST_MAX: u64 = 3_600 * SECOND;
/// What lingers has gone by then: front ends that may come back, peers that are away.
const LINGER: u64 = 180 * SECOND;
/// So long nothing at all happens then.
const QUIET: u64 = 600 * SECOND;

impl World {
    /// Bounds, records and explanations, now and then.
    pub fn probe(&mut self) {
        if self.ending {
            return;
        }
        self.after(self.options.time_ns / 40 + 1, Ev::Probe);
        self.checks.check_kept(&self.disk);
        self.look_at_parts();
        self.look_at_places();
        self.look_for_orphans();
        self.look_at_narrow();
        self.check_restart();
        let waiting = self.psched.as_ref().map_or(0, |p| {
            p.driver.scheduler().teams().filter(|t| t.state == State::Posted).count()
        });
        // Those that lapsed or were placed when they were counted may wait again.
        self.checks.bound("postings that wait", waiting, self.settings.postings_max * 2);
    }

    /// Who runs sits, as its node has it, where its record says, or where that is to bring it.
    fn look_at_places(&mut self) {
        let Some(psched) = &self.psched else { return };
        let mut found = None;
        for (key, directory) in self.slots.iter().flat_map(|slot| &slot.apps) {
            let team = psched.driver.scheduler().team(key.apid).filter(|team| team.key() == *key);
            let (Some(team), Some(place)) = (team, &directory.place) else { continue };
            let has = |list: &PlacementList| place.places.0.iter().all(|own| list.0.contains(own));
            let known = has(&team.places) || team.moves.to.as_ref().is_some_and(has);
            if team.state == State::Running && !known {
                let nids: Vec<_> = place.places.nids().collect();
                found = Some(format!("{key} sits on {nids:?}, of which its record knows nothing"));
            }
        }
        if let Some(text) = found {
            self.checks.broken(text);
        }
    }

    /// Nothing runs on for a front end that has died, on whichever host.
    fn look_for_orphans(&mut self) {
        if self.logins.count() > 0 {
            let looked = self.checks.check_orphans(self.now, &self.procs);
            if !self.ending {
                *self.counts.faults.entry("deaths looked at").or_default() += looked as u64;
            }
        }
    }

    /// What waits to be heard at one end of a wire is bounded.
    pub fn bounds_of_wire(&mut self, id: crate::torture::wire::WireId, to: usize) {
        let waiting = self.wires.get(&id).map_or(0, |w| w.on_the_way(to));
        self.checks.bound("messages on their way on one connection", waiting, 8_192);
    }

    /// Faults stop; all that was posted ends.
    pub fn come_to_rest(&mut self) {
        self.look_at_places();
        self.end_faults();
        self.note(|| "FAULTS END".into());
        self.look_at_narrow();
        let begun = self.now;
        let events = self.counts.events;
        loop {
            self.end_the_endless();
            self.open_all_nodes();
            self.look_for_orphans();
            let until = self.now + 10 * SECOND;
            while self.checks.sound() && self.step(until) {}
            self.now = self.now.max(until);
            if !self.checks.sound() {
                return;
            }
            let teams = self.psched.as_ref().map(|p| p.driver.scheduler().teams().count());
            if teams == Some(0) && self.fronts.is_empty() {
                break;
            }
            if self.now > begun + REST_MAX {
                let text = self.what_is_left();
                return self.checks.broken(format!("it does not come to rest: {text}"));
            }
            if self.counts.events > events + 3_000_000 {
                return self.checks.broken("a storm of messages that does not end".into());
            }
        }
        for wait in [LINGER, QUIET] {
            let before = self.counts.heard;
            let until = self.now + wait;
            while self.checks.sound() && self.step(until) {}
            self.now = self.now.max(until);
            if wait == QUIET && self.counts.heard > before {
                let count = self.counts.heard - before;
                return self.checks.broken(format!("a quiet cluster goes on: {count} events"));
            }
        }
        self.check_replay();
        let left: Vec<String> = (0..self.slots.len())
            .flat_map(|slot| {
                let left = self.left_over(slot).into_iter();
                left.map(move |what| format!("apinit {slot} has {what}"))
            })
            .collect();
        if !left.is_empty() {
            return self.checks.broken(format!("something is left: {}", left.join("; ")));
        }
        if self.wires.len() != self.slots.len() + self.logins.count() {
            let wires: Vec<_> = self.wires.values().map(|w| w.ends).collect();
            return self.checks.broken(format!("connections are left: {wires:?}"));
        }
        let nodes = self.psched.iter().flat_map(|p| p.driver.scheduler().nodes());
        let busy: Vec<String> = nodes
            .filter(|n| n.state != "free" || n.used > 0)
            .map(|n| format!("NID {} is {}", n.node.nid, n.state))
            .collect();
        if !busy.is_empty() {
            return self.checks.broken(format!("processors are not free: {}", busy.join("; ")));
        }
        self.checks.check_end(&self.disk);
    }

    /// Programs that would run for ever are ended by their users.
    fn end_the_endless(&mut self) {
        let Some(psched) = &self.psched else { return };
        let endless: Vec<_> = psched
            .driver
            .scheduler()
            .teams()
            .filter(|t| {
                let front = self.checks.courses.get(&t.apid).map_or(0, |c| c.front);
                // (Of one whose aprun has died the end is to come without this.)
                let ends = self.logins.count() > 0 && self.checks.may_be_orphaned(front, self.now);
                !ends && self.checks.plan(front).is_none_or(|plan| plan.is_endless())
            })
            .map(|t| (t.apid, t.owner.uid))
            .collect();
        for (apid, uid) in endless {
            self.psched_kill(None, apid, 9, uid);
        }
    }

    fn what_is_left(&self) -> String {
        let teams: Vec<String> = self
            .psched
            .iter()
            .flat_map(|p| p.driver.scheduler().teams())
            .take(4)
            .map(|t| {
                format!(
                    "{} {} on {:?}",
                    t.key(),
                    t.state.name(),
                    t.places.nids().collect::<Vec<_>>()
                )
            })
            .collect();
        let fronts: Vec<String> = self
            .fronts
            .iter()
            .take(4)
            .map(|(pid, f)| {
                format!("aprun {pid} of {:?}: {:?}", f.apid(), self.checks.said_by(*pid))
            })
            .collect();
        let posted = |t: &&Apteam| t.state == State::Posted;
        let why = self.psched.iter().find_map(|p| {
            let waits = p.driver.scheduler().teams().find(posted)?;
            p.driver.scheduler().why(waits.apid)
        });
        let why = why.map(|why| format!("; the first waits: {why}")).unwrap_or_default();
        format!("{}; {}{why}", teams.join(", "), fronts.join(", "))
    }
}

impl Checks {
    /// How an aprun has ended: with a status.
    pub fn exit_of(&self, front: crate::torture::wire::Pid) -> Option<u8> {
        self.lives.get(&front)?.exit?
    }

    /// What it has printed.
    pub fn all_said_by(&self, front: crate::torture::wire::Pid) -> &[String] {
        self.lives.get(&front).map_or(&[], |life| &life.said)
    }

    fn said_by(&self, front: crate::torture::wire::Pid) -> Option<&String> {
        self.lives.get(&front)?.said.last()
    }

    /// Every posting has ended once, and everybody knows how.
    fn check_end(&mut self, disk: &Disk) {
        self.check_kept(disk);
        let mut requests = BTreeMap::new();
        let mut found = Vec::new();
        for (apid, team) in &disk.teams {
            if team.state != State::Ended {
                found.push(format!("{apid} is {} on the disk", team.state.name()));
            }
            // One whose acceptance never left psched, and that somebody has ended, is posted anew by
            // its aprun, which does not know of it.
            let known = self.acknowledged.contains(apid).then_some(*apid);
            if let Some(other) = known.and_then(|a| requests.insert(team.posting.request_id, a)) {
                found.push(format!("{other} and {apid} are one posting"));
            }
            if self.courses.get(apid).is_none_or(|c| c.ended != 1) {
                found.push(format!("{apid} was not recorded as ended"));
            }
        }
        for (front, life) in &self.lives {
            let Some(exit) = life.exit else {
                found.push(format!("aprun {front} goes on for ever"));
                continue;
            };
            let Some(code) = exit else { continue };
            let by_signal = life.interrupted.iter().any(|s| 128 + *s as u8 == code);
            let Some(apid) = life.apid else {
                if code != 125 && !by_signal {
                    found.push(format!("aprun {front}, which was refused, exits {code}"));
                }
                continue;
            };
            let Some(course) = self.courses.get(&apid) else { continue };
            let told = life.told.is_some_and(|told| told == code);
            let gave_up = life.told.is_none() && code == 125 && !course.why.is_empty();
            // It was told, then psched died before the end was on the disk, and what the end is made
            // from was hurt too before it was told again.
            let recorded = course.status == Some(code) || course.end_lost && course.hurt;
            if !(by_signal || gave_up || told && recorded) {
                found.push(format!(
                    "aprun {front} of {apid} exits {code}, told {:?}, recorded {:?}: {:?}",
                    life.told, course.status, life.said
                ));
            }
            // An apinit that was silent for too long: then aprun says that something may be missing.
            if life.told == Some(0) && !by_signal && !life.lacks_output && !life.napped {
                for (rank, wrote) in &course.wrote {
                    let shown = course.shown.of(*rank);
                    if shown != *wrote {
                        found.push(format!(
                            "PE {rank} of {apid} wrote {wrote} bytes, aprun showed {shown}"
                        ));
                    }
                }
            }
        }
        if let Some(first) = found.into_iter().next() {
            self.broken(first);
        }
    }
}
