//! Faults that another system had, and rows of the table of records and nodes, each by name.
//!
//! Each scenario leads a small cluster to the moment at which the fault would show, and says what
//! must be so. `cargo test` plays all of them, `psched torture --scenario NAME` one, with its story.
//!
//! Where the cluster cannot express the fault whole, because the kernel or a socket has a say in it,
//! the scenario is about the decision, and a test on the real programs (named in its comment) about
//! the rest.

use super::play::{Play, Played, expect, sleeps};
use super::program::{PePlan, Plan, Step};
use super::world::World;
use super::{Failure, MS, SECOND, Summary};
use crate::apteam::ending::{Cause, HostEnd, PeEnd};
use crate::apteam::launch::Launch;
use crate::apteam::place::HostAddress;
use crate::apteam::protocol::attach::{FrontReason, NumberedSignal, OutputTaken, ToApinit};
use crate::apteam::protocol::node::Report;
use crate::apteam::protocol::peers::{BarrierOut, Indices, Onward, Pass, PmiEntry, ToPeer};
use crate::apteam::record::State;
use crate::apteam::{Incarnation, Key, Ticket};
use crate::machine::Nid;
use crate::psched::reason::{Obstacle, Reason, Wait};
use std::time::Duration;

/// Three hosts with two nodes of two processors each.
const HOSTS: [&[u32]; 3] = [&[2, 2], &[2, 2], &[2, 2]];
/// All of it.
const ALL: u32 = 12;
const USER: u32 = 1001;
const OTHER: u32 = 1002;

/// One of them.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// What would go wrong.
    pub fault: &'static str,
    /// In how many forms it is played.
    pub forms: u64,
    play: fn(&mut Play, u64) -> Played,
}

const fn scenario(
    name: &'static str,
    fault: &'static str,
    forms: u64,
    play: fn(&mut Play, u64) -> Played,
) -> Scenario {
    Scenario { name, fault, forms, play }
}

/// All of them.
pub const SCENARIOS: [Scenario; 27] = [
    scenario("claimed-uid", "a client's claimed uid is believed", 1, claimed_uid),
    scenario("open-agent-port", "an agent's port lets anybody in", 1, open_agent_port),
    scenario(
        "stale-completion",
        "a stale completion is applied to a newer run",
        5,
        stale_completion,
    ),
    scenario("lost-completion", "a lost completion strands a node", 6, lost_completion),
    scenario(
        "freed-but-held",
        "the controller frees a node that the agent still holds",
        2,
        freed_but_held,
    ),
    scenario("restart-orphans", "an agent's restart orphans what it ran", 3, restart_orphans),
    scenario("sick-node-loop", "work is queued again and again for a sick node", 2, sick_node_loop),
    scenario(
        "missing-transition",
        "two things at the same moment, for which the table of states has no line",
        120,
        missing_transition,
    ),
    scenario("wrong-reason", "the reason given for waiting is not the true one", 1, wrong_reason),
    scenario(
        "stalled-loop",
        "questions are answered while nothing is scheduled any more",
        1,
        stalled_loop,
    ),
    scenario(
        "checkpoint-cut-short",
        "somebody is killed while a checkpoint is made whose application is to end",
        48,
        checkpoint_cut_short,
    ),
    scenario(
        "restart-cut-short",
        "somebody is killed while an application is brought back",
        96,
        restart_cut_short,
    ),
    scenario("restarted-twice", "two restart one checkpoint at once", 1, restarted_twice),
    scenario("row-no-record", "a node has what the records do not: it is ended", 1, row_no_record),
    scenario("row-lost", "the records have running what a node lacks: it is lost", 1, row_lost),
    scenario("row-other-boot", "it died with its host", 1, row_other_boot),
    scenario("row-suspect", "a node that is silent gets nothing and frees nothing", 1, row_suspect),
    scenario(
        "row-older-incarnation",
        "a node has an older incarnation: that one is ended",
        1,
        row_older_incarnation,
    ),
    scenario("row-ended", "the end of what has ended is acknowledged", 2, row_ended),
    scenario("row-ticket", "a ticket goes on for its rest", 1, row_ticket),
    scenario(
        "branch-lost",
        "a host is lost through which others are reached, and they are lost with it",
        120,
        branch_lost,
    ),
    scenario(
        "hostile-head",
        "the head of one application says to other hosts what harms another application",
        4 * HOSTILE,
        hostile_head,
    ),
    scenario(
        "front-elsewhere",
        "an aprun on another host dies, and its application runs on",
        36,
        front_elsewhere,
    ),
    scenario(
        "login-host-away",
        "a login host is away for less than it may be, and its users' applications are ended",
        4,
        login_host_away,
    ),
    scenario(
        "login-host-restarted",
        "a login host is restarted, and nobody says why its users' applications end",
        2,
        login_host_restarted,
    ),
    scenario(
        "slow-reader",
        "an aprun that does not read its output holds up the application of another user",
        6,
        slow_reader,
    ),
    scenario(
        "silent-host",
        "a host does not answer, and the user of its application does not hear why output stays away",
        9,
        silent_host,
    ),
];

/// The scenario of that name.
pub fn named(name: &str) -> Option<Scenario> {
    SCENARIOS.into_iter().find(|s| s.name == name)
}

impl Scenario {
    /// Plays all its forms.
    ///
    /// # Errors
    /// What was not as it must be, with a trace.
    pub fn run(&self) -> Result<Summary, Box<Failure>> {
        let mut counts = super::Counts::default();
        for form in 0..self.forms {
            let (world, played) = self.form(form, 0);
            if let Err(text) = played {
                let (mut again, _) = self.form(form, super::TRACE_LINES as usize);
                let trace = again.as_mut().map(|w| w.trace.take()).unwrap_or_default();
                let line = format!("psched torture --scenario {}", self.name);
                let text = format!("{} (form {form}): {text}", self.name);
                let event = world.map_or(0, |w| w.counts.events);
                return Err(Box::new(Failure { text, trace, line, event }));
            }
            if let Some(world) = world {
                counts.and(&world.counts);
                counts.time_ns += world.now;
            }
        }
        Ok(Summary { counts })
    }

