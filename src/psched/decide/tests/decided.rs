//! Decisions carried out: who is placed, stopped, moved and rolled out.

use super::turns::ms;
use super::*;
use crate::apteam::Apid;
use crate::apteam::protocol::node::Command;
use crate::apteam::record::Apteam;
use crate::apteam::record::State;
use crate::machine::Machine;
use crate::machine::Nid;
use crate::machine::{Flavor, Flavors};
use crate::psched::reason::sees_all;
use std::collections::BTreeSet;
use std::time::Duration;

/// One apinit, which does what it is told at once, and front ends that launch what is placed.
pub(super) struct Play {
    pub(super) s: Scheduler,
    pub(super) ms: u64,
    /// By so much the clock on the wall has been set back.
    pub(super) set_back: Duration,
    settings: Settings,
    /// Front ends that do not.
    pub(super) silent: BTreeSet<Apid>,
    /// Nodes say that a move is over.
    moves_end: bool,
    pub(super) moves: Vec<(Apid, String, String)>,
    out: Vec<Apid>,
    /// Whose memory nodes were told to bring out.
    pub(super) told: Vec<String>,
    pub(super) words: Vec<String>,
}

pub(super) fn settings() -> Settings {
    let mut settings = plain();
    settings.turns.floors = false;
    settings.turns.start_cost = Duration::ZERO;
    settings
}

impl Play {
    pub(super) fn new(nodes: u32, processors: u32, settings: Settings) -> Play {
        Play::on(machine(nodes, processors), settings)
    }

    pub(super) fn on(machine: Machine, settings: Settings) -> Play {
        let nids: Vec<u32> = machine.nodes.keys().map(|nid| nid.0).collect();
        let mut s = Scheduler::new(machine, settings.clone());
        link(&mut s, 1, &nids, &[]);
        Play {
            s,
            ms: 0,
            set_back: Duration::ZERO,
            settings,
            silent: BTreeSet::new(),
            moves_end: true,
            moves: Vec::new(),
            out: Vec::new(),
            told: Vec::new(),
            words: Vec::new(),
        }
    }

    pub(super) fn take(&mut self, event: Event) {
        self.take_all(vec![event]);
    }

    pub(super) fn take_all(&mut self, events: Vec<Event>) {
        let mut events = std::collections::VecDeque::from([events]);
        while let Some(together) = events.pop_front() {
            let now = ms(self.ms);
            let wall_ns = now.wall_ns.saturating_sub(self.set_back.as_nanos() as u64);
            let effects = self.s.apply_all(Now { wall_ns, ..now }, together);
            let report = |report| Event::Report { link: LinkId(1), report: Box::new(report) };
            for effect in effects {
                match effect {
                    Effect::Command { command: Command::Place(place), .. }
                        if !self.silent.contains(&place.key.apid) =>
                    {
                        events.push_back(vec![report(Report::Launched(place.key))]);
                        events.push_back(vec![report(Report::Running(place.key))]);
                    }
                    Effect::Command { command: Command::Plan(plan), .. } if !plan.agreed => {
                        events.push_back(vec![report(Report::PlanTaken(plan.generation))]);
                    }
                    Effect::Command { command: Command::Move(order), .. } => {
                        let key = order.key;
                        let from = &self.s.team(key.apid).expect("it is there").places;
                        let (from, to) =
                            (format_nids(from.nids()), format_nids(order.places.nids()));
                        self.moves.push((key.apid, from, to));
                        if self.moves_end {
                            events.push_back(vec![report(moved(key, order.number))]);
                        }
                    }
                    Effect::Command { command: Command::RollOut(key), .. } => {
                        self.told.push(key.to_string());
                    }
                    Effect::RollIn { key, to } => {
                        self.moves.push((key.apid, String::new(), format_nids(to.nids())));
                        if self.moves_end {
                            events.push_back(vec![Event::RolledIn { key }]);
                        }
                    }
                    Effect::RollOut { key } => self.out.push(key.apid),
                    // (Orders of administrators are in the log.)
                    Effect::Warn(text)
                        if text.contains(", by ") || text.contains(": drained by ") => {}
                    Effect::Warn(text) => panic!("{text}"),
                    Effect::Log { apid, name, .. } => self.words.push(format!("{apid} {name}")),
                    _ => {}
                }
            }
            self.check();
        }
    }

    /// Of those who run no two have the same processor.
    fn check(&self) {
        let mut taken = BTreeSet::new();
        for apid in self.party() {
            for place in self.s.team(Apid(apid)).expect("it is there").places.0.iter() {
                for p in &place.processors {
                    assert!(taken.insert((place.nid, *p)), "NID {} {p} twice", place.nid);
                }
            }
        }
    }

