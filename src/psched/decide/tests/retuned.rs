//! Turns whose length is changed while they are taken.

use super::*;
use crate::apteam::Apid;
use crate::apteam::protocol::node::Command;
use std::time::Duration;

/// Takes an event; nodes have every plan that they are told of at once.
fn take(s: &mut Scheduler, at_ns: u64, event: Event) {
    let now = Now { mono_ns: at_ns, wall_ns: at_ns };
    for effect in s.apply(now, event) {
        if let Effect::Command { link, command: Command::Plan(plan) } = effect
            && !plan.agreed
        {
            let report = Box::new(Report::PlanTaken(plan.generation));
            s.apply(now, Event::Report { link, report });
        }
    }
}

/// Lets time pass until then, with every tick that is asked for.
fn pass(s: &mut Scheduler, until_ns: u64) {
    while let Some(at_ns) = s.deadline().filter(|at_ns| *at_ns <= until_ns) {
        take(s, at_ns, Event::Tick);
        assert!(s.deadline().is_none_or(|next| next > at_ns), "it is asked for again and again");
    }
}

/// Two gangs on the same processors of so many apinits; in the middle of a lead cycles become half as long.
fn retuned(apinits: u32) {
    let mut s = Scheduler::new(machine(apinits, 2), with_floors(sharing(2)));
    for nid in 0..apinits {
        link(&mut s, nid.into(), &[nid], &[]);
    }
    for number in [1, 2] {
        take(&mut s, SECOND, posted_at_once(number, 2 * apinits));
        let of = key(number.into(), 1);
        for told in [Report::Launched(of), Report::Running(of)] {
            take(&mut s, SECOND, Event::Report { link: LinkId(0), report: Box::new(told) });
        }
    }
    pass(&mut s, 3_200_000_000);
    let mut settings = with_floors(sharing(2));
    settings.turns.time_slice = Duration::from_millis(500);
    take(&mut s, 3_200_000_000, Event::Settings(Box::new(settings)));
    pass(&mut s, 10 * SECOND);
    let had = |s: &Scheduler, seconds: u64| {
        [1, 2].map(|apid| s.attained(Apid(apid), seconds * SECOND).as_millis())
    };
    let before = had(&s, 10);
    pass(&mut s, 20 * SECOND);
    let after = had(&s, 20);
    let [first, second] = [after[0] - before[0], after[1] - before[1]];
    assert_eq!(first + second, 10_000, "one of them runs all the time");
    assert!(first.abs_diff(7_500) <= 250, "{first} ms and {second} ms");
    let lengths: Vec<Duration> =
        s.plans().flat_map(|plan| plan.slices).map(|slice| slice.length).collect();
    assert_eq!(lengths, [375, 125].map(Duration::from_millis));
}

#[test]
fn cycles_are_shorter_from_then_on() {
    retuned(1);
}

/// Their plans begin later: what is on by then is the former plan from its beginning.
#[test]
fn the_same_on_two_apinits() {
    retuned(2);
}
