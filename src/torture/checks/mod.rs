//! What must hold, looked at from outside.
//!
//! The checkers know nothing of how psched works. They see what an administrator could see who
//! looked everywhere at once: which processes run on which processors, what is on the disk, what
//! front ends were told and how they ended. What they are told of comes from the simulated world,
//! never from a scheduler, an agent or a shepherd.

mod allowed_failures;
mod checkpoints;
mod clocks;
mod explain;
mod logins;
mod output;
mod parts;
mod processors;
mod replay;
mod rest;
mod restore;
mod retries;
mod signals;
mod true_status;

use super::host::{Proc, ProcId};
use super::program::Plan;
use super::store::Disk;
use super::wire::Pid;
use crate::apteam::ending::{Cause, PeEnd};
use crate::apteam::posting::Posting;
use crate::apteam::record::{Apteam, State};
use crate::apteam::{Apid, Key};
use allowed_failures::Why;
pub use checkpoints::Past;
pub use explain::Asked;
use logins::LoginChecks;
use output::Shown;
pub use parts::Parts;
pub use replay::{EVENTS, Given};
pub use signals::SIGRTMIN;
use signals::Signals;
use std::collections::{BTreeMap, BTreeSet};

/// Everything that is known of one posting.
#[derive(Debug)]
pub(super) struct Life {
    pub posting: Posting,
    pub plan: Plan,
    pub apid: Option<Apid>,
    /// How its aprun ended: `Some(None)`: it was killed.
    pub exit: Option<Option<u8>>,
    /// The status that aprun told of the application.
    pub told: Option<u8>,
    /// Signals that its user sent to aprun.
    pub interrupted: Vec<i32>,
    /// It was stopped for a while.
    pub napped: bool,
    pub said: Vec<String>,
    /// Its aprun has told that some of its output is missing, or may be.
    pub lacks_output: bool,
    /// What its application had done before the checkpoint from which it is restarted.
    pub past: Option<Past>,
}

/// Everything that is known of one application.
#[derive(Debug, Default)]
pub(super) struct Course {
    pub front: Pid,
    /// PEs that have run user code, where and on which processors.
    pub ran: BTreeMap<u32, (crate::machine::Nid, usize)>,
    /// The incarnation that ran.
    pub incarnation: u32,
    /// What PEs did by themselves: when, rank, apinit, status if bad.
    pub ends: BTreeMap<u32, (u64, usize, Option<u8>)>,
    /// Aborts and executables that can't be executed: when, status.
    pub other: Vec<(u64, u8)>,
    /// Statuses that something from outside excuses.
    pub excused: BTreeSet<u8>,
    /// What happened to it that may end it with 125.
    pub why: BTreeSet<Why>,
    /// PEs between MPI's init and finalize.
    pub inside: BTreeSet<u32>,
    /// Barriers that each rank has left.
    pub rounds: BTreeMap<u32, u32>,
    /// Bytes written by each rank.
    pub wrote: BTreeMap<u32, u64>,
    /// The same in the order in which it was written: whose, and how much.
    pub stream: Vec<(u32, u64)>,
    pub shown: Shown,
    /// Bytes that PE 0 was given to read.
    pub read: u64,
    /// USR1s that were sent to it by name, and those that came to each rank.
    pub usr1_sent: u32,
    pub usr1: BTreeMap<u32, u32>,
    /// Nodes whose power failed while it ran there.
    pub died_on: BTreeSet<crate::machine::Nid>,
    /// Times it was recorded as ended.
    pub ended: u32,
    /// Its front end was told of its end, which is not on the disk yet.
    told_early: bool,
    /// psched died in that moment: the end is made once more, from what its nodes say then.
    pub end_lost: bool,
    /// A host of it lost power, or a shepherd of it was killed.
    pub hurt: bool,
    pub status: Option<u8>,
    /// It comes from a checkpoint.
    pub restarted: bool,
    /// It could not be brought back.
    pub not_restored: bool,
    /// It was ended for its checkpoint.
    pub checkpointed: bool,
    /// Nodes on which its launch has failed, after which it was tried again.
    pub struck_out: BTreeSet<crate::machine::Nid>,
}