    /// Lets so many seconds pass, with every tick that is asked for.
    pub(super) fn pass(&mut self, seconds: u64) {
        self.pass_ms(seconds * 1_000);
    }

    /// The same of milliseconds.
    pub(super) fn pass_ms(&mut self, ms: u64) {
        let until = self.ms + ms;
        let mut ticks = 0;
        while let Some(at) = self.s.deadline().filter(|at| *at <= until * 1_000_000) {
            self.ms = at.div_ceil(1_000_000).max(self.ms);
            self.take(Event::Tick);
            ticks += 1;
            assert!(ticks < 20_000, "it is asked for again and again");
        }
        self.ms = until;
    }

    pub(super) fn post(&mut self, number: u8, width: u32) {
        self.take(posted(number, width));
    }

    pub(super) fn end_of(&self, apid: u64) -> Event {
        let team = self.s.team(Apid(apid)).expect("it is there");
        let nids: Vec<u32> = team.places.nids().map(|n| n.0).collect();
        if nids.is_empty() {
            return Event::FrontGone { apid: Apid(apid) };
        }
        let report = Box::new(ended(team.key(), &nids, None));
        Event::Report { link: LinkId(1), report }
    }

    pub(super) fn ends(&mut self, apid: u64) {
        self.take(self.end_of(apid));
    }

    pub(super) fn set(&mut self, change: impl FnOnce(&mut Settings)) {
        change(&mut self.settings);
        self.take(Event::Settings(Box::new(self.settings.clone())));
    }

    pub(super) fn hold(&mut self, apid: u64, hold: bool) {
        let apids = [Apid(apid)].into();
        self.take(Event::Hold { reply: ReplyId(1), apids, hold, by: Default::default() });
    }

    /// Whether it runs by its plan now.
    pub(super) fn is_on(&self, apid: u64) -> bool {
        let turn = self.s.turn(Apid(apid), self.ms * 1_000_000);
        matches!(
            turn,
            crate::psched::decide::Turn::Always | crate::psched::decide::Turn::Runs { .. }
        )
    }

    pub(super) fn party(&self) -> Vec<u64> {
        self.s.schedule.decision.party.iter().map(|apid| apid.0).collect()
    }

    pub(super) fn nids(&self, apid: u64) -> String {
        format_nids(self.s.team(Apid(apid)).expect("it is there").places.nids())
    }

    /// Seconds had.
    fn had(&self, apid: u64) -> u64 {
        self.s.attained(Apid(apid), self.ms * 1_000_000).as_secs()
    }
}

pub(super) fn able() -> Settings {
    let mut settings = settings();
    settings.abilities = Abilities { moves: true, says: false, roll_out: RollsOut::Anywhere };
    settings.turns.migration.enabled = true;
    settings.turns.migration.quiet_time = Duration::ZERO;
    settings.turns.migration.least_attained = Duration::ZERO;
    settings.turns.migration.least_gain = 1;
    settings.turns.compact_after = Duration::from_secs(10);
    settings
}

#[test]
fn a_newcomer_is_placed_over_a_long_one_and_runs_at_once() {
    let mut play = Play::new(2, 2, settings());
    play.post(1, 4);
    play.pass(1_000);
    play.post(2, 4);
    assert_eq!(play.party(), [2]);
    play.pass(59);
    assert_eq!(play.party(), [2]);
    assert_eq!((play.had(1), play.had(2)), (1_000, 59));
    play.ends(2);
    assert_eq!(play.party(), [1]);
    play.pass(10);
    assert_eq!(play.had(1), 1_010);
    // Without the abilities nobody is moved or taken out.
    assert!(play.moves.is_empty() && play.out.is_empty());
}

#[test]
fn a_newcomer_takes_the_processors_of_whom_that_costs_least() {
    let mut play = Play::new(4, 1, settings());
    play.post(1, 2);
    play.pass(10_000);
    play.post(2, 2);
    play.pass(100);
    assert_eq!(play.party(), [1, 2]);
    // Of the highest level, it displaces for less than one of the second.
    play.post(3, 2);
    assert_eq!((play.party(), play.nids(3)), (vec![2, 3], play.nids(1)));
}

#[test]
fn two_who_come_together_do_not_sit_on_each_other() {
    let mut play = Play::new(4, 1, settings());
    play.post(1, 4);
    play.pass(100);
    play.silent = [Apid(2), Apid(3)].into();
    play.post(2, 2);
    play.post(3, 2);
    assert_eq!((&play.nids(2)[..], &play.nids(3)[..]), ("0-1", "2-3"));
    // A third finds nothing that is not somebody's who is on the way.
    play.post(4, 1);
    assert_eq!(play.s.team(Apid(4)).map(|team| team.state), Some(State::Posted));
    assert_eq!(play.party(), [1]);
}

