//! Applications that come from a checkpoint: their steps, their one host, their time and their number.

use super::decided::{Play, settings};
use super::*;
use crate::apteam::Apid;
use crate::apteam::protocol::node::Command;
use crate::apteam::protocol::node::Restart;
use crate::apteam::record::State;

const RUN: Duration = Duration::from_secs(900);

fn origin() -> Origin {
    Origin::Running(Restart { from: key(7, 2), run: RUN, parts: Vec::new() })
}

/// A posting of one that ran, or that waited.
fn restarted(number: u8, width: u32, origin: Origin) -> Event {
    let Event::Posted { reply, mut posting, owner, front, secret } = posted(number, width) else {
        unreachable!()
    };
    posting.brings_images = true;
    Event::Restarted { reply, posting, owner, front, secret, origin }
}

fn waited(apid: u64, free: Option<u32>) -> Origin {
    Origin::Waiting { apid: Apid(apid), free: free.map(crate::apteam::Incarnation) }
}

fn accepted(effects: &[Effect]) -> Option<u64> {
    effects.iter().find_map(|effect| match effect {
        Effect::Accept { apid, .. } => Some(apid.0),
        _ => None,
    })
}

#[test]
fn each_step_is_recorded_and_in_the_log() {
    let mut s = ready(2, 2);
    let effects = s.apply(at(1), restarted(1, 4, origin()));
    assert_eq!(
        brief(&effects),
        [
            "save 1.0 posted",
            "log 1 created",
            "log 1 managed",
            "accept 1 1",
            "save 1.1 placed",
            "log 1 placed",
            "-> 1 place 1.1",
            "tell 1 placed",
            "usr1 1",
        ]
    );
    let details: Vec<&str> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Log { detail, .. } => Some(&detail[..]),
            _ => None,
        })
        .collect();
    assert_eq!(
        details,
        [
            "from a checkpoint of application 7.2, which had run for 900.000 s; locked",
            "-n 4 -d 1 by alice: a.out",
            "incarnation 1 on NIDs 0-1",
        ]
    );
    let told = effects.iter().find_map(|effect| match effect {
        Effect::Command { command: Command::Place(place), .. } => place.restart.clone(),
        _ => None,
    });
    assert_eq!(told, Some(Restart { from: key(7, 2), run: RUN, parts: Vec::new() }));
    assert_eq!(
        report(&mut s, 1, Report::Launched(key(1, 1))),
        ["save 1.1 launching lazy", "log 1 recovering"]
    );
    assert_eq!(
        report(&mut s, 1, Report::Running(key(1, 1))),
        ["save 1.1 running lazy", "log 1 unlocked", "tell 1 running"]
    );
}

/// Its place is given to nobody else, and is free when its nodes have said that nothing runs.
#[test]
fn nothing_stays_of_one_whose_cpr_has_died() {
    let mut s = ready(1, 2);
    s.apply(at(1), restarted(1, 2, origin()));
    let effects = s.apply(at(2), Event::FrontGone { apid: Apid(1) });
    assert!(brief(&effects).contains(&"-> 1 take-back 1.1".into()), "{effects:?}");
    let effects = report(&mut s, 1, taken_back(key(1, 1)));
    assert!(effects.contains(&"log 1 ended".into()), "{effects:?}");
    assert!(s.team(Apid(1)).is_none());
    s.apply(at(3), posted(2, 2));
    assert_eq!(s.team(Apid(2)).expect("posted").state, State::Placed);
}

#[test]
fn it_is_placed_on_one_host() {
    let mut s = Scheduler::new(machine(4, 1), alone());
    link(&mut s, 1, &[0, 1], &[]);
    link(&mut s, 2, &[2, 3], &[]);
    s.apply(at(1), posted(1, 1));
    // Nodes 1 to 3 are free, and no host has three.
    s.apply(at(1), restarted(2, 3, origin()));
    let why = s.why(Apid(2)).expect("it waits").to_string();
    assert_eq!(
        why,
        "no host alone has room for it, and a checkpoint is restored on one host; it is placed \
         when one host has enough free nodes (apstat -n)"
    );
    s.apply(at(1), Event::FrontGone { apid: Apid(2) });
    // Two, which could be 1 and 2.
    s.apply(at(1), restarted(3, 2, origin()));
    let team = s.team(Apid(3)).expect("posted");
    assert_eq!((format_nids(team.places.nids()), team.hosts.len()), ("2-3".into(), 1));
    // Whoever is executed goes to both.
    s.apply(at(1), Event::FrontGone { apid: Apid(3) });
    report(&mut s, 2, taken_back(key(3, 1)));
    s.apply(at(1), posted(4, 3));
    assert_eq!(format_nids(s.team(Apid(4)).expect("posted").places.nids()), "1-3");
}

