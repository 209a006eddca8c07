//! What is told of nodes, in every state that one can have.

use super::*;
use crate::apteam::Apid;
use crate::apteam::Key;
use crate::apteam::change::Closed;
use crate::apteam::record::Apteam;
use crate::apteam::record::State;
use crate::machine::Nid;
use crate::machine::{Flavor, Flavors};
use std::collections::BTreeMap;

/// `NID state room residents seen: why`.
fn told(s: &Scheduler) -> Vec<String> {
    let line = |n: NodeView<'_>| {
        let seen = if n.seen { "seen" } else { "new" };
        let (nid, room) = (n.node.nid, n.room);
        format!("{nid} {} room {room} residents {} {seen}: {}", n.state, n.residents, n.why)
    };
    s.nodes().map(line).collect()
}

#[test]
fn a_node_says_why_it_is_not_free() {
    let mut s = Scheduler::new(machine(5, 2), sharing(4));
    link(&mut s, 1, &[0, 1], &[]);
    link(&mut s, 2, &[2], &[]);
    s.apply(at(1), posted(1, 3));
    assert_eq!(
        told(&s),
        [
            "0 pending room 0 residents 1 seen: an application that is placed there is not \
             launched yet",
            "1 pending room 1 residents 1 seen: an application that is placed there is not \
             launched yet",
            "2 free room 2 residents 0 seen: ",
            "3 suspect room 0 residents 0 new: no apinit has ever offered it",
            "4 suspect room 0 residents 0 new: no apinit has ever offered it",
        ]
    );
    report(&mut s, 1, Report::Running(key(1, 1)));
    // More than there is: it takes turns with the first.
    s.apply(at(2), posted_at_once(2, 6));
    s.apply(at(2), Event::LinkClosed { link: LinkId(2) });
    let hello = Box::new(Hello { arch: "riscv64".into(), ..*hello(&[3]) });
    s.apply(at(2), Event::LinkOpened { link: LinkId(3), hello });
    let nids = [Nid(4)].into();
    let (to, reason) = (NodesTo::Close(Closed::Drained), "fan".to_owned());
    let by = By { uid: 0, name: "root".into(), at_ns: 7 };
    s.apply(at(2), Event::Nodes { reply: ReplyId(9), to, nids, reason, by });
    let now = told(&s);
    assert_eq!(
        now[..4],
        [
            "0 busy room 0 residents 2 seen: 2 of 2 processors are in use",
            "1 busy room 0 residents 2 seen: 2 of 2 processors are in use",
            "2 suspect room 0 residents 1 seen: its apinit does not answer",
            "3 suspect room 0 residents 0 new: its apinit has not reported its applications yet",
        ]
    );
    assert!(now[4].starts_with("4 drained room 0 residents 0 new: drained by root"), "{now:?}");
    assert!(now[4].ends_with(": fan"), "{now:?}");
    let machines: Vec<String> = s.nodes().map(|n| n.arch).collect();
    assert_eq!(machines, ["", "", "", "riscv64", ""]);
}

/// One for logins is free, and has no room for anybody.
#[test]
fn room_is_for_applications() {
    let mut machine = machine(2, 2);
    let login = machine.nodes.get_mut(&Nid(0)).expect("there");
    login.flavors = Flavors::default().with(Flavor::Su);
    let mut s = Scheduler::new(machine, alone());
    link(&mut s, 1, &[0, 1], &[]);
    s.apply(at(1), posted(1, 1));
    report(&mut s, 1, Report::Running(key(1, 1)));
    assert_eq!(
        told(&s),
        [
            "0 free room 0 residents 0 seen: ",
            "1 busy room 1 residents 1 seen: 1 of 2 processors are in use",
        ]
    );
}

/// The hello of the apinit with this lowest NID, and what is answered.
fn calls(s: &mut Scheduler, seconds: u64, link: u64, lowest: u32, nids: &[u32]) -> String {
    let socket = format!("/run/psched/apinit-{lowest}.sock");
    let hello = Box::new(Hello { socket, pid: 70 + lowest as i32, ..*hello(nids) });
    let link = LinkId(link);
    let effects = s.apply(at(seconds), Event::LinkOpened { link, hello });
    let answer = effects.iter().find_map(|effect| match effect {
        Effect::RefuseLink { why, .. } => Some(why.clone()),
        Effect::Welcome { .. } => Some("welcome".to_owned()),
        _ => None,
    });
    answer.expect("an answer")
}