    fn form(&self, form: u64, lines: usize) -> (Option<World>, Played) {
        let mut play = match Play::new(&HOSTS, lines) {
            Ok(play) => play,
            Err(text) => return (None, Err(text)),
        };
        let played = (self.play)(&mut play, form);
        let mut world = play.world;
        if played.is_ok() {
            world.come_to_rest();
        }
        let broken = world.checks.violation().map(str::to_owned);
        // What a checker saw explains more than what the script missed.
        let played = match (broken, played) {
            (Some(text), _) => Err(text),
            (None, played) => played,
        };
        (Some(world), played)
    }
}

/// PEs that write, compute for three seconds, and write again.
fn writes_twice() -> Plan {
    let steps =
        vec![Step::Say(100), Step::Work(3 * SECOND), Step::Say(100), Step::End(PeEnd::Exit(0))];
    Plan { mpi: false, stdin: 0, pes: vec![PePlan { steps, ignores_term: false, bad: None }] }
}

/// An application that has run for a second, and the checkpoint for which it has ended.
fn taken_off(play: &mut Play) -> Result<std::sync::Arc<super::images::Checkpoint>, String> {
    let aprun = play.posts(USER, 4, writes_twice());
    play.until("it runs", |w| w.state_of(aprun) == Some(State::Running) && w.runs(aprun) == 4)?;
    play.pass(SECOND);
    let key = play.world.key_of(aprun).ok_or("no record")?;
    play.world.checkpoint(key, true).ok_or("no checkpoint of it can be made")?;
    play.ends(aprun, 137)?;
    play.world.cpr.last_of(key.apid).ok_or_else(|| "there is no checkpoint".to_owned())
}

/// A checkpoint is asked for, and the application is to end for it. Whoever is killed meanwhile, it ends with
/// 137, and then there is a checkpoint; or it goes on to its end.
fn checkpoint_cut_short(play: &mut Play, form: u64) -> Played {
    let (step, what) = (form / 3, form % 3);
    let aprun = play.posts(USER, 4, writes_twice());
    play.until("it runs", |w| w.state_of(aprun) == Some(State::Running) && w.runs(aprun) == 4)?;
    play.pass(SECOND);
    let key = play.world.key_of(aprun).ok_or("no record")?;
    play.world.checkpoint(key, true).ok_or("no checkpoint of it can be made")?;
    play.pass(step * 4 * MS);
    match what {
        0 => play.world.kill_psched(),
        1 => play.world.kill_apinit(0),
        _ => play.world.shepherd_is_killed(0, key),
    }
    play.until("its aprun exits", |w| w.exit_of(aprun).is_some())?;
    let exit = play.world.exit_of(aprun);
    let lost = what == 2 && exit == Some(125);
    let ended = exit == Some(137) && play.world.cpr.last_of(key.apid).is_some();
    expect("it has ended for its checkpoint, or by itself", exit == Some(0) || ended || lost)
}

/// An application is brought back, and somebody is killed at each step of that: cpr, psched, its apinit, its
/// shepherd. It goes on to its end, or nothing of it is left.
fn restart_cut_short(play: &mut Play, form: u64) -> Played {
    let (step, what) = (form / 4, form % 4);
    let from = taken_off(play)?;
    let cpr = play.world.restarts(&from).ok_or("somebody has the folder")?;
    play.pass(step * 3 * MS);
    let key = play.world.apid_of_front(cpr);
    match (what, key) {
        (0, _) => play.world.front_is_killed(cpr),
        (1, _) => play.world.kill_psched(),
        (2, _) => play.world.kill_apinit(0),
        (_, Some(key)) => play.world.shepherd_is_killed(0, key),
        (_, None) => {}
    }
    if what == 0 {
        return play.until("nothing of it is left", |w| {
            w.used() == 0 && w.procs.is_empty() && w.open_nodes() == 6
        });
    }
    play.until("its cpr exits", |w| w.exit_of(cpr).is_some())?;
    let exit = play.world.exit_of(cpr);
    expect("it has gone on to its end, or was undone", matches!(exit, Some(0 | 125)))?;
    if what == 1 && key.is_some() {
        expect("psched's death does it no harm", exit == Some(0))?;
    }
    play.until("its processors are free", |w| w.used() == 0)
}

/// While one brings it back another is refused; afterwards another may, under another number.
fn restarted_twice(play: &mut Play, _: u64) -> Played {
    let from = taken_off(play)?;
    let first = play.world.restarts(&from).ok_or("somebody has the folder")?;
    expect("a second one is refused", play.world.restarts(&from).is_none())?;
    play.until("it runs", |w| !w.procs.is_empty() && w.procs.values().all(|p| !p.stands))?;
    play.pass(SECOND / 2);
    let second = play.world.restarts(&from).ok_or("the folder is held still")?;
    play.until("both have numbers", |w| {
        let [a, b] = [w.apid_of_front(first), w.apid_of_front(second)];
        a.is_some() && b.is_some() && a != b
    })?;
    play.ends(first, 0)?;
    play.ends(second, 0)
}

/// The place of an aprun that naps, and its ticket, as whoever has stolen it would have them.
fn stolen(play: &Play, aprun: i32) -> Result<(Key, Ticket, Launch), String> {
    let team = play.world.on_disk(aprun).ok_or("no record")?;
    let executable = aprun.to_string().into_bytes();
    Ok((team.key(), team.ticket, Launch { executable, ..Launch::default() }))
}

/// Who somebody is, the kernel says, not he. On the real programs: `two_users` and `namespaces`.
fn claimed_uid(play: &mut Play, _: u64) -> Played {
    let aprun = play.posts_and_naps(USER, 4, sleeps(5 * SECOND), 5 * SECOND)?;
    let (key, ticket, launch) = stolen(play, aprun)?;
    let launch = Box::new(launch);
    play.stranger_says(0, OTHER, vec![ToApinit::Launch { key, ticket, launch }]);
    play.throughout(2 * SECOND, "nobody else launches it", |w| w.runs(aprun) == 0)?;
    play.until("it runs", |w| w.runs(aprun) == 4)?;
    play.stranger_says(
        0,
        OTHER,
        vec![
            ToApinit::Resume { key, ticket, taken: vec![] },
            ToApinit::Terminate { reason: FrontReason::Gone, kill_after: Duration::ZERO },
        ],
    );
    play.world.psched_kill(None, key.apid, 9, OTHER);
    play.throughout(SECOND, "nobody else ends it", |w| w.runs(aprun) == 4)?;
    play.ends(aprun, 0)
}

