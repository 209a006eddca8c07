//! Which process is which PE: `apstat -A APID --pids`.
//!
//! Only the hosts of an application know that. This is no matter of the loop's, which decides nothing by it: the
//! question goes out on the links of the apinits concerned, beside the loop's own messages, and what has come
//! after [`ANSWER`] is the answer. A user's questions are few at once, and each is of [`RANKS_MAX`] PEs at most, so
//! that he who asks for a large application asks page by page.
//!
//! An apinit may answer what it was asked: the number is by chance, and the answer has to come on the link, and
//! be about the application, of the question.

use super::input::LinkSender;
use super::services::{Service, caller};
use crate::apteam::place::PlacementList;
use crate::apteam::protocol::processes::{Answer, PeProcess, Question, RANKS_MAX};
use crate::apteam::protocol::stacks;
use crate::apteam::record::{Apteam, State};
use crate::apteam::{Apid, Key};
use crate::machine::{Nid, nids_text};
use crate::psched::decide::{LinkId, Scheduler};
use crate::rpc::listen::Peer;
use crate::rpc::pb;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};
use tonic::{Request, Response, Status};

/// Why an apinit can't be asked.
const NOT_NOW: &str = "its apinit does not take questions now";
/// How long the apinits have to answer.
const ANSWER: Duration = Duration::from_secs(5);
/// What a user may ask the hosts of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    Processes,
    Stacks,
}

impl Subject {
    fn name(self) -> &'static str {
        match self {
            Subject::Processes => "processes",
            Subject::Stacks => "stacks",
        }
    }

    /// Questions that are under way at once: of all users, and of one. Those of administrators are none of all
    /// users', so that an administrator always has a place.
    fn most(self) -> (usize, usize) {
        match self {
            Subject::Processes => (64, 4),
            // (They take long, and their answers are large.)
            Subject::Stacks => (8, 2),
        }
    }
}

/// The links of apinits, and what they are being asked.
#[derive(Clone, Debug, Default)]
pub struct Questions(Arc<Mutex<Open>>);

#[derive(Debug, Default)]
struct Open {
    links: BTreeMap<LinkId, Linked>,
    waiting: BTreeMap<u64, Waiting>,
    /// How many each user asks.
    asking: BTreeMap<Asker, usize>,
}

/// A user who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Asker {
    subject: Subject,
    administrator: bool,
    uid: u32,
}

#[derive(Debug)]
struct Linked {
    sender: mpsc::WeakSender<Result<pb::ToNode, Status>>,
    /// It can be asked for stacks.
    stacks: bool,
}

#[derive(Debug)]
struct Waiting {
    link: LinkId,
    key: Key,
    waits: Waits,
}

#[derive(Debug)]
enum Waits {
    Processes(oneshot::Sender<Answer>),
    Stacks(oneshot::Sender<stacks::Answer>),
}

/// A user's question, while it is under way.
#[derive(Debug)]
pub(super) struct Asking {
    of: Questions,
    user: Asker,
    numbers: Vec<u64>,
}

impl Drop for Asking {
    fn drop(&mut self) {
        let mut open = self.of.open();
        for number in &self.numbers {
            let Some(waiting) = open.waiting.remove(number) else { continue };
            if let Waits::Stacks(_) = waiting.waits
                && let Some(sender) =
                    open.links.get(&waiting.link).and_then(|linked| linked.sender.upgrade())
            {
                // (An Err: its apinit does not read, and forgets the question by itself.)
                let message = pb::ToNode { stacks_withdrawn: *number, ..Default::default() };
                let _ = sender.try_send(Ok(message));
            }
        }
        let left = open.asking.get_mut(&self.user).map(|count| {
            *count = count.saturating_sub(1);
            *count
        });
        if left == Some(0) {
            open.asking.remove(&self.user);
        }
    }
}

impl Questions {
    fn open(&self) -> std::sync::MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An apinit has a link.
    pub fn linked(&self, link: LinkId, sender: &LinkSender, stacks: bool) {
        self.open().links.insert(link, Linked { sender: sender.downgrade(), stacks });
    }

    /// It has none any more. Who waits for it is told so.
    pub fn closed(&self, link: LinkId) {
        let mut open = self.open();
        open.links.remove(&link);
        open.waiting.retain(|_, waiting| waiting.link != link);
    }

    /// An apinit answers.
    pub fn answered(&self, link: LinkId, answer: Answer) {
        if let Some(Waits::Processes(waits)) = self.waits(link, answer.number, answer.key) {
            // (An Err: he waits no more.)
            let _ = waits.send(answer);
        }
    }