fn inventory(s: &mut Scheduler, seconds: u64, link: u64, items: &[(Key, Phase)]) -> Vec<String> {
    let link = LinkId(link);
    brief(&s.apply(at(seconds), Event::Inventory { link, items: items.to_vec() }))
}

/// Each costs as much as it has applications, and a correct apinit sends one.
#[test]
fn a_second_inventory_closes_the_link() {
    let mut s = Scheduler::new(machine(2, 1), alone());
    calls(&mut s, 1, 1, 1, &[0, 1]);
    inventory(&mut s, 1, 1, &[]);
    s.apply(at(1), posted(1, 2));
    report(&mut s, 1, Report::Launched(key(1, 1)));
    let effects = s.apply(
        at(2),
        Event::Inventory { link: LinkId(1), items: vec![(key(9, 1), Phase::Running)] },
    );
    let text =
        "the connection of the apinit of NIDs 0-1 on host h is closed: it sent a second inventory";
    assert_eq!(effects, [Effect::Warn(text.into()), Effect::CloseLink { link: LinkId(1) }]);
    assert_eq!(inventory(&mut s, 2, 1, &[]), [""; 0], "the link is no more");
    // What runs there runs on, and the next life of the link says what it has.
    assert_eq!(calls(&mut s, 3, 2, 1, &[0, 1]), "welcome");
    inventory(&mut s, 3, 2, &[(key(1, 1), Phase::Running)]);
    assert_eq!(s.team(Apid(1)).map(|team| team.state), Some(State::Running));
}

#[test]
fn nodes_that_a_linked_apinit_offers_are_refused_to_another() {
    let mut s = Scheduler::new(machine(6, 1), alone());
    assert_eq!(calls(&mut s, 1, 1, 1, &[1, 2, 3, 4]), "welcome");
    inventory(&mut s, 1, 1, &[]);
    s.apply(at(1), posted(1, 4));
    report(&mut s, 1, Report::Launched(key(1, 1)));
    report(&mut s, 1, Report::Running(key(1, 1)));
    let why = "offered by another apinit, which is linked: the apinit of NIDs 1-4 on host h \
               (/run/psched/apinit-1.sock, process 71). Stop that one, or give one of the two \
               other --nids";
    // Whichever NID is the lowest.
    for (lowest, nids, both) in
        [(2, &[2, 3][..], "NIDs 2-3 are"), (0, &[0, 1], "NID 1 is"), (4, &[4, 5], "NID 4 is")]
    {
        assert_eq!(calls(&mut s, 2, 2, lowest, nids), format!("{both} {why}"));
    }
    let state = |s: &Scheduler| s.team(Apid(1)).map(|team| team.state);
    assert_eq!(state(&s), Some(State::Running));
    assert!(told(&s)[1].starts_with("1 busy"), "{:?}", told(&s));
    // Another life of the same is taken, with other nodes too.
    assert_eq!(calls(&mut s, 3, 3, 1, &[1, 2, 3, 4, 5]), "welcome");
    inventory(&mut s, 3, 3, &[(key(1, 1), Phase::Running)]);
    assert_eq!(state(&s), Some(State::Running));
    // One that has gone may come back to what it runs.
    s.apply(at(4), Event::LinkClosed { link: LinkId(3) });
    let why = calls(&mut s, 18, 4, 2, &[2, 3]);
    let expected = "NID 2 has application 1 of alice, which another apinit runs, and that apinit \
                    has 15 s to come back: the apinit of /run/psched/apinit-1.sock on host h";
    assert!(why.starts_with(expected), "{why}");
    assert_eq!(calls(&mut s, 18, 5, 5, &[5]), "welcome", "nothing runs there");
    assert_eq!(calls(&mut s, 18, 6, 1, &[1, 2, 3, 4]), "welcome");
    inventory(&mut s, 18, 6, &[(key(1, 1), Phase::Running)]);
    assert_eq!(state(&s), Some(State::Running));
    // After that time another may have them, and what ran there is lost.
    s.apply(at(20), Event::LinkClosed { link: LinkId(6) });
    assert_eq!(calls(&mut s, 35, 7, 2, &[2, 3]), "welcome");
    let done = inventory(&mut s, 35, 7, &[]);
    assert!(done.contains(&"log 1 lost".to_owned()), "{done:?}");
}

