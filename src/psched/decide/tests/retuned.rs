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

/// Two gangs on the same processors of so many apinits; at this moment cycles become so long.
fn retuned(apinits: u32, at_ms: u64, slice_ms: u64) {
    let at_ns = at_ms * 1_000_000;
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
    pass(&mut s, at_ns);
    let mut settings = with_floors(sharing(2));
    settings.turns.time_slice = Duration::from_millis(slice_ms);
    take(&mut s, at_ns, Event::Settings(Box::new(settings)));
    pass(&mut s, 10 * SECOND);
    let had = |s: &Scheduler, seconds: u64| {
        [1, 2].map(|apid| s.attained(Apid(apid), seconds * SECOND).as_millis())
    };
    let before = had(&s, 10);
    pass(&mut s, 20 * SECOND);
    let after = had(&s, 20);
    let [first, second] = [after[0] - before[0], after[1] - before[1]];
    let of = format!("{apinits} apinits, {slice_ms} ms from {at_ms} ms on");
    assert_eq!(first + second, 10_000, "one of them runs all the time: {of}");
    let most = first.max(second);
    assert!(most.abs_diff(7_500) <= 250, "{first} ms and {second} ms: {of}");
    let mut lengths: Vec<Duration> =
        s.plans().flat_map(|plan| plan.slices).map(|slice| slice.length).collect();
    // (A plan that was made during a floor may begin with one.)
    lengths.sort_unstable_by(|one, next| next.cmp(one));
    assert_eq!(lengths, [slice_ms / 4 * 3, slice_ms / 4].map(Duration::from_millis), "{of}");
}

/// In each part of a lead and of a floor.
fn retuned_at_each_moment(apinits: u32) {
    for at_ms in (3_000..4_100).step_by(7) {
        for slice_ms in [100, 200, 500] {
            retuned(apinits, at_ms, slice_ms);
        }
    }
}

#[test]
fn cycles_are_as_long_from_then_on() {
    retuned_at_each_moment(1);
}

/// Their plans begin later: what is on by then is the former plan from its beginning.
#[test]
fn the_same_on_two_apinits() {
    retuned_at_each_moment(2);
}