/// An apinit launches what psched has placed on it, for whoever has the ticket; and on a host that
/// is not the head's, for another apinit. On the real programs: `apinit::*`, and the socket's owner.
fn open_agent_port(play: &mut Play, _: u64) -> Played {
    let aprun = play.posts_and_naps(USER, ALL, sleeps(5 * SECOND), 5 * SECOND)?;
    let (key, ticket, launch) = stolen(play, aprun)?;
    let launch = Box::new(launch);
    let with =
        |key: Key, ticket: Ticket| vec![ToApinit::Launch { key, ticket, launch: launch.clone() }];
    // Without the ticket; as one's own, on a node that is not the head's; of what nobody placed.
    play.stranger_says(0, USER, with(key, Ticket([7; 16])));
    play.stranger_says(1, USER, with(key, ticket));
    let never = Key { apid: crate::apteam::Apid(77), incarnation: Incarnation(1) };
    play.stranger_says(0, USER, with(never, ticket));
    // As a head, which no user is: on each host.
    for slot in 0..HOSTS.len() {
        let launch = ToPeer::Launch { key, ticket, launch: launch.clone() };
        play.stranger_says_as_head(slot, USER, vec![launch, ToPeer::Go]);
    }
    play.stranger_says_as_head(0, USER, vec![ToPeer::Go]);
    play.throughout(3 * SECOND, "nobody gets anything executed", |w| w.procs.is_empty())?;
    play.ends(aprun, 0)
}

/// The first place of a posting lapses and it gets a second: what was said of the first comes again.
fn stale_completion(play: &mut Play, form: u64) -> Played {
    let aprun = play.posts_and_naps(USER, 2, sleeps(20 * SECOND), 15 * SECOND)?;
    play.until("its place is taken back", |w| w.state_of(aprun) == Some(State::Lapsed))?;
    let first = play.world.key_of(aprun).ok_or("no record")?;
    play.until("it runs", |w| w.state_of(aprun) == Some(State::Running) && w.runs(aprun) == 2)?;
    let second = play.world.key_of(aprun).ok_or("no record")?;
    expect("it runs as its second incarnation", second.incarnation > first.incarnation)?;
    let end = HostEnd { key: first, nids: vec![Nid(0)], ..HostEnd::default() };
    let report = match form {
        0 => Report::Ended(Box::new(end)),
        1 => Report::TakenBack { key: first, number: 1 },
        2 => Report::Launched(first),
        3 => Report::Running(first),
        _ => Report::Stuck { key: first, nid: Nid(0), processes: vec!["pid 1".into()] },
    };
    play.report_comes(0, report)?;
    play.throughout(2 * SECOND, "it runs on, and is recorded so", |w| {
        w.runs(aprun) == 2 && w.state_of(aprun) == Some(State::Running) && w.used() == 2
    })?;
    let stuck = play.world.psched.as_ref().map(|p| p.driver.scheduler().stuck_of(second.apid));
    expect("nothing of it is stuck", stuck.as_deref() == Some(""))?;
    play.ends(aprun, 0)
}

/// Every end of an application is told once and lost.
fn lost_completion(play: &mut Play, form: u64) -> Played {
    let aprun = play.posts(USER, 2, sleeps(5 * SECOND));
    play.until("it runs", |w| w.runs(aprun) == 2)?;
    play.until("its PEs have ended", |w| w.runs(aprun) == 0)?;
    match form {
        // The report is lost on its way; or its answer; or one of those who talk dies.
        0..=2 => {
            let late = [MS, 2 * MS, 4 * MS][form as usize];
            play.pass(late);
            play.lose_link(0);
        }
        3 => play.cut_off(1, 8 * SECOND),
        4 => play.world.kill_psched(),
        _ => play.world.kill_apinit(0),
    }
    play.until("the node is free again", |w| w.used() == 0 && w.open_nodes() == 6)?;
    play.ends(aprun, 0)?;
    let next = play.posts(USER, ALL, sleeps(SECOND));
    play.ends(next, 0)
}

/// psched hears nothing of a host for a while. What runs there, runs, and its processors are not
/// given away; nor are those of a place that is being taken back before the host has said so.
fn freed_but_held(play: &mut Play, form: u64) -> Played {
    if form == 0 {
        let first = play.posts(USER, ALL, sleeps(40 * SECOND));
        play.until("it runs", |w| w.runs(first) == ALL as usize)?;
        let second = play.posts(USER, ALL, sleeps(SECOND));
        play.cut_off(2, 20 * SECOND);
        play.throughout(25 * SECOND, "its processors are its own", |w| {
            w.used() == ALL && w.runs(first) == ALL as usize && w.runs(second) == 0
        })?;
        play.ends(first, 0)?;
        return play.ends(second, 0);
    }
    // A place on hosts 1 to 3, whose ticket lapses while host 3 can't be asked.
    let first = play.posts_and_naps(USER, ALL, sleeps(SECOND), 60 * SECOND)?;
    let second = play.posts(OTHER, ALL, sleeps(SECOND));
    play.cut_off(3, 20 * SECOND);
    play.throughout(19 * SECOND, "nothing is placed where a host may hold it", |w| {
        w.used() == ALL && w.runs(second) == 0
    })?;
    expect("it is being taken back", play.world.state_of(first) == Some(State::TakingBack))?;
    play.ends(second, 0)?;
    play.ends(first, 0)
}