/// Its folder is on the host of its cpr, and goes to no other one of an older release: whatever room there is elsewhere.
#[test]
fn it_is_placed_where_its_images_can_go() {
    let criu = || vec!["criu 4.2".to_owned()];
    let there = |host: &str| Hello { host: host.into(), remote: true, ..*hello(&[2, 3]) };
    let takes = |hello: Hello| Hello { images: true, address: "10.0.0.2:7118".into(), ..hello };
    for (front, brings, other, sits_on) in [
        ("", true, there("h1"), Some("0")),
        ("h1/boot", true, there("h1"), Some("2")),
        ("h2/boot", true, there("h1"), None),
        ("h2/boot", true, takes(there("h1")), Some("0")),
        // The host that has the folder comes first.
        ("h1/boot", true, takes(there("h1")), Some("2")),
        ("", true, takes(there("h1")), Some("0")),
        // The others have no CRIU.
        ("", true, takes(Hello { back_ends: criu(), ..there("h1") }), Some("2")),
        // A cpr of an older release brings nothing to another host.
        ("h2/boot", false, takes(there("h1")), None),
        ("h1/boot", false, takes(there("h1")), Some("2")),
        ("", false, takes(Hello { back_ends: criu(), ..there("h1") }), Some("0")),
    ] {
        let mut machine = machine(4, 1);
        for nid in [2, 3] {
            machine.nodes.get_mut(&Nid(nid)).expect("there").host = "h1".into();
        }
        let mut s = Scheduler::new(machine, alone());
        // (That of psched takes images of every host.)
        let own = Hello { images: other.images, address: "h0:1".into(), ..*hello(&[0, 1]) };
        for (n, hello) in [(1, own), (2, other)] {
            s.apply(at(0), Event::LinkOpened { link: LinkId(n), hello: Box::new(hello) });
            s.apply(at(0), Event::Inventory { link: LinkId(n), items: Vec::new() });
        }
        let mut event = restarted(1, 1, origin());
        if let Event::Restarted { front: process, posting, .. } = &mut event {
            process.host = front.into();
            posting.brings_images = brings;
        }
        s.apply(at(1), event);
        let why = s.why(Apid(1)).map(|why| why.to_string()).unwrap_or_default();
        let stays =
            "its checkpoint is on host h2, of which no apinit is connected, and its cpr or aprun";
        assert_eq!(why.starts_with(stays), sits_on.is_none() && !brings, "{why}");
        let places = &s.team(Apid(1)).expect("posted").places;
        let nids: Vec<String> = places.nids().map(|nid| nid.0.to_string()).collect();
        assert_eq!(nids.first().map(String::as_str), sits_on, "{front}");
    }
    let mut machine = machine(4, 1);
    machine.nodes.get_mut(&Nid(3)).expect("there").host = "h1".into();
    let s = Scheduler::new(machine, alone());
    let has =
        [("", true), ("h1", false), ("h2", false)].map(|(name, own)| s.has_nodes_of(name, own));
    assert_eq!(has, [true, true, false]);
}

/// It is of no use to free nodes of a host that is not there.
#[test]
fn where_its_images_stay_says_what_that_host_lacks() {
    let mut machine = machine(4, 1);
    for nid in [2, 3] {
        machine.nodes.get_mut(&Nid(nid)).expect("there").host = "h1".into();
    }
    let mut s = Scheduler::new(machine, alone());
    let images = |hello: Hello| Hello { images: true, address: "10.0.0.2:7118".into(), ..hello };
    let there = Hello { host: "h1".into(), remote: true, ..*hello(&[2, 3]) };
    let mut event = restarted(1, 3, origin());
    if let Event::Restarted { front, posting, .. } = &mut event {
        front.host = "h1/boot".into();
        posting.brings_images = false;
    }
    let call = |n, hello: Hello, s: &mut Scheduler| {
        s.apply(at(0), Event::LinkOpened { link: LinkId(n), hello: Box::new(hello) });
        s.apply(at(0), Event::Inventory { link: LinkId(n), items: Vec::new() });
    };
    call(1, images(*hello(&[0, 1])), &mut s);
    s.apply(at(1), event);
    let why = |s: &Scheduler| s.why(Apid(1)).expect("it waits").to_string();
    let older = "and its cpr or aprun, which is of an older release, can't bring the images to another host; it \
                 is placed when host h1";
    let elsewhere =
        "(apstat -n); to restart it elsewhere, end it and run cpr -r of psched's release";
    assert_eq!(
        why(&s),
        format!(
            "its checkpoint is on host h1, of which no apinit is connected, {older} has a connected apinit with \
             enough free nodes {elsewhere}"
        )
    );
    call(2, images(there), &mut s);
    assert_eq!(
        why(&s),
        format!(
            "its checkpoint is on host h1, which has no room for it, {older} has enough free nodes {elsewhere}"
        )
    );
}

