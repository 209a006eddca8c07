//! Several programs in one application: what is posted and launched.

use super::fake::Fake;
use super::session::{assert_output, finish, start};
use pb::to_apinit::Message as To;
use psched::rpc::pb;
use tonic::Status;

/// Plays all to the end; gives the posting and the launch.
async fn whole(options: &[&str], file: Option<&str>) -> (pb::PostRequest, pb::Launch) {
    let mut fake = Fake::start();
    if let Some(text) = file {
        std::fs::write(fake.folder.path().join("list"), text).expect("our folder");
    }
    let child = start(&fake, options);
    let posted = fake.posted().await;
    posted.place();
    let mut attached = fake.attached().await;
    // One that an apinit which knows one program only takes for nothing that it knows.
    let To::LaunchSeveral(request) = attached.next().await else { panic!("a launch comes first") };
    attached.go();
    attached.output(1, false, b"x\n");
    attached.taken().await;
    attached.done();
    posted.end(3, None);
    assert_output(&finish(child).await, "x\n", "", 3);
    (posted.request.expect("a posting"), request.launch.expect("whole"))
}

/// First rank, arguments.
fn parts(launch: &pb::Launch) -> Vec<(u32, Vec<String>)> {
    let words = |words: &[bytes::Bytes]| -> Vec<String> {
        words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    };
    let first = (0, words(&launch.arguments));
    let more = launch.parts.iter().map(|part| (part.first_rank, words(&part.arguments)));
    std::iter::once(first).chain(more).collect()
}

fn expected(parts: &[(u32, &[&str])]) -> Vec<(u32, Vec<String>)> {
    let text = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    parts.iter().map(|(first, words)| (*first, text(words))).collect()
}

#[tokio::test]
async fn parts_of_the_command_line() {
    let line = ["-q", "-d2", "-N", "4", "sh", "-c", "x", ":", "-n", "3", "true", ":", "cat", "y"];
    let (request, launch) = whole(&line, None).await;
    assert_eq!(request.shape, Some(pb::Shape { width: 5, depth: 2, per_node: 4 }));
    assert_eq!(request.command, "sh -c x : true : cat y");
    let path = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(request.executable.expect("of the first").path, path(&launch.executable));
    let words = expected(&[(0, &["sh", "-c", "x"]), (1, &["true"]), (4, &["cat", "y"])]);
    assert_eq!(parts(&launch), words);
    for (part, name) in launch.parts.iter().zip(["/true", "/cat"]) {
        assert!(path(&part.executable).ends_with(name), "{part:?}");
        assert!(part.identity.as_ref().is_some_and(|identity| identity.size > 0), "{part:?}");
    }
    assert_ne!(launch.parts[0].identity, launch.identity);
}

#[tokio::test]
async fn lines_of_a_load_file() {
    let text = "# comment\n-n 2 sh -c 'a  b'\n\n-n 3 true : \\\n  \"#\" # more\n";
    let (request, launch) = whole(&["-q", "--load-file=list"], Some(text)).await;
    assert_eq!(request.shape, Some(pb::Shape { width: 5, depth: 1, per_node: 0 }));
    assert_eq!(request.command, "sh -c a  b : true : #");
    let words = expected(&[(0, &["sh", "-c", "a  b"]), (2, &["true", ":", "#"])]);
    assert_eq!(parts(&launch), words);
}

/// By a node of the release before.
#[tokio::test]
async fn a_launch_that_is_not_understood() {
    let mut fake = Fake::start();
    let child = start(&fake, &["true", ":", "true"]);
    let posted = fake.posted().await;
    posted.place();
    for _ in 0..6 {
        let mut attached = fake.attached().await;
        assert!(matches!(attached.next().await, To::LaunchSeveral(_)));
        attached
            .fail(Status::invalid_argument("a malformed request: ToApinit.message: it is empty"));
    }
    let said = "aprun: application 12 was not launched: a malformed request: ToApinit.message: it is \
                empty; an apinit of an older release can't launch several programs as one application: upgrade apinit, or start each program with an aprun of its own\n";
    assert_output(&finish(child).await, "", said, 125);
}
