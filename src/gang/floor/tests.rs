//! Floors by examples, and that no gang waits for longer than is promised, however many come.

use super::*;
use crate::gang::Gang;
use proptest::prelude::*;
use std::fmt::Write;

const SECOND: u64 = 1_000_000_000;

fn rules() -> Rules {
    Rules { time_slice: Duration::from_secs(1), switch_share: 50 }
}

/// Gangs on a line of processors, each with its user: `AAAA ann`.
struct Machine {
    competition: Competition,
    accounts: Accounts,
    members: Vec<Apid>,
    out: BTreeSet<Apid>,
    early: Vec<Apid>,
}

fn machine(gangs: &[&str]) -> Machine {
    let (mut competition, mut accounts) = (Competition::new(8, vec![]), Accounts::default());
    let mut members = Vec::new();
    for (apid, gang) in (1..).map(Apid).zip(gangs) {
        let (line, user) = gang.split_once(' ').expect("a user");
        let at = |(at, c): (u32, char)| (c != '.').then_some(at);
        let processors: Vec<u32> = (0..).zip(line.chars()).filter_map(at).collect();
        accounts.add(apid, 1, Duration::ZERO, 0);
        accounts.set_share(apid, Some(user.into()), processors.len() as u64);
        competition.add(apid, Gang { processors, memory: Vec::new() });
        members.push(apid);
    }
    Machine { competition, accounts, members, out: BTreeSet::new(), early: Vec::new() }
}

impl Machine {
    fn plan(&self, leads: &[u64], now_ns: u64, on: Option<&On<'_>>) -> Plan {
        let leads = leads.iter().map(|apid| Apid(*apid)).collect();
        self.plan_by(&leads, &rules(), now_ns, on)
    }

    fn plan_by(
        &self,
        leads: &BTreeSet<Apid>,
        rules: &Rules,
        now_ns: u64,
        on: Option<&On<'_>>,
    ) -> Plan {
        let chosen = Chosen { leads, early: &self.early, is_out: &|apid| self.out.contains(&apid) };
        plan(&self.competition, &self.accounts, &self.members, chosen, rules, now_ns, on)
    }
}

/// A slice a line: the gangs, for how many milliseconds, `f` for floors.
fn drawn(plan: &Plan) -> String {
    let mut text = String::new();
    for slice in &plan.slices {
        let of = |apid: &Apid| char::from(b'A' + (apid.0 - 1) as u8);
        let party: String = slice.party.iter().map(of).collect();
        let floor = if slice.floor { " f" } else { "" };
        let _ = write!(text, "{party} {}{floor}, ", slice.length.as_millis());
    }
    text + if plan.repeats { "again" } else { "anew" }
}

#[test]
fn who_waits_has_a_quarter_in_turns() {
    let machine = machine(&["AAAA ann", "BBBB ann", "CCCC ann"]);
    let plan = machine.plan(&[1], 0, None);
    assert_eq!(drawn(&plan), "A 750, B 250 f, A 750, C 250 f, again");
}

#[test]
fn who_has_a_signal_has_the_first_floor() {
    let mut machine = machine(&["AAAA ann", "BBBB ann", "CCCC ann", "DDDD ann"]);
    machine.early = vec![Apid(4)];
    let drawn_of = |machine: &Machine| drawn(&machine.plan(&[1], 0, None));
    assert_eq!(drawn_of(&machine), "D 250 f, A 750, B 250 f, A 750, C 250 f, A 750, again");
    machine.early = vec![Apid(2), Apid(4)];
    assert_eq!(drawn_of(&machine), "B 250 f, D 250 f, A 750, C 250 f, A 750, again");
}

#[test]
fn who_is_out_has_a_turn_only_as_the_decision_says() {
    let mut machine = machine(&["AAAA ann", "BBBB ann", "CC.. ann", "..DD bob"]);
    machine.out = [Apid(2), Apid(4)].into();
    assert_eq!(drawn(&machine.plan(&[3], 0, None)), "C 750, A 250 f, again");
    assert_eq!(drawn(&machine.plan(&[2], 0, None)), "B 750, C 250 f, B 750, A 250 f, again");
}

#[test]
fn who_is_alone_or_fits_beside_all_is_never_stopped() {
    assert_eq!(drawn(&machine(&["AA.. ann"]).plan(&[1], 0, None)), "A 750, again");
    let both = machine(&["AA.. ann", "..BB bob"]).plan(&[1], 0, None);
    assert_eq!(drawn(&both), "AB 750, again");
}

#[test]
fn whoever_competes_with_nobody_who_runs_runs_too() {
    let machine = machine(&["AAAA.. ann", "BB.... ann", "..CC.. bob", "....DD bob"]);
    let plan = machine.plan(&[1, 4], 0, None);
    assert_eq!(drawn(&plan), "AD 750, BDC 125 f, again");
}