/// Without a certificate psched knows no name of its own host, and there is no other one.
#[test]
fn without_a_name_of_its_own_host_all_nodes_are_there() {
    let mut machine = machine(2, 1);
    for node in machine.nodes.values_mut() {
        node.host = "h0".into();
    }
    let s = Scheduler::new(machine, alone());
    let has = [("", true), ("h0", true), ("", false), ("h1", true), ("h1", false)];
    let has = has.map(|(name, own)| s.has_nodes_of(name, own));
    assert_eq!(has, [true, true, false, false, false]);
}

/// A window over two hosts would be none for it, however few have to end there.
#[test]
fn what_it_waits_for_is_said_of_one_host() {
    let mut s = Scheduler::new(machine(5, 1), alone());
    link(&mut s, 1, &[0, 1], &[]);
    link(&mut s, 2, &[2, 3, 4], &[]);
    // Node 0, nodes 1 to 2, node 4: 2-3 are of one host, and 3-4.
    s.apply(at(1), posted(1, 1));
    s.apply(at(1), posted(2, 2));
    s.apply(at(1), posted(3, 2));
    s.apply(at(1), restarted(4, 2, origin()));
    let why = s.why(Apid(4)).expect("it waits").to_string();
    assert!(why.starts_with("on one host, as a checkpoint is restored, 2 PEs"), "{why}");
    assert!(why.contains("it fits on NIDs 3-4 when application 3 of"), "{why}");
}

/// One whose images are of several apinits, with so many nodes on each.
fn in_parts(number: u8, parts: &[u32]) -> Event {
    let parts: Vec<u32> = parts.to_vec();
    let restart = Restart { from: key(7, 2), run: RUN, parts: parts.clone() };
    let mut event = restarted(number, parts.iter().sum(), Origin::Running(restart));
    let Event::Restarted { posting, .. } = &mut event else { unreachable!() };
    posting.shape.per_node = Some(1);
    event
}

/// Where it is, and how many apinits that are; why not.
fn sits(s: &Scheduler, apid: u64) -> Result<(String, usize), String> {
    let team = s.team(Apid(apid)).expect("posted");
    match team.state {
        State::Placed => Ok((format_nids(team.places.nids()), team.hosts.len())),
        _ => Err(s.why(Apid(apid)).expect("it waits").to_string()),
    }
}

#[test]
fn each_part_is_placed_on_one_apinit() {
    // Apinits of two, three and three nodes.
    let three = || {
        let mut s = Scheduler::new(machine(8, 1), alone());
        link(&mut s, 1, &[0, 1], &[]);
        link(&mut s, 2, &[2, 3, 4], &[]);
        link(&mut s, 3, &[5, 6, 7], &[]);
        s
    };
    let placed = |parts: &[u32], busy: u32| {
        let mut s = three();
        if busy > 0 {
            s.apply(at(1), posted(1, busy));
        }
        s.apply(at(2), in_parts(2, parts));
        sits(&s, if busy > 0 { 2 } else { 1 })
    };
    assert_eq!(placed(&[2, 2], 0), Ok(("0-3".into(), 2)));
    assert_eq!(placed(&[1, 3], 0), Ok(("1-4".into(), 2)));
    assert_eq!(placed(&[1, 3, 1], 0), Ok(("1-5".into(), 3)));
    // With node 0 or 1 in use it is the next border.
    assert_eq!(placed(&[2, 2], 1), Ok(("3-6".into(), 2)));
    // No border has three nodes before it and then four, nor two and then one and then others.
    let why = placed(&[3, 4], 0).expect_err("it waits");
    assert_eq!(
        why,
        "its checkpoint is of 2 apinits, and there are not 2 apinits now that each have room \
         for one of its parts; it is placed when enough applications have ended, or more \
         apinits are up"
    );
    assert!(placed(&[2, 1, 1], 0).is_err());
    assert!(placed(&[1, 1, 1, 1], 0).is_err());
    // The part of one apinit is not split, nor are two put together, where there is but one.
    let mut s = ready(4, 1);
    s.apply(at(1), in_parts(1, &[2, 2]));
    assert!(sits(&s, 1).is_err());
    // One that needs no neighbours goes wherever two apinits have so many together.
    let mut s = three();
    let mut event = in_parts(1, &[2, 2]);
    let Event::Restarted { posting, .. } = &mut event else { unreachable!() };
    posting.flexible = true;
    posting.choice = std::mem::take(&mut posting.choice).only("0-1,3-6").expect("a list");
    s.apply(at(1), event);
    assert_eq!(sits(&s, 1), Ok(("0-1,3-4".into(), 2)));
    // Down the list part 0 is on the highest.
    let mut s = three();
    let mut event = in_parts(1, &[1, 3]);
    let Event::Restarted { posting, .. } = &mut event else { unreachable!() };
    posting.choice = std::mem::take(&mut posting.choice).only("7-0").expect("a list");
    s.apply(at(1), event);
    assert_eq!(sits(&s, 1), Ok(("2-5".into(), 2)));
}