/// All checkers.
#[derive(Debug, Default)]
pub struct Checks {
    pub(super) lives: BTreeMap<Pid, Life>,
    pub(super) courses: BTreeMap<Apid, Course>,
    /// apkill's signals to each launch.
    signals: BTreeMap<Key, Signals>,
    /// Images were made of them, for whose sake they are to end, and they have not run since.
    imaged: BTreeSet<Key>,
    acknowledged: BTreeSet<Apid>,
    /// Who runs on each real processor: host, processor.
    busy: BTreeMap<(usize, u32), (Apid, u32)>,
    host_of: BTreeMap<ProcId, (usize, Vec<u32>)>,
    now: u64,
    /// Those who are no apruns.
    strangers: BTreeSet<Pid>,
    /// Hosts of nodes.
    hosts: BTreeMap<crate::machine::Nid, usize>,
    /// Until when their apinits were away last.
    away: BTreeMap<crate::machine::Nid, u64>,
    psched_away: u64,
    /// Two hosts, and until when they can't reach each other.
    cuts: Vec<(usize, usize, u64)>,
    /// When each launch got its place.
    placed: BTreeMap<Key, u64>,
    logins: LoginChecks,
    pub(super) warnings: Vec<String>,
    violation: Option<String>,
    /// Explanations, restorations and bounds that were looked at.
    pub looked: u64,
    pub restored: u64,
    /// Steps that were replayed.
    pub replayed: u64,
}

impl Checks {
    /// Nothing is broken yet.
    pub fn sound(&self) -> bool {
        self.violation.is_none()
    }

    /// What is broken.
    pub fn violation(&self) -> Option<&str> {
        self.violation.as_deref()
    }

    /// Something is broken. The first counts.
    pub fn broken(&mut self, text: String) {
        self.violation.get_or_insert(text);
    }

    /// A count that must stay under its bound.
    pub fn bound(&mut self, what: &str, count: usize, most: usize) {
        if count > most {
            self.broken(format!("{count} {what}, and {most} is the most"));
        }
    }

    fn course(&mut self, apid: Apid) -> &mut Course {
        self.courses.entry(apid).or_default()
    }

    // ---- what users do ----

    /// Somebody has typed aprun.
    pub fn posted(&mut self, front: Pid, posting: &Posting, plan: Plan, past: Option<Past>) {
        let life = Life {
            posting: posting.clone(),
            plan,
            apid: None,
            exit: None,
            told: None,
            interrupted: Vec::new(),
            napped: false,
            said: Vec::new(),
            lacks_output: false,
            past,
        };
        self.lives.insert(front, life);
    }

    /// The program of a posting.
    pub fn plan(&self, front: Pid) -> Option<&Plan> {
        self.lives.get(&front).map(|l| &l.plan)
    }

    /// PEs of an application.
    pub fn width(&self, apid: Apid) -> u32 {
        let front = self.courses.get(&apid).map_or(0, |c| c.front);
        self.lives.get(&front).map_or(0, |l| l.posting.shape.width)
    }

    /// ^C and the like.
    pub fn interrupted(&mut self, front: Pid, signal: i32) {
        // Before its PEs go, aprun ends it as if it had died.
        let ends = matches!(signal, 1 | 2 | 3 | 15);
        if let Some(life) = self.lives.get_mut(&front) {
            life.interrupted.push(signal);
            if let Some(apid) = life.apid {
                self.excuse(apid, 128 + signal as u8);
                if ends {
                    self.happened(apid, Why::Front);
                }
            }
        }
    }

    /// Somebody has asked for its end.
    pub fn killed(&mut self, apid: Apid, signal: i32) {
        self.course(apid).usr1_sent += u32::from(signal == 10);
        self.excuse(apid, 128 + if signal == 0 { 15 } else { signal as u8 });
    }

    /// A PE gets USR1: once for each time that somebody has sent it.
    pub fn signalled(&mut self, key: Key, rank: u32) {
        let course = self.course(key.apid);
        let count = course.usr1.entry(rank).or_default();
        *count += 1;
        let (came, by_name, front) = (*count, course.usr1_sent, course.front);
        let by_aprun = self
            .lives
            .get(&front)
            .map_or(0, |life| life.interrupted.iter().filter(|signal| **signal == 10).count());
        if came > by_name + by_aprun as u32 {
            self.broken(format!("PE {rank} of {key} gets USR1 for the {came}th time, unsent"));
        }
    }

    /// Somebody who has no business there is at an apinit's socket.
    pub fn stranger(&mut self, pid: Pid) {
        self.strangers.insert(pid);
    }

    /// An apinit lets somebody have an application.
    pub fn let_in(&mut self, pid: Pid) {
        if self.strangers.contains(&pid) {
            self.broken("an apinit lets a stranger have an application".to_owned());
        }
    }