#[test]
fn those_beneath_one_that_is_never_launched_run_on() {
    let mut play = Play::new(2, 1, settings());
    play.post(1, 2);
    play.pass(100);
    play.silent = [Apid(2)].into();
    play.post(2, 2);
    assert_eq!(play.party(), [1]);
    play.pass(300);
    assert_eq!(play.had(1), 400);
    assert_eq!(play.party(), [1]);
}

#[test]
fn one_whose_place_was_taken_back_is_placed_again() {
    let mut play = Play::new(2, 1, settings());
    play.silent = [Apid(1)].into();
    play.post(1, 2);
    // Something is decided while it is on its way.
    play.set(|_| {});
    play.pass(100);
    let key = play.s.team(Apid(1)).expect("it is there").key();
    assert_eq!(play.s.team(Apid(1)).map(|team| team.state), Some(State::TakingBack));
    let back = Box::new(taken_back(key));
    play.take(Event::Report { link: LinkId(1), report: back });
    assert_eq!(play.s.team(Apid(1)).map(|team| team.state), Some(State::Lapsed));
    play.silent.clear();
    play.take(Event::Looked { reply: ReplyId(1), apid: Apid(1) });
    assert_eq!(play.s.team(Apid(1)).map(|team| team.state), Some(State::Running));
    assert_eq!(play.party(), [1]);
}

#[test]
fn who_is_held_does_not_run_and_goes_on_when_it_is_released() {
    let mut play = Play::new(2, 1, settings());
    play.post(1, 2);
    play.post(2, 2);
    play.pass(10);
    let first = play.party()[0];
    play.hold(first, true);
    assert_eq!(play.party(), [3 - first]);
    let had = play.had(first);
    play.pass(500);
    assert_eq!(play.had(first), had);
    play.hold(first, false);
    assert_eq!(play.party(), [first]);
}

#[test]
fn who_is_to_end_is_let_run() {
    let mut play = Play::new(2, 1, settings());
    play.post(1, 2);
    play.pass(1_000);
    play.post(2, 2);
    play.pass(10);
    assert_eq!(play.party(), [2]);
    let kill = Event::Kill {
        reply: ReplyId(9),
        apids: vec![Apid(1)],
        signal: 15,
        uid: 0,
        administrator: true,
    };
    play.take(kill);
    assert_eq!(play.party(), [1]);
    play.pass(10);
    assert_eq!(play.party(), [2]);
}

#[test]
fn after_a_restart_turns_go_on() {
    let mut play = Play::new(2, 1, settings());
    play.post(1, 2);
    play.pass(1_000);
    play.post(2, 2);
    play.pass(30);
    let teams: Vec<Apteam> = play.s.teams().cloned().collect();
    let boots = [(Nid(0), "boot-1".to_owned()), (Nid(1), "boot-1".to_owned())].into();
    let now = ms(play.ms);
    let (mut s, _) =
        Scheduler::restore(machine(2, 1), settings(), teams, boots, Default::default(), 3, now);
    s.started(4, "");
    let items = vec![(key(1, 1), Phase::Running), (key(2, 1), Phase::Running)];
    s.apply(now, Event::LinkOpened { link: LinkId(1), hello: hello(&[0, 1]) });
    s.apply(now, Event::Inventory { link: LinkId(1), items });
    play.s = s;
    play.take(Event::Tick);
    assert_eq!(play.party(), [2]);
    play.ends(2);
    assert_eq!(play.party(), [1]);
}

/// It takes its turns where it is, and others do not come there.
#[test]
fn who_is_on_a_node_that_loses_ap_goes_on_there() {
    let mut play = Play::new(2, 1, settings());
    play.post(1, 2);
    play.pass(1_000);
    let (nids, to) = ([Nid(1)].into(), Some(Flavors::default().with(Flavor::Su)));
    let event = Event::Flavors { reply: ReplyId(0), nids, to, by: By::default() };
    let effects = play.s.apply(ms(play.ms), event);
    assert!(brief(&effects).contains(&"managed 0 2 0".to_owned()), "{effects:?}");
    play.pass(30);
    assert_eq!(play.party(), [1]);
    play.post(2, 1);
    play.pass(30);
    let places = &play.s.team(Apid(2)).expect("it has not ended").places;
    assert_eq!((play.party(), format_nids(places.nids())), (vec![2], "0".into()));
    play.ends(2);
    play.pass(30);
    assert_eq!(play.party(), [1]);
}

