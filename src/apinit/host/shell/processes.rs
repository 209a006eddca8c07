//! Which process is which PE, for somebody who has asked psched.
//!
//! Only an application's apshepherd knows that. Its answer is passed on, once the numbers are those of this
//! host: an application that was brought back from a checkpoint has a PID namespace of its own.

use super::Shell;
use super::apps::App;
use crate::apteam::Key;
use crate::apteam::protocol::processes::{Answer, Question, RANKS_MAX};
use crate::apteam::protocol::shepherd::ToShepherd;
use crate::node::checkpoint::host_pids;
use crate::rpc::pb::from_node::Message as Said;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Questions that wait for an apshepherd. (psched has fewer of them under way.)
const ASKED_MAX: usize = 1_024;
/// After so long nobody waits for an answer any more.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// Questions to apshepherds, by number: to which, and when.
pub(super) type Asked = BTreeMap<u64, (Key, Instant)>;

impl Shell {
    /// psched asks.
    pub(super) fn processes_asked(&mut self, question: Question) {
        let Question { number, key, .. } = question;
        if let Err(why) = self.ask_shepherd(question) {
            let why_not = why.to_owned();
            self.tell_processes(Answer { number, key, processes: Vec::new(), why_not });
        }
    }

    fn ask_shepherd(&mut self, question: Question) -> Result<(), &'static str> {
        let app = self.apps.get(&question.key).ok_or("its apinit does not have it")?;
        if app.directory.away().is_some() {
            return Err("it has no processes now, as its memory is in a checkpoint");
        }
        let shepherd = app.shepherd.as_ref().ok_or("it has no apshepherd yet, or none any more")?;
        if shepherd.mouth.is_none() {
            return Err("its apshepherd can't be asked now: it is being checkpointed, or of a \
                        release that its apinit does not understand");
        }
        self.asked.retain(|_, (_, since)| since.elapsed() < FORGOTTEN);
        if self.asked.len() >= ASKED_MAX {
            return Err("its apinit is asked too much at once: try again later");
        }
        // (One that does not read its messages is heard of otherwise.)
        shepherd.send(ToShepherd::Processes(question));
        self.asked.insert(question.number, (question.key, Instant::now()));
        Ok(())
    }

    /// An apshepherd answers; what nobody has asked of it is not passed on.
    pub(super) fn processes_named(&mut self, key: Key, answer: Answer) {
        let Some((asked, _)) = self.asked.remove(&answer.number) else { return };
        let Some(app) = self.apps.get(&key).filter(|_| asked == key) else { return };
        let answer = as_of_host(app, Answer { key, ..answer });
        self.tell_processes(answer);
    }

    fn tell_processes(&self, answer: Answer) {
        if let Some(link) = &self.link {
            link.send(Said::Processes(answer.into()));
        }
    }
}

/// The same with the host's numbers. One that is not there any more has ended.
fn as_of_host(app: &App, mut answer: Answer) -> Answer {
    answer.processes.truncate(RANKS_MAX as usize);
    let shepherd = app.shepherd.as_ref().map(|shepherd| shepherd.process.pid);
    if let Some(pids) = shepherd.and_then(host_pids) {
        for process in &mut answer.processes {
            process.pid = pids.get(&process.pid).copied().unwrap_or(0);
        }
    }
    answer
}
