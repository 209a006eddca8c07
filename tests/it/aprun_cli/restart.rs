//! `cpr -r` with a psched and an apinit played by the test: what it posts, passes and launches, and how it ends.

use super::command;
use super::fake::{Attached, Fake, KEY, soon};
use super::session::{assert_output, finish};
use pb::application_event::Event;
use pb::from_apinit::Message as From;
use pb::to_apinit::Message as To;
use psched::apteam::{Apid, Incarnation, Key, Ticket};
use psched::checkpoint::{Image, Kind, MANIFEST, Manifest, SealKey, example};
use psched::node::checkpoint::dir::{Dir, Partial, Spot};
use psched::node::checkpoint::fd_channel::{Answer, Ask, beside, hear_first, say};
use psched::rpc::pb;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};
use tokio::process::{Child, Command};
use tonic::Status;

const KEY_OF_SEALS: SealKey = SealKey([7; 32]);

/// The example as application 7, in the folder of the fake daemons. Its text.
fn made(fake: &Fake, name: &str, change: impl FnOnce(&mut Manifest)) -> Vec<u8> {
    let spot = Spot::of(&fake.folder.path().join(name)).expect("a place");
    let partial = Partial::create(spot).expect("made");
    let mut manifest = example();
    manifest.recovery.apid = Apid(7);
    change(&mut manifest);
    let folder =
        (!manifest.files.is_empty()).then(|| partial.dir().folder("host-0").expect("made"));
    for Image { name, .. } in &manifest.files {
        use rustix::fs::{Mode, OFlags, openat};
        let (at, name) = match name.strip_prefix("host-0/") {
            Some(name) => (folder.as_ref().expect("made").as_fd(), name),
            None => (partial.as_fd(), &name[..]),
        };
        let bytes = if name.starts_with("core") { "core" } else { "pages" };
        let file = openat(at, name, OFlags::WRONLY | OFlags::CREATE, Mode::RUSR).expect("made");
        std::fs::File::from(file).write_all(bytes.as_bytes()).expect("written");
    }
    partial.dir().seal(manifest, &KEY_OF_SEALS, None).expect("sealed");
    partial.publish(false).expect("published");
    std::fs::read(fake.folder.path().join(name).join(MANIFEST)).expect("there")
}

fn cpr(fake: &Fake, arguments: &[&str]) -> Command {
    let mut command = command(env!("CARGO_BIN_EXE_cpr"));
    command.args(arguments).env("PSCHED_SOCKET", &fake.socket).current_dir(fake.folder.path());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut command = Command::from(command);
    command.kill_on_drop(true);
    command
}

/// The door of the fake apinit: it gives these answers, one a question, and tells what was asked, with the
/// connection.
fn door(fake: &Fake, answers: Vec<Answer>) -> Receiver<(Ask, Dir, UnixStream)> {
    let listener = UnixListener::bind(beside(&fake.socket)).expect("a free path");
    let (tell, told) = channel();
    std::thread::spawn(move || {
        for answer in answers {
            let Ok((mut stream, _)) = listener.accept() else { return };
            let (ask, fd) = hear_first(&mut stream).expect("a question");
            say(&mut stream, answer).expect("it is read");
            let _ = tell.send((ask, Dir::new(fd).expect("a folder"), stream));
        }
    });
    told
}

/// The next that was asked there.
fn asked(door: &Receiver<(Ask, Dir, UnixStream)>) -> (Ask, Dir, UnixStream) {
    door.recv_timeout(std::time::Duration::from_secs(20)).expect("within 20 s")
}

async fn launched(attached: &mut Attached) -> pb::LaunchRequest {
    let To::Launch(request) = attached.next().await else { panic!("a launch comes first") };
    request
}

const TOOK: &str = "Application 12 took 0.000 s: user 0.000 s, system 0.000 s, peak memory 100K\n";
const RESTARTED: &str = "cpr: application 7 is restarted as 12\n";

#[tokio::test]
async fn the_folder_comes_before_the_launch() {
    let mut fake = Fake::start();
    let text = made(&fake, "tonight", |_| {});
    let door = door(&fake, vec![Answer::NotYet, Answer::Taken]);
    let mut child = cpr(&fake, &["-r", "tonight"]).stdin(Stdio::piped()).spawn().expect("starts");
    let posted = fake.posted().await;
    let request = posted.request.as_ref().expect("a posting");
    assert_eq!((&request.restart[..], request.request_id.len()), (&text[..], 16));
    assert_eq!((&request.shape, &request.command[..]), (&None, ""), "nothing beside it");
    posted.place();
    let restore = Ask::Restore {
        key: Key { apid: Apid(KEY.apid), incarnation: Incarnation(KEY.incarnation) },
        ticket: Ticket([7; 16]),
    };
    let mut attached = fake.attached().await;
    // By then it had been given, and its placement was known the second time.
    let (first, second) = (asked(&door), asked(&door));
    assert_eq!((&first.0, &second.0), (&restore, &restore));
    // Nobody else may use it meanwhile: neither another restart, nor one who removes it.
    drop((first.1, second.1));
    for line in [["-r", "tonight"], ["-D", "tonight"]] {
        let output = finish(cpr(&fake, &line).spawn().expect("starts")).await;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            said.starts_with("cpr: tonight: another process is writing, restarting or"),
            "{said}"
        );
        assert_eq!(output.status.code(), Some(if line[0] == "-r" { 125 } else { 1 }));
    }
    assert!(launched(&mut attached).await.launch.is_some());
    attached.go();
    attached.output(0, false, b"out\n");
    attached.taken().await;
    // It runs: the folder is free, and the door is closed.
    let path = fake.folder.path().join("tonight");
    let dir = Spot::of(&path).expect("a place").open().expect("readable").expect("there");
    assert_eq!(dir.hold(), Ok(()));
    let mut stream = second.2;
    let end = soon(tokio::task::spawn_blocking(move || {
        psched::node::checkpoint::fd_channel::hear_next(&mut stream, || {
            std::time::Instant::now() + std::time::Duration::from_secs(60)
        })
    }));
    assert!(matches!(end.await.expect("no panic"), Ok(None)), "closed");
    // stdin is its own.
    use tokio::io::AsyncWriteExt;
    let mut input = child.stdin.take().expect("piped");
    input.write_all(b"in").await.expect("written");
    drop(input);
    attached.say(From::StdinCredit(pb::StdinCredit { credit: 100, received: 0 }));
    let To::Stdin(piece) = attached.next().await else { panic!("stdin") };
    assert_eq!(&piece.data[..], b"in");
    attached.done();
    posted.end(3, None);
    let mut output = finish(child).await;
    // (Where the two above have taken their time it says so.)
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let slow = |line: &&str| !line.contains("its apinit has not accepted the launch yet");
    output.stderr = said.split_inclusive('\n').filter(slow).collect::<String>().into_bytes();
    assert_output(&output, "out\n", &format!("{RESTARTED}{TOOK}"), 3);
}