/// A user with one gang beside one with many has his turn at every other cycle.
#[test]
fn a_floor_is_divided_where_one_gang_in_each_cycle_does_not_do() {
    let all = ["A ann", "B bob", "C bob", "D bob", "E bob", "F bob"];
    let plan = machine(&all).plan(&[2], 0, None);
    // One of two and five of six: two in each floor.
    let cycles = "B 750, A 125 f, C 125 f, B 750, A 125 f, D 125 f, B 750, A 125 f, E 125 f, B 750, A 125 f, F 125 f";
    assert_eq!(drawn(&plan), format!("{cycles}, again"));
}

#[test]
fn a_plan_goes_on_with_what_is_on() {
    let machine = machine(&["AAAA ann", "BBBB ann", "CCCC bob", "DDDD bob"]);
    let slice = |party: &[u64], ms, floor| Slice {
        party: party.iter().map(|apid| Apid(*apid)).collect(),
        length: Duration::from_millis(ms),
        floor,
    };
    let lead = slice(&[1], 750, false);
    let on = |slice, floors, over| On { slice, floors, over };
    // Another leads for what is left of the lead.
    let plan = machine.plan(&[4], SECOND, Some(&on(&lead, 0, false)));
    assert!(
        drawn(&plan).starts_with("D 750, A 125 f, B 125 f, D 750, C 125 f, "),
        "{}",
        drawn(&plan)
    );
    // It is over: what comes is the floor.
    let plan = machine.plan(&[4], SECOND, Some(&on(&lead, 0, true)));
    assert!(drawn(&plan).starts_with("A 125 f, B 125 f, D 750, C 125 f, "), "{}", drawn(&plan));
    // The first or the second half of a floor.
    let floor = slice(&[2], 125, true);
    let plan = machine.plan(&[4], SECOND, Some(&on(&floor, 0, false)));
    assert!(drawn(&plan).starts_with("B 125 f, A 125 f, D 750, C 125 f, "), "{}", drawn(&plan));
    let plan = machine.plan(&[4], SECOND, Some(&on(&floor, 1, false)));
    assert!(drawn(&plan).starts_with("B 125 f, D 750, A 125 f, C 125 f, "), "{}", drawn(&plan));
    let plan = machine.plan(&[4], SECOND, Some(&on(&floor, 1, true)));
    assert!(drawn(&plan).starts_with("D 750, "), "{}", drawn(&plan));
}

/// A plan that began within a cycle gives each gang its part, however often it is repeated.
#[test]
fn a_plan_that_begins_within_a_cycle_is_repeated_from_there_on() {
    let machine = machine(&["AAAA ann", "BBBB bob"]);
    let of = |apid, ms, floor| Slice {
        party: vec![Apid(apid)],
        length: Duration::from_millis(ms),
        floor,
    };
    let plan = |slice, over| {
        drawn(&machine.plan(&[1], SECOND, Some(&On { slice: &slice, floors: 0, over })))
    };
    assert_eq!(plan(of(2, 250, true), false), "B 250 f, A 750, again");
    assert_eq!(plan(of(1, 750, false), false), "A 750, B 250 f, again");
    assert_eq!(plan(of(2, 250, true), true), "A 750, B 250 f, again");
    // A waited, has the floor, and leads from now on.
    assert_eq!(plan(of(1, 250, true), false), "A 750, B 250 f, again");
    assert_eq!(plan(of(1, 250, true), true), "A 750, B 250 f, again");
}

#[test]
fn floors_are_no_shorter_than_a_slice_may_be() {
    let machine = machine(&["AAAA ann", "BBBB ann"]);
    let short = Rules { time_slice: Duration::from_millis(10), ..rules() };
    let plan = machine.plan_by(&[Apid(1)].into(), &short, 0, None);
    assert_eq!(drawn(&plan), "A 10, B 10 f, again");
}

/// What comes between two of one gang's turns.
#[derive(Clone, Debug)]
enum Step {
    /// One comes with a user, from one processor to another, and leads if it may.
    Comes(u8, u32, u32, bool),
    /// The one at this place of those that are there goes.
    Goes(usize),
    /// So many milliseconds pass.
    Passes(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..4u8, 0..8u32, 1..9u32, any::<bool>())
            .prop_map(|(user, at, width, leads)| Step::Comes(user, at, width, leads)),
        2 => (0..20usize).prop_map(Step::Goes),
        4 => (1..1_500u64).prop_map(Step::Passes),
    ]
}

/// Plans that are made anew at each event, as psched makes them: the first gang stays, all others come and go.
struct Followed {
    machine: Machine,
    holders: BTreeMap<Apid, u8>,
    leads: BTreeSet<Apid>,
    plan: Plan,
    begins_ns: u64,
    now_ns: u64,
}

impl Followed {
    /// The slice that is on, how much of it is left in nanoseconds, and floors before it in its cycle.
    fn on(&self) -> Option<(usize, u64, u32)> {
        let (number, left) = self.plan.at(Duration::from_nanos(self.now_ns - self.begins_ns))?;
        let before = self.plan.slices[..number].iter().rev();
        let floors = before.take_while(|slice| slice.floor).count() as u32;
        Some((number, left.as_nanos() as u64, floors))
    }