    /// The same, of stacks.
    pub fn told_stacks(&self, link: LinkId, answer: stacks::Answer) {
        if let Some(Waits::Stacks(waits)) = self.waits(link, answer.number, answer.key) {
            let _ = waits.send(answer);
        }
    }

    /// Who waits for this answer of this apinit, and from now on no more.
    fn waits(&self, link: LinkId, number: u64, key: Key) -> Option<Waits> {
        let mut open = self.open();
        open.waiting.get(&number).filter(|waiting| waiting.link == link && waiting.key == key)?;
        Some(open.waiting.remove(&number)?.waits)
    }

    /// A user asks.
    pub(super) fn begin(
        &self,
        subject: Subject,
        uid: u32,
        administrator: bool,
    ) -> Result<Asking, Status> {
        let mut open = self.open();
        let (name, (all_max, own_max)) = (subject.name(), subject.most());
        let user = Asker { subject, administrator, uid };
        let of_users =
            open.asking.iter().filter(|(of, _)| of.subject == subject && !of.administrator);
        let all: usize = of_users.map(|(_, count)| count).sum();
        let own = open.asking.entry(user).or_default();
        let refusal = match () {
            () if *own >= own_max => Some(format!(
                "you have {own_max} questions for {name} under way, the maximum of one user: try \
                 again when they are answered"
            )),
            () if !administrator && all >= all_max => Some(format!(
                "{all_max} questions for {name} are under way, the maximum: try again later"
            )),
            () => None,
        };
        if let Some(refusal) = refusal {
            open.asking.retain(|_, count| *count > 0);
            return Err(Status::resource_exhausted(refusal));
        }
        *own += 1;
        Ok(Asking { of: self.clone(), user, numbers: Vec::new() })
    }
}

impl Asking {
    /// Asks an apinit; none: it does not take questions.
    fn ask(&mut self, link: LinkId, question: Question) -> Option<oneshot::Receiver<Answer>> {
        let Question { number, key, .. } = question;
        let message = pb::ToNode { processes: Some(question.into()), ..Default::default() };
        let (answer, answered) = oneshot::channel();
        self.send(link, message, number, Waiting { link, key, waits: Waits::Processes(answer) })?;
        Some(answered)
    }

    /// Asks an apinit for stacks.
    ///
    /// # Errors
    /// It does not take questions, or does not know this one.
    pub(super) fn ask_stacks(
        &mut self,
        link: LinkId,
        question: stacks::Question,
    ) -> Result<oneshot::Receiver<stacks::Answer>, &'static str> {
        let stacks::Question { number, key, .. } = question;
        if self.of.open().links.get(&link).is_some_and(|linked| !linked.stacks) {
            return Err(
                "its apinit is of a release that does not know --stacks: upgrade apinit and \
                        apshepherd on its host",
            );
        }
        let message = pb::ToNode { stacks: Some(question.into()), ..Default::default() };
        let (answer, answered) = oneshot::channel();
        self.send(link, message, number, Waiting { link, key, waits: Waits::Stacks(answer) })
            .ok_or(NOT_NOW)?;
        Ok(answered)
    }

    fn send(
        &mut self,
        link: LinkId,
        message: pb::ToNode,
        number: u64,
        waiting: Waiting,
    ) -> Option<()> {
        let mut open = self.of.open();
        let sender = open.links.get(&link)?.sender.upgrade()?;
        sender.try_send(Ok(message)).ok()?;
        open.waiting.insert(number, waiting);
        drop(open);
        self.numbers.push(number);
        Some(())
    }
}

/// What the scheduler knows of the PEs that are asked for.
pub(super) struct Known {
    pub key: Key,
    /// By rank, from the first on.
    pub pes: Vec<Nid>,
    /// Ranks behind them.
    pub more: bool,
    /// Of their nodes.
    pub links: BTreeMap<Nid, LinkId>,
    pub hosts: BTreeMap<Nid, String>,
}

/// The ranks of an application from this one on.
fn known(scheduler: &Scheduler, team: &Apteam, first: u32) -> Known {
    let (pes, more) = nodes_of(&team.places, first);
    let mut nids = pes.clone();
    nids.dedup();
    let links = nids.iter().filter_map(|nid| Some((*nid, scheduler.link_of(*nid)?))).collect();
    let hosts = nids.iter().map(|nid| (*nid, scheduler.host_of(*nid).to_owned())).collect();
    Known { key: team.key(), pes, more, links, hosts }
}

