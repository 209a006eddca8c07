//! Stacks of PEs for somebody who has asked: when a debugger begins, stands and ends.
//!
//! # Problem
//! A debugger that attaches stops its PE, and waits until that has happened. A PE that stands because it is the turn
//! of another gang does not stop before its own turn. And a debugger itself works: not in the turn of others.
//!
//! # Approach
//! A debugger is made, waits until apinit has put it into the control group of its PE's node ([`Placed`]), and works
//! there: it is frozen with its PE, and has the node's limits. As long as a question waits it is looked every
//! [`LOOK`] how its PE is:
//!
//! | the PE | before | meanwhile |
//! | --- | --- | --- |
//! | runs | a debugger is made, if fewer than [`AT_ONCE`] work | it works, [`WORK`] at most |
//! | is frozen | its turn is waited for | that time does not count as work |
//! | is stopped by a signal | the question waits until the PE goes on | (so it is while it is attached to) |
//! | is traced by another process | that is the answer | |
//! | has ended | that is the answer | the debugger ends |
//!
//! [`WITHIN`] after the question there is an answer, and [`DYING`] later also where the kernel does not let the
//! debugger end. When the user who asks has gone, the application ends, or apinit's connection does, the
//! debuggers end.

use super::{Action, after};
use crate::apteam::protocol::shepherd::FromShepherd;
use crate::apteam::protocol::stacks::{AT_ONCE, Answer, Placed, Question, TEXT_MAX, WITHIN};
use crate::steering::steers;
use std::collections::BTreeMap;
use std::time::Duration;

/// How often it is looked.
const LOOK: Duration = Duration::from_millis(20);
/// How long a debugger may work. Its PE stands for that long.
const WORK: Duration = Duration::from_secs(20);
/// How long the end of a debugger is waited for that was told to end.
const DYING: Duration = Duration::from_secs(1);
/// Questions that wait for their debugger, or have it.
const ASKED_MAX: usize = 64;
/// Bytes of a debugger's message.
const MESSAGE_MAX: usize = 300;

/// How a PE is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looked {
    /// Its process; 0: it has ended.
    pub pid: u32,
    /// What it does.
    pub standing: Standing,
}

/// What a PE does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It runs, or waits for something.
    Runs,
    /// It is frozen: another gang has its turn.
    Frozen,
    /// A signal has stopped it.
    Stopped,
    /// This traces it.
    Traced(String),
    /// It has ended.
    Ended,
}

/// What writes stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// Of the package gdb.
    Gdb,
    /// Of the package elfutils.
    EuStack,
}

impl Tool {
    /// Its program.
    pub fn name(self) -> &'static str {
        match self {
            Tool::Gdb => "gdb",
            Tool::EuStack => "eu-stack",
        }
    }
}

#[derive(Clone, Debug)]
struct Asked {
    question: Question,
    /// There is an answer by then.
    until_ns: u64,
    /// The process of the PE, as it was seen last.
    pid: u32,
    debugger: Option<Debugger>,
}

#[derive(Clone, Debug)]
struct Debugger {
    worked: Duration,
    /// It was looked at last then.
    seen_ns: u64,
    /// Its PE was frozen then, and so was it.
    frozen: bool,
    /// It is in the control group of its node.
    placed: bool,
    /// It was told to end, for this reason, and then.
    ends: Option<(String, u64)>,
}

/// All that are asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Stacks {
    asked: Vec<Asked>,
    look_at: Option<u64>,
}

impl Asked {
    fn answers(&self, said: Result<(String, bool), String>) -> Action {
        let answer = Answer::none(self.question, "");
        let answer = Answer { pid: self.pid, ..answer };
        Action::Send(FromShepherd::Stacks(match said {
            Ok((text, cut)) => Answer { text, cut, ..answer },
            Err(why_not) => Answer { why_not, ..answer },
        }))
    }

    /// Ends the debugger of the question, if it has one that was not told to end before.
    fn end_debugger(&mut self, now_ns: u64, why: impl Into<String>, out: &mut Vec<Action>) {
        if let Some(debugger) = self.debugger.as_mut().filter(|debugger| debugger.ends.is_none()) {
            debugger.ends = Some((why.into(), now_ns));
            out.push(Action::EndDebugger(self.question.number));
        }
    }