    fn anew(&mut self) {
        let on = self.on().filter(|_| self.plan.slices.len() > 1);
        let slice = on.map(|(number, ..)| self.plan.slices[number].clone());
        let goes_on = on.zip(slice.as_ref()).map(|((_, left, floors), slice)| {
            let over = left < SLICE_MIN.as_nanos() as u64;
            (left, On { slice, floors, over })
        });
        let on = goes_on.as_ref().map(|(_, on)| on);
        let plan = self.machine.plan_by(&self.leads, &rules(), self.now_ns, on);
        self.begins_ns = match &goes_on {
            Some((left, on)) if !on.over => {
                let gone = on.slice.length.as_nanos() as u64 - left;
                let length = plan.slices.first().map_or(0, |first| first.length.as_nanos() as u64);
                if gone < length { self.now_ns - gone } else { self.now_ns }
            }
            _ => self.now_ns,
        };
        self.plan = plan;
    }

    /// In how many cycles the first gang is to run again: by the definition.
    fn within(&self) -> u64 {
        let rivals: Vec<u8> = self
            .machine
            .competition
            .rivals(Apid(1))
            .iter()
            .map(|apid| self.holders[apid])
            .collect();
        let own = rivals.iter().filter(|holder| **holder == 0).count() as u64;
        let users: BTreeSet<&u8> = rivals.iter().chain([&0]).collect();
        own + users.len() as u64
    }
}

proptest! {
    /// The first gang's longest silence is no longer than its rivals that were there at once say, however many come
    /// and go meanwhile, and whoever leads.
    #[test]
    fn nobody_waits_for_longer_than_is_promised_whoever_comes(steps in proptest::collection::vec(step(), 1..80)) {
        let mut all = Followed {
            machine: machine(&["AAAAAAAA 0"]),
            holders: [(Apid(1), 0)].into(),
            leads: BTreeSet::new(),
            plan: Plan::default(),
            begins_ns: 0,
            now_ns: 0,
        };
        all.anew();
        // Since when the first does not run, the most that it may wait, and how long a cycle has been at most.
        let (mut since, mut most) = (None, 0);
        let mut next = 1;
        for step in steps.into_iter().chain([Step::Passes(40_000)]) {
            match step {
                Step::Comes(user, at, width, leads) if all.machine.members.len() < 12 => {
                    next += 1;
                    let apid = Apid(next);
                    let processors: Vec<u32> = (at..(at + width).min(8)).collect();
                    all.machine.accounts.add(apid, 1, Duration::ZERO, all.now_ns);
                    all.machine.accounts.set_share(apid, Some(user.to_string().into()), 1);
                    all.machine.competition.add(apid, Gang { processors, memory: Vec::new() });
                    all.machine.members.push(apid);
                    all.holders.insert(apid, user);
                    if leads {
                        let out = all.machine.competition.rivals(apid);
                        all.leads.retain(|other| !out.contains(other));
                        all.leads.insert(apid);
                    }
                    all.anew();
                }
                Step::Goes(at) if all.machine.members.len() > 1 => {
                    let apid = all.machine.members.remove(1 + at % (all.machine.members.len() - 1));
                    all.machine.accounts.remove(apid);
                    all.machine.competition.remove(apid);
                    all.leads.remove(&apid);
                    all.anew();
                }
                Step::Comes(..) | Step::Goes(_) => {}
                Step::Passes(ms) => {
                    let until = all.now_ns + ms * 1_000_000;
                    while all.now_ns < until {
                        let Some((number, left, _)) = all.on() else { break };
                        let slice = all.plan.slices[number].clone();
                        let length = left.min(until - all.now_ns).max(1);
                        let (from, runs) = (all.now_ns, slice.party.contains(&Apid(1)));
                        all.now_ns += length;
                        for apid in &all.machine.members {
                            let (time, last) = match slice.party.contains(apid) {
                                true => (Duration::from_nanos(length), Some(all.now_ns)),
                                false => (Duration::ZERO, None),
                            };
                            all.machine.accounts.had(*apid, time, last, (from, all.now_ns));
                        }
                        most = most.max(all.within());
                        match (runs, since) {
                            (true, Some(began)) => {
                                let waited: u64 = from - began;
                                // (A slice that was nearly over when a plan was made ends early, and begins no other.)
                                let promised = most * SECOND + SECOND / 4;
                                prop_assert!(waited <= promised, "{waited} of {promised}: {}", drawn(&all.plan));
                                (since, most) = (None, all.within());
                            }
                            (false, None) => since = Some(from),
                            _ => {}
                        }
                        if !all.plan.repeats && all.now_ns - all.begins_ns >= all.plan.length().as_nanos() as u64 {
                            all.anew();
                        }
                    }
                    prop_assert!(
                        since.is_none_or(|since| all.now_ns - since <= most * SECOND + SECOND / 4),
                        "{since:?} at {}: {}", all.now_ns, drawn(&all.plan)
                    );
                }
            }
        }
    }
}
