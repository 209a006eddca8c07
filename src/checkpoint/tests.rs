//! Manifests and their files, whole and not.

use super::*;
use crate::apteam::binding::{Binding, Lists};
use crate::apteam::choice::Choice;
use crate::apteam::launch::{FileIdentity, Launch, Limit, Part, ServePmix, Strace};
use crate::apteam::launcher_variables::Rendezvous;
use crate::apteam::layout::Layout;
use crate::apteam::oversubscribe::{Oversubscribe, Sharing};
use crate::apteam::place::{HostPart, Place, PlacementList};
use crate::apteam::posting::{Account, Executable, Mpi, Owner, Posting};
use crate::apteam::protocol::node::Restart;
use crate::apteam::record::{Apteam, State};
use crate::apteam::saving::Saving;
use crate::apteam::shape::Shape;
use crate::apteam::{Apid, Incarnation};
use crate::machine::Nid;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

const KEY: SealKey = SealKey([7; 32]);

/// Files in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Memory(BTreeMap<String, Vec<u8>>);

impl Files for Memory {
    fn names(&self) -> Result<Vec<String>, Flaw> {
        Ok(self.0.keys().cloned().collect())
    }

    fn read(
        &self,
        name: &str,
        at_most: u64,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<Option<u64>, Flaw> {
        Ok(self.0.get(name).map(|bytes| {
            let length = bytes.len().min(at_most as usize);
            bytes[..length].chunks(3).for_each(each);
            length as u64
        }))
    }
}

impl Memory {
    /// The files of a manifest, and itself.
    fn of(manifest: &Manifest, files: &BTreeMap<String, Vec<u8>>) -> Memory {
        let mut all = files.clone();
        all.insert(MANIFEST.into(), manifest.seal(&KEY).expect("sound").into_bytes());
        Memory(all)
    }

    fn example() -> Memory {
        let file = |(name, bytes): (&str, &[u8])| (name.to_owned(), bytes.to_owned());
        let files: [(&str, &[u8]); 2] = [("core-1.img", b"core"), ("host-0/pages-1.img", b"pages")];
        Memory::of(&example(), &files.map(file).into())
    }

    /// Why it is refused.
    #[track_caller]
    fn refused(&self) -> Flaw {
        whole(self, Some(&KEY)).expect_err("not whole")
    }

