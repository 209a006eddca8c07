//! Where the threads of PEs stand: `apstat --stacks APID`.
//!
//! As for processes ([`super::processes`]) the question goes out beside the loop, to the apinits concerned. But an
//! answer takes a debugger some time, and has some size. So a host is asked for [`AT_ONCE`] PEs at once, no more are
//! begun after [`BEGIN`], and an answer to the user has [`PES_MAX`] PEs and [`BYTES_MAX`] bytes at most: it says
//! with which rank the next one begins.

use super::processes::{Known, Subject};
use super::services::{Service, caller, random_number};
use crate::apteam::Apid;
use crate::apteam::protocol::stacks::{AT_ONCE, Answer, Question, WITHIN};
use crate::machine::Nid;
use crate::psched::decide::LinkId;
use crate::rpc::listen::Peer;
use crate::rpc::pb;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tonic::{Request, Response, Status};

/// PEs of one answer to a user.
const PES_MAX: usize = 256;
/// Its bytes of stacks.
const BYTES_MAX: usize = 2 << 20;
/// After so long no more PEs are asked for, for this answer.
const BEGIN: Duration = Duration::from_secs(10);
/// How long an apinit has for its answer: what its apshepherd has, and the way there and back.
const ANSWER: Duration = Duration::from_secs(WITHIN.as_secs() + 5);

/// What is known of the PEs that are asked for, by their place after the first.
#[derive(Debug, Default)]
struct Told {
    answers: BTreeMap<usize, Answer>,
    bytes: usize,
}

impl Told {
    /// One has answered. What is too much goes, from the end.
    fn take(&mut self, at: usize, answer: Answer) {
        self.bytes += size(&answer);
        self.answers.insert(at, answer);
        while self.is_full()
            && self.answers.len() > 1
            && let Some((_, last)) = self.answers.pop_last()
        {
            self.bytes -= size(&last);
        }
    }

    fn is_full(&self) -> bool {
        self.bytes > BYTES_MAX
    }
}

fn size(answer: &Answer) -> usize {
    answer.text.len() + answer.why_not.len()
}

impl Service {
    /// apstat --stacks.
    pub(super) async fn stacks_of(
        &self,
        request: Request<pb::StacksRequest>,
    ) -> Result<Response<pb::StacksReply>, Status> {
        let peer = caller(&request)?;
        let pb::StacksRequest { apid, first } = request.into_inner();
        let mut known = self.pes_of(&peer, Apid(apid), first, Subject::Stacks).await?;
        known.more |= known.pes.len() > PES_MAX;
        known.pes.truncate(PES_MAX);
        let told = self.ask_for_stacks(&peer, &known, first).await?;
        Ok(Response::new(reply(known, first, told)))
    }

    async fn ask_for_stacks(&self, peer: &Peer, known: &Known, first: u32) -> Result<Told, Status> {
        let (uid, administrator) = (peer.uid, self.is_administrator(peer.uid));
        let of = |number, rank| Question { number, key: known.key, rank, uid, administrator };
        // (Dropped with this call when the user's connection is: what is not answered is withdrawn then.)
        let mut asking = self.questions.begin(Subject::Stacks, uid, administrator)?;
        let (begun, mut told) = (Instant::now(), Told::default());
        let mut waiting: BTreeMap<LinkId, VecDeque<(usize, u32)>> = BTreeMap::new();
        for ((at, nid), rank) in known.pes.iter().enumerate().zip(first..) {
            match known.links.get(nid) {
                Some(link) => waiting.entry(*link).or_default().push_back((at, rank)),
                None => {
                    let question = of(0, rank);
                    told.take(at, Answer::none(question, "no apinit offers its node now"));
                }
            }
        }
        let mut answers = JoinSet::new();
        let mut free: Vec<LinkId> =
            waiting.keys().flat_map(|link| std::iter::repeat_n(*link, AT_ONCE)).collect();
        loop {
            for link in free.drain(..) {
                while !told.is_full()
                    && begun.elapsed() < BEGIN
                    && let Some((at, rank)) = waiting.get_mut(&link).and_then(VecDeque::pop_front)
                {
                    let question = of(random_number()?, rank);
                    match asking.ask_stacks(link, question) {
                        Ok(answer) => {
                            answers.spawn(async move {
                                let answer = match timeout(ANSWER, answer).await {
                                    Ok(Ok(answer)) => answer,
                                    Ok(Err(_)) => Answer::none(
                                        question,
                                        "its apinit has just gone: ask again",
                                    ),
                                    Err(_) => Answer::none(question, silence()),
                                };
                                (link, at, answer)
                            });
                            break;
                        }
                        Err(why) => told.take(at, Answer::none(question, why)),
                    }
                }
            }
            match answers.join_next().await {
                None => return Ok(told),
                Some(Ok((link, at, answer))) => {
                    told.take(at, answer);
                    free.push(link);
                }
                Some(Err(_)) => {}
            }
        }
    }
}

