use super::*;
use crate::apteam::{Incarnation, Key};
use std::collections::BTreeMap;

const HERS: u32 = 1_000;

fn hers(apid: u64) -> AppName {
    AppName { apid: Apid(apid), owner: Some((HERS, "alice".to_owned())) }
}

/// No room on two nodes, of which this application holds one.
fn no_room(holder: u64) -> NoRoom {
    NoRoom {
        shape: Shape { width: 8, depth: 1, per_node: None },
        exclusive: false,
        flexible: false,
        largest_width_now: 0,
        max_resident: 4,
        short_of_memory: None,
        unsaid: true,
        window: vec![Nid(0), Nid(1)],
        holders: vec![Apid(holder)],
        held: vec![Nid(1)],
        exclusive_holders: Vec::new(),
        exclusively_held: Vec::new(),
        closed: Vec::new(),
        kept: Vec::new(),
    }
}

/// Reasons that name application 4711 of alice, and nothing else with these digits.
fn that_name_hers() -> Vec<Reason> {
    let no_room = no_room(4711);
    let shape = no_room.shape;
    let full = Full {
        no_room,
        flexible: Vec::new(),
        holders: vec![hers(4711)],
        shut: Shut::default(),
        domain: "application".to_owned(),
        no_roll_out: Some(NoRollOut::Stays(hers(4711), "it can't be stopped".to_owned())),
    };
    let layout = Layout::even(3, 2).expect("a layout");
    let waits = [
        Wait::Full(Box::new(full)),
        Wait::LayoutFull {
            layout,
            flexible: false,
            nids: vec![Nid(0)],
            holders: vec![hers(4711)],
            more: true,
        },
        Wait::Turn { shape, running: vec![hers(4711)], more: false },
    ];
    waits.into_iter().map(Reason::from).collect()
}

fn notes_that_name_hers() -> Vec<NodeNote> {
    let key = Key { apid: Apid(4711), incarnation: Incarnation(1) };
    vec![
        NodeNote::Of(key, hers(4711), "it does not stop".to_owned()),
        NodeNote::Stuck(hers(4711), "pid 9 waits in the kernel".to_owned()),
        NodeNote::Foreign(ForeignNote {
            why: "apinit obeys another psched".to_owned(),
            nids: vec![Nid(0)],
            runs: vec![hers(4711)],
            purging: false,
        }),
    ]
}

/// Each text for a reader who sees everything, and for one who sees nothing of alice's.
fn both() -> BTreeMap<String, String> {
    let stranger = |uid| uid != HERS;
    let reasons = that_name_hers();
    let notes = notes_that_name_hers();
    let reasons = reasons.iter().map(|why| (why.to_string(), why.words(&stranger).to_string()));
    let notes = notes.iter().map(|note| (note.to_string(), note.words(&stranger)));
    reasons.chain(notes).collect()
}

#[test]
fn others_applications_are_named_to_those_who_may_know_of_them_only() {
    assert_eq!(both().len(), 6);
    for (all, hidden) in both() {
        assert!(all.contains("4711"), "{all}");
        assert!(!hidden.contains("4711") && !hidden.contains("alice"), "{hidden}");
        assert!(hidden.contains("another user's"), "{hidden}");
    }
}

#[test]
fn one_that_is_not_known_has_a_number_only() {
    let name = AppName { apid: Apid(3), owner: None };
    assert_eq!(name.words(&|_| false), "3");
}

/// Of one list they are "these"; of two lists each is named again, in one sentence.
#[test]
fn it_is_said_which_applications_have_to_end() {
    let cure = |exclusive: &[u64], others: &[u64]| {
        let apids = |list: &[u64]| list.iter().copied().map(Apid).collect::<Vec<_>>();
        let holders = [apids(exclusive), apids(others)].concat();
        let no_room = NoRoom { holders, exclusive_holders: apids(exclusive), ..no_room(1) };
        let words = no_room.explain("application", |apid| apid.to_string(), &Shut::default(), None);
        words.cure.strip_prefix("it fits on NIDs 0-1 when ").map(str::to_owned).expect("a time")
    };
    assert_eq!(cure(&[], &[1]), "application 1 has ended");
    assert_eq!(cure(&[1], &[2]), "applications 1 and 2 have ended");
    assert_eq!(cure(&[], &[1, 2, 3]), "these 3 have ended");
    assert_eq!(cure(&[1, 2, 3], &[]), "these 3 have ended");
    let all = "applications 1, 2, 3, 4, 5, 6 and 7 have ended";
    assert_eq!(cure(&[1, 2, 3], &[4, 5, 6, 7]), all);
}