    /// The host of PE 0 of this application says what it likes: however the application ends, no
    /// other is to notice.
    pub fn hostile_head(&mut self, apid: Apid) {
        (1..=u8::MAX).for_each(|status| self.excuse(apid, status));
    }

    fn excuse(&mut self, apid: Apid, status: u8) {
        self.course(apid).excused.insert(status);
    }

    // ---- what goes wrong ----

    /// A host that had part of it lost power.
    pub fn host_took(&mut self, apid: Apid, nids: &BTreeSet<crate::machine::Nid>) {
        nids.iter().for_each(|nid| self.happened(apid, Why::Power(*nid)));
        self.course(apid).hurt = true;
    }

    /// Where it ran.
    pub fn host_took_running(&mut self, apid: Apid, nid: crate::machine::Nid) {
        self.course(apid).died_on.insert(nid);
    }

    /// psched's host lost power: its clock begins anew, and ends of before can't be told apart by it.
    pub fn login_went(&mut self) {
        self.courses.values_mut().for_each(|course| course.hurt = true);
    }

    /// A shepherd of it was killed, or could not be made.
    pub fn shepherd_killed(&mut self, apid: Apid, nids: &BTreeSet<crate::machine::Nid>) {
        nids.iter().for_each(|nid| self.happened(apid, Why::Shepherd(*nid)));
        self.course(apid).hurt = true;
    }

    /// Something that psched or an apinit finds worth a warning.
    pub fn warned(&mut self, text: &str) {
        if self.warnings.len() < 64 {
            self.warnings.push(text.to_owned());
        }
    }

    // ---- psched's word ----

    /// A front end is told of an end that is on its way to the disk.
    pub fn told_before_its_record(&mut self, apid: Apid) {
        self.course(apid).told_early = true;
    }

    /// psched is dead.
    pub fn psched_died(&mut self) {
        for course in self.courses.values_mut() {
            course.end_lost |= std::mem::take(&mut course.told_early) && course.ended == 0;
        }
    }

    /// A front end is told that its posting is on record.
    pub fn acknowledged(&mut self, disk: &Disk, apid: Apid, front: Pid) {
        if !disk.teams.contains_key(&apid) {
            self.broken(format!("posting {apid} is acknowledged, and is not on the disk"));
        }
        self.acknowledged.insert(apid);
        let known = self.course(apid).front;
        if known != 0 && known != front {
            return self
                .broken(format!("{apid} is the application of {known}, and of {front} too"));
        }
        self.course(apid).front = front;
        self.goes_on_from(apid, front);
        if let Some(life) = self.lives.get_mut(&front) {
            if life.apid.is_some_and(|known| known != apid) {
                let text = format!("aprun {front} has two postings: {:?} and {apid}", life.apid);
                return self.broken(text);
            }
            life.apid = Some(apid);
            let (gone, napped) = (life.exit.is_some(), life.napped);
            let signals = life.interrupted.clone();
            if gone || napped || !signals.is_empty() {
                self.happened(apid, Why::Front);
            }
            for signal in signals {
                self.excuse(apid, 128 + signal as u8);
            }
        }
    }

    /// A record is on the disk.
    pub fn recorded(
        &mut self,
        now: u64,
        disk: &Disk,
        team: &Apteam,
        procs: &BTreeMap<ProcId, Proc>,
    ) {
        self.now = now;
        let apid = team.apid;
        if disk.teams.get(&apid).is_none_or(|kept| kept.key() != team.key()) {
            return;
        }
        let front = team.front.as_ref().map(|f| f.pid);
        let course = self.course(apid);
        if let Some(front) = front.filter(|_| course.front == 0) {
            course.front = front;
        }
        if !team.state.holds_processors() && team.state != State::Posted {
            // Its processors are free now: nothing of it may run anywhere.
            if let Some(proc) = procs.values().find(|p| p.key.apid == apid) {
                let text = format!(
                    "application {} is {}, and a process of it is on NID {}",
                    team.key(),
                    team.state.name(),
                    proc.nid
                );
                self.broken(text);
            }
        }
        self.check_retries(team, procs);
        let same = |t: &&Apteam| t.posting.request_id == team.posting.request_id && t.apid != apid;
        if team.state == State::Posted
            && let Some(other) = disk.teams.values().find(same)
        {
            self.broken(format!("{} and {apid} are one posting, recorded twice", other.apid));
        }
        if team.state == State::Placed {
            self.placed(now, team.key());
        }
        if team.state == State::Ended {
            let status = team.end.as_ref().map_or(0, |e| e.status());
            let course = self.course(apid);
            course.ended += 1;
            course.status = Some(status);
            if course.ended > 1 {
                self.broken(format!("application {apid} was recorded as ended twice"));
            }
            self.check_status(team, status);
            let first = team.end.as_ref().and_then(|end| end.first.as_ref());
            if let Some(Cause::NodeLost { nid, text }) = first.map(|d| &d.cause)
                && text == crate::psched::decide::LACKS
                && self.course(apid).died_on.contains(nid)
            {
                self.broken(format!("{apid} died with the host of NID {nid}; recorded is: {text}"));
            }
        }
    }

