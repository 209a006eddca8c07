//! What nodes tell of changes of party arrives where it is asked for.

use super::*;
use crate::apteam::Apid;
use crate::apteam::Key;
use crate::apteam::protocol::turns::{Switch, Switches};
use crate::machine::Nid;

/// Application 1 is put onto two apinits, and both let it run, a millisecond apart.
#[test]
fn starts_on_two_apinits_make_one() {
    let mut s = Scheduler::new(machine(4, 1), plain());
    link(&mut s, 1, &[1, 0], &[]);
    link(&mut s, 2, &[2, 3], &[]);
    s.apply(at(1), posted(1, 4));
    for number in [1, 2] {
        let report = Box::new(Report::Running(key(1, 1)));
        s.apply(at(2), Event::Report { link: LinkId(number), report });
    }
    let switches = |began_ns: u64, of: Key, nid: u32| {
        let switch =
            Switch { generation: 1, due_ns: 5, began_ns, started: vec![of], ..Switch::default() };
        let peaks = vec![(of, Nid(nid), 1 << 20)];
        Box::new(Report::Switches(Box::new(Switches {
            switches: vec![switch],
            left_out: 1,
            peaks,
            ..Switches::default()
        })))
    };
    for (number, nid, began_ns) in [(1, 0, 1_000_005), (2, 2, 2_000_005)] {
        for of in [key(1, 2), key(7, 1), key(1, 1)] {
            let report = switches(began_ns, of, nid);
            s.apply(at(3), Event::Report { link: LinkId(number), report });
        }
    }
    // Both stop it at the same time.
    for number in [1, 2] {
        let stopped = vec![key(1, 1)];
        let switch = Switch { generation: 1, began_ns: 3_000_005, stopped, ..Switch::default() };
        let told = Switches { switches: vec![switch], ..Switches::default() };
        let report = Box::new(Report::Switches(Box::new(told)));
        s.apply(at(3), Event::Report { link: LinkId(number), report });
    }
    let apinits: Vec<(u32, u64, u64)> = s
        .measured()
        .apinits()
        .map(|(nid, figures)| (nid.0, figures.switches, figures.left_out))
        .collect();
    assert_eq!(apinits, [(0, 4, 3), (2, 4, 3)]);
    let partial = s.measured().partial(Apid(1));
    assert_eq!((partial.total.as_micros(), partial.times), (1_000, 1));
    let peaks: Vec<_> = s.measured().peaks(Apid(1)).collect();
    assert_eq!(peaks, [(Nid(0), 1 << 20), (Nid(2), 1 << 20)]);
    assert_eq!(s.measured().latest().len(), 8);
    // It ends, and the nodes are taken out.
    for (number, nids) in [(1, [0, 1]), (2, [2, 3])] {
        let nids = nids.map(Nid).to_vec();
        let end = HostEnd { key: key(1, 1), nids, launched: true, ..HostEnd::default() };
        let report = Box::new(Report::Ended(Box::new(end)));
        s.apply(at(4), Event::Report { link: LinkId(number), report });
    }
    assert!(s.team(Apid(1)).is_none());
    assert_eq!(s.measured().partial(Apid(1)).times, 0);
    s.apply(at(5), Event::Machine(Box::new(machine(2, 1))));
    assert_eq!(s.measured().apinits().count(), 1);
}