/// apinit is killed while an application runs, or while it ends, or again and again; or where its
/// part has ended and others go on.
fn restart_orphans(play: &mut Play, form: u64) -> Played {
    if form == 3 {
        let early = sleeps(SECOND).pes.into_iter().cycle().take(4);
        let late = sleeps(10 * SECOND).pes.into_iter().cycle().take(8);
        let plan = Plan { mpi: false, stdin: 0, pes: early.chain(late).collect() };
        let aprun = play.posts(USER, ALL, plan);
        play.until("the first host's PEs have run", |w| w.runs(aprun) == 12)?;
        play.until("their end is on record", |w| {
            w.on_disk(aprun).is_some_and(|t| t.end.as_ref().is_some_and(|e| e.nids.len() == 2))
        })?;
        play.pass(SECOND);
        play.world.kill_apinit(0);
        play.throughout(5 * SECOND, "the others run on", |w| w.runs(aprun) == 8)?;
        return play.ends(aprun, 0);
    }
    let aprun = play.posts(USER, ALL, sleeps(10 * SECOND));
    play.until("it runs", |w| w.runs(aprun) == ALL as usize)?;
    match form {
        0 => (0..3).for_each(|slot| play.world.kill_apinit(slot)),
        // It ends while nobody looks.
        1 => {
            play.pass(10 * SECOND - 2 * MS);
            (0..3).for_each(|slot| play.world.kill_apinit(slot));
        }
        _ => {
            for _ in 0..10 {
                (0..3).for_each(|slot| play.world.kill_apinit(slot));
                play.pass(5 * SECOND / 4);
            }
        }
    }
    if form == 0 {
        play.throughout(5 * SECOND, "it runs on", |w| w.runs(aprun) == ALL as usize)?;
    }
    play.ends(aprun, 0)
}

/// No shepherd can be started on a host. Whoever is placed there is told so, once: its aprun ends, or its
/// application goes elsewhere.
fn sick_node_loop(play: &mut Play, form: u64) -> Played {
    play.world.slots[0].sick = true;
    if form == 1 {
        return sick_node_left(play);
    }
    let before = play.world.counts.heard;
    let unlucky = play.posts(USER, 2, sleeps(SECOND));
    play.ends(unlucky, 125)?;
    let key = play.world.key_of(unlucky).ok_or("no record")?;
    expect("it was placed once", key.incarnation == Incarnation(1))?;
    play.pass(60 * SECOND);
    expect("nothing goes round", play.world.counts.heard < before + 200)?;
    expect("the node is free", play.world.used() == 0)?;
    // Those who need no sick node run; the cure is enough for the others.
    let filler = play.posts(USER, 4, sleeps(SECOND));
    play.ends(filler, 125)?;
    play.world.slots[0].sick = false;
    let well = play.posts(USER, ALL, sleeps(SECOND));
    play.ends(well, 0)
}

/// Two users' applications are tried again elsewhere, until the node is drained. One user's do not drain it.
fn sick_node_left(play: &mut Play) -> Played {
    for user in [USER, USER, USER, USER, OTHER] {
        let closed = play.world.psched.as_ref().is_some_and(|p| {
            let s = p.driver.scheduler();
            s.nodes().any(|node| s.closed(node.node.nid).is_some())
        });
        expect("one user drains no node", !closed)?;
        let unlucky = play.posts_and_retries(user, 2, sleeps(SECOND));
        play.ends(unlucky, 0)?;
        let key = play.world.key_of(unlucky).ok_or("no record")?;
        expect("it was launched twice", key.incarnation == Incarnation(3))?;
    }
    let closed = play.world.psched.as_ref().and_then(|p| p.driver.scheduler().closed(Nid(0)));
    expect("two users' drain it", closed.is_some_and(|order| order.by.name == "psched"))
}

/// At the moment when a ticket lapses, a little before and a little after, its aprun launches, or
/// dies, or is interrupted, or psched is killed; and one of the hosts can't be asked just then.
fn missing_transition(play: &mut Play, form: u64) -> Played {
    let (step, what) = (form / 4, form % 4);
    // psched's ticket is good for ten seconds.
    let aprun =
        play.posts_and_naps(USER, ALL, sleeps(SECOND), 10 * SECOND - 3 * MS + step * MS / 5)?;
    play.pass(10 * SECOND - 3 * MS);
    match what {
        0 => {}
        1 => play.cut_off(2, 5 * SECOND),
        2 => {
            play.pass(step * MS / 5);
            play.world.kill_psched();
        }
        _ => {
            play.pass(step * MS / 5);
            play.world.kill_apinit(1);
        }
    }
    // A launch that came to one node while others had given their place back is over.
    play.until("its aprun exits", |w| w.exit_of(aprun).is_some())?;
    let cause = play.world.cause_of(aprun);
    let crossed = cause.contains("has not placed application") || cause.is_empty();
    expect(&format!("it ends well, or the launch came too late: {cause}"), crossed)
}

/// psched says who stands in the way; when that one goes, the posting that waits goes in.
fn wrong_reason(play: &mut Play, _: u64) -> Played {
    let small = play.posts(USER, 2, sleeps(20 * SECOND));
    play.until("it runs", |w| w.runs(small) == 2)?;
    let wide = play.posts(OTHER, ALL, sleeps(5 * SECOND));
    play.pass(SECOND);
    let full = |why: &Reason| match &why.obstacle {
        Obstacle::Waits(Wait::Full(full)) => Ok(full.clone()),
        _ => Err(format!("nobody is in its way: {why}")),
    };
    let why = play.why(wide)?;
    let apid = play.world.apid_of(small).ok_or("no number")?;
    expect(&format!("it names who holds it: {why}"), full(&why)?.no_room.holders == [apid])?;
    // A host goes away: that is another reason, and the first one is still one.
    play.cut_off(3, 10 * SECOND);
    play.until("psched notices", |w| w.open_nodes() < 6)?;
    let why = play.why(wide)?;
    expect(&format!("it names the nodes: {why}"), !full(&why)?.shut.silent.is_empty())?;
    play.ends(small, 0)?;
    play.ends(wide, 0)?;
    // Somebody later fits now, and somebody earlier does not.
    let first = play.posts(USER, 10, sleeps(10 * SECOND));
    play.until("it runs", |w| w.runs(first) == 10)?;
    let second = play.posts(USER, 4, sleeps(SECOND));
    play.pass(SECOND);
    play.why(second)?;
    let third = play.posts(OTHER, 2, sleeps(SECOND));
    play.ends(third, 0)?;
    play.ends(second, 0)?;
    play.ends(first, 0)
}

