//! Checkpoints of processes on one host by a cpr on another: images go from host to host.

use crate::support::criu::criu;
use crate::support::hosts::{Cluster, may_be};
use crate::support::users::{ANNA, Bins, User};
use crate::support::*;
use psched::node::checkpoint::dumps_others;
use psched::rpc::connect::connect;
use psched::rpc::pb;
use psched::rpc::pb::psched_client::PschedClient;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Counts to 400, and says how far it is.
const COUNTS: &str = "i=0; while [ $i -lt 400 ]; do i=$((i+1)); echo $i; sleep 0.01; done; exit 3";

struct Rig {
    cluster: Cluster,
    bins: Bins,
    /// The user's, on the file system that all hosts share.
    folder: PathBuf,
}

/// Whose applications these are: Anna's, where root may dump processes of others.
fn user() -> User {
    match dumps_others() {
        true => ANNA,
        false => User { uid: 0, gid: 0, groups: &[0] },
    }
}

impl Rig {
    /// Three hosts with two nodes each and a CRIU; none: the test is skipped.
    fn new(test: &str) -> Option<Rig> {
        if !may_be(test) {
            return None;
        }
        let criu = criu(test)?.program().to_owned();
        let cluster = Cluster::start_with(3, 2, Some(criu));
        let folder = cluster.folder().join("anna");
        std::fs::create_dir(&folder).expect("made");
        std::os::unix::fs::chown(&folder, Some(user().uid), Some(user().gid)).expect("hers");
        Some(Rig { cluster, bins: Bins::new(), folder })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A command of the user's on a host, in the folder.
    fn command(&self, host: usize, name: &str, line: &str) -> std::process::Command {
        let inside = format!("cd {} && exec \"$@\"", self.folder.display());
        let hers = user().command(self.bins.path(name), words(line));
        let mut command = self.cluster.on(host, "sh".as_ref());
        command.args(["-c", &inside, "sh"]).arg(hers.get_program()).args(hers.get_args());
        command.env_remove("PSCHED_SOCKET").env_remove("PSCHED_LOG");
        command
    }

    fn cpr(&self, host: usize, line: &str) -> Run {
        run(&mut self.command(host, "cpr", line))
    }

    /// Its output goes to this file.
    fn counts(&self, host: usize, options: &str, out: &str) -> (Running, u64) {
        let line = format!("-q -b --output {out} {options} sh -c");
        let aprun = Running::start(self.command(host, "aprun", &line).arg(COUNTS));
        (aprun, self.cluster.wait_for("running", 1)[0])
    }

    fn numbers(&self, out: &str) -> Vec<u32> {
        let text = std::fs::read_to_string(self.at(out)).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    #[track_caller]
    fn goes_on(&self, out: &str) {
        let before = self.numbers(out).len();
        eventually(BOUND, "it counts", || self.numbers(out).len() > before + 1);
    }

    /// The node of PE 0.
    fn nid(&self, apid: u64) -> u64 {
        let row = self.cluster.apstat(&format!("-A {apid}"));
        row["placement"][0]["nid"].as_u64().expect("placed")
    }

    /// Nothing of any checkpoint is left on a host.
    #[track_caller]
    fn nothing_is_left(&self, host: usize) {
        let afar = self.cluster.root(host).join(format!("run/psched/apps-{}/afar", 2 * host));
        eventually(BOUND, "its apinit has removed what came and went", || {
            std::fs::read_dir(&afar).expect("it is there").count() == 0
        });
    }
}

/// An application on another host goes on after its checkpoint; ended by another one, it goes on where there is room.
#[test]
fn images_come_and_go() {
    let Some(rig) = Rig::new("host_images::images_come_and_go") else { return };
    let (aprun, apid) = rig.counts(0, "-L 2", "first");
    rig.goes_on("first");
    let made = rig.cpr(0, &format!("-c tonight -p {apid}")).expect(0);
    assert!(made.out().contains("it goes on"), "{}", made.out());
    rig.goes_on("first");
    let info = rig.cpr(0, "-i tonight").expect(0).out();
    assert!(info.contains(" yes ") && info.contains("criu"), "{info}");
    // By a cpr of a third host, over the first one.
    let made = rig.cpr(2, &format!("-c tonight -f -k -p {apid}")).expect(0);
    assert!(made.out().contains("it was ended"), "{}", made.out());
    aprun.wait(BOUND).expect(137);
    let so_far = *rig.numbers("first").last().expect("some");
    rig.nothing_is_left(1);
    // It was chosen to be on node 2.
    let again = Running::start(&mut rig.command(0, "cpr", "-r tonight --output second"));
    let apid = rig.cluster.wait_for("running", 1)[0];
    assert_eq!(rig.nid(apid), 2);
    again.wait(BOUND).expect(3);
    let second = rig.numbers("second");
    assert!(second[0] <= so_far + 1 && second[0] > 1, "{} after {so_far}", second[0]);
    assert!(second.windows(2).all(|two| two[1] == two[0] + 1), "{second:?}");
    assert_eq!(second.last(), Some(&400));
    rig.nothing_is_left(1);
}

/// Its host is lost, and the one that it goes on on has never seen it.
#[test]
fn what_has_lost_its_host_goes_on_on_another_one() {
    let test = "host_images::what_has_lost_its_host_goes_on_on_another_one";
    let Some(mut rig) = Rig::new(test) else { return };
    let (aprun, apid) = rig.counts(0, "-L 2-5 --restart-from tonight", "out");
    rig.goes_on("out");
    rig.cpr(0, &format!("-c tonight -p {apid}")).expect(0);
    let made_at = *rig.numbers("out").last().expect("some");
    rig.goes_on("out");
    rig.cluster.kill_apinit(1);
    for (pid, _) in rig.cluster.others(1) {
        kill(pid, 9);
    }
    run(&mut rig.cluster.command(0, "psmgr", words("down 2-3 no power"))).expect(0);
    let ended = aprun.wait(BOUND).expect(3);
    ended
        .says(&format!("aprun: application {apid} was lost with NID 2 of host h1"))
        .says("it is restarted from its checkpoint tonight, made 20");
    let numbers = rig.numbers("out");
    let back = numbers.windows(2).filter(|two| two[1] != two[0] + 1).collect::<Vec<_>>();
    assert!(back.len() <= 1 && back.iter().all(|two| two[1] <= made_at + 1), "{back:?}, {made_at}");
    assert_eq!((numbers.first(), numbers.last()), (Some(&1), Some(&400)));
    rig.nothing_is_left(2);
}

/// A cpr of a release before brings no images to another host, and does not say that it could.
#[test]
fn images_of_an_older_cpr_stay_on_its_host() {
    let test = "host_images::images_of_an_older_cpr_stay_on_its_host";
    let Some(rig) = Rig::new(test) else { return };
    let (aprun, apid) = rig.counts(0, "-L 2", "first");
    rig.goes_on("first");
    rig.cpr(0, &format!("-c tonight -k -p {apid}")).expect(0);
    aprun.wait(BOUND).expect(137);
    let manifest = std::fs::read(rig.at("tonight/manifest.json")).expect("read");
    // (It was chosen to be on node 2, which is of h1. The caller is this process, as the user, on the host of the socket.)
    let posts = |host: usize, number: u8, brings_images: bool| {
        let folder = std::fs::File::open(rig.cluster.root(host).join("run/psched")).expect("there");
        let socket = PathBuf::from(format!("/proc/self/fd/{}/psched.sock", folder.as_raw_fd()));
        let request = pb::PostRequest {
            request_id: vec![number; 16].into(),
            restart: manifest.clone().into(),
            brings_images,
            ..pb::PostRequest::default()
        };
        user().does(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("one");
            let (apid, stream) = runtime.block_on(async {
                let channel = connect(&socket).await.expect("connected");
                let reply = PschedClient::new(channel).post(request).await.expect("taken");
                let mut stream = reply.into_inner();
                let said = stream.message().await.expect("told").and_then(|said| said.event);
                let Some(pb::application_event::Event::Accepted(accepted)) = said else {
                    panic!("{said:?}");
                };
                (accepted.apid, stream)
            });
            (apid, (stream, runtime))
        })
    };
    let why = |apid: u64| {
        run(&mut rig.cluster.command(0, "apstat", ["--why", &apid.to_string()])).expect(0).out()
    };
    let ends = |apid: u64| {
        run(&mut rig.cluster.command(0, "apkill", ["-9", &apid.to_string()])).expect(0);
        eventually(BOUND, "it is over", || {
            let all = rig.cluster.apstat("-a");
            all["applications"].as_array().is_some_and(Vec::is_empty)
        });
    };
    for (host, named) in [(0, "psched's host"), (2, "host h2")] {
        let (apid, posted) = posts(host, 1 + host as u8, false);
        let said = why(apid);
        let stays = format!("its checkpoint is on {named}, which has no room for it");
        assert!(said.replace("\n", " ").contains(&stays), "{said}");
        assert_eq!(rig.cluster.wait_for("posted", 1), [apid]);
        drop(posted);
        ends(apid);
    }
    let (apid, posted) = posts(0, 7, true);
    assert_eq!(rig.nid(apid), 2);
    drop(posted);
    ends(apid);
    rig.nothing_is_left(1);
}

/// Whoever brings the files stands still: the application is ended all the same.
#[test]
fn what_waits_for_its_files_can_be_ended() {
    let test = "host_images::what_waits_for_its_files_can_be_ended";
    let Some(rig) = Rig::new(test) else { return };
    // So much memory that its files take a moment.
    let script = format!("x=$(head -c 64000000 /dev/zero | tr '\\0' a); {COUNTS}");
    let line = "-q -b --output out -L 2 sh -c";
    let aprun = Running::start(rig.command(0, "aprun", line).arg(script));
    let apid = rig.cluster.wait_for("running", 1)[0];
    eventually(BOUND, "it counts", || !rig.numbers("out").is_empty());
    rig.cpr(0, &format!("-c tonight -k -p {apid}")).expect(0);
    aprun.wait(BOUND).expect(137);
    for _ in 0..5 {
        let cpr = Running::start(&mut rig.command(0, "cpr", "-r tonight --output second"));
        let row = || rig.cluster.apstat("")["applications"][0].clone();
        eventually(BOUND, "it has a place", || {
            row()["state"].as_str().is_some_and(|state| state != "posted")
        });
        cpr.signal(19);
        let now = row();
        if now["state"] == "running" {
            // It was quicker.
            cpr.signal(18);
            cpr.signal(15);
            cpr.wait(BOUND).expect(143);
            continue;
        }
        let line = format!("-9 {}", now["apid"]);
        run(&mut rig.command(0, "apkill", &line)).expect(0);
        eventually(BOUND, "it has ended", || {
            rig.cluster.apstat("")["applications"].as_array().is_some_and(Vec::is_empty)
        });
        rig.nothing_is_left(1);
        cpr.signal(18);
        cpr.wait(BOUND).expect(137);
        return;
    }
    panic!("its files have come each time before cpr was stopped");
}

/// What goes wrong on the way: the application goes on, nothing is left of the checkpoint, and the next one works.
#[test]
fn what_breaks_on_the_way_leaves_nothing() {
    let test = "host_images::what_breaks_on_the_way_leaves_nothing";
    let Some(mut rig) = Rig::new(test) else { return };
    let aprun = Running::start(&mut rig.command(0, "aprun", "-q -b -L 2 sleep 1000"));
    let apid = rig.cluster.wait_for("running", 1)[0];
    // What was begun is given up beside: until then nobody else can ask. And an apinit that has
    // just come back has yet to tell psched of the application.
    let not_yet =
        ["is being checkpointed by another cpr", "has an apshepherd that does not answer"];
    let made = |rig: &Rig, line: &str| {
        let mut made = None;
        eventually(BOUND, "it can be checkpointed", || {
            let run = rig.cpr(0, &format!("{line} -p {apid}"));
            let waits = not_yet.iter().any(|why| run.stderr.contains(why));
            made = Some(run);
            !waits
        });
        made.expect("asked")
    };
    // No room where it is to be.
    let small = rig.at("small");
    std::fs::create_dir(&small).expect("made");
    let options = format!("size=64k,uid={},mode=700", user().uid);
    let mut mount = rig.cluster.on(0, "mount".as_ref());
    run(mount.args(["-t", "tmpfs", "-o", &options, "none"]).arg(&small)).expect(0);
    made(&rig, "-c small/tonight -k").expect(1).says("No space left on device");
    made(&rig, "-c tonight").expect(0);
    // cpr is interrupted, or killed, at any moment.
    let line = format!("-c new -p {apid}");
    for signal in [2, 9] {
        for step in 0..5 {
            let mut cpr = Running::start(&mut rig.command(0, "cpr", &line));
            std::thread::sleep(std::time::Duration::from_millis(50 * step));
            let ran = cpr.runs();
            cpr.signal(signal);
            let ended = cpr.wait(BOUND);
            // (It made it; or it was given up, perhaps before it could say so; or the one before still is.)
            let busy = ended.stderr.contains("is being checkpointed by another cpr");
            let status = ended.status;
            let given_up = ran && [1, 130, 137].contains(&status);
            assert!(status == 0 || busy || given_up, "{signal} {step}: {status}, {}", ended.stderr);
            assert_eq!(rig.cluster.wait_for("running", 1), [apid]);
            let _ = std::fs::remove_dir_all(rig.at("new"));
        }
    }
    rig.nothing_is_left(1);
    made(&rig, "-c tonight -f").expect(0);
    // The apinit of its host is killed in the middle.
    for step in 0..3 {
        let cpr = Running::start(&mut rig.command(0, "cpr", &line));
        std::thread::sleep(std::time::Duration::from_millis(80 * step));
        rig.cluster.kill_apinit(1);
        rig.cluster.start_apinit(1, 2);
        let ended = cpr.wait(BOUND);
        assert!(ended.status <= 1, "{step}: {}", ended.stderr);
        let _ = std::fs::remove_dir_all(rig.at("new"));
        eventually(BOUND, "its host is back", || {
            rig.cluster.states().iter().all(|s| s != "suspect")
        });
    }
    made(&rig, "-c tonight -f -k").expect(0);
    aprun.wait(BOUND).expect(137);
    rig.nothing_is_left(1);
}

/// What is not as it was sealed is not restored, and what was is, by any host.
#[test]
fn a_damaged_image_is_not_restored() {
    let Some(rig) = Rig::new("host_images::a_damaged_image_is_not_restored") else { return };
    let (aprun, apid) = rig.counts(0, "-L 2", "out");
    rig.cpr(0, &format!("-c tonight -k -p {apid}")).expect(0);
    aprun.wait(BOUND).expect(137);
    // One byte of an image is not as it was.
    let images = rig.at("tonight/host-0");
    let pages = std::fs::read_dir(&images).expect("there").flatten().map(|entry| entry.path());
    let pages = pages.filter(|path| path.display().to_string().contains("pages-"));
    let pages: Vec<PathBuf> = pages.collect();
    let flip = |path: &Path| {
        let mut bytes = Vec::new();
        std::fs::File::open(path).expect("there").read_to_end(&mut bytes).expect("read");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(path, bytes).expect("written");
    };
    flip(&pages[0]);
    let refused = rig.cpr(0, "-r tonight --output second").expect(125);
    assert!(refused.stderr.contains("damaged"), "{}", refused.stderr);
    rig.nothing_is_left(1);
    flip(&pages[0]);
    let mode = std::fs::metadata(rig.at("tonight")).expect("there").permissions().mode();
    assert_eq!(mode & 0o077, 0);
    rig.cpr(2, "-r tonight --output second").expect(3);
    assert!(rig.numbers("second").last() == Some(&400));
    rig.nothing_is_left(1);
}
