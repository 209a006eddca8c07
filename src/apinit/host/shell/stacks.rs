//! Stacks of PEs, for a user who has asked psched: the apshepherd of the PE has a debugger write them.
//!
//! Each question is of one PE. Its debugger is made by the apshepherd, and put by this apinit into the control group
//! of the PE's node before it executes anything: the group is root's, and the user may not write to it
//! ([`crate::os::placing`]).
//!
//! A question has its place until it is answered or psched withdraws it. No user has more than [`USER_MAX`] of
//! them, and those of administrators take none away from users, nor the other way round.

use super::super::places::{has_formed, is_forming};
use super::Shell;
use crate::apinit::decide::Agent;
use crate::apteam::Key;
use crate::apteam::protocol::shepherd::ToShepherd;
use crate::apteam::protocol::stacks::{Answer, Made, Placed, Question, WITHIN};
use crate::machine::Nid;
use crate::node::checkpoint::host_pids;
use crate::rpc::pb::from_node::Message as Said;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Questions of users under way on this host, of all applications.
const ASKED_MAX: usize = 32;
/// Of one user, who may be an administrator: what psched lets one ask at once of one host.
const USER_MAX: usize = 8;
/// A question is forgotten after this time, withdrawn or not: psched has given up by then.
const FORGOTTEN: Duration = Duration::from_secs(2 * WITHIN.as_secs());

/// A question that waits for its answer.
#[derive(Debug)]
struct Waiting {
    key: Key,
    uid: u32,
    administrator: bool,
    since: Instant,
}

/// The questions that wait, by number.
#[derive(Debug, Default)]
pub(super) struct Asked(BTreeMap<u64, Waiting>);

impl Asked {
    /// Why there is no place for a question of this user.
    fn refuses(&self, uid: u32, administrator: bool) -> Option<&'static str> {
        let own = self.0.values().filter(|waiting| waiting.uid == uid).count();
        let users = self.0.values().filter(|waiting| !waiting.administrator).count();
        match () {
            () if own >= USER_MAX => Some(
                "its host is asked for 8 stacks by you already, the maximum of one user: ask again \
                 when they are there",
            ),
            () if !administrator && users >= ASKED_MAX => {
                Some("its host is asked for 32 stacks at once, the maximum: ask again later")
            }
            () => None,
        }
    }

    fn take(&mut self, question: Question) {
        let Question { number, key, uid, administrator, .. } = question;
        self.0.insert(number, Waiting { key, uid, administrator, since: Instant::now() });
    }
}

impl Shell {
    /// psched asks.
    pub(super) fn stacks_asked(&mut self, agent: &Agent, question: Question) {
        if let Err(why_not) = self.ask_for_stacks(agent, question) {
            self.tell_stacks(Answer::none(question, why_not));
        }
    }