/// The disk takes nothing for a minute, or psched is stopped: what could be answered in that time
/// must not hide that nothing is scheduled, and afterwards everything goes on at once. On the real
/// programs: psched answers from its loop alone, and systemd's watchdog hears of the loop.
fn stalled_loop(play: &mut Play, _: u64) -> Played {
    let first = play.posts(USER, ALL, sleeps(10 * SECOND));
    play.until("it runs", |w| w.runs(first) == ALL as usize)?;
    let second = play.posts(OTHER, ALL, sleeps(SECOND));
    play.until("it waits", |w| w.state_of(second) == Some(State::Posted))?;
    play.world.disk.full = true;
    play.until("the first has ended", |w| w.runs(first) == 0)?;
    play.throughout(30 * SECOND, "nothing leaves before its record", |w| w.runs(second) == 0)?;
    play.world.disk.full = false;
    let free = play.world.now;
    play.until("the second runs", |w| w.runs(second) == ALL as usize)?;
    expect("it was placed within a second", play.world.now < free + SECOND)?;
    play.ends(first, 0)?;
    play.ends(second, 0)
}

/// An application's record is lost. (Were it the newest, psched's state would be an old copy.)
fn row_no_record(play: &mut Play, _: u64) -> Played {
    let aprun = play.posts(USER, 2, sleeps(100 * SECOND));
    play.until("it runs", |w| w.runs(aprun) == 2)?;
    let other = play.posts(USER, 2, sleeps(100 * SECOND));
    play.until("another runs", |w| w.runs(other) == 2)?;
    let apid = play.world.apid_of(aprun).ok_or("no number")?;
    play.world.psched_gone();
    play.world.disk.teams.remove(&apid);
    play.world.checks.forgotten(apid);
    play.world.psched_start();
    play.until("it is ended", |w| w.runs(aprun) == 0 && w.procs.len() == 2)?;
    play.ends(aprun, 125)?;
    play.ends(other, 0)
}

/// The runtime directory of an apinit is removed, and all that was in it ended.
fn row_lost(play: &mut Play, _: u64) -> Played {
    let aprun = play.posts(USER, ALL, sleeps(100 * SECOND));
    play.until("it runs", |w| w.runs(aprun) == ALL as usize)?;
    let key = play.world.key_of(aprun).ok_or("no record")?;
    play.world.kill_apinit(1);
    let own = |w: &World| w.sheps.iter().find(|(_, s)| s.slot == 1).map(|(pid, _)| *pid);
    let shepherd = own(&play.world).ok_or("no shepherd")?;
    play.world.kill_shepherd(shepherd);
    play.world.kill_group(1, key);
    play.world.slots[1].apps.clear();
    play.world.groups.retain(|(slot, _), _| *slot != 1);
    play.ends(aprun, 125)?;
    let cause = play.world.cause_of(aprun);
    expect(&format!("it says on which NID: {cause}"), cause.contains("NID 2"))
}

/// A host loses power and comes back.
fn row_other_boot(play: &mut Play, _: u64) -> Played {
    let aprun = play.posts(USER, ALL, sleeps(100 * SECOND));
    play.until("it runs", |w| w.runs(aprun) == ALL as usize)?;
    play.world.checks_apps_of_slot(2);
    play.world.host_down(3);
    play.throughout(30 * SECOND, "nothing is freed while it is away", |w| w.used() == ALL)?;
    play.world.host_up(3);
    play.ends(aprun, 125)?;
    let cause = play.world.cause_of(aprun);
    expect(&format!("it says that the host went: {cause}"), cause.contains("restarted"))
}

/// An apinit is away.
fn row_suspect(play: &mut Play, _: u64) -> Played {
    play.world.apinit_gone(0);
    play.until("psched notices", |w| w.open_nodes() == 4)?;
    let fits = play.posts(USER, 8, sleeps(SECOND));
    let waits = play.posts(USER, 9, sleeps(SECOND));
    play.ends(fits, 0)?;
    play.throughout(20 * SECOND, "nothing is placed there", |w| w.runs(waits) == 0)?;
    play.world.apinit_start(0);
    play.ends(waits, 0)
}

/// The record has gone on without the node: psched was given back a later copy of its state.
fn row_older_incarnation(play: &mut Play, _: u64) -> Played {
    let aprun = play.posts_and_naps(USER, 2, sleeps(SECOND), 5 * SECOND)?;
    let apid = play.world.apid_of(aprun).ok_or("no number")?;
    play.world.psched_gone();
    if let Some(team) = play.world.disk.teams.get_mut(&apid) {
        team.incarnation = Incarnation(2);
    }
    play.world.psched_start();
    play.until("the node has the new one alone", |w| {
        let apps: Vec<u32> = w.slots[0].apps.keys().map(|k| k.incarnation.0).collect();
        apps == [2] && w.sheps.len() == 1
    })?;
    play.ends(aprun, 0)
}

/// psched dies with the end on its disk before a node has heard that it is.
fn row_ended(play: &mut Play, form: u64) -> Played {
    let aprun = play.posts(USER, 2, sleeps(SECOND));
    play.until("its end is on the disk", |w| {
        w.on_disk(aprun).is_some_and(|t| t.state == State::Ended)
    })?;
    match form {
        0 => play.world.kill_psched(),
        _ => play.lose_link(0),
    }
    play.until("the node has forgotten it", |w| w.slots[0].apps.is_empty())?;
    play.ends(aprun, 0)
}