/// The nodes of the PEs from this rank on, a page of them, and whether there are more. The loop waits for this,
/// so nodes before them are not gone through PE by PE.
fn nodes_of(places: &PlacementList, first: u32) -> (Vec<Nid>, bool) {
    let mut skip = first;
    let on_each = places.0.iter().flat_map(|place| {
        let here = place.pes.saturating_sub(skip);
        skip = skip.saturating_sub(place.pes);
        (0..here).map(|_| place.nid)
    });
    let mut rest = on_each.peekable();
    let pes = rest.by_ref().take(RANKS_MAX as usize).collect();
    (pes, rest.peek().is_some())
}

/// What became of a question to an apinit.
type Told = Result<Answer, String>;

impl Service {
    /// apstat --pids.
    pub(super) async fn processes_of(
        &self,
        request: Request<pb::ProcessesRequest>,
    ) -> Result<Response<pb::ProcessesReply>, Status> {
        let peer = caller(&request)?;
        let pb::ProcessesRequest { apid, first } = request.into_inner();
        let known = self.pes_of(&peer, Apid(apid), first, Subject::Processes).await?;
        let told = self.ask_hosts(&peer, &known, first).await?;
        Ok(Response::new(reply(known, first, &told)))
    }

    /// The PEs of an application from this rank on, for somebody who may ask for this of them.
    pub(super) async fn pes_of(
        &self,
        peer: &Peer,
        apid: Apid,
        first: u32,
        subject: Subject,
    ) -> Result<Known, Status> {
        let of = move |s: &Scheduler, team: &Apteam| {
            (team.owner.clone(), team.state, known(s, team, first))
        };
        let (owner, state, known) = self.known(peer, apid, of).await?;
        if owner.uid != peer.uid && !self.is_administrator(peer.uid) {
            let why = format!(
                "application {apid} belongs to {}: only that user and administrators are shown its \
                 {}",
                owner.name,
                subject.name()
            );
            return Err(self.not_his(peer, apid, owner.uid, why));
        }
        if !matches!(state, State::Launching | State::Running) {
            let text = format!(
                "application {apid} has no processes yet: it is {} (apstat --why {apid})",
                state.name()
            );
            return Err(Status::failed_precondition(text));
        }
        Ok(known)
    }

    /// Asks the apinits of these PEs, all at once.
    async fn ask_hosts(
        &self,
        peer: &Peer,
        known: &Known,
        first: u32,
    ) -> Result<BTreeMap<LinkId, Told>, Status> {
        let administrator = self.is_administrator(peer.uid);
        let mut asking = self.questions.begin(Subject::Processes, peer.uid, administrator)?;
        let until = Instant::now() + ANSWER;
        let mut told = BTreeMap::new();
        let mut answers = Vec::new();
        let count = u32::try_from(known.pes.len()).unwrap_or(RANKS_MAX);
        for link in known.links.values() {
            if told.contains_key(link) {
                continue;
            }
            told.insert(*link, Err(NOT_NOW.to_owned()));
            let number = super::services::random_number()?;
            let question = Question { number, key: known.key, first, count };
            answers.extend(asking.ask(*link, question).map(|answer| (*link, answer)));
        }
        for (link, answer) in answers {
            let answer = match timeout_at(until, answer).await {
                Ok(Ok(answer)) if answer.why_not.is_empty() => Ok(answer),
                Ok(Ok(answer)) => Err(answer.why_not),
                Ok(Err(_)) => Err("its apinit has just gone: ask again".to_owned()),
                Err(_) => Err(format!(
                    "no answer for {} s: its apinit or apshepherd is busy or stopped, or of a \
                     release that does not know the question",
                    ANSWER.as_secs()
                )),
            };
            told.insert(link, answer);
        }
        Ok(told)
    }
}