    /// An administrator has put an older or another state in psched's place: what he lost with it is
    /// not psched's fault.
    pub fn forgotten(&mut self, apid: Apid) {
        self.acknowledged.remove(&apid);
        self.happened(apid, Why::Forgotten);
    }

    /// All that was acknowledged is on the disk.
    pub fn check_kept(&mut self, disk: &Disk) {
        if let Some(lost) = self.acknowledged.iter().find(|a| !disk.teams.contains_key(a)) {
            let lost = *lost;
            self.broken(format!(
                "posting {lost} was acknowledged, and is not on the disk any more"
            ));
        }
    }

    // ---- what front ends see ----

    /// aprun has printed a line.
    pub fn said(&mut self, front: Pid, line: String) {
        if let Some(life) = self.lives.get_mut(&front)
            && life.said.len() < 32
        {
            life.said.push(line);
        }
    }

    /// aprun tells that some of the output is missing, or may be.
    pub fn lacks_output(&mut self, front: Pid) {
        if let Some(life) = self.lives.get_mut(&front) {
            life.lacks_output = true;
        }
    }

    /// aprun has told how it ended.
    pub fn closed(&mut self, front: Pid, status: u8) {
        if let Some(life) = self.lives.get_mut(&front) {
            life.told = Some(status);
        }
    }

    /// aprun has ended.
    pub fn front_ended(&mut self, front: Pid, apid: Option<Apid>, status: Option<u8>) {
        let mut known = None;
        if let Some(life) = self.lives.get_mut(&front) {
            life.exit = Some(status);
            known = life.apid;
        }
        // psched may have taken its posting, and the answer is still on its way.
        if let Some(apid) = apid.or(known) {
            // Whatever still runs of it is ended.
            self.happened(apid, Why::Front);
        }
    }

    // ---- programs ----

    /// A PE or a child of one has ended, however.
    pub fn process_ended(&mut self, id: ProcId) {
        self.leaves(id);
    }

    /// A PE ends as its program says.
    pub fn ended_by_itself(
        &mut self,
        now: u64,
        key: Key,
        rank: u32,
        end: PeEnd,
        inside: bool,
        slot: usize,
    ) {
        let status = super::program::status_of(end, inside);
        self.course(key.apid).ends.insert(rank, (now, slot, status));
    }

    /// MPI_Abort.
    pub fn aborted(&mut self, now: u64, key: Key, code: i32) {
        let status = (code.rem_euclid(256) as u8).max(1);
        self.course(key.apid).other.push((now, status));
    }

    /// Its executable can't be executed.
    pub fn not_executable(&mut self, key: Key, errno: i32) {
        self.course(key.apid).other.push((0, if errno == 2 { 127 } else { 126 }));
    }

    /// A PE asks on its PMI connection.
    pub fn pmi_asks(&mut self, key: Key, rank: u32, answer: &str) {
        let inside = &mut self.course(key.apid).inside;
        match answer {
            "cmd=response_to_init" => drop(inside.insert(rank)),
            "cmd=finalize_ack" => drop(inside.remove(&rank)),
            _ => {}
        }
    }

    /// Whether a PE is between MPI's init and finalize.
    pub fn pmi_inside(&self, key: Key, rank: u32) -> bool {
        self.courses.get(&key.apid).is_some_and(|c| c.inside.contains(&rank))
    }

    /// A PE is let out of a barrier: nobody may still be before it.
    pub fn left_barrier(&mut self, key: Key, rank: u32, round: u32) {
        let width = self.width(key.apid) as usize;
        let rounds = &mut self.course(key.apid).rounds;
        rounds.insert(rank, round);
        let all = rounds.len() == width;
        let least = if all { rounds.values().copied().min().unwrap_or(0) } else { 0 };
        if round > least + 1 {
            self.broken(format!("PE {rank} of {key} left barrier {round}, another only {least}"));
        }
    }
}