    /// It has a debugger: whether that goes on working. False: it does not end as it was told, and the question
    /// has its answer without it.
    fn watch(&mut self, now_ns: u64, standing: &Standing, out: &mut Vec<Action>) -> bool {
        let late = now_ns >= self.until_ns;
        let Some(debugger) = self.debugger.as_mut() else { return true };
        if let Some((why, since_ns)) = &debugger.ends {
            if now_ns < after(*since_ns, DYING) {
                return true;
            }
            let why = format!(
                "{why}; and the kernel does not let the debugger end (state D): the PE may stand \
                 until it does"
            );
            out.push(Action::LeaveDebugger(self.question.number));
            out.push(self.answers(Err(why)));
            return false;
        }
        let since = Duration::from_nanos(now_ns.saturating_sub(debugger.seen_ns));
        debugger.seen_ns = now_ns;
        if !debugger.frozen {
            debugger.worked += since;
        }
        debugger.frozen = *standing == Standing::Frozen;
        let ends = match standing {
            Standing::Ended => Some("it has ended meanwhile".to_owned()),
            Standing::Frozen if late => Some(late_because(standing)),
            _ if !debugger.placed && (late || debugger.worked > WORK) => Some(
                "its apinit has not put the debugger into the control group of its node: ask again"
                    .to_owned(),
            ),
            _ if late || debugger.worked > WORK => Some(format!(
                "the debugger had no stacks within {} s: the PE is in the kernel and does not leave \
                 it (state D), or its debug information is large",
                WORK.as_secs()
            )),
            _ => None,
        };
        if let Some(why) = ends {
            self.end_debugger(now_ns, why, out);
        }
        true
    }
}

/// Why it has taken too long.
fn late_because(standing: &Standing) -> String {
    let waited = WITHIN.as_secs();
    match standing {
        Standing::Frozen => format!(
            "it is frozen, as another gang has its turn, and its own has not come or was too short \
             within {waited} s: ask again when it runs (apstat -v shows when that is)"
        ),
        Standing::Stopped => format!(
            "it has been stopped by a signal for {waited} s: let it go on (apkill -CONT), and ask again"
        ),
        _ => format!("other PEs were before it for {waited} s: ask again"),
    }
}

impl Stacks {
    /// When it is to be looked again.
    pub fn look_at(&self) -> Option<u64> {
        self.look_at
    }

    /// Somebody asks; `why_not`: in vain.
    pub fn asks(
        &mut self,
        now_ns: u64,
        question: Question,
        why_not: Option<&str>,
        out: &mut Vec<Action>,
    ) {
        let full = self.asked.len() >= ASKED_MAX;
        let full = full.then_some("its apshepherd is asked too much at once: ask again later");
        let known = self.asked.iter().any(|asked| asked.question.number == question.number);
        if known {
            return;
        }
        if let Some(why_not) = why_not.or(full) {
            let answer = Answer::none(question, why_not);
            out.push(Action::Send(FromShepherd::Stacks(answer)));
            return;
        }
        let until_ns = after(now_ns, WITHIN);
        self.asked.push(Asked { question, until_ns, pid: 0, debugger: None });
        self.look(now_ns, out);
    }

    pub fn tick(&mut self, now_ns: u64, out: &mut Vec<Action>) {
        if self.look_at.is_some_and(|at| at <= now_ns) {
            self.look(now_ns, out);
        }
    }

