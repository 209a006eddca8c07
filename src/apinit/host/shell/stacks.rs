//! Stacks of PEs, for somebody who has asked psched: the apshepherd of the PE has a debugger write them.
//!
//! Each question is of one PE, and the debugger is a child of the apshepherd, in its control group. As long as a
//! question waits, what is there beside the apshepherd is no stray ([`Debuggers`], [`super::super::places`]).

use super::Shell;
use crate::apinit::decide::Agent;
use crate::apteam::Key;
use crate::apteam::protocol::shepherd::ToShepherd;
use crate::apteam::protocol::stacks::{Answer, Question, WITHIN};
use crate::node::checkpoint::host_pids;
use crate::rpc::pb::from_node::Message as Said;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Questions under way on this host, of all applications.
const ASKED_MAX: usize = 32;
/// After so long nobody waits for an answer any more.
const FORGOTTEN: Duration = Duration::from_secs(2 * WITHIN.as_secs());

/// How many debuggers an application may have now.
#[derive(Clone, Debug, Default)]
pub(in crate::apinit::host) struct Debuggers(Arc<AtomicUsize>);

impl Debuggers {
    /// It may have some.
    pub fn any(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }

    fn one_more(&self) -> OneMore {
        self.0.fetch_add(1, Ordering::SeqCst);
        OneMore(self.clone())
    }
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct OneMore(Debuggers);

impl Drop for OneMore {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A question that waits for its answer.
#[derive(Debug)]
pub(super) struct Asked {
    key: Key,
    since: Instant,
    _debugger: OneMore,
}

/// Those that wait, by number.
pub(super) type AllAsked = BTreeMap<u64, Asked>;

impl Shell {
    /// psched asks.
    pub(super) fn stacks_asked(&mut self, agent: &Agent, question: Question) {
        if let Err(why_not) = self.ask_for_stacks(agent, question) {
            self.tell_stacks(Answer::none(question, why_not));
        }
    }

    fn ask_for_stacks(&mut self, agent: &Agent, question: Question) -> Result<(), &'static str> {
        self.forget_stacks();
        if self.stacks_asked.len() >= ASKED_MAX {
            return Err("its host is asked for too many stacks at once: ask again later");
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
        let _debugger = app.debuggers.one_more();
        let asked = Asked { key: question.key, since: Instant::now(), _debugger };
        if !shepherd.send(ToShepherd::Stacks(question)) {
            return Err("its apshepherd does not read its messages");
        }
        self.stacks_asked.insert(question.number, asked);
        Ok(())
    }

    /// Questions that nobody waits for any more.
    pub(super) fn forget_stacks(&mut self) {
        self.stacks_asked.retain(|_, asked| asked.since.elapsed() < FORGOTTEN);
    }

    /// An apshepherd answers; what nobody has asked of it is not passed on.
    pub(super) fn stacks_told(&mut self, key: Key, answer: Answer) {
        if self.stacks_asked.get(&answer.number).is_none_or(|asked| asked.key != key) {
            return;
        }
        self.stacks_asked.remove(&answer.number);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_application_has_debuggers_while_a_question_waits() {
        let debuggers = Debuggers::default();
        assert!(!debuggers.any());
        let two = [debuggers.one_more(), debuggers.one_more()];
        let seen = debuggers.clone();
        assert!(seen.any());
        let [first, second] = two;
        drop(first);
        assert!(seen.any());
        drop(second);
        assert!(!seen.any());
    }
}