    /// It, but for what is done to one file.
    fn but(&self, name: &str, what: impl FnOnce(&mut Vec<u8>)) -> Memory {
        let mut other = self.clone();
        what(other.0.entry(name.into()).or_default());
        other
    }
}

/// A change of this is a new version: checkpoints of users are in the old one.
#[test]
fn the_text_is_this() {
    let text = example().seal(&KEY).expect("sound");
    assert_eq!(text, include_str!("example.json"));
    let read = Manifest::read(include_bytes!("example.json"), Some(&KEY));
    assert_eq!(read, Ok(example()));
}

#[test]
fn what_is_not_as_it_was_is_named() {
    let good = Memory::example();
    assert_eq!(whole(&good, Some(&KEY)), Ok(example()));
    assert_eq!(whole(&good, None), Ok(example()));
    let says = |memory: &Memory, words: &str| {
        let said = memory.refused().to_string();
        assert!(said.starts_with(words) && said.contains("; "), "{said}");
    };
    // Partial.
    let mut without = good.clone();
    without.0.remove(MANIFEST);
    assert_eq!(without.refused(), Flaw::NoManifest);
    let mut without = good.clone();
    without.0.remove("core-1.img");
    assert_eq!(without.refused(), Flaw::Missing { file: "core-1.img".into() });
    let short = good.but("core-1.img", |bytes| bytes.truncate(2));
    says(&short, "it is incomplete: core-1.img has 2 bytes of 4; ");
    // Damaged.
    let longer = good.but("host-0/pages-1.img", |bytes| bytes.push(0));
    says(&longer, "host-0/pages-1.img is damaged: it has more bytes than the 5 in the manifest; ");
    let other = good.but("host-0/pages-1.img", |bytes| bytes[0] = b'P');
    says(&other, "host-0/pages-1.img is damaged: its checksum differs from that in the manifest; ");
    for what in [&b""[..], b"{", b"[]", b"\xff", b"{\"version\": 1}"] {
        let memory = good.but(MANIFEST, |bytes| *bytes = what.to_owned());
        says(&memory, "manifest.json is damaged: it can't be read: ");
    }
    let long = good.but(MANIFEST, |bytes| bytes.resize(MANIFEST_MAX + 1, b' '));
    says(&long, "manifest.json is damaged: it is longer than ");
    // Newer: whatever else is in it.
    let newer = good.but(MANIFEST, |bytes| *bytes = b"{\"version\": 2, \"x\": 3}".to_vec());
    assert_eq!(newer.refused(), Flaw::Newer { version: 2 });
    // Foreign: it is sound, but by another key.
    let text = example().seal(&SealKey([8; 32])).expect("sound");
    let foreign = good.but(MANIFEST, |bytes| *bytes = text.into_bytes());
    assert_eq!(foreign.refused(), Flaw::Foreign);
    assert_eq!(whole(&foreign, None), Ok(example()));
    // More than there was.
    let more = good.but("seccomp.img", |_| ());
    assert_eq!(more.refused(), Flaw::Strange { file: "seccomp.img".into() });
}

#[test]
fn only_its_owner_restarts_it() {
    let Recovery { owner, .. } = example().recovery;
    let may = |owner: Owner| example().may_be_restarted_by(&owner);
    assert_eq!(may(owner.clone()), Ok(()));
    // Named otherwise, and in a group more: the same.
    let more = Owner { groups: vec![27, 5], name: "al".into(), terminal: false, ..owner.clone() };
    assert_eq!(may(more), Ok(()));
    let root = Owner { uid: 0, ..owner.clone() };
    assert_eq!(may(root), Err(Flaw::NotOwner { owner: 1000, caller: 0 }));
    let less = Owner { groups: vec![100], ..owner.clone() };
    assert_eq!(may(less), Err(Flaw::NotMember { group: 27 }));
    let other = Owner { gid: 27, groups: vec![27], ..owner };
    assert_eq!(may(other), Err(Flaw::NotMember { group: 100 }));
}

#[test]
fn what_can_not_be_is_not_sealed() {
    let unfit = |what: &str, change: &dyn Fn(&mut Manifest)| {
        let mut manifest = example();
        change(&mut manifest);
        let Err(Flaw::Unfit(said)) = manifest.seal(&KEY) else { panic!("{what}") };
        assert!(said.contains(what), "{said}");
    };
    unfit("one PE", &|m| m.recovery.posting.shape.width = 0);
    unfit("one PE", &|m| m.recovery.posting.shape.per_node = Some(0));
    unfit("placement", &|m| m.recovery.posting.shape.width = 3);
    unfit("named \"../x\"", &|m| m.files[0].name = "../x".into());
    unfit("in order", &|m| m.files.swap(0, 1));
    unfit("in order", &|m| m.files[1] = m.files[0].clone());
    unfit("by criu has images in host-0", &|m| m.files.truncate(1));
    fn hosts(m: &mut Manifest) -> &mut Vec<HostImages> {
        let Kind::Running { hosts, .. } = &mut m.kind else { panic!("it runs") };
        hosts
    }
    unfit("the host of each of its nodes", &|m| hosts(m).clear());
    unfit("the host of each of its nodes", &|m| hosts(m)[0].nids.push(Nid(5)));
    unfit("the host of each of its nodes", &|m| hosts(m)[0].nids[1] = Nid(3));
    unfit("the host of each of its nodes", &|m| hosts(m).push(HostImages::default()));
    unfit("a folder named \"..\"", &|m| hosts(m)[0].folder = "..".into());
    unfit("a folder named \"a/b\"", &|m| hosts(m)[0].folder = "a/b".into());
    unfit("host-0 belongs to two", &|m| {
        let mut other = hosts(m)[0].clone();
        other.nids = vec![hosts(m)[0].nids.pop().expect("two")];
        hosts(m).push(other);
    });
    unfit("no process images", &|m| {
        (m.kind, m.launch) = (Kind::Waiting, Some(Launch::default()));
    });
    unfit("the program to execute", &|m| {
        (m.kind, m.files, m.launch) = (Kind::Waiting, Vec::new(), None);
    });
    unfit("part 2", &|m| {
        let part = Part { first: 2, ..Part::default() };
        m.launch = Some(Launch { more: vec![part], ..Launch::default() });
    });
    unfit("at most 65536 files", &|m| {
        let mut file = m.files[0].clone();
        let mut named = |n: usize| {
            file.name = format!("{n:05}");
            file.clone()
        };
        m.files = (0..=FILES_MAX).map(&mut named).collect();
    });
}

#[test]
fn time_left_is_what_has_not_run() {
    let mut recovery = example().recovery;
    assert_eq!(recovery.time_left(), Some(Duration::from_millis(2_699_500)));
    recovery.run = Duration::from_secs(4000);
    assert_eq!(recovery.time_left(), Some(Duration::ZERO));
    recovery.posting.time_limit = None;
    assert_eq!(recovery.time_left(), None);
}

/// The apteam of the example.
fn apteam(state: State) -> Apteam {
    let Manifest { kind, recovery, .. } = example();
    let Kind::Running { places, hosts, .. } = kind else { panic!("it runs") };
    let host = |HostImages { host_id, nids, .. }| HostPart { host_id, nids, ..HostPart::default() };
    Apteam {
        apid: recovery.apid,
        incarnation: recovery.incarnation,
        state,
        posting: recovery.posting,
        owner: recovery.owner,
        front: None,
        front_gone: false,
        places,
        hosts: hosts.into_iter().map(host).collect(),
        shares: false,
        ticket: Default::default(),
        ticket_until_ns: 0,
        posted_at_ns: recovery.posted_at_ns,
        running_at_ns: recovery.running_at_ns,
        ended_at_ns: 0,
        end: None,
        doomed: None,
        signals: Vec::new(),
        last_signal: 0,
        held: None,
        stopped: None,
        domain: recovery.domain.into(),
        moves: Default::default(),
        restart: None,
        retries: Default::default(),
    }
}

#[test]
fn an_application_is_checkpointed_where_it_waits_or_runs() {
    let Manifest { kind, recovery, .. } = example();
    assert_eq!(Recovery::of(&apteam(State::Running), recovery.run), recovery);
    let of = |state| Kind::of(&apteam(state));
    let with = |back_end| match kind.clone() {
        Kind::Running { places, hosts, .. } => Kind::Running { back_end, places, hosts },
        Kind::Waiting => unreachable!("it runs"),
    };
    // Which version, its apinit says.
    assert_eq!(of(State::Running), Ok(with(BackEnd::Criu { version: String::new() })));
    let mut saves = apteam(State::Running);
    saves.posting.saving = Saving::parse("USR1").ok();
    assert_eq!(Kind::of(&saves), Ok(with(BackEnd::Application)));
    saves.state = State::Posted;
    assert_eq!(Kind::of(&saves), Ok(Kind::Waiting));
    for state in [State::Posted, State::Lapsed] {
        assert_eq!(of(state), Ok(Kind::Waiting));
    }
    for state in [State::Placed, State::TakingBack, State::Launching] {
        let said = of(state).expect_err("on its way");
        assert!(said.contains(state.name()) && said.contains("try again"), "{said}");
    }
    assert_eq!(of(State::Ended), Err("application 12 has ended".into()));
    // One that is restored has nothing to be executed, so that it can't wait again.
    let restart =
        Some(Restart { from: apteam(State::Posted).key(), run: Duration::ZERO, parts: Vec::new() });
    let restarted = Apteam { restart, ..apteam(State::Posted) };
    let said = Kind::of(&restarted).expect_err("it is in one");
    assert!(said.contains("waits to be restarted from a checkpoint"), "{said}");
}

#[test]
fn folders_are_listed_once() {
    let mut manifest = example();
    let mut more = manifest.files[1].clone();
    more.name = "host-0/x".into();
    manifest.files.push(more.clone());
    more.name = "host-1/x".into();
    manifest.files.push(more);
    assert_eq!((manifest.folders(), manifest.bytes()), (vec!["host-0", "host-1"], 19));
}

fn word() -> impl Strategy<Value = Vec<u8>> + Clone {
    vec(1..=u8::MAX, 0..12)
}

fn time() -> impl Strategy<Value = Duration> {
    any::<u64>().prop_map(Duration::from_nanos)
}

fn owner() -> impl Strategy<Value = Owner> {
    (any::<(u32, u32, String, bool)>(), vec(any::<u32>(), 0..4))
        .prop_map(|((uid, gid, name, terminal), groups)| Owner { uid, gid, groups, name, terminal })
}

fn saving() -> impl Strategy<Value = Saving> {
    let by = |word: String| Saving::parse(&word).expect("good");
    prop_oneof!["USR[12]".prop_map(by), "[!-~]{1,20} [ -~]{0,20}".prop_map(by)]
}

fn posting() -> impl Strategy<Value = Posting> {
    let mpi = prop_oneof![Just(Mpi::None), Just(Mpi::Mpich), Just(Mpi::OpenMpi)];
    let executable = (any::<(String, u16, String, bool)>(), mpi);
    let numbers = (1..9u32, 1..5u32, option::of(1..9u32), option::of(any::<u64>()));
    let account = option::of("[A-Za-z0-9._-]{1,64}");
    let times = (option::of(time()), option::of(time()));
    let saving = option::of(saving());
    let rest = (any::<([u8; 16], String, (bool, bool, bool, bool))>(), saving);
    (executable, numbers, account, times, rest).prop_map(
        |(executable, numbers, account, times, rest)| {
            let ((path, machine, interpreter, script), mpi) = executable;
            let (width, depth, per_node, memory_per_pe) = numbers;
            let ((request_id, command, flags), saving) = rest;
            let (immediate, exclusive, flexible, down) = flags;
            let list = if down { "9,7-5" } else { "1-3,8" };
            let choice = match exclusive {
                true => Choice::default().only(list).and_then(|c| c.not("6")).expect("good"),
                false => Choice::default(),
            };
            let layout = match per_node {
                None => Layout::even(width, 1 + width / 2).expect("enough"),
                Some(_) => Layout::default(),
            };
            Posting {
                request_id,
                shape: Shape { width, depth, per_node },
                memory_per_pe,
                command,
                cpu_limit: times.0,
                time_limit: times.1,
                immediate,
                tries_again: false,
                brings_images: false,
                exclusive,
                account: account.map(|name| Account::parse(&name).expect("good")),
                choice,
                flexible,
                layout,
                oversubscribe: match (depth, immediate) {
                    (1, true) => Oversubscribe::Allowed,
                    (1, false) => Oversubscribe::Shares(Sharing { processors: width, per_node }),
                    _ => Oversubscribe::No,
                },
                saving,
                executable: Executable { path, machine, interpreter, script, mpi },
            }
        },
    )
}

fn launch() -> impl Strategy<Value = Launch> {
    let identity = any::<(u64, u64, u64, i64)>().prop_map(|(device, inode, size, mtime_ns)| {
        FileIdentity { device, inode, size, mtime_ns, digest: None }
    });
    let lists = vec(vec((0..9u32, 10..19u32), 0..3), 1..4);
    let binding = prop_oneof![
        Just(Binding::Usual),
        Just(Binding::Cpu),
        Just(Binding::Depth),
        Just(Binding::NumaNode),
        Just(Binding::None),
        lists.prop_map(|lists| Binding::Lists(Lists::new(lists).expect("small"))),
    ];
    let program = (word(), vec(word(), 0..4), option::of(identity));
    let rest = (any::<(u32, bool, bool, bool)>(), vec(any::<(u32, u64)>(), 0..3), word());
    (program.clone(), vec(word(), 0..4), binding, rest, option::of(program)).prop_map(
        |(program, environment, binding, rest, second)| {
            let ((umask, pmi, whole_lines, report), limits, directory) = rest;
            let (executable, arguments, identity) = program;
            let part = |(executable, arguments, identity)| Part {
                first: 1,
                executable,
                arguments,
                identity,
            };
            Launch {
                executable,
                arguments,
                environment,
                directory,
                umask,
                limits: limits
                    .into_iter()
                    .map(|(resource, soft)| Limit { resource, soft })
                    .collect(),
                binding,
                pmi,
                pmi_port: umask % 2 == 1,
                pmix: [ServePmix::No, ServePmix::Offered, ServePmix::Needed][umask as usize % 3],
                whole_lines,
                report,
                strace: report.then(|| Strace { options: vec![b"-f".to_vec()] }),
                stacks: pmi,
                copies: false,
                rendezvous: whole_lines.then(Rendezvous::default),
                instead: Vec::new(),
                shares: false,
                identity,
                more: second.into_iter().map(part).collect(),
            }
        },
    )
}

/// A manifest and its files.
fn checkpoint() -> impl Strategy<Value = (Manifest, BTreeMap<String, Vec<u8>>)> {
    let files = btree_map("[a-z0-9-]{1,5}(/[a-z-][a-z.]{0,3})?", vec(any::<u8>(), 0..40), 0..4);
    let made = any::<(u64, String, String, String, String)>();
    let numbers = any::<(u64, u32, String, u64, u64)>();
    let kind = prop_oneof![Just(0), Just(1), Just(2)];
    let what = (owner(), posting(), option::of(launch()), time());
    (files, made, numbers, kind, what).prop_map(|(mut files, made, numbers, kind, what)| {
        let (at_ns, host_id, boot, store, psched) = made;
        let (apid, incarnation, domain, posted_at_ns, running_at_ns) = numbers;
        let (owner, posting, mut launch, run) = what;
        let Shape { width, depth, .. } = posting.shape;
        let place = |nid| Place { nid: Nid(nid), processors: (nid..nid + depth).collect(), pes: 1 };
        let places = PlacementList((0..width).map(place).collect());
        // Of one host, or of one for each node.
        let host = |n: u32, nids: Vec<Nid>| HostImages {
            folder: format!("Host-{n}"),
            host_id: host_id.clone(),
            nids,
        };
        let hosts: Vec<HostImages> = match apid % 2 {
            0 => vec![host(0, (0..width).map(Nid).collect())],
            _ => (0..width).map(|nid| host(nid, vec![Nid(nid)])).collect(),
        };
        let back_end = match kind {
            0 => Some(BackEnd::Criu { version: psched.clone() }),
            1 => Some(BackEnd::Application),
            _ => None,
        };
        match kind {
            0 => hosts.iter().for_each(|host| {
                files.insert(format!("{}/inventory.img", host.folder), b"images".to_vec());
            }),
            _ => files.clear(),
        }
        if kind > 0 && launch.is_none() {
            launch = Some(Launch::default());
        }
        if let Some(launch) = &mut launch
            && width < 2
        {
            launch.more.clear();
        }
        let image = |(name, bytes): (&String, &Vec<u8>)| Image {
            name: name.clone(),
            size: bytes.len() as u64,
            sum: Checksum::of(bytes),
        };
        let manifest = Manifest {
            made: Made { at_ns, host: host_id.clone(), boot, store, psched },
            kind: back_end.map_or(Kind::Waiting, |back_end| Kind::Running {
                back_end,
                places,
                hosts,
            }),
            recovery: Recovery {
                apid: Apid(apid),
                incarnation: Incarnation(incarnation),
                owner,
                posting,
                domain,
                posted_at_ns,
                running_at_ns,
                run,
            },
            launch,
            files: files.iter().map(image).collect(),
        };
        (manifest, files)
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read((manifest, files) in checkpoint()) {
        let memory = Memory::of(&manifest, &files);
        prop_assert_eq!(whole(&memory, Some(&KEY)), Ok(manifest.clone()));
        prop_assert_eq!(whole(&memory, None), Ok(manifest.clone()));
        // The same is the same text.
        prop_assert_eq!(&memory, &Memory::of(&manifest, &files));
    }

    /// Whatever byte is changed, put in or taken out, anywhere; with the key and without it.
    #[test]
    fn any_other_byte_is_refused(
        (manifest, files) in checkpoint(),
        which: prop::sample::Index,
        at: prop::sample::Index,
        byte: u8,
        how in 0..3u8,
    ) {
        let memory = Memory::of(&manifest, &files);
        // As often in the manifest as in the others.
        let names: Vec<&String> = memory.0.keys().collect();
        let name = match which.index(2) {
            0 => MANIFEST,
            _ => names[which.index(names.len())],
        };
        let changed = memory.but(name, |bytes| {
            let end = bytes.len() + usize::from(how == 1);
            if end == 0 {
                bytes.push(byte);
                return;
            }
            let at = at.index(end);
            match how {
                0 if bytes[at] == byte => bytes[at] ^= 1,
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => drop(bytes.remove(at)),
            }
        });
        // A byte put in beside its like is no change.
        prop_assume!(changed != memory);
        prop_assert!(whole(&changed, Some(&KEY)).is_err());
        prop_assert!(whole(&changed, None).is_err());
    }

    #[test]
    fn no_bytes_do_harm(bytes: Vec<u8>, text: String) {
        prop_assert!(Manifest::read(&bytes, None).is_err());
        prop_assert!(Manifest::read(text.as_bytes(), None).is_err());
    }
}