#[tokio::test]
async fn with_a_file_both_streams_go_there_and_stdin_is_empty() {
    let mut fake = Fake::start();
    made(&fake, "tonight", |_| {});
    let _door = door(&fake, vec![Answer::Taken]);
    let mut command = cpr(&fake, &["-r", "tonight", "--output", "out.txt"]);
    let child = command.stdin(Stdio::piped()).spawn().expect("starts");
    let (posted, mut attached, _) = fake.going().await;
    attached.say(From::StdinCredit(pb::StdinCredit { credit: 100, received: 0 }));
    let next = attached.next().await;
    assert!(matches!(next, To::StdinEnd(pb::StdinEnd { length: 0 })), "{next:?}");
    attached.output(0, false, b"out\n");
    attached.output(1, true, b"err\n");
    attached.taken().await;
    attached.done();
    posted.end(0, None);
    assert_output(&finish(child).await, "", RESTARTED, 0);
    let written = std::fs::read_to_string(fake.folder.path().join("out.txt")).expect("made");
    assert_eq!(written, "out\nerr\n");
}

#[tokio::test]
async fn what_the_apinit_refuses_ends_it() {
    let mut fake = Fake::start();
    made(&fake, "tonight", |_| {});
    let no = Answer::Refused("only root restores".into());
    let _door = door(&fake, vec![no; 8]);
    let child = cpr(&fake, &["-r", "tonight"]).spawn().expect("starts");
    let posted = fake.posted().await;
    posted.place();
    let said = format!("{RESTARTED}cpr: application 12 was not launched: only root restores\n");
    assert_output(&finish(child).await, "", &said, 125);
}

#[tokio::test]
async fn an_apinit_without_a_door_restores_nothing() {
    let mut fake = Fake::start();
    made(&fake, "tonight", |_| {});
    let child = cpr(&fake, &["-r", "tonight"]).spawn().expect("starts");
    let posted = fake.posted().await;
    posted.place();
    let said = format!(
        "{RESTARTED}cpr: application 12 was not launched: its apinit is of an older release, which can't restart applications: upgrade apinit\n"
    );
    assert_output(&finish(child).await, "", &said, 125);
}

#[tokio::test]
async fn one_that_waited_is_launched_as_it_was() {
    let mut fake = Fake::start();
    made(&fake, "queued", |manifest| {
        (manifest.kind, manifest.files) = (Kind::Waiting, Vec::new());
        manifest.recovery.apid = Apid(KEY.apid);
    });
    let child: Child = cpr(&fake, &["-r", "queued"]).spawn().expect("starts");
    let (posted, attached, launch) = fake.going().await;
    assert_eq!(&launch.arguments[..], [&b"./ring"[..], b"1000"]);
    assert_eq!(&launch.environment[..], [&b"HOME=/home/alice"[..], b"RATE=100%"]);
    assert_eq!(&launch.directory[..], b"/home/alice/work");
    attached.done();
    posted.end(0, None);
    let again = "cpr: application 12 is posted again\n";
    assert_output(&finish(child).await, "", again, 0);
}

/// Its lines are cpr's.
#[tokio::test]
async fn a_signal_before_its_place_ends_it() {
    let mut fake = Fake::start();
    made(&fake, "tonight", |_| {});
    let child = cpr(&fake, &["-r", "tonight"]).spawn().expect("starts");
    let posted = fake.posted().await;
    posted.tell(Event::Accepted(pb::Accepted { apid: KEY.apid, ..Default::default() }));
    let kind = pb::cause::Kind::Kill.into();
    let cause = pb::Cause { kind, signal: 15, uid: 5, ..Default::default() };
    posted.tell(Event::Ended(pb::Ended {
        ago_ms: None,
        by_name: "carol".into(),
        status: 143,
        end: Some(pb::HostEnd {
            key: Some(KEY),
            first: Some(pb::Decisive { at_mono_ns: 1, cause: Some(cause) }),
            ..Default::default()
        }),
    }));
    let said = "cpr: Apid 12: killed by carol: Terminated (signal 15); initiated application \
                termination\n";
    assert_output(&finish(child).await, "", &format!("{RESTARTED}{said}"), 143);
}

#[tokio::test]
async fn what_psched_refuses_is_told_of_the_checkpoint() {
    let fake = Fake::refusing(Status::invalid_argument("it is not for here"));
    made(&fake, "tonight", |_| {});
    let child = cpr(&fake, &["-r", "tonight"]).spawn().expect("starts");
    assert_output(&finish(child).await, "", "cpr: tonight: it is not for here\n", 125);
}
