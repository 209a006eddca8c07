//! An apinit brings applications back from checkpoints; psched and cpr are played.

use super::END_IT;
use super::rig::Taken;
use crate::apinit::front::*;
use crate::apinit::rig::*;
use crate::support::{children, criu::criu, skip, write_program};
use psched::apteam::Ticket;
use psched::apteam::ending::{Cause, NOT_THE_PROGRAM};
use psched::apteam::place::{Place, PlacementList};
use psched::apteam::posting::Posting;
use psched::apteam::protocol::attach::{OutputTaken, StdinPiece, ToApinit};
use psched::apteam::protocol::node::{Phase, PlaceCommand, Report, Restart};
use psched::checkpoint::{BackEnd, HostImages, Kind, Manifest, Recovery, example};
use psched::machine::Nid;
use psched::node::checkpoint::criu::Criu;
use psched::node::checkpoint::dir::{Partial, Spot};
use psched::node::checkpoint::fd_channel::{Answer, Ask, ask};
use psched::node::checkpoint::{Resume, dump_application, keep_resume};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// It reads a line in each of its lives.
const SCRIPT: &str = "while read line; do echo had $line; done; exit 3";
const BEFORE: Duration = Duration::from_secs(500);

/// An instance in which application 12.1, which was on NID 0, has been checkpointed and ended.
struct Checkpointed {
    instance: Instance,
    /// As long as this is open everything lives; and what apinits are given of it.
    lifeline: OwnedFd,
    read: OwnedFd,
    apinit: Apinit,
    link: Link,
    criu: Criu,
    folder: PathBuf,
}

fn line(offset: u64, text: &'static str) -> ToApinit {
    ToApinit::Stdin(StdinPiece { offset, data: text.as_bytes().into() })
}

/// The processors that a process may use.
fn processors(pid: i32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.expect("Linux says it").trim().to_owned()
}

async fn checkpointed(test: &str) -> Option<Checkpointed> {
    let criu = criu(test)?;
    let mut instance = Instance::new().await;
    if instance.groups().is_none() {
        skip(test, "there are no cgroups");
        return None;
    }
    let (read, lifeline) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).expect("a pipe");
    let start =
        |instance: &Instance| Apinit::start_with_criu(instance, "0-1", &read, None, criu.program());
    let mut apinit = start(&instance);
    let mut link = instance.link().await;
    let place = instance.place("12.1", &[&[0]], 1);
    let key = place.key;
    link.place(&place).await;
    let mut front = Front::launch(&instance.apinit_socket(0), key, SCRIPT).await;
    front.until_going().await;
    front.say(line(0, "one\n")).await;
    front.until_output("had one\n").await;

    // Nobody else talks with its apshepherd.
    apinit.signal(nix::sys::signal::Signal::SIGKILL);
    apinit.exit().await;
    let taken = Taken::of(&apinit.app(key), Some(std::process::id() as i32));
    let folder = instance.folder.path().join("checkpoint");
    let partial = Partial::create(Spot::of(&folder).expect("a place")).expect("made");
    let images = partial.dir().folder("host-0").expect("made");
    dump_application(&criu, &taken.running(), images.as_fd(), END_IT).expect("dumped");
    keep_resume(images.as_fd(), Resume { output_received: 8, stdin_taken: 4 }).expect("kept");
    let of = example().recovery;
    let recovery = Recovery {
        apid: key.apid,
        incarnation: key.incarnation,
        owner: own_ids(),
        posting: Posting { shape: place.shape, ..of.posting.clone() },
        ..of
    };
    let host = HostImages { folder: "host-0".into(), host_id: "here".into(), nids: vec![Nid(0)] };
    let back_end = BackEnd::Criu { version: "4".into() };
    let kind = Kind::Running { back_end, places: place.places.clone(), hosts: vec![host] };
    let manifest = Manifest { kind, recovery, launch: None, ..example() };
    partial.dir().seal(manifest, &SEALING, None).expect("sealed");
    partial.publish(false).expect("it has its name");

    let apinit = start(&instance);
    let mut link = instance.link().await;
    link.ended().await;
    link.acknowledge(key).await;
    // Its front end hears of its end; then nothing is left of it.
    let taken = vec![OutputTaken { source: 0, offset: 8 }];
    let resume = ToApinit::Resume { key, ticket: TICKET, taken };
    Front::attach(&instance.apinit_socket(0), resume).await.until_done().await;
    let app = apinit.app(key);
    until("the runtime directory to go", || !app.exists()).await;
    Some(Checkpointed { instance, lifeline, read, apinit, link, criu, folder })
}

impl Checkpointed {
    /// Its placement as 30.1, on the second processor of NID 1.
    fn restart(&self) -> PlaceCommand {
        let place = self.instance.place("30.1", &[&[1]], 1);
        let seat = Place { nid: Nid(1), processors: vec![1], pes: 1 };
        PlaceCommand {
            restart: Some(Restart { from: key("12.1"), run: BEFORE, parts: Vec::new() }),
            places: PlacementList([seat].into()),
            ..place
        }
    }