fn silence() -> String {
    format!("no answer for {} s: its apinit or apshepherd is busy or stopped", ANSWER.as_secs())
}

/// Those of them that are known without a gap; the next question begins after these.
fn reply(known: Known, first: u32, mut told: Told) -> pb::StacksReply {
    let row = |((at, nid), rank): ((usize, &Nid), u32)| {
        let Answer { pid, text, cut, why_not, .. } = told.answers.remove(&at)?;
        let host = known.hosts.get(nid).cloned().unwrap_or_default();
        Some(pb::StacksRow { rank, nid: nid.0, host, pid, text, cut, why_not })
    };
    let all = known.pes.iter().enumerate().zip(first..);
    let pes: Vec<pb::StacksRow> = all.map_while(row).collect();
    let left_out = pes.len() < known.pes.len() || known.more;
    let next = pes.last().filter(|_| left_out).map_or(0, |row| row.rank + 1);
    pb::StacksReply { pes, next }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apteam::Key;

    fn answer(rank: u32, bytes: usize) -> Answer {
        let question =
            Question { number: 0, key: Key::default(), rank, uid: 0, administrator: true };
        Answer { pid: 100 + rank, text: "x".repeat(bytes), ..Answer::none(question, "") }
    }

    fn known(count: u32, more: bool) -> Known {
        Known {
            key: Key::default(),
            pes: (0..count).map(|at| Nid(at / 2)).collect(),
            more,
            links: BTreeMap::new(),
            hosts: [(Nid(0), "n0".to_owned())].into(),
        }
    }

    fn rows(reply: &pb::StacksReply) -> Vec<(u32, u32, &str, u32)> {
        reply.pes.iter().map(|row| (row.rank, row.nid, &*row.host, row.pid)).collect()
    }

    #[test]
    fn a_reply_ends_before_the_first_that_is_not_known() {
        let mut told = Told::default();
        for at in [0, 1, 3] {
            told.take(at, answer(10 + at as u32, 5));
        }
        let reply = reply(known(4, false), 10, told);
        assert_eq!(rows(&reply), [(10, 0, "n0", 110), (11, 0, "n0", 111)]);
        assert_eq!(reply.next, 12);
    }

    #[test]
    fn the_last_reply_says_so() {
        for (more, next) in [(false, 0), (true, 2)] {
            let mut told = Told::default();
            told.take(1, answer(1, 0));
            told.take(0, answer(0, 0));
            assert_eq!(reply(known(2, more), 0, told).next, next);
        }
    }

    #[test]
    fn what_is_kept_is_bounded_and_has_the_first_ranks() {
        let mut told = Told::default();
        let each = 64 << 10;
        for at in (0..PES_MAX).rev() {
            told.take(at, answer(at as u32, each));
            assert!(told.bytes <= BYTES_MAX || told.answers.len() == 1);
        }
        assert_eq!(told.answers.keys().copied().collect::<Vec<_>>(), (0..32).collect::<Vec<_>>());
        let reply = reply(known(PES_MAX as u32, false), 0, told);
        assert_eq!((reply.pes.len(), reply.next), (32, 32));
    }
}