/// The same after psched itself was away: whoever calls first is not taken for who has what runs there.
#[test]
fn after_a_start_nodes_are_their_apinits() {
    let mut s = Scheduler::new(machine(4, 1), alone());
    assert_eq!(calls(&mut s, 1, 1, 0, &[0, 1, 2, 3]), "welcome");
    inventory(&mut s, 1, 1, &[]);
    s.apply(at(1), posted(1, 2));
    report(&mut s, 1, Report::Launched(key(1, 1)));
    report(&mut s, 1, Report::Running(key(1, 1)));
    let records: Vec<Apteam> = s.teams().cloned().collect();
    let restored = |records| {
        let orders = crate::apteam::change::Orders::default();
        Scheduler::restore(machine(4, 1), alone(), records, BTreeMap::new(), orders, 7, at(100)).0
    };
    let mut s = restored(records.clone());
    assert!(calls(&mut s, 101, 1, 1, &[1, 2]).contains("NID 1 has application 1 of alice"));
    assert_eq!(calls(&mut s, 101, 2, 2, &[2, 3]), "welcome");
    assert_eq!(calls(&mut s, 101, 3, 0, &[0, 1]), "welcome");
    let mut s = restored(records);
    assert_eq!(calls(&mut s, 116, 1, 1, &[1, 2]), "welcome");
}

/// A revoked host does not come back by itself: what is told of its node says so, and what waits
/// for it.
#[test]
fn of_a_revoked_host_it_is_told_why_it_is_away() {
    let mut machine = machine(2, 1);
    machine.nodes.get_mut(&Nid(1)).expect("there").host = "h3".to_owned();
    let mut s = Scheduler::new(machine, alone());
    link(&mut s, 1, &[0], &[]);
    let of_h3 = || Box::new(Hello { host: "h3".into(), remote: true, ..*hello(&[1]) });
    s.apply(at(1), Event::LinkOpened { link: LinkId(2), hello: of_h3() });
    inventory(&mut s, 1, 2, &[]);
    s.apply(at(1), posted(1, 2));
    report(&mut s, 1, Report::Launched(key(1, 1)));
    report(&mut s, 1, Report::Running(key(1, 1)));
    s.apply(at(2), Event::Revoked { link: LinkId(2) });
    s.apply(at(2), Event::LinkClosed { link: LinkId(2) });
    let why = "the certificate of h3 was revoked";
    assert!(told(&s)[1].starts_with("1 suspect") && told(&s)[1].contains(why), "{:?}", told(&s));
    let says =
        |s: &Scheduler, apid| s.why(Apid(apid)).map(|why| why.to_string()).unwrap_or_default();
    assert!(says(&s, 1).contains(why), "what runs there: {}", says(&s, 1));
    assert!(says(&s, 1).contains("(psched certs host h3)"), "its cure: {}", says(&s, 1));
    s.apply(at(2), Event::LinkClosed { link: LinkId(1) });
    let both = format!("suspect ({why}; the apinit of NID 0 does not answer)");
    assert!(says(&s, 1).contains(&both), "{}", says(&s, 1));
    link(&mut s, 9, &[0], &[(key(1, 1), Phase::Running)]);
    // A reload does not change that.
    let machine = s.machine().clone();
    s.apply(at(2), Event::Machine(Box::new(machine)));
    assert!(told(&s)[1].contains(why), "{:?}", told(&s));
    s.apply(at(3), posted(2, 2));
    assert!(says(&s, 2).contains(why), "what waits: {}", says(&s, 2));
    // It has another certificate.
    s.apply(at(4), Event::LinkOpened { link: LinkId(3), hello: of_h3() });
    inventory(&mut s, 4, 3, &[(key(1, 1), Phase::Running)]);
    assert!(!told(&s)[1].contains("revoked") && !says(&s, 1).contains("revoked"));
    // A link that is none any more says nothing of the node.
    s.apply(at(5), Event::Revoked { link: LinkId(2) });
    s.apply(at(5), Event::LinkClosed { link: LinkId(3) });
    assert!(told(&s)[1].contains("its apinit does not answer"), "{:?}", told(&s));
}