    fn socket(&self) -> PathBuf {
        self.instance.apinit_socket(0)
    }

    /// As cpr does it: the folder first, and then the launch, of which nothing counts.
    async fn launch(&mut self, place: &PlaceCommand) -> Front {
        self.link.place(place).await;
        assert_eq!(self.pass(place).await, Answer::Taken);
        Front::launch(&self.socket(), place.key, "exit 99").await
    }

    /// Passes the folder through the door.
    async fn pass(&self, place: &PlaceCommand) -> Answer {
        let folder = File::open(&self.folder).expect("opened");
        let question = Ask::Restore { key: place.key, ticket: place.ticket };
        let socket = self.socket();
        let asked = tokio::task::spawn_blocking(move || {
            let until = std::time::Instant::now() + BOUND;
            loop {
                let mut door = ask(&socket, &question, folder.as_fd()).expect("it has a door");
                let answer = door.answer(BOUND).expect("it answers");
                if answer != Answer::NotYet || std::time::Instant::now() > until {
                    return answer;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        bounded("the door", asked).await.expect("no panic")
    }

    /// Its apinit is killed, and another is there.
    async fn start_anew(&mut self, criu: &Path) {
        self.apinit.signal(nix::sys::signal::Signal::SIGKILL);
        self.apinit.exit().await;
        self.apinit = Apinit::start_with_criu(&self.instance, "0-1", &self.read, None, criu);
        self.link = self.instance.link().await;
    }

    /// How it ended before it ran again.
    async fn failure(&mut self, place: &PlaceCommand) -> String {
        assert_eq!(self.link.word().await, Report::Launched(place.key));
        self.why().await
    }

    /// Why it ended.
    async fn why(&mut self) -> String {
        let end = self.link.ended().await;
        assert_eq!((end.status(), end.launched), (125, false));
        let first = end.first.expect("why").cause;
        let Cause::LaunchFailed { errno: NOT_THE_PROGRAM, text, .. } = first else {
            panic!("{first:?}");
        };
        text
    }

    /// Its end is known, and nothing is left of it.
    async fn over(&mut self, place: &PlaceCommand) {
        self.link.acknowledge(place.key).await;
        let app = self.apinit.app(place.key);
        until("the runtime directory to go", || !app.exists()).await;
        let groups = self.instance.groups().expect("there are groups");
        until("the groups to go", || !groups.exists()).await;
    }

    async fn end(mut self) {
        drop(self.lifeline);
        self.apinit.exit().await;
        assert!(!self.apinit.runtime.exists(), "the runtime directory is left");
    }
}

#[tokio::test]
async fn it_goes_on_elsewhere_under_another_number() {
    let test = "checkpoint::restart::it_goes_on_elsewhere_under_another_number";
    let Some(mut at) = checkpointed(test).await else { return };
    let place = at.restart();
    let mut front = at.launch(&place).await;
    front.until_going().await;
    assert_eq!(at.link.word().await, Report::Launched(place.key));
    assert_eq!(at.link.word().await, Report::Running(place.key));
    // Its process is on the processor where it sits now.
    let shepherd = || -> i32 {
        let text = std::fs::read_to_string(at.apinit.app(place.key).join("shepherd"));
        let text = text.expect("kept");
        text.split(' ').next().and_then(|pid| pid.parse().ok()).expect("a pid")
    };
    let pes = children(shepherd());
    let all = psched::os::affinity::get(0).expect("ours");
    if all.len() > 1 {
        // NID 1's second is the fourth of all nodes.
        let own = all[3 % all.len()].to_string();
        assert_eq!(pes.iter().map(|(pid, _)| processors(*pid)).collect::<Vec<_>>(), [own]);
    }
    // It goes on with what is said to it now, and what its former front end has had is not said again.
    front.say(line(0, "two\n")).await;
    front.until_output("had two\n").await;
    assert_eq!(front.output, "had two\n");

    // As any other it outlives its apinit.
    let criu = at.criu.clone();
    at.start_anew(criu.program()).await;
    assert_eq!(at.link.inventory, [(place.key, Phase::Running)]);
    let taken = vec![OutputTaken { source: 0, offset: 8 }];
    let resume = ToApinit::Resume { key: place.key, ticket: TICKET, taken };
    let mut again = Front::attach(&at.socket(), resume).await;
    again.had.insert(0, 8);
    again.until_going().await;
    again.say(line(4, "three\n")).await;
    again.say(ToApinit::StdinEnd(10)).await;
    again.until_done().await;
    assert_eq!(again.output, "had three\n");
    let end = at.link.ended().await;
    assert_eq!((end.key, end.ends.clone(), end.status()), (place.key, exits(3, 1), 3));
    assert_eq!((&*end.nids, end.launched), (&[Nid(1)][..], true));
    at.over(&place).await;
    at.end().await;
}

#[tokio::test]
async fn nothing_of_it_runs_before_its_turn() {
    let test = "checkpoint::restart::nothing_of_it_runs_before_its_turn";
    let Some(mut at) = checkpointed(test).await else { return };
    let place = PlaceCommand { shares: true, ..at.restart() };
    // Somebody runs there, and no plan says that anybody else is to.
    let other = PlaceCommand { restart: None, key: key("20.1"), ..place.clone() };
    at.link.place(&other).await;
    let mut others = Front::launch(&at.socket(), other.key, "read line; exit 0").await;
    others.until_going().await;
    assert_eq!(at.link.word().await, Report::Launched(other.key));
    assert_eq!(at.link.word().await, Report::Running(other.key));
    let mut front = at.launch(&place).await;
    front.until_going().await;
    front.say(line(0, "two\n")).await;
    front.say(ToApinit::StdinEnd(4)).await;
    // Its group has the name of the node on which it was launched.
    let groups = at.instance.groups().expect("there are groups").join(place.key.to_string());
    let frozen = || std::fs::read_to_string(groups.join("0/cgroup.events")).expect("it is there");
    assert!(frozen().contains("populated 1") && frozen().contains("frozen 1"), "{}", frozen());
    assert_eq!(front.output, "");
    others.say(ToApinit::StdinEnd(0)).await;
    others.until_done().await;
    front.until_done().await;
    assert_eq!(front.output, "had two\n");
    for expected in [&place, &other] {
        at.link.acknowledge(expected.key).await;
        let app = at.apinit.app(expected.key);
        until("the runtime directory to go", || !app.exists()).await;
    }
    at.end().await;
}

#[tokio::test]
async fn what_had_only_begun_when_its_apinit_died_is_undone() {
    let test = "checkpoint::restart::what_had_only_begun_when_its_apinit_died_is_undone";
    let Some(mut at) = checkpointed(test).await else { return };
    // A CRIU that takes its time where it restores: it is a child of the first process of a namespace.
    let folder = at.instance.folder.path().join("slow");
    std::fs::create_dir(&folder).expect("made");
    let (slow, begun) = (folder.join("criu"), folder.join("begun"));
    let script = format!(
        "#!/bin/sh\nif [ $PPID = 1 ]; then : >{}; sleep 1000; fi\nexec {} \"$@\"\n",
        begun.display(),
        at.criu.program().display()
    );
    write_program(&slow, script, 0o755);
    at.start_anew(&slow).await;
    let place = at.restart();
    let _front = at.launch(&place).await;
    assert_eq!(at.link.word().await, Report::Launched(place.key));
    until("it to begin", || begun.exists()).await;
    at.start_anew(&slow).await;
    let text = at.why().await;
    assert!(text.contains("apinit was restarted while it restored"), "{text}");
    // Its front end is not the one that would hear of it: nothing else keeps it here.
    let resume = ToApinit::Resume { key: place.key, ticket: TICKET, taken: Vec::new() };
    Front::attach(&at.socket(), resume).await;
    at.over(&place).await;
    at.end().await;
}

#[tokio::test]
async fn what_stands_in_the_way_of_a_restart_is_its_end() {
    let test = "checkpoint::restart::what_stands_in_the_way_of_a_restart_is_its_end";
    let Some(mut at) = checkpointed(test).await else { return };
    // Nobody has passed a folder.
    let place = at.restart();
    at.link.place(&place).await;
    let mut front = Front::launch(&at.socket(), place.key, "exit 99").await;
    let why = at.failure(&place).await;
    assert!(why.contains("has not received the folder"), "{why}");
    front.until_done().await;
    at.over(&place).await;

    // Another application was posted.
    let place = at.restart();
    let restart = Some(Restart { from: key("13.1"), run: BEFORE, parts: Vec::new() });
    let place = PlaceCommand { key: key("31.1"), restart, ..place };
    let mut front = at.launch(&place).await;
    let why = at.failure(&place).await;
    assert!(why.contains("the checkpoint is of application 12"), "{why}");
    front.until_done().await;
    at.over(&place).await;

    // Somebody else at the door, and a byte that is another one.
    let place = PlaceCommand { key: key("32.1"), ..at.restart() };
    at.link.place(&place).await;
    let stranger = PlaceCommand { ticket: Ticket([8; 16]), ..place.clone() };
    let answer = at.pass(&stranger).await;
    assert!(matches!(&answer, Answer::Refused(why) if why.contains("ticket")), "{answer:?}");
    let images = at.folder.join("host-0");
    let pages = std::fs::read_dir(&images).expect("readable").flatten().map(|e| e.path());
    let pages = pages.into_iter().find(|p| p.to_string_lossy().contains("pages-"));
    let pages = pages.expect("there is memory");
    let mut bytes = std::fs::read(&pages).expect("readable");
    *bytes.last_mut().expect("some") ^= 1;
    std::fs::write(&pages, bytes).expect("written");
    let mut front = at.launch(&place).await;
    let why = at.failure(&place).await;
    assert!(why.contains("is damaged"), "{why}");
    front.until_done().await;
    at.over(&place).await;
    at.end().await;
}
