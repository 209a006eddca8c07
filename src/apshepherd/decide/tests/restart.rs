//! One that was brought back from a checkpoint, and is told as which application it goes on.

use super::*;

fn new_key() -> Key {
    Key::parse("30.1").expect("a key")
}

fn hello_as(key: Key) -> Event {
    Event::Frame(ToShepherd::Hello(Hello { key, ..Hello::default() }))
}

fn rekey() -> Event {
    Event::Frame(ToShepherd::Rekey(new_key()))
}

fn write(rank: u32, text: &'static str) -> Event {
    Event::Output { rank, stderr: false, data: Bytes::from_static(text.as_bytes()) }
}

/// Hung up before its checkpoint, and connected after it.
fn brought_back(shepherd: &mut Shepherd) {
    shepherd.apply(10, Event::Disconnected);
    shepherd.apply(11, Event::Connected);
}

#[test]
fn it_goes_on_under_the_new_key() {
    let mut shepherd = going(launch(1));
    shepherd.apply(1, write(0, "before\n"));
    let taken = Event::Frame(ToShepherd::OutputTaken(4));
    shepherd.apply(2, taken);
    let said = |number| Event::Frame(ToShepherd::Signal(NumberedSignal { number, signal: 10 }));
    shepherd.apply(3, said(7));
    brought_back(&mut shepherd);
    let hello =
        Hello { key: new_key(), launched: true, going: true, output_taken: 4, ..Hello::default() };
    assert_eq!(
        shepherd.apply(12, rekey()),
        [Action::Rekeyed(new_key()), Action::Send(FromShepherd::Hello(hello))]
    );
    // Output goes on from where it was, and nothing is said of the signals of the front end before.
    let again = shepherd.apply(13, hello_as(new_key()));
    let [Action::Send(FromShepherd::Output(output))] = &again[..] else { panic!("{again:?}") };
    assert_eq!((output.offset, &output.data[..]), (4, &b"re\n"[..]));
    // The new one counts them from 1.
    let passed = shepherd.apply(14, said(1));
    assert_eq!(passed, [Action::Signal(10), Action::Send(FromShepherd::SignalsTaken(1))]);
    // Its end is that of the new one.
    shepherd.apply(15, Event::Frame(ToShepherd::OutputTaken(7)));
    shepherd.apply(16, ended(0, PeEnd::Exit(0)));
    shepherd.apply(17, Event::NoChildLeft);
    let end = close(&mut shepherd, 18, 1).expect("it has ended");
    assert_eq!(end.key, new_key());
}

#[test]
fn one_that_was_not_told_hangs_up_on_another_ones_apinit() {
    let mut shepherd = going(launch(1));
    brought_back(&mut shepherd);
    assert_eq!(shepherd.apply(12, hello_as(new_key())), [Action::Hangup]);
}

#[test]
fn in_the_midst_of_a_conversation_it_stays_what_it_is() {
    let mut shepherd = going(launch(1));
    assert_eq!(shepherd.apply(1, rekey()), [Action::Hangup]);
    shepherd.apply(2, Event::Disconnected);
    assert_eq!(shepherd.apply(3, Event::Connected), [greeting(true, true, false)]);
}

#[test]
fn stdin_that_had_ended_stays_ended() {
    let stdin = |offset, text: &'static str| {
        let data = Bytes::from_static(text.as_bytes());
        Event::Frame(ToShepherd::Stdin(StdinPiece { offset, data }))
    };
    let end = |length| Event::Frame(ToShepherd::StdinEnd(length));
    let mut shepherd = going(HostLaunch { stdin: true, ..launch(1) });
    shepherd.apply(1, stdin(0, "ab"));
    assert_eq!(shepherd.apply(2, end(2)), [Action::CloseStdin]);
    brought_back(&mut shepherd);
    shepherd.apply(12, rekey());
    shepherd.apply(13, hello_as(new_key()));
    // PE 0 may still have some of the former one's to read, but gets nothing of the new one's.
    assert_eq!(shepherd.apply(14, stdin(2, "cd")), []);
    assert_eq!(shepherd.apply(15, end(4)), []);
    // Else it goes on.
    let mut shepherd = going(HostLaunch { stdin: true, ..launch(1) });
    shepherd.apply(1, stdin(0, "ab"));
    brought_back(&mut shepherd);
    shepherd.apply(12, rekey());
    shepherd.apply(13, hello_as(new_key()));
    assert_eq!(shepherd.apply(14, stdin(2, "cd")), [Action::WriteStdin("cd".into())]);
    assert_eq!(shepherd.apply(15, end(4)), [Action::CloseStdin]);
}