    fn ask_for_stacks(&mut self, agent: &Agent, question: Question) -> Result<(), &'static str> {
        self.stacks_asked.0.retain(|_, waiting| waiting.since.elapsed() < FORGOTTEN);
        if let Some(why_not) = self.stacks_asked.refuses(question.uid, question.administrator) {
            return Err(why_not);
        }
        let app = self.apps.get(&question.key).ok_or("its apinit does not have it")?;
        if app.directory.away().is_some() {
            return Err(
                "it has no processes now, as its memory is in a checkpoint: ask again when it runs",
            );
        }
        let shepherd = app.shepherd.as_ref().ok_or("it has no apshepherd yet, or none any more")?;
        if shepherd.mouth.is_none() {
            return Err("its apshepherd can't be asked now: it is being checkpointed, or of a \
                        release that its apinit does not understand");
        }
        if !agent.has_stacks(question.key) {
            return Err("its apshepherd is of a release that does not know --stacks: an \
                        application that is launched from now on has a new one");
        }
        if !shepherd.send(ToShepherd::Stacks(question)) {
            return Err("its apshepherd does not read its messages");
        }
        self.stacks_asked.take(question);
        Ok(())
    }

    /// The user who has asked this waits no more.
    pub(super) fn stacks_withdrawn(&mut self, number: u64) {
        let Some(Waiting { key, .. }) = self.stacks_asked.0.remove(&number) else { return };
        let shepherd = self.apps.get(&key).and_then(|app| app.shepherd.as_ref());
        if let Some(shepherd) = shepherd.filter(|shepherd| shepherd.mouth.is_some()) {
            shepherd.send(ToShepherd::StacksWithdrawn(number));
        }
    }

    /// psched can't be told any answer: all questions are withdrawn.
    pub(super) fn withdraw_stacks(&mut self) {
        let numbers: Vec<u64> = self.stacks_asked.0.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.stacks_withdrawn(number));
    }

    /// An apshepherd has made a debugger, or what a PE spawns, which waits: it gets its place.
    pub(super) fn debugger_made(&mut self, key: Key, made: Made) {
        let Made { number, spawned, .. } = made;
        let of_question = self.stacks_asked.0.get(&number).is_some_and(|asked| asked.key == key);
        if !spawned && !of_question {
            return;
        }
        let why_not = self.place_debugger(key, made).err().unwrap_or_default();
        let shepherd = self.apps.get(&key).and_then(|app| app.shepherd.as_ref());
        if let Some(shepherd) = shepherd {
            shepherd.send(ToShepherd::DebuggerPlaced(Placed { number, why_not, spawned }));
        }
    }

    /// Puts it into the control group of its node, where there are any.
    fn place_debugger(&self, key: Key, made: Made) -> Result<(), String> {
        let app = self.apps.get(&key).ok_or("its apinit does not have it")?;
        let Some(groups) = &app.groups else { return Ok(()) };
        let shepherd = app.shepherd.as_ref().ok_or("its apshepherd has gone")?.process.pid;
        let pid = match host_pids(shepherd) {
            Some(pids) => pids.get(&made.pid).copied().unwrap_or(0),
            None => made.pid,
        };
        let pid = i32::try_from(pid).unwrap_or(0);
        let nid = born(groups.born(), made.nid).ok_or("its node is not one of its host")?;
        // An apshepherd is its user's: what it names is believed to be its fork only as the kernel says so.
        if pid <= 0 || !is_forming(groups, shepherd, pid) {
            // (What is spawned may be there already: an apinit before this one has put it there.)
            if pid > 0 && made.spawned && has_formed(groups, shepherd, nid, pid) {
                return Ok(());
            }
            return Err("its process is not where its apshepherd has made it: ask again".into());
        }
        groups.put(nid, pid).map_err(|error| {
            format!("its process can't be put into the control group of its node: {error}")
        })
    }

    /// An apshepherd answers; what nobody has asked of it is not passed on.
    pub(super) fn stacks_told(&mut self, key: Key, answer: Answer) {
        if self.stacks_asked.0.get(&answer.number).is_none_or(|waiting| waiting.key != key) {
            return;
        }
        self.stacks_asked.0.remove(&answer.number);
        let Some(app) = self.apps.get(&key) else { return };
        let mut answer = Answer { key, ..answer };
        let shepherd = app.shepherd.as_ref().map(|shepherd| shepherd.process.pid);
        if let Some(pids) = shepherd.and_then(host_pids) {
            answer.pid = pids.get(&answer.pid).copied().unwrap_or(0);
        }
        self.tell_stacks(answer);
    }

    fn tell_stacks(&self, answer: Answer) {
        if let Some(link) = &self.link {
            link.send(Said::Stacks(answer.into()));
        }
    }
}

/// The group of a node. (One alone is that of every PE, whatever it was called when they were launched.)
fn born(all: &[Nid], nid: Nid) -> Option<Nid> {
    match all {
        [one] => Some(*one),
        _ => all.iter().copied().find(|of| *of == nid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_user_has_all_places_and_administrators_have_their_own() {
        let mut asked = Asked::default();
        let mut numbers = 0..;
        let mut ask = |asked: &mut Asked, uid, administrator| {
            let refusal = asked.refuses(uid, administrator);
            if refusal.is_none() {
                let number = numbers.next().unwrap_or_default();
                let key = Key::default();
                asked.take(Question { number, key, rank: 0, uid, administrator });
            }
            refusal
        };
        let eight = |refusal: Option<&str>| refusal.is_some_and(|text| text.contains("by you"));
        for uid in 1..=4 {
            assert!((0..USER_MAX).all(|_| ask(&mut asked, uid, false).is_none()));
            assert!(eight(ask(&mut asked, uid, false)));
        }
        let full = ask(&mut asked, 5, false);
        assert!(full.is_some_and(|text| text.contains("32 stacks at once")), "{full:?}");
        // An administrator has a place all the same, and so has a second one; each has as many as a user.
        for uid in [0, 6] {
            assert!((0..USER_MAX).all(|_| ask(&mut asked, uid, true).is_none()));
            assert!(eight(ask(&mut asked, uid, true)));
        }
        // These take none away from users.
        asked.0.retain(|_, waiting| waiting.uid != 4);
        assert_eq!(ask(&mut asked, 5, false), None);
    }

    #[test]
    fn a_pe_belongs_to_the_group_of_its_node() {
        let nids = [Nid(3), Nid(4)];
        assert_eq!((born(&nids, Nid(4)), born(&nids, Nid(5))), (Some(Nid(4)), None));
        assert_eq!(born(&nids[..1], Nid(5)), Some(Nid(3)));
    }
}