/// What is told of all of them: of each PE, what the apinit says that offers its node. What it says
/// of PEs of other hosts does not count.
fn reply(known: Known, first: u32, told: &BTreeMap<LinkId, Told>) -> pb::ProcessesReply {
    let of_link = |(link, told): (&LinkId, &Told)| {
        let (link, answer) = (*link, told.as_ref().ok()?);
        let pid = move |PeProcess { rank, pid }: &PeProcess| ((link, *rank), *pid);
        Some(answer.processes.iter().map(pid).collect::<Vec<_>>())
    };
    let pids: BTreeMap<(LinkId, u32), u32> = told.iter().filter_map(of_link).flatten().collect();
    let row = |(rank, nid): (u32, &Nid)| {
        let link = known.links.get(nid).copied();
        let pid = link.and_then(|link| pids.get(&(link, rank)).copied());
        let state = match pid {
            None => "unknown",
            Some(0) => "ended",
            Some(_) => "runs",
        };
        pb::ProcessRow {
            rank,
            nid: nid.0,
            host: known.hosts.get(nid).cloned().unwrap_or_default(),
            pid: pid.unwrap_or(0),
            state: state.to_owned(),
        }
    };
    let processes: Vec<pb::ProcessRow> = (first..).zip(&known.pes).map(row).collect();
    let next = processes.last().filter(|_| known.more).map_or(0, |row| row.rank + 1);
    let mut why: BTreeMap<&str, Vec<Nid>> = BTreeMap::new();
    let mut seen: Vec<Nid> = known.pes.clone();
    seen.dedup();
    for nid in seen {
        match known.links.get(&nid).map(|link| told.get(link)) {
            None => why.entry("no apinit offers it now").or_default().push(nid),
            Some(Some(Err(text))) => why.entry(text).or_default().push(nid),
            Some(_) => {}
        }
    }
    let notices = why.into_iter().map(|(why, nids)| format!("{}: {why}", nids_text(nids)));
    pb::ProcessesReply { processes, next, notices: notices.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apteam::place::Place;

    const KEY: Key = Key { apid: Apid(7), incarnation: crate::apteam::Incarnation(1) };

    fn answer(number: u64, key: Key) -> Answer {
        let processes = vec![PeProcess { rank: 0, pid: 99 }];
        Answer { number, key, processes, why_not: String::new() }
    }

    fn question(number: u64) -> Question {
        Question { number, key: KEY, first: 0, count: 1 }
    }

    #[tokio::test]
    async fn an_answer_is_taken_of_the_apinit_that_was_asked_and_of_no_other() {
        let questions = Questions::default();
        let (sender, mut asked) = mpsc::channel(4);
        questions.linked(LinkId(1), &sender, true);
        questions.linked(LinkId(2), &sender, false);
        let mut asking = questions.begin(Subject::Processes, 1000, false).expect("room");
        let mut answered = asking.ask(LinkId(1), question(5)).expect("asked");
        assert!(asked.recv().await.expect("there").expect("good").processes.is_some());
        let other = Key { apid: Apid(8), ..KEY };
        questions.answered(LinkId(2), answer(5, KEY));
        questions.answered(LinkId(1), answer(5, other));
        questions.answered(LinkId(1), answer(6, KEY));
        assert!(answered.try_recv().is_err());
        questions.answered(LinkId(1), answer(5, KEY));
        assert_eq!(answered.await, Ok(answer(5, KEY)));
        // One whose link has been let go, or is closed, is not asked.
        let lost = asking.ask(LinkId(2), question(7)).expect("asked");
        questions.closed(LinkId(2));
        assert!(lost.await.is_err());
        assert!(asking.ask(LinkId(2), question(8)).is_none());
        drop((sender, asked));
        assert!(asking.ask(LinkId(1), question(9)).is_none());
        // An apinit of a release before is not asked for stacks; another one's answer is of its own kind.
        let stacks = |number| {
            let (rank, uid, administrator) = (3, 1000, false);
            stacks::Question { number, key: KEY, rank, uid, administrator }
        };
        let (sender, mut asked) = mpsc::channel(4);
        questions.linked(LinkId(1), &sender, true);
        questions.linked(LinkId(3), &sender, false);
        assert!(asking.ask_stacks(LinkId(3), stacks(10)).is_err_and(|why| why.contains("upgrade")));
        let mut told = asking.ask_stacks(LinkId(1), stacks(11)).expect("asked");
        assert!(asked.recv().await.expect("there").expect("good").stacks.is_some());
        questions.told_stacks(LinkId(3), stacks::Answer::none(stacks(11), "no"));
        assert!(told.try_recv().is_err());
        questions.told_stacks(LinkId(1), stacks::Answer::none(stacks(11), "no"));
        assert_eq!(told.await, Ok(stacks::Answer::none(stacks(11), "no")));
        // What is not answered is withdrawn when the user has gone, and nothing else is.
        let _lost = asking.ask_stacks(LinkId(1), stacks(12)).expect("asked");
        assert!(asked.recv().await.expect("there").expect("good").stacks.is_some());
        drop(asking);
        assert!(questions.open().waiting.is_empty() && questions.open().asking.is_empty());
        assert_eq!(asked.recv().await.expect("there").expect("good").stacks_withdrawn, 12);
        assert!(asked.try_recv().is_err());
    }

    #[test]
    fn a_user_asks_little_at_once_and_leaves_room_for_others() {
        let questions = Questions::default();
        let refused = |uid| {
            let asking = questions.begin(Subject::Processes, uid, false);
            asking.map(drop).map_err(|status| status.message().to_owned())
        };
        let begin = |uid, administrator| questions.begin(Subject::Processes, uid, administrator);
        let mut own: Vec<_> = (0..4).map(|_| begin(1, false).ok()).collect();
        assert!(refused(1).is_err_and(|text| text.contains("you have 4 questions")));
        assert!(refused(2).is_ok());
        own.pop();
        assert!(refused(1).is_ok());
        let users = 10..74;
        let all: Vec<_> = users.map(|uid| begin(uid, false)).collect();
        assert!(refused(2).is_err_and(|text| text.contains("64 questions")));
        // An administrator has a place all the same, but not every one.
        let theirs: Vec<_> = (0..4).map(|_| begin(0, true).ok()).collect();
        assert!(theirs.iter().all(Option::is_some) && begin(0, true).is_err());
        // Other questions are counted by themselves.
        assert!(questions.begin(Subject::Stacks, 1, false).is_ok());
        drop((own, all, theirs));
        assert!(questions.open().asking.is_empty());
    }

    #[test]
    fn ranks_are_counted_over_nodes() {
        let place = |nid, pes| Place { nid: Nid(nid), processors: Vec::new(), pes };
        let places = PlacementList([place(4, 2), place(7, 1), place(5, 5000)].into());
        let found = |first| nodes_of(&places, first);
        let whole: Vec<Nid> = places.pes().map(|pe| pe.nid).collect();
        for first in [0, 1, 2, 3, 4, 907, 908, 5002, 5003, u32::MAX] {
            let rest = whole.get(first as usize..).unwrap_or_default();
            let page = &rest[..rest.len().min(RANKS_MAX as usize)];
            assert_eq!(found(first), (page.to_vec(), rest.len() > page.len()), "{first}");
        }
    }

    #[test]
    fn a_page_ends_and_says_where_the_next_begins() {
        let known = |pes: &[u32], more| Known {
            key: KEY,
            pes: pes.iter().map(|nid| Nid(*nid)).collect(),
            more,
            links: [(Nid(3), LinkId(1)), (Nid(4), LinkId(2))].into(),
            hosts: [(Nid(3), "n3".to_owned())].into(),
        };
        let processes = vec![PeProcess { rank: 8, pid: 0 }, PeProcess { rank: 9, pid: 77 }];
        let told = [
            (LinkId(1), Ok(Answer { number: 1, key: KEY, processes, why_not: String::new() })),
            (LinkId(2), Err("it is away".to_owned())),
        ];
        let reply = reply(known(&[3, 3, 4, 5], true), 8, &told.into());
        let rows = reply.processes.iter();
        let rows: Vec<_> = rows.map(|r| (r.rank, r.nid, &*r.host, r.pid, &*r.state)).collect();
        assert_eq!(
            rows,
            [
                (8, 3, "n3", 0, "ended"),
                (9, 3, "n3", 77, "runs"),
                (10, 4, "", 0, "unknown"),
                (11, 5, "", 0, "unknown")
            ]
        );
        assert_eq!(reply.next, 12);
        assert_eq!(reply.notices, ["NID 4: it is away", "NID 5: no apinit offers it now"]);
    }

    #[test]
    fn a_host_tells_the_pids_of_its_own_pes_only() {
        let known = Known {
            key: KEY,
            pes: [3, 3, 4, 4, 5].map(Nid).into(),
            more: false,
            // (One apinit may offer several nodes.)
            links: [(Nid(3), LinkId(2)), (Nid(4), LinkId(1)), (Nid(5), LinkId(2))].into(),
            hosts: BTreeMap::new(),
        };
        let answer = |processes: &[(u32, u32)]| {
            let process = |(rank, pid): &(u32, u32)| PeProcess { rank: *rank, pid: *pid };
            let processes = processes.iter().map(process).collect();
            Ok(Answer { number: 1, key: KEY, processes, why_not: String::new() })
        };
        // Each of the two says something of all PEs.
        let told = [
            (LinkId(1), answer(&[(0, 66), (1, 66), (2, 42), (4, 66)])),
            (LinkId(2), answer(&[(0, 30), (1, 31), (2, 66), (3, 66), (4, 34), (9, 66)])),
        ];
        let reply = reply(known, 0, &told.into());
        let pids: Vec<_> = reply.processes.iter().map(|row| (row.pid, &*row.state)).collect();
        assert_eq!(pids, [(30, "runs"), (31, "runs"), (42, "runs"), (0, "unknown"), (34, "runs")]);
    }
}
