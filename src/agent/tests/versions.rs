//! Shepherds of other releases.

use super::*;
use crate::apteam::talk::shepherd::{OLDEST, PROTOCOL, misfit};

#[test]
fn nothing_is_launched_with_a_shepherd_of_another_version() {
    for protocol in [OLDEST - 1, PROTOCOL + 1] {
        let (mut agent, key) = with_running();
        let hello = Hello { protocol, key, ..Hello::default() };
        let actions = act(&mut agent, 3 * S, from_shepherd(key, FromShepherd::Hello(hello)));
        let text = misfit(protocol).expect("not understood");
        assert!(text.contains(&format!("version {protocol} ")), "{text}");
        assert!(actions.contains(&Action::KillGroups { key, shepherd: true }), "{actions:?}");
        assert_eq!(agent.apps[&key].known_cause().map(|c| c.status()), Some(125));
    }
}

/// It can't be told anything, and goes on; who ends it kills it.
#[test]
fn a_former_life_whose_shepherd_is_not_understood() {
    let key = key(12, 1);
    let found = |going| {
        let (front, place) = (Some(Conn(77)), place(key, &[&[0, 1]]));
        let protocol = PROTOCOL + 1;
        let hello = Hello { protocol, key, launched: true, going, ..Hello::default() };
        Happening::Found(Box::new(Found {
            place,
            going_ns: Some(S),
            ran_ns: None,
            hello: Some(hello),
            silent: false,
            front,
            gone: false,
        }))
    };
    let mut agent = apinit(&[0, 1]);
    assert_eq!(act(&mut agent, 2 * S, found(true)), []);
    let actions = act(&mut agent, 2 * S, Happening::Linked(welcome()));
    let items = vec![(key, Phase::Running)];
    assert!(actions.contains(&Action::Inventory { items, last_command: 0 }), "{actions:?}");
    let cause = Cause::Kill { signal: 15, uid: 1 };
    let terminate = Command::Terminate { key, cause: cause.clone(), kill_after: GRACE };
    assert_eq!(
        act(&mut agent, 3 * S, Happening::Command(1, terminate)),
        [Action::KillGroups { key, shepherd: true }]
    );
    let text = "it has died".into();
    go_through(
        &mut agent,
        3 * S,
        [Happening::ShepherdLost { key, text }, Happening::GroupsEmpty(key)],
    );
    assert_eq!(agent.apps[&key].known_cause(), Some(cause));
    // Nothing of the program has run: it does not wait for an apinit that may never come.
    let mut agent = apinit(&[0, 1]);
    let actions = act(&mut agent, 2 * S, found(false));
    assert!(actions.contains(&Action::KillGroups { key, shepherd: true }), "{actions:?}");
}