/// A place that nobody has launched yet: neither psched's restart nor a node's gives it more time.
fn row_ticket(play: &mut Play, _: u64) -> Played {
    let placed = play.world.now;
    let aprun = play.posts_and_naps(USER, 2, sleeps(SECOND), 30 * SECOND)?;
    play.pass(4 * SECOND);
    play.world.psched_gone();
    play.world.kill_apinit(0);
    play.pass(3 * SECOND);
    play.world.psched_start();
    play.until("its place is taken back", |w| w.state_of(aprun) == Some(State::Lapsed))?;
    let time = play.world.now - placed;
    expect("after its ten seconds", (10 * SECOND..11 * SECOND).contains(&time))?;
    play.ends(aprun, 0)
}

/// The head speaks with the second host alone, which leads on to the third. While an MPI program is launched, meets in
/// barriers, writes and ends, the apinit of the second is killed, or what is between it and the third breaks, or the
/// head is killed. It ends as without that.
fn branch_lost(play: &mut Play, form: u64) -> Played {
    let (step, what) = (form / 3, form % 3);
    let round = [Step::Put, Step::Barrier, Step::Get, Step::Say(100), Step::Barrier];
    let mut steps = vec![Step::Init];
    (0..2).for_each(|_| steps.extend(round.iter().cloned()));
    steps.extend([Step::Finalize, Step::End(PeEnd::Exit(0))]);
    let pe = PePlan { steps, ignores_term: false, bad: None };
    let aprun = play.posts(USER, ALL, Plan { mpi: true, stdin: 0, pes: vec![pe] });
    play.until("the second host leads on", |w| w.leads_on(1))?;
    play.pass(step * step * MS / 40);
    match what {
        0 => play.world.kill_apinit(1),
        1 => play.lose_peers(1),
        _ => play.world.kill_apinit(0),
    }
    play.ends(aprun, 0)
}

/// What a hostile head says, in so many ways.
const HOSTILE: u64 = 14;

/// Root of the host of PE 0 of one user's application has its apinit say anything to the other
/// hosts, before the launch of this application or while it runs. That may harm its own
/// application. That of another user, on some of the same hosts, does not notice, and its hosts are
/// not led on to.
fn hostile_head(play: &mut Play, form: u64) -> Played {
    let (launched, (kind, slot)) = (form % 2 == 1, (form / 2 / 2, 1 + (form / 2 % 2) as usize));
    let round =
        [Step::Put, Step::Barrier, Step::Get, Step::Say(100), Step::Work(SECOND), Step::Barrier];
    let mut steps = vec![Step::Init];
    (0..5).for_each(|_| steps.extend(round.iter().cloned()));
    steps.extend([Step::Finalize, Step::End(PeEnd::Exit(0))]);
    let pe = PePlan { steps, ignores_term: false, bad: None };
    let plan = Plan { mpi: true, stdin: 0, pes: vec![pe] };
    // On the hosts 0 and 1, and on the hosts 1 and 2.
    let own = play.posts_and_naps(USER, ALL / 2, plan.clone(), 2 * SECOND)?;
    let other = play.posts(OTHER, ALL / 2, plan);
    play.until("the other one runs", |w| w.runs(other) == 6)?;
    if launched {
        play.until("its own runs", |w| w.runs(own) == 6)?;
    }
    let ((key, ticket, launch), theirs) = (stolen(play, own)?, stolen(play, other)?.0);
    for key in [key, theirs] {
        let team = play.world.disk.teams.get(&key.apid).ok_or("no record")?;
        let nids: Vec<u32> = team.places.nids().map(|nid| nid.0).collect();
        let wanted = if key == theirs { [3, 4, 5] } else { [0, 1, 2] };
        expect("each has its half", nids == wanted)?;
    }
    let at = |index, slot| {
        let socket = super::apinit::Slot::socket(slot);
        Onward { index, at: HostAddress { socket, ..HostAddress::default() } }
    };
    let lead = |key, index, hosts| ToPeer::Lead { key, index, fan_out: 1, hosts };
    let resume = |key| ToPeer::Resume { key, ticket, taken: vec![] };
    let pass = |runs: &[(u32, u32)], message| {
        ToPeer::Pass(Box::new(Pass { to: Indices(runs.to_vec()), message }))
    };
    let end = |generation, piece| {
        let entry = PmiEntry { key: "P0-businesscard".into(), value: "nowhere".into() };
        ToPeer::BarrierOut(BarrierOut { generation, piece, last: true, entries: vec![entry] })
    };
    let kill = || ToPeer::Terminate { cause: Cause::FrontGone, kill_after: Duration::ZERO };
    let signal = |number| ToPeer::Signal(NumberedSignal { number, signal: 9 });
    let all = (0, u32::MAX);
    let says = match kind {
        0 => vec![
            lead(key, 1, vec![]),
            lead(key, 1, vec![at(2, 2)]),
            resume(key),
            lead(key, 1, vec![at(2, 2)]),
        ],
        1 => vec![lead(key, 1, vec![at(2, 2)]), resume(key), pass(&[(2, 1)], kill())],
        2 => vec![lead(theirs, 1, vec![at(2, 2)]), resume(key), pass(&[(2, 1)], kill())],
        3 => vec![
            lead(key, 1, vec![]),
            resume(key),
            pass(&[(2, u32::MAX)], kill()),
            pass(&[(u32::MAX, u32::MAX)], ToPeer::Go),
        ],
        4 => vec![resume(key), end(u64::MAX, 0), end(0, u32::MAX), end(99, 0), end(99, 7)],
        5 => vec![ToPeer::Go, resume(key), ToPeer::Go],
        6 => vec![resume(key), ToPeer::Go, ToPeer::Go, resume(key), ToPeer::Go],
        7 => vec![resume(theirs), kill(), signal(1)],
        8 => {
            let launch = Box::new(launch);
            vec![ToPeer::Launch { key: theirs, ticket, launch }, kill(), signal(1), ToPeer::Go]
        }
        9 => vec![resume(key), resume(theirs), signal(1), signal(u64::MAX), kill()],
        10 => {
            let hosts = vec![at(u32::MAX, 2), at(u32::MAX, 1)];
            vec![lead(key, u32::MAX, hosts), resume(key), pass(&[all, all], kill())]
        }
        11 => {
            let taken = OutputTaken { source: u32::MAX, offset: u64::MAX };
            let resume = ToPeer::Resume { key, ticket, taken: vec![taken; 100] };
            vec![
                resume,
                ToPeer::OutputTaken(taken),
                ToPeer::OutputTaken(OutputTaken { source: 1, ..taken }),
            ]
        }
        12 => vec![lead(key, 1, vec![at(0, 0), at(1, 1)]), resume(key), pass(&[all], kill())],
        _ => vec![
            pass(&[all], resume(key)),
            pass(&[all], kill()),
            lead(key, 1, vec![at(2, 2)]),
            resume(key),
        ],
    };
    play.world.hostile_head_says(0, slot, key, says);
    play.throughout(2 * SECOND, "the other one runs, and no host of it is led on to", |w| {
        w.runs(other) == 6 && !w.leads_on_for(1, key) && !w.leads_on_for(2, key)
    })?;
    play.ends(other, 0)?;
    play.until("its own ends", |w| w.exit_of(own).is_some())
}