#[test]
fn an_exclusive_one_has_its_nodes_alone() {
    let mut play = Play::new(2, 2, settings());
    let exclusive = |number| {
        let Event::Posted { reply, mut posting, owner, front, secret } = posted(number, 1) else {
            unreachable!()
        };
        posting.exclusive = true;
        Event::Posted { reply, posting, owner, front, secret }
    };
    play.post(1, 1);
    play.take(exclusive(2));
    play.post(3, 3);
    assert_eq!((&play.nids(1)[..], &play.nids(2)[..]), ("0", "1"));
    assert_eq!(play.s.team(Apid(3)).map(|team| team.state), Some(State::Posted));
    play.ends(2);
    assert_eq!(play.party(), [1, 3]);
    assert_eq!(play.s.team(Apid(3)).map(|team| team.state), Some(State::Running));
}

#[test]
fn one_that_finds_as_many_as_may_stay_is_told_so() {
    let mut settings = settings();
    settings.turns.max_resident = 2;
    let mut play = Play::new(1, 1, settings);
    for number in 1..=3 {
        play.post(number, 1);
        play.pass(100);
    }
    assert_eq!(play.s.team(Apid(3)).map(|team| team.state), Some(State::Posted));
    let why = play.s.why(Apid(3)).expect("it waits");
    let why = why.words(&sees_all);
    let words = format!("{} {} {}", why.obstacle, why.holder, why.cure);
    assert!(words.contains("application.max_resident"), "{words}");
}

#[test]
fn the_displaced_one_is_moved_where_nodes_can_do_that() {
    let mut play = Play::new(4, 1, able());
    play.post(1, 2);
    play.pass(100);
    play.post(2, 1);
    play.pass(100);
    // 1 has 0-1, 2 the third: for three in a row somebody must go.
    play.moves_end = false;
    play.post(3, 3);
    let moved = play.moves.clone();
    assert_eq!(play.s.team(Apid(3)).map(|team| team.state), Some(State::Running));
    for (apid, from, to) in &moved {
        assert_ne!(from, to);
        assert!(!play.party().contains(&apid.0), "{apid} runs and is on its way");
    }
    assert_eq!(moved.len(), 1, "{moved:?}");
    let key = play.s.team(moved[0].0).expect("it is there").key();
    play.take(Event::Report { link: LinkId(1), report: Box::new(super::moved(key, 1)) });
    assert!(play.party().contains(&key.apid.0));
    // Once more is once too often.
    play.take(Event::Report { link: LinkId(1), report: Box::new(super::moved(key, 1)) });
    assert_eq!(play.moves.len(), 1);
}

#[test]
fn too_many_are_rolled_out_and_come_in_again() {
    let mut settings = able();
    settings.turns.max_resident = 2;
    let mut play = Play::new(2, 1, settings);
    play.post(1, 2);
    play.pass(1_000);
    play.post(2, 2);
    play.pass(100);
    play.post(3, 2);
    // Of the two who stand the one of the higher level.
    assert_eq!((play.party(), &play.out[..]), (vec![3], &[Apid(1)][..]));
    assert_eq!(play.s.team(Apid(1)).map(|team| team.state), Some(State::Running));
    let had = play.had(1);
    play.pass(10);
    assert_eq!(play.had(1), had);
    play.ends(3);
    play.ends(2);
    assert_eq!(play.moves.last().map(|(apid, from, _)| (*apid, &from[..])), Some((Apid(1), "")));
    assert_eq!(play.party(), [1]);
    assert!(
        play.words.contains(&"1 rolled-out".into()) && play.words.contains(&"1 rolled-in".into())
    );
}

#[test]
fn one_may_stay_and_the_others_are_rolled_out() {
    let mut settings = able();
    settings.turns.max_resident = 1;
    let mut play = Play::new(2, 1, settings);
    play.post(1, 2);
    play.pass(1_000);
    play.post(2, 2);
    assert_eq!((play.party(), &play.out[..]), (vec![2], &[Apid(1)][..]));
    let why = play.s.why(Apid(1)).expect("it is there");
    let why = why.words(&sees_all);
    assert!(why.obstacle.contains("its memory is rolled out"), "{}", why.obstacle);
    play.ends(2);
    assert_eq!(play.party(), [1]);
}

#[test]
fn levels_are_retuned_live() {
    let mut play = Play::new(2, 1, settings());
    play.post(1, 2);
    play.pass(30);
    play.post(2, 2);
    play.pass(29);
    // Neither has had its minute: who runs goes on.
    let first = play.party()[0];
    play.set(|settings| {
        settings.turns.levels.bounds = vec![Duration::from_secs(10), Duration::from_secs(1_000)];
        settings.turns.levels.stickiness = Duration::ZERO;
    });
    let before = (play.had(1), play.had(2));
    play.pass(100);
    assert_eq!(play.had(first) + play.had(3 - first), before.0 + before.1 + 100);
}