#[test]
fn nodes_that_it_has_chosen_are_of_one_host_too() {
    let mut s = Scheduler::new(machine(4, 1), alone());
    link(&mut s, 1, &[0, 1], &[]);
    link(&mut s, 2, &[2, 3], &[]);
    let choosing = |number, list: &str| {
        let mut event = restarted(number, 2, origin());
        let Event::Restarted { posting, .. } = &mut event else { unreachable!() };
        posting.choice = Default::default();
        posting.choice = std::mem::take(&mut posting.choice).only(list).expect("a list");
        event
    };
    s.apply(at(1), choosing(1, "1-2"));
    assert_eq!(s.team(Apid(1)).expect("posted").state, State::Posted);
    s.apply(at(1), choosing(2, "1-3"));
    assert_eq!(format_nids(s.team(Apid(2)).expect("posted").places.nids()), "2-3");
}

#[test]
fn what_it_had_run_is_time_that_it_has_had() {
    let mut play = Play::new(2, 1, settings());
    play.take(restarted(1, 1, origin()));
    assert!(play.s.attained(Apid(1), 0) >= RUN, "{:?}", play.s.attained(Apid(1), 0));
    play.post(2, 1);
    assert!(play.s.attained(Apid(2), 0) < RUN);
}

/// Its nodes count what it had run before; the clock on the wall does not.
#[test]
fn it_has_ended_when_it_had_run_so_much_longer() {
    let mut s = ready(1, 2);
    s.apply(at(1), restarted(1, 2, origin()));
    report(&mut s, 1, Report::Launched(key(1, 1)));
    report(&mut s, 1, Report::Running(key(1, 1)));
    let Report::Ended(end) = ended(key(1, 1), &[0], None) else { unreachable!() };
    let end = HostEnd { run: RUN + Duration::from_secs(5), ..*end };
    let report = Box::new(Report::Ended(Box::new(end)));
    let effects = s.apply(at(60), Event::Report { link: LinkId(1), report });
    let kept = effects.iter().find_map(|effect| match effect {
        Effect::Keep(record) => record.team().map(|team| team.ended_at_ns),
        _ => None,
    });
    assert_eq!(kept, Some(at(6).wall_ns));
}

#[test]
fn one_that_waited_gets_its_number_again_where_nobody_has_it() {
    let mut s = ready(1, 2);
    // 1 waits behind nobody, 2 behind it.
    s.apply(at(1), posted(1, 2));
    s.apply(at(1), posted(2, 2));
    let again = restarted(3, 2, waited(2, Some(4)));
    assert_eq!(accepted(&s.apply(at(2), again.clone())), Some(3), "it waits itself");
    s.apply(at(3), Event::FrontGone { apid: Apid(2) });
    s.apply(at(3), Event::FrontGone { apid: Apid(3) });
    assert_eq!(
        brief(&s.apply(at(3), again)),
        ["save 2.4 posted", "log 2 posted", "accept 3 2"],
        "as after an end that records tell of"
    );
    // Its next placement is none that a node could have heard of.
    s.apply(at(4), Event::FrontGone { apid: Apid(1) });
    report(&mut s, 1, taken_back(key(1, 1)));
    let team = s.team(Apid(2)).expect("it waits");
    assert_eq!((team.key(), team.state, &team.restart), (key(2, 5), State::Placed, &None));
    // Records that know nothing of the number, and one that this psched never gave.
    for origin in [waited(1, None), waited(40, Some(1))] {
        let next = s.next_apid();
        let event = restarted(next as u8 + 10, 1, origin);
        assert_eq!(accepted(&s.apply(at(5), event)), Some(next));
    }
}