/// Where a front end is in these scenarios: on a host that has nodes, or on one that has none.
fn elsewhere(play: &mut Play, form: u64) -> Result<usize, String> {
    let mere = play.login_host()?;
    Ok(if form.is_multiple_of(2) { mere } else { 3 })
}

/// An aprun on another host is killed while its posting waits, while it has a place and is stopped,
/// or while its application runs; and meanwhile nothing else happens, the login link breaks, its
/// apinit dies, psched dies, or the host is cut off from psched. Its application ends, and its
/// processors are free.
fn front_elsewhere(play: &mut Play, form: u64) -> Played {
    let (host, when, what) = (elsewhere(play, form)?, form / 2 % 3, form / 6);
    let long = sleeps(3_600 * SECOND);
    let before = (when == 0).then(|| play.posts(OTHER, ALL, sleeps(40 * SECOND)));
    if let Some(before) = before {
        play.until("another one runs", |w| w.runs(before) == ALL as usize)?;
    }
    let aprun = play.posts_at(host, USER, 6, long);
    play.until("the posting is on record", |w| w.on_disk(aprun).is_some())?;
    match when {
        0 => play.pass(SECOND),
        1 => {
            let until = play.world.now + 5 * SECOND;
            play.world.nap(aprun, until);
            play.until("it has a place", |w| {
                w.on_disk(aprun).is_some_and(|t| t.state != State::Posted)
            })?;
        }
        _ => play.until("it runs", |w| w.runs(aprun) == 6)?,
    }
    match what {
        1 => play.lose_login(host),
        2 => {
            play.world.login_gone(host);
            play.world.after(2 * SECOND, super::world::Ev::LoginStart(host));
        }
        3 => play.world.kill_psched(),
        4 => play.world.cut_off_login(host, 20 * SECOND),
        5 => play.world.stop_login(host, play.world.now + 8 * SECOND),
        _ => {}
    }
    play.world.front_gone(aprun, None);
    let ended = |w: &World| {
        w.on_disk(aprun).is_none_or(|team| team.state == State::Ended) && w.runs(aprun) == 0
    };
    play.until("its application has ended", ended)?;
    match before {
        Some(before) => play.ends(before, 0),
        None => play.until("its processors are free", |w| w.used() == 0),
    }
}

/// A login host is cut off from psched for less than `login_host_away`, while an application of a
/// user there runs and another one waits, and its apinit may be killed meanwhile. Nothing is ended.
/// Away for longer, the one that waits is ended, and psched names the host.
fn login_host_away(play: &mut Play, form: u64) -> Played {
    let (killed, long) = (form % 2 == 1, form / 2 == 1);
    let host = play.login_host()?;
    let bound = super::logins::AWAY_MAX;
    let runs = play.posts_at(host, USER, ALL, sleeps(bound + 30 * SECOND));
    play.until("it runs", |w| w.runs(runs) == ALL as usize)?;
    let waits = play.posts_at(host, OTHER, ALL, sleeps(SECOND));
    play.until("another one waits, and knows it", |w| w.apid_of_front(waits).is_some())?;
    play.world.cut_off_login(host, if long { bound + 25 * SECOND } else { bound - 25 * SECOND });
    if killed {
        play.pass(5 * SECOND);
        play.world.login_gone(host);
        play.world.after(SECOND, super::world::Ev::LoginStart(host));
    }
    if long {
        play.until("the one that waits has ended", |w| {
            w.on_disk(waits).is_some_and(|team| team.state == State::Ended)
        })?;
        expect("while its host is away", play.world.is_cut(0, host))?;
        expect("and the other one runs", play.world.exit_of(runs).is_none())?;
        let named = |text: &String| text.contains("the login host front1 has been away for 1m");
        return expect("psched names the host", play.world.checks.warnings.iter().any(named));
    }
    play.ends(runs, 0)?;
    play.ends(waits, 0)
}

/// A login host loses power for a moment, while an application of a user there runs or waits. It
/// ends, and psched names the host.
fn login_host_restarted(play: &mut Play, form: u64) -> Played {
    let host = play.login_host()?;
    let before = (form == 1).then(|| play.posts(OTHER, ALL, sleeps(40 * SECOND)));
    let aprun = play.posts_at(host, USER, ALL, sleeps(3_600 * SECOND));
    play.until("it is on record", |w| w.on_disk(aprun).is_some())?;
    if before.is_none() {
        play.until("it runs", |w| w.runs(aprun) == ALL as usize)?;
    }
    play.world.host_down(host);
    play.pass(3 * SECOND);
    play.world.host_up(host);
    let ended = |w: &World| w.on_disk(aprun).is_some_and(|team| team.state == State::Ended);
    play.until("its application has ended", ended)?;
    let named = |text: &String| {
        text.contains("the login host front1 was restarted: the aprun of 1 application there")
    };
    expect("psched names the host", play.world.checks.warnings.iter().any(named))?;
    match before {
        Some(before) => play.ends(before, 0),
        None => Ok(()),
    }
}