    fn look(&mut self, now_ns: u64, out: &mut Vec<Action>) {
        let mut ranks: Vec<u32> = self.asked.iter().map(|asked| asked.question.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        self.look_at = (!ranks.is_empty()).then(|| after(now_ns, LOOK));
        if !ranks.is_empty() {
            out.push(Action::LookAtPes(ranks));
        }
    }

    /// So the PEs are.
    pub fn looked(&mut self, now_ns: u64, seen: BTreeMap<u32, Looked>, out: &mut Vec<Action>) {
        let gone = Looked { pid: 0, standing: Standing::Ended };
        let working = self.asked.iter().filter(|asked| asked.debugger.is_some());
        let mut busy: Vec<(u32, bool)> =
            working.map(|Asked { question, .. }| (question.rank, question.administrator)).collect();
        let mut left = Vec::new();
        for mut asked in std::mem::take(&mut self.asked) {
            let Question { number, rank, administrator, .. } = asked.question;
            let taken = busy.iter().any(|(of, _)| *of == rank);
            let Looked { pid, standing } = seen.get(&rank).unwrap_or(&gone);
            asked.pid = *pid;
            if asked.debugger.is_some() {
                if asked.watch(now_ns, standing, out) {
                    left.push(asked);
                }
                continue;
            }
            let why_not = match standing {
                Standing::Ended => Some("it has ended".to_owned()),
                // (By the debugger of another question: this one is next.)
                Standing::Traced(by) if !taken => {
                    Some(format!("it is traced already by {by}, and a process has one tracer only"))
                }
                _ if now_ns >= asked.until_ns => Some(late_because(standing)),
                _ => None,
            };
            if let Some(why_not) = why_not {
                out.push(asked.answers(Err(why_not)));
                continue;
            }
            // (What users ask leaves room for what administrators do.)
            let working = busy.iter().filter(|(_, of)| *of == administrator).count();
            if *standing == Standing::Runs && working < AT_ONCE && !taken {
                busy.push((rank, administrator));
                let (worked, seen_ns) = (Duration::ZERO, now_ns);
                let debugger =
                    Debugger { worked, seen_ns, frozen: false, placed: false, ends: None };
                asked.debugger = Some(debugger);
                out.push(Action::StartDebugger { number, rank });
            }
            left.push(asked);
        }
        self.asked = left;
        if self.asked.is_empty() {
            self.look_at = None;
        }
    }

    /// apinit has put a debugger where it belongs, or could not.
    pub fn placed(&mut self, now_ns: u64, placed: Placed, out: &mut Vec<Action>) {
        let Placed { number, why_not, .. } = placed;
        let mut all = self.asked.iter_mut();
        let Some(asked) = all.find(|asked| asked.question.number == number) else { return };
        let waits = |debugger: &&mut Debugger| !debugger.placed && debugger.ends.is_none();
        let Some(debugger) = asked.debugger.as_mut().filter(waits) else { return };
        if why_not.is_empty() {
            debugger.placed = true;
            out.push(Action::LetDebuggerWork(number));
        } else {
            asked.end_debugger(now_ns, why_not, out);
        }
    }

    /// The user who has asked waits no more.
    pub fn withdrawn(&mut self, now_ns: u64, number: u64, out: &mut Vec<Action>) {
        self.asked.retain_mut(|asked| {
            let of = asked.question.number == number;
            if of {
                asked.end_debugger(now_ns, "the question was withdrawn", out);
            }
            !of || asked.debugger.is_some()
        });
        if self.asked.is_empty() {
            self.look_at = None;
        }
    }

    /// A debugger has ended.
    pub fn ended(
        &mut self,
        number: u64,
        said: Result<(String, bool), String>,
        out: &mut Vec<Action>,
    ) {
        let at = self.asked.iter().position(|asked| asked.question.number == number);
        let Some(asked) = at.map(|at| self.asked.remove(at)) else { return };
        let ends = asked.debugger.as_ref().and_then(|debugger| debugger.ends.clone());
        // (What was told to end may have been done before.)
        let said = said.map_err(|why| ends.map_or(why, |(ends, _)| ends));
        out.push(asked.answers(said));
        if self.asked.is_empty() {
            self.look_at = None;
        }
    }

    /// Nobody gets stacks any more.
    pub fn give_up(&mut self, now_ns: u64, why: &str, out: &mut Vec<Action>) {
        self.asked.retain_mut(|asked| {
            if asked.debugger.is_none() {
                out.push(asked.answers(Err(why.to_owned())));
                return false;
            }
            asked.end_debugger(now_ns, why, out);
            true
        });
        if self.asked.is_empty() {
            self.look_at = None;
        }
    }
}

/// The stacks in what a debugger has written, and whether something is left out: `cut` of it was already.
///
/// # Errors
/// There are none; why, in the debugger's words.
///
/// ```
/// use psched_pure::apshepherd::decide::{Tool, stacks_in};
/// let said = b"[New LWP 8]\n\nThread 1 (LWP 7 \"a.out\"):\n#0  main ()\n[Inferior 1 (process 7) detached]\n";
/// let stacks = "Thread 1 (LWP 7 \"a.out\"):\n#0  main ()\n".to_owned();
/// assert_eq!(stacks_in(Tool::Gdb, said, false), Ok((stacks, false)));
/// let refused = stacks_in(Tool::Gdb, b"ptrace: Operation not permitted.\n", false);
/// assert_eq!(refused, Err("gdb: ptrace: Operation not permitted.".to_owned()));
/// ```
pub fn stacks_in(tool: Tool, said: &[u8], cut: bool) -> Result<(String, bool), String> {
    let said = String::from_utf8_lossy(said);
    let begins = |line: &str| match tool {
        Tool::Gdb => line.starts_with("Thread "),
        Tool::EuStack => line.starts_with("TID "),
    };
    // (gdb may attach several times: what it says between the stacks of two is not theirs.)
    let ends = |line: &str| tool == Tool::Gdb && line.starts_with("[Inferior ");
    let (mut text, mut within) = (String::new(), false);
    for line in said.lines() {
        within = begins(line) || within && !ends(line);
        if within {
            text.extend(line.chars().map(shown));
            text.push('\n');
        }
    }
    if text.is_empty() {
        let lines = || said.lines().map(str::trim).filter(|line| !line.is_empty());
        let line = lines().find(|line| line.contains("ptrace")).or_else(|| lines().next_back());
        let line = line.unwrap_or("it has written nothing");
        let line: String = line.chars().map(shown).take(MESSAGE_MAX).collect();
        return Err(format!("{}: {line}", tool.name()));
    }
    let whole = text.trim_end().len();
    text.truncate(whole);
    text.push('\n');
    let long = text.len() > TEXT_MAX;
    if long {
        // A whole line is the last one.
        let most = (0..=TEXT_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let end = text[..most].rfind('\n').map_or(most, |at| at + 1);
        text.truncate(end);
    }
    Ok((text, cut || long))
}

/// What a terminal may be given: names are the program's.
fn shown(c: char) -> char {
    if steers(c) && c != '\t' { '?' } else { c }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apteam::Key;

    const MS: u64 = 1_000_000;
    const S: u64 = 1_000 * MS;

    fn question(number: u64, rank: u32) -> Question {
        Question { number, key: Key::default(), rank, uid: 1000, administrator: false }
    }

    fn see(standing: &Standing, ranks: &[u32]) -> BTreeMap<u32, Looked> {
        let looked = |rank: &u32| (*rank, Looked { pid: 100 + rank, standing: standing.clone() });
        ranks.iter().map(looked).collect()
    }

    fn asked(questions: &[(u64, u32)]) -> Stacks {
        let (mut stacks, mut out) = (Stacks::default(), Vec::new());
        for (number, rank) in questions {
            stacks.asks(0, question(*number, *rank), None, &mut out);
        }
        assert!(matches!(out.last(), Some(Action::LookAtPes(_))));
        stacks
    }

    fn look(stacks: &mut Stacks, now_ns: u64, standing: &Standing, ranks: &[u32]) -> Vec<Action> {
        let mut out = Vec::new();
        stacks.looked(now_ns, see(standing, ranks), &mut out);
        out
    }

    fn ended(stacks: &mut Stacks, number: u64, said: Result<&str, &str>) -> Vec<Action> {
        let mut out = Vec::new();
        let said = said.map(|text| (text.to_owned(), false)).map_err(str::to_owned);
        stacks.ended(number, said, &mut out);
        out
    }

    /// What the one answer says.
    fn answer(out: &[Action]) -> (u64, u32, String, String) {
        match out {
            [Action::Send(FromShepherd::Stacks(a))] => {
                (a.number, a.pid, a.text.clone(), a.why_not.clone())
            }
            other => panic!("{other:?}"),
        }
    }

    fn begins(number: u64, rank: u32) -> Action {
        Action::StartDebugger { number, rank }
    }

    #[test]
    fn a_pe_that_runs_has_its_debugger_at_once_and_its_answer() {
        let mut stacks = asked(&[(7, 3)]);
        assert_eq!(stacks.look_at(), Some(20 * MS));
        assert_eq!(look(&mut stacks, 0, &Standing::Runs, &[3]), [begins(7, 3)]);
        // Attached to, it stands: that is no news.
        for standing in [Standing::Stopped, Standing::Traced("gdb".into())] {
            assert_eq!(look(&mut stacks, 20 * MS, &standing, &[3]), []);
        }
        let out = ended(&mut stacks, 7, Ok("#0 main"));
        assert_eq!(answer(&out), (7, 103, "#0 main".to_owned(), String::new()));
        assert_eq!(stacks.look_at(), None);
        assert_eq!(ended(&mut stacks, 7, Ok("again")), []);
    }

    #[test]
    fn few_work_at_once_and_one_for_each_pe() {
        let mut stacks = asked(&[(1, 0), (2, 0), (3, 1), (4, 2), (5, 3), (6, 4)]);
        let first = [begins(1, 0), begins(3, 1), begins(4, 2), begins(5, 3)];
        assert_eq!(look(&mut stacks, 0, &Standing::Runs, &[0, 1, 2, 3, 4]), first);
        assert_eq!(look(&mut stacks, MS, &Standing::Runs, &[0, 1, 2, 3, 4]), []);
        // One of the same PE waits, though that is traced.
        let traced = Standing::Traced("gdb".into());
        assert_eq!(look(&mut stacks, MS, &traced, &[0, 1, 2, 3]).len(), 1);
        let mut stacks = asked(&[(1, 0), (2, 0), (3, 1)]);
        look(&mut stacks, 0, &Standing::Runs, &[0, 1]);
        ended(&mut stacks, 1, Ok("x"));
        assert_eq!(look(&mut stacks, MS, &Standing::Runs, &[0, 1]), [begins(2, 0)]);
    }

    fn placed(stacks: &mut Stacks, number: u64, why_not: &str) -> Vec<Action> {
        let mut out = Vec::new();
        stacks.placed(0, Placed { number, why_not: why_not.to_owned(), spawned: false }, &mut out);
        out
    }

    #[test]
    fn a_debugger_works_where_it_belongs_and_nowhere_else() {
        let mut stacks = asked(&[(7, 3), (8, 4)]);
        // Before there is one nothing is let go.
        assert_eq!(placed(&mut stacks, 7, ""), []);
        look(&mut stacks, 0, &Standing::Runs, &[3, 4]);
        assert_eq!(placed(&mut stacks, 7, ""), [Action::LetDebuggerWork(7)]);
        assert_eq!((placed(&mut stacks, 7, ""), placed(&mut stacks, 99, "")), (vec![], vec![]));
        assert_eq!(placed(&mut stacks, 8, "it can't be put there"), [Action::EndDebugger(8)]);
        assert_eq!(placed(&mut stacks, 8, ""), []);
        let (.., why) = answer(&ended(&mut stacks, 8, Err("it was killed")));
        assert_eq!(why, "it can't be put there");
        // An apinit that says nothing.
        let mut stacks = asked(&[(7, 3)]);
        look(&mut stacks, 0, &Standing::Runs, &[3]);
        let out = look(&mut stacks, 20 * S + 1, &Standing::Runs, &[3]);
        assert_eq!(out, [Action::EndDebugger(7)]);
        let (.., why) = answer(&ended(&mut stacks, 7, Err("it was killed")));
        assert!(why.starts_with("its apinit has not put the debugger into"), "{why}");
    }

    #[test]
    fn a_question_that_is_withdrawn_leaves_nothing() {
        let mut stacks = asked(&[(1, 0), (2, 0), (3, 1)]);
        look(&mut stacks, 0, &Standing::Runs, &[0]);
        let withdrawn = |stacks: &mut Stacks, number| {
            let mut out = Vec::new();
            stacks.withdrawn(0, number, &mut out);
            out
        };
        assert_eq!(withdrawn(&mut stacks, 2), []);
        assert_eq!(withdrawn(&mut stacks, 99), []);
        assert_eq!(withdrawn(&mut stacks, 1), [Action::EndDebugger(1)]);
        assert_eq!(withdrawn(&mut stacks, 1), []);
        ended(&mut stacks, 1, Err("it was killed"));
        assert_eq!(withdrawn(&mut stacks, 3), []);
        assert_eq!(stacks.look_at(), None);
    }

    #[test]
    fn a_debugger_that_does_not_end_is_left_and_its_question_is_answered() {
        let mut stacks = asked(&[(7, 3), (8, 3)]);
        look(&mut stacks, 0, &Standing::Runs, &[3]);
        placed(&mut stacks, 7, "");
        let traced = Standing::Traced("gdb".into());
        look(&mut stacks, 20 * S + 1, &traced, &[3]);
        assert_eq!(look(&mut stacks, 21 * S, &traced, &[3]), []);
        let out = look(&mut stacks, 21 * S + 1, &traced, &[3]);
        assert_eq!(out[0], Action::LeaveDebugger(7));
        let (number, .., why) = answer(&out[1..]);
        assert!(number == 7 && why.contains("no stacks within 20 s"), "{why}");
        assert!(why.contains("does not let the debugger end (state D)"), "{why}");
        // The next one has its place, and is told who traces the PE.
        let (number, .., why) = answer(&look(&mut stacks, 22 * S, &traced, &[3]));
        assert!(number == 8 && why.contains("traced already by gdb"), "{why}");
        assert_eq!(stacks.look_at(), None);
    }

    #[test]
    fn questions_of_users_leave_room_for_those_of_administrators() {
        let mut stacks = asked(&[(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)]);
        let (ranks, mut out) = ([0, 1, 2, 3, 4, 5], Vec::new());
        assert_eq!(look(&mut stacks, 0, &Standing::Runs, &ranks).len(), AT_ONCE);
        let theirs = Question { administrator: true, ..question(5, 5) };
        stacks.asks(0, theirs, None, &mut out);
        assert_eq!(look(&mut stacks, MS, &Standing::Runs, &ranks), [begins(5, 5)]);
    }

    #[test]
    fn one_that_is_frozen_is_waited_for_and_that_is_no_work_of_its_debugger() {
        let mut stacks = asked(&[(7, 3)]);
        assert_eq!(look(&mut stacks, 0, &Standing::Frozen, &[3]), []);
        assert_eq!(look(&mut stacks, 5 * S, &Standing::Runs, &[3]), [begins(7, 3)]);
        placed(&mut stacks, 7, "");
        assert_eq!(look(&mut stacks, 6 * S, &Standing::Frozen, &[3]), []);
        assert_eq!(look(&mut stacks, 29 * S, &Standing::Frozen, &[3]), []);
        assert_eq!(look(&mut stacks, 29 * S, &Standing::Runs, &[3]), []);
        // It has worked for a second: that is not too long, but all together is.
        let out = look(&mut stacks, 30 * S, &Standing::Frozen, &[3]);
        assert_eq!(out, [Action::EndDebugger(7)]);
        assert_eq!(look(&mut stacks, 31 * S - 1, &Standing::Runs, &[3]), []);
        let (.., why) = answer(&ended(&mut stacks, 7, Err("it was killed")));
        assert!(why.starts_with("it is frozen") && why.contains("ask again"), "{why}");
    }

    #[test]
    fn what_does_not_come_is_said_with_its_reason() {
        for (standing, expected) in [
            (Standing::Frozen, "it is frozen, as another gang"),
            (Standing::Stopped, "it has been stopped by a signal for 30 s"),
        ] {
            let mut stacks = asked(&[(7, 3)]);
            assert_eq!(look(&mut stacks, 30 * S - 1, &standing, &[3]), []);
            let (number, pid, text, why) = answer(&look(&mut stacks, 30 * S, &standing, &[3]));
            assert_eq!((number, pid, &*text), (7, 103, ""));
            assert!(why.starts_with(expected), "{why}");
        }
        let traced = Standing::Traced("gdb (aprun -g)".into());
        let (.., why) = answer(&look(&mut asked(&[(7, 3)]), 0, &traced, &[3]));
        assert!(why.contains("traced already by gdb (aprun -g)"), "{why}");
        let (_, pid, _, why) = answer(&look(&mut asked(&[(7, 3)]), 0, &Standing::Runs, &[]));
        assert_eq!((pid, &*why), (0, "it has ended"));
    }

    #[test]
    fn a_debugger_has_its_time_and_no_more() {
        let mut stacks = asked(&[(7, 3)]);
        look(&mut stacks, 0, &Standing::Runs, &[3]);
        placed(&mut stacks, 7, "");
        assert_eq!(look(&mut stacks, 20 * S, &Standing::Stopped, &[3]), []);
        let out = look(&mut stacks, 20 * S + 1, &Standing::Stopped, &[3]);
        assert_eq!(out, [Action::EndDebugger(7)]);
        let (.., why) = answer(&ended(&mut stacks, 7, Err("it was killed")));
        assert!(why.contains("no stacks within 20 s"), "{why}");
    }

    #[test]
    fn at_the_end_nobody_waits() {
        let mut stacks = asked(&[(7, 3), (8, 3)]);
        look(&mut stacks, 0, &Standing::Runs, &[3]);
        let mut out = Vec::new();
        stacks.give_up(0, "the application ends", &mut out);
        assert_eq!(out.pop_if(|a| matches!(a, Action::Send(_))).map(|a| answer(&[a]).0), Some(8));
        assert_eq!(out, [Action::EndDebugger(7)]);
        out.clear();
        stacks.give_up(0, "the application ends", &mut out);
        assert_eq!(out, []);
        let (.., why) = answer(&ended(&mut stacks, 7, Err("it was killed")));
        assert_eq!((&*why, stacks.look_at()), ("the application ends", None));
    }

    #[test]
    fn too_many_are_refused() {
        let all: Vec<(u64, u32)> = (0..ASKED_MAX as u64).map(|n| (n, n as u32)).collect();
        let mut stacks = asked(&all);
        let mut out = Vec::new();
        // The same one again is no second one.
        stacks.asks(0, question(5, 5), None, &mut out);
        assert_eq!(out, []);
        stacks.asks(0, question(99, 0), None, &mut out);
        assert!(answer(&out).3.contains("asked too much"));
    }

    #[test]
    fn text_is_bounded_whole_lines_and_safe_for_a_terminal() {
        let line = "#0  \u{1b}]0;evil\u{7} in f\n";
        let said = format!("warning: x\nThread 1 (LWP 1):\n{}", line.repeat(8_000));
        let (text, cut) = stacks_in(Tool::Gdb, said.as_bytes(), false).expect("stacks");
        assert!(cut && text.len() <= TEXT_MAX && text.len() > TEXT_MAX - 100);
        assert!(text.starts_with("Thread 1 (LWP 1):\n#0  ?]0;evil? in f\n"));
        assert!(text.ends_with(" in f\n"));
        // (gdb has attached twice.)
        let said = "[x]\nThread 1:\n#0 f\n[Inferior 1 (process 7) detached]\n0x1 in g\n";
        let said = format!("{said}\nThread 1:\n#0 g\n");
        let two = ("Thread 1:\n#0 f\nThread 1:\n#0 g\n".to_owned(), false);
        assert_eq!(stacks_in(Tool::Gdb, said.as_bytes(), false), Ok(two));
        let (text, cut) = stacks_in(Tool::EuStack, b"PID 5\nTID 5:\n#0 x\n\n", true).expect("some");
        assert_eq!((&*text, cut), ("TID 5:\n#0 x\n", true));
        assert_eq!(
            stacks_in(Tool::EuStack, b"", false),
            Err("eu-stack: it has written nothing".into())
        );
    }
}
