//! What is told of nodes, in every state that one can have.

use super::*;
use crate::apteam::change::Closed;
use crate::machine::{Flavor, Flavors};

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
            "0 pending room 0 residents 1 seen: what is placed there has not been launched yet",
            "1 pending room 1 residents 1 seen: what is placed there has not been launched yet",
            "2 free room 2 residents 0 seen: ",
            "3 suspect room 0 residents 0 new: no apinit has ever offered it",
            "4 suspect room 0 residents 0 new: no apinit has ever offered it",
        ]
    );
    report(&mut s, 1, Report::Running(key(1, 1)));
    // More than there is: it takes turns with the first.
    s.apply(at(2), posted(2, 6));
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
            "2 suspect room 0 residents 1 seen: its apinit has gone silent",
            "3 suspect room 0 residents 0 new: its apinit has not told yet what is there",
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