/// Two applications on the same hosts write much. The aprun of one, on this host or that, does not
/// read for half a minute. The other one is not held up; the first has all that was written when it
/// reads again, also if its apinit or the one of PE 0 dies meanwhile.
fn slow_reader(play: &mut Play, form: u64) -> Played {
    let (place, what) = (form % 2, form / 2);
    let mere = play.login_host()?;
    let host = if place == 0 { 0 } else { mere };
    let mut steps: Vec<Step> = (0..24).map(|_| Step::Say(64 * 1024)).collect();
    steps.push(Step::End(PeEnd::Exit(0)));
    let plan = |width: usize| {
        let pe = PePlan { steps: steps.clone(), ignores_term: false, bad: None };
        Plan { mpi: false, stdin: 0, pes: vec![pe; width] }
    };
    let spread = |posting: &mut crate::apteam::posting::Posting| posting.shape.per_node = Some(1);
    let slow = play.posts_at_as(host, USER, 6, plan(6), spread);
    play.until("it runs", |w| w.runs(slow) == 6)?;
    let begun = play.world.now;
    play.world.nap(slow, begun + 30 * SECOND);
    let other = play.posts_at_as(host, OTHER, 6, plan(6), spread);
    play.until("the other one has ended", |w| w.exit_of(other).is_some())?;
    expect("well", play.world.exit_of(other) == Some(0))?;
    expect("without the first", play.world.now < begun + 15 * SECOND)?;
    expect("which is held up", play.world.runs(slow) == 6)?;
    // (An apinit of PE 0 that has no aprun on a stream waits ten seconds for it.)
    play.pass(begun + 28 * SECOND - play.world.now);
    match what {
        0 => {}
        1 => play.world.kill_apinit(0),
        _ => play.lose_relay(slow),
    }
    play.ends(slow, 0)
}

/// The cable of a host of an application is out: of the host on which the head leads on, of the one
/// beyond, or of both one after the other; for a moment, for 30 s, or for 30 s while the apinit of
/// the head is killed. A line tells of it, and one of its end; of a moment nothing does.
fn silent_host(play: &mut Play, form: u64) -> Played {
    let (slots, how): (&[usize], _) = match form % 3 {
        0 => (&[1], form / 3),
        1 => (&[2], form / 3),
        _ => (&[1, 2], form / 3),
    };
    let aprun = play.posts(USER, ALL, sleeps(100 * SECOND));
    play.until("it runs", |w| w.runs(aprun) == ALL as usize)?;
    let time = if how == 0 { 200 * MS } else { 30 * SECOND };
    for slot in slots {
        play.cut_off_peers(*slot, time);
    }
    let lines = |w: &World, words: &str| {
        let of_hosts = |line: &&String| line.starts_with("aprun: NID") && line.contains(words);
        w.checks.all_said_by(aprun).iter().filter(of_hosts).count()
    };
    let (silent, again) = ("not answer; ", " again");
    if how == 0 {
        play.throughout(20 * SECOND, "of a moment nothing is told", |w| lines(w, "NID") == 0)?;
        return play.ends(aprun, 0);
    }
    let begun = play.world.now;
    play.until("it is told", |w| lines(w, silent) > 0)?;
    expect("soon", play.world.now < begun + 12 * SECOND)?;
    if how == 2 {
        play.world.kill_apinit(0);
    }
    play.until("it is told that it is back", |w| lines(w, again) > 0)?;
    expect("not before it is", play.world.now >= begun + time)?;
    play.ends(aprun, 0)?;
    // (Both are lost in one moment, but not found again in one.)
    let most = slots.len();
    let told = [silent, again].map(|words| lines(&play.world, words));
    expect(&format!("each is told once: {told:?}"), told.iter().all(|lines| *lines <= most))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each by its name.
    macro_rules! scenarios {
        ($($test:ident: $name:literal,)*) => {
            $(#[test]
            fn $test() {
                let scenario = named($name).expect("it is in the list");
                scenario.run().unwrap_or_else(|failure| panic!("{failure}"));
            })*

            #[test]
            fn every_scenario_is_a_test() {
                let tested = [$($name),*];
                let all: Vec<&str> = SCENARIOS.iter().map(|s| s.name).collect();
                assert_eq!(all, tested);
            }
        };
    }

    scenarios! {
        a_claimed_uid_is_not_believed: "claimed-uid",
        an_agents_port_lets_nobody_in: "open-agent-port",
        a_stale_completion_has_no_effect_on_a_newer_run: "stale-completion",
        a_lost_completion_strands_no_node: "lost-completion",
        a_node_that_the_agent_holds_is_not_freed: "freed-but-held",
        an_agents_restart_orphans_nothing: "restart-orphans",
        nothing_is_queued_again_for_a_sick_node: "sick-node-loop",
        no_transition_is_missing_from_the_table: "missing-transition",
        the_pending_reason_is_true: "wrong-reason",
        the_loop_does_not_stall_behind_its_answers: "stalled-loop",
        a_checkpoint_that_is_cut_short_ends_nobody: "checkpoint-cut-short",
        a_restart_that_is_cut_short_goes_on_or_is_undone: "restart-cut-short",
        of_two_restarts_of_one_checkpoint_one_is_refused: "restarted-twice",
        what_no_record_names_is_ended: "row-no-record",
        what_a_node_has_lost_ends: "row-lost",
        what_another_boot_has_ended_ends: "row-other-boot",
        a_silent_node_gets_nothing_and_frees_nothing: "row-suspect",
        an_older_incarnation_is_ended: "row-older-incarnation",
        the_end_of_what_has_ended_is_acknowledged: "row-ended",
        a_ticket_goes_on_for_its_rest: "row-ticket",
        a_host_on_the_way_is_lost_alone: "branch-lost",
        a_hostile_head_harms_its_own_application_alone: "hostile-head",
        nothing_runs_on_for_an_aprun_that_died_elsewhere: "front-elsewhere",
        a_login_host_may_be_away_for_a_while: "login-host-away",
        what_a_restarted_login_host_leaves_behind_is_named: "login-host-restarted",
        a_slow_reader_holds_up_its_own_writers_alone: "slow-reader",
        the_user_of_a_silent_host_is_told_once: "silent-host",
    }
}
