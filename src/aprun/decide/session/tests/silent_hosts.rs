//! What is told of hosts that do not answer.

use super::*;

/// An application with nodes on five hosts, each of two nodes but the last; it goes. This process
/// is on `here`.
fn on_hosts(here: &str, quiet: bool) -> Session {
    let host = |number: u32| HostPart {
        nids: if number < 4 { vec![Nid(2 * number), Nid(2 * number + 1)] } else { vec![Nid(8)] },
        socket: "/run/a.sock".to_owned(),
        host: format!("h{number}"),
        address: format!("h{number}:7001"),
        host_id: format!("h{number}/boot"),
    };
    let hosts = (0..5).map(host).collect();
    let placement = Box::new(Placement { hosts, front_host: here.to_owned(), ..*placement(1) });
    let mut front = Front::new(Setup { quiet, ..setup() });
    goes(&mut front, placement);
    Session { front, now: 0 }
}

fn silent(nids: &[u32]) -> Event {
    let nids = nids.iter().copied().map(Nid).collect();
    apinit(FromApinit::Notice(Notice::Silent { nids }))
}

fn head_lost(text: &str) -> Event {
    Event::ApinitDown { text: text.to_owned(), connected: true }
}

#[test]
fn each_change_is_told_once() {
    on_hosts("h0", false)
        .gives(silent(&[8]), &[say("NID 8 (host h4) does not answer; its output comes later")])
        .gives(silent(&[8]), &[])
        .gives(
            silent(&[2, 4, 8]),
            &[say("NIDs 2-5 (hosts h1, h2) do not answer; their output comes later")],
        )
        .gives(
            silent(&[4, 6]),
            &[
                say("NIDs 6-7 (host h3) do not answer; their output comes later"),
                say("NIDs 2-3,8 (hosts h1, h4) answer again"),
            ],
        )
        .gives(silent(&[99]), &[say("NIDs 4-7 (hosts h2, h3) answer again")])
        .gives(silent(&[]), &[]);
}

#[test]
fn many_hosts_are_not_all_named() {
    let mut session = on_hosts("h0", false);
    let hosts: Vec<HostPart> = (0..40)
        .map(|number| HostPart {
            nids: vec![Nid(number)],
            host_id: format!("h{number:02}/boot"),
            ..HostPart::default()
        })
        .collect();
    session.front.placement = Some(Box::new(Placement { hosts, ..*placement(1) }));
    let all: Vec<u32> = (0..40).collect();
    let text = "NIDs 1-39 (hosts h01, h02, h03, h04, h05, h06, h07, h08 and 31 more) do not answer; \
                their output comes later";
    session.gives(silent(&all), &[say(text)]);
}

#[test]
fn q_silences_it() {
    let mut session = on_hosts("h1", true);
    session.gives(silent(&[8]), &[]).gives(head_lost("reset"), &[]);
    let actions = session.front.apply(3 * SECOND_NS, Event::Time);
    assert!(!actions.iter().any(|action| matches!(action, Action::Say(_))), "{actions:?}");
    session.gives(apinit(FromApinit::Accepted), &[]).gives(silent(&[]), &[]);
}

/// The lines of a session at this time.
fn lines(session: &mut Session, ms: u64, event: Event) -> Vec<Action> {
    session.now = ms * MS;
    let actions = session.front.apply(session.now, event);
    actions.into_iter().filter(|action| matches!(action, Action::Say(_))).collect()
}

#[test]
fn the_host_of_pe_0_is_told_of_by_its_nodes() {
    let mut session = on_hosts("h1", false);
    let silent_head =
        |text: &str| say(&format!("NIDs 0-1 (host h0) do not answer ({text}); output comes later"));
    assert_eq!(lines(&mut session, 0, head_lost("timed out")), []);
    assert_eq!(lines(&mut session, 1_999, Event::Time), []);
    assert_eq!(lines(&mut session, 2_000, Event::Time), [silent_head("timed out")]);
    // What its apinit says of others leaves it as it is.
    assert_eq!(lines(&mut session, 2_500, silent(&[])), []);
    let accepted = || apinit(FromApinit::Accepted);
    assert_eq!(lines(&mut session, 3_000, accepted()), [say("NIDs 0-1 (host h0) answer again")]);
    // Again within ten seconds of the first line: it waits.
    assert_eq!(lines(&mut session, 4_000, head_lost("reset")), []);
    assert_eq!(lines(&mut session, 11_999, Event::Time), []);
    assert_eq!(session.front.apinit_say_at(), Some(12_000 * MS));
    assert_eq!(lines(&mut session, 12_000, Event::Time), [silent_head("reset")]);
}

#[test]
fn an_apinit_that_says_why_and_one_of_this_host_are_no_silent_hosts() {
    let old = |text: &str| say(&format!("apinit does not answer ({text}); trying again"));
    let mut session = on_hosts("h1", false);
    lines(&mut session, 0, apinit(FromApinit::NotNow("it is full".to_owned())));
    assert_eq!(lines(&mut session, 2_000, Event::Time), [old("it is full")]);
    // The apinit that passes on is not there.
    let mut session = on_hosts("h1", false);
    lines(&mut session, 0, Event::ApinitDown { text: "refused".to_owned(), connected: false });
    assert_eq!(lines(&mut session, 2_000, Event::Time), [old("refused")]);
    // The first PE is on this host.
    let mut session = on_hosts("h0", false);
    lines(&mut session, 0, head_lost("reset"));
    assert_eq!(lines(&mut session, 2_000, Event::Time), [old("reset")]);
}

/// It is tried rarely, and the reason is told once. When it has held for a second it counts as any
/// other.
#[test]
fn a_connection_that_breaks_each_time_is_told_once_and_tried_rarely() {
    let mut session = on_hosts("h0", false);
    // It had held for long.
    let (mut at_ms, mut told) = (60_000, Vec::new());
    let mut breaks = |session: &mut Session, after_ms: u64, times: u32| {
        at_ms += after_ms;
        let mut pauses = Vec::new();
        for _ in 0..times {
            told.extend(lines(session, at_ms, head_lost("it sent nonsense")));
            let retry_at = session.front.apinit.retry_at.expect("it is tried again");
            pauses.push(retry_at - at_ms * MS);
            at_ms = retry_at / MS + 1;
            told.extend(lines(session, at_ms, Event::Time));
            told.extend(lines(session, at_ms, apinit(FromApinit::Accepted)));
        }
        (pauses, std::mem::take(&mut told))
    };
    let (pauses, told) = breaks(&mut session, 0, 20);
    assert_eq!(pauses[0], RETRY_MIN_NS);
    assert!(pauses.is_sorted() && pauses[19] == RETRY_MAX_NS, "{pauses:?}");
    let text = "the connection to apinit breaks each time (it sent nonsense); trying again";
    assert_eq!(told, [say(text)]);
    let (pauses, told) = breaks(&mut session, 1_000, 1);
    assert_eq!((pauses[0], told), (RETRY_MIN_NS, Vec::new()));
}
