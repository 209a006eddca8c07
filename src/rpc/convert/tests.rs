//! Whatever is said arrives as it was said, through the bytes of the wire; what can't have been
//! meant is refused by name.

use super::{placement_list, wire_places};
use crate::apshepherd::decide::mapping::mapping_of;
use crate::apteam::binding::{Binding, Lists};
use crate::apteam::bounds::{Bounds, HostBounds};
use crate::apteam::choice::Choice;
use crate::apteam::ending::{Cause, Decisive, EndCount, HostEnd, PeEnd, PeReport, Usage};
use crate::apteam::fault::Fault;
use crate::apteam::launch::{
    FileIdentity, HostLaunch, Launch, Limit, LocalPe, Part, ServePmix, Spawned, Strace,
};
use crate::apteam::launcher_variables::Rendezvous;
use crate::apteam::layout::Layout;
use crate::apteam::migration_blocker::MigrationBlocker;
use crate::apteam::oversubscribe::{Oversubscribe, Sharing};
use crate::apteam::part::{self, RankMap};
use crate::apteam::place::{HostAddress, HostPart, Place, PlacementList};
use crate::apteam::posting::{Account, COMMAND_MAX, Executable, Explanation, Mpi, Owner, Posting};
use crate::apteam::protocol::attach::{
    FromApinit, FrontReason, NumberedSignal, Output, OutputTaken, StdinCredit, StdinPiece, ToApinit,
};
use crate::apteam::protocol::letters::{Letter, LetterText, SpawnedPe, Spawning};
use crate::apteam::protocol::node::{
    self, Command, Foreign, ForeignApplication, NodeSpec, Phase, PlaceCommand, Report, Start,
    Welcome, Yields,
};
use crate::apteam::protocol::node::{
    ClockTold, HostNote, NOTES_MAX, NoteAbout, RollOut, SAID_MAX, STUCK_MAX,
};
use crate::apteam::protocol::notice::{Notice, Seen};
use crate::apteam::protocol::peers::{
    BarrierIn, BarrierOut, Beyond, FromPeer, Indices, Onward, Pass, PmiEntry, SOURCES_MAX, ToPeer,
};
use crate::apteam::protocol::processes::{Answer, PeProcess, Question, RANKS_MAX};
use crate::apteam::protocol::programs::{GivenProgram, WantedProgram};
use crate::apteam::protocol::shepherd::{self, FromShepherd, ToShepherd};
use crate::apteam::protocol::stacks;
use crate::apteam::protocol::turns::{PlannedSlice, SlicePlan, StopMeans, Switch, Switches};
use crate::apteam::saving::Saving;
use crate::apteam::shape::Shape;
use crate::apteam::{Apid, Incarnation, Key, SealKey, Ticket};
use crate::machine::Nid;
use crate::machine::node_memory::Bank;
use crate::rpc::{Malformed, pb};
use crate::variables::Isolation;
use bytes::Bytes;
use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use prost::Message;
use std::time::Duration;

/// Converts, encodes, decodes and converts back.
fn there_and_back<T, W>(said: &T) -> Result<T, Malformed>
where
    T: Clone + TryFrom<W, Error = Malformed>,
    W: From<T> + Message + Default,
{
    let wire = Bytes::from(W::from(said.clone()).encode_to_vec());
    W::decode(wire).expect("what prost encodes it decodes").try_into()
}

fn key() -> impl Strategy<Value = Key> {
    any::<(u64, u32)>()
        .prop_map(|(apid, inc)| Key { apid: Apid(apid), incarnation: Incarnation(inc) })
}

fn nid() -> impl Strategy<Value = Nid> {
    any::<u32>().prop_map(Nid)
}

fn nids() -> impl Strategy<Value = Vec<Nid>> {
    vec(nid(), 0..5)
}

fn ticket() -> impl Strategy<Value = Ticket> {
    any::<[u8; 16]>().prop_map(Ticket)
}

fn text() -> impl Strategy<Value = String> {
    "[^\\x00]{0,12}"
}

fn data() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..40).prop_map(Bytes::from)
}

/// Whole milliseconds, any length.
fn millis() -> impl Strategy<Value = Duration> {
    any::<u64>().prop_map(Duration::from_millis)
}

fn limit() -> impl Strategy<Value = Option<Duration>> {
    option::of((1..u64::MAX).prop_map(Duration::from_millis))
}

fn owner() -> impl Strategy<Value = Owner> {
    (any::<u32>(), any::<u32>(), vec(any::<u32>(), 0..5), text(), any::<bool>())
        .prop_map(|(uid, gid, groups, name, terminal)| Owner { uid, gid, groups, name, terminal })
}

fn shape() -> impl Strategy<Value = Shape> {
    (1..=u32::MAX, 1..=u32::MAX, option::of(1..=u32::MAX))
        .prop_map(|(width, depth, per_node)| Shape { width, depth, per_node })
}

/// A list, and the shape that it is for.
fn placement() -> impl Strategy<Value = (Shape, PlacementList)> {
    (1..4u32, vec((nid(), 1..5u32, any::<u32>()), 1..5)).prop_map(|(depth, nodes)| {
        let places = nodes.into_iter().map(|(nid, pes, first)| Place {
            nid,
            processors: (0..pes * depth).map(|p| p.wrapping_add(first)).collect(),
            pes,
        });
        let list = PlacementList(places.collect());
        let width = list.0.iter().map(|p| p.pes).sum();
        (Shape { width, depth, per_node: None }, list)
    })
}

fn host_part() -> impl Strategy<Value = HostPart> {
    (nids(), text(), text(), text(), text()).prop_map(|(nids, socket, host_id, host, address)| {
        HostPart { nids, socket, host_id, host, address }
    })
}

fn usage() -> impl Strategy<Value = Usage> {
    let sum = 0..1u64 << 44;
    (sum.clone(), sum.clone(), any::<u64>(), sum.clone(), sum).prop_map(|(u, s, rss, i, o)| Usage {
        utime: Duration::from_micros(u),
        stime: Duration::from_micros(s),
        max_rss_kib: rss,
        inblocks: i,
        outblocks: o,
    })
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![Just(Fault::User), Just(Fault::Busy), Just(Fault::Node)]
}

fn cause() -> impl Strategy<Value = Cause> {
    let pe = || (any::<u32>(), nid());
    let signal = || 1..=64i32;
    prop_oneof![
        (pe(), any::<u8>()).prop_map(|((rank, nid), code)| Cause::PeExit { rank, nid, code }),
        (pe(), signal()).prop_map(|((rank, nid), signal)| Cause::PeSignal { rank, nid, signal }),
        (pe(), any::<i32>()).prop_map(|((rank, nid), code)| Cause::Abort { rank, nid, code }),
        (pe(), any::<u8>()).prop_map(|((rank, nid), code)| Cause::NoFinalize { rank, nid, code }),
        (pe(), text()).prop_map(|((rank, nid), text)| Cause::Garbage { rank, nid, text }),
        (pe(), text()).prop_map(|((rank, nid), text)| Cause::NotMet { rank, nid, text }),
        (pe(), any::<u8>()).prop_map(|((rank, nid), code)| Cause::SpawnedEnd { rank, nid, code }),
        (signal(), any::<u32>()).prop_map(|(signal, uid)| Cause::Kill { signal, uid }),
        millis().prop_map(|limit| Cause::TimeLimit { limit }),
        Just(Cause::FrontGone),
        Just(Cause::StdoutClosed),
        (pe(), any::<i32>(), text(), fault()).prop_map(|((rank, nid), errno, text, fault)| {
            Cause::LaunchFailed { rank, nid, errno, text, fault }
        }),
        (nid(), text(), fault()).prop_map(|(nid, text, fault)| Cause::ShepherdLost {
            nid,
            text,
            fault
        }),
        (nid(), text()).prop_map(|(nid, text)| Cause::NodeLost { nid, text }),
        Just(Cause::NoRecord),
        (nid(), 0..9u32, any::<u64>(), option::of((any::<u32>(), 1..=u64::MAX))).prop_map(
            |(nid, pes, per_pe, largest)| Cause::OverMemory { nid, pes, per_pe, largest }
        ),
        pe().prop_map(|(rank, nid)| Cause::HostMemory { rank, nid }),
        any::<u32>().prop_map(|uid| Cause::Purge { uid }),
    ]
}

fn decisive() -> impl Strategy<Value = Decisive> {
    (any::<u64>(), cause()).prop_map(|(at_ns, cause)| Decisive { at_ns, cause })
}

fn end_count() -> impl Strategy<Value = EndCount> {
    let end = prop_oneof![any::<u8>().prop_map(PeEnd::Exit), (1..=64i32).prop_map(PeEnd::Signal)];
    (end, 0..=super::COUNT_MAX, any::<bool>()).prop_map(|(end, count, consequence)| EndCount {
        end,
        count,
        consequence,
    })
}

fn host_end() -> impl Strategy<Value = HostEnd> {
    let start = (key(), nids(), any::<bool>(), option::of(decisive()));
    let lost = (any::<bool>(), nids());
    let times = (millis(), millis(), any::<u64>());
    (start, vec(end_count(), 0..4), usage(), 0..=super::COUNT_MAX, lost, times).prop_map(
        |((key, nids, launched, first), ends, usage, leftovers, (output_lost, lost), times)| {
            let (run, frozen, peak_memory) = times;
            HostEnd {
                peak_memory,
                run,
                frozen,
                key,
                nids,
                launched,
                first,
                ends,
                usage,
                leftovers,
                output_lost,
                lost,
            }
        },
    )
}

fn explanation() -> impl Strategy<Value = Explanation> {
    (text(), text(), text()).prop_map(|(obstacle, holder, cure)| Explanation {
        obstacle,
        holder,
        cure,
    })
}

fn executable() -> impl Strategy<Value = Executable> {
    let mpi = prop_oneof![Just(Mpi::None), Just(Mpi::Mpich), Just(Mpi::OpenMpi)];
    (text(), any::<u16>(), text(), any::<bool>(), mpi).prop_map(
        |(path, machine, interpreter, script, mpi)| Executable {
            path,
            machine,
            interpreter,
            script,
            mpi,
        },
    )
}

fn account() -> impl Strategy<Value = Account> {
    "[A-Za-z0-9._-]{1,64}".prop_map(|name| Account::parse(&name).expect("good"))
}

fn saving() -> impl Strategy<Value = Saving> {
    let by = |word: String| Saving::parse(&word).expect("good");
    prop_oneof!["USR[12]".prop_map(by), "[!-~]{1,20} [ -~]{0,20}".prop_map(by)]
}

fn posting() -> impl Strategy<Value = Posting> {
    let name = text().prop_map(|command| (command, None));
    let named = (text(), account().prop_map(Some));
    let who = (any::<[u8; 16]>(), shape(), option::of(1..=u64::MAX), prop_oneof![name, named]);
    let flags = (any::<(bool, bool, bool, bool)>(), vec(any::<u8>(), 0..8), option::of(saving()));
    (who, limit(), limit(), flags, executable()).prop_map(
        |((request_id, shape, memory, named), cpu_limit, time_limit, flags, executable)| {
            let ((immediate, exclusive, downwards, flexible), mut ends, saving) = flags;
            ends.sort_unstable();
            ends.dedup();
            let ranges = ends.chunks_exact(2).map(|two| (Nid(two[0].into()), Nid(two[1].into())));
            let (only, not) = ranges.partition(|(first, _)| first.0 % 2 == 0);
            let choice = Choice::new(only, not, downwards).expect("disjoint ranges");
            let (command, account) = named;
            Posting {
                request_id,
                shape,
                memory_per_pe: memory,
                command,
                cpu_limit,
                time_limit,
                immediate,
                tries_again: !immediate,
                brings_images: immediate,
                exclusive,
                account,
                choice,
                flexible,
                oversubscribe: match (immediate, exclusive) {
                    (false, _) => Oversubscribe::No,
                    (true, false) => Oversubscribe::Allowed,
                    (true, true) => Oversubscribe::Shares(Sharing {
                        processors: shape.depth,
                        per_node: shape.per_node,
                    }),
                },
                saving,
                // (One that fits the shape, where it can.)
                layout: match (shape.per_node, shape.width) {
                    (None, 2..) if flexible => {
                        let parts = [(1, 1, shape.depth), (shape.width - 1, 1, 1)];
                        Layout::of_parts(parts).expect("two rows")
                    }
                    (None, 2..) => Layout::even(shape.width, 2).expect("two nodes"),
                    _ => Layout::default(),
                },
                executable,
            }
        },
    )
}

fn launch() -> impl Strategy<Value = Launch> {
    let words = move || vec(word(), 0..4);
    let limit = (0..16u32, any::<u64>()).prop_map(|(resource, soft)| Limit { resource, soft });
    let identity = any::<(u64, u64, u64, i64, Option<[u8; 32]>)>().prop_map(
        |(device, inode, size, mtime_ns, digest)| FileIdentity {
            device,
            inode,
            size,
            mtime_ns,
            digest,
        },
    );
    let range = (0..50u32, 0..9u32).prop_map(|(first, more)| (first, first + more));
    let lists = vec(vec(range, 0..3), 1..4).prop_map(|lists| Lists::new(lists).expect("small"));
    let binding = prop_oneof![
        Just(Binding::Usual),
        Just(Binding::Cpu),
        Just(Binding::None),
        Just(Binding::Depth),
        Just(Binding::NumaNode),
        lists.prop_map(Binding::Lists),
    ];
    let part = (word(), words(), option::of(identity.clone()));
    let parts = vec(part, 0..3).prop_map(|parts| {
        let part = |(first, (executable, arguments, identity))| Part {
            first,
            executable,
            arguments,
            identity,
        };
        (1..).step_by(3).zip(parts).map(part).collect::<Vec<_>>()
    });
    let flags = any::<(bool, bool, bool)>();
    let rest = (binding, flags, option::of(identity), parts, option::of(words()), word());
    (word(), words(), words(), word(), 0..=0o777u32, vec(limit, 0..4), rest).prop_map(
        |(executable, arguments, environment, directory, umask, limits, rest)| Launch {
            executable,
            arguments,
            environment,
            directory,
            umask,
            limits,
            binding: rest.0,
            pmi: rest.1.0,
            pmi_port: rest.1.1,
            pmix: if rest.1.1 { ServePmix::Needed } else { ServePmix::Offered },
            whole_lines: rest.1.1,
            report: rest.1.2,
            strace: rest.4.map(|options| Strace { options }),
            stacks: rest.1.2,
            copies: rest.1.1,
            rendezvous: rest
                .1
                .0
                .then(|| Rendezvous { address: "n1".to_owned(), port: rest.1.1.into() }),
            instead: rest.5,
            shares: rest.1.2,
            identity: rest.2,
            more: rest.3,
        },
    )
}

fn host_launch() -> impl Strategy<Value = HostLaunch> {
    let pe = (0..9u32, nid(), vec(any::<u32>(), 0..4), 0..=19u32, any::<u32>());
    let pe = pe.prop_map(|(rank, nid, cpus, nice, depth)| LocalPe { rank, nid, cpus, nice, depth });
    let numbers = (key(), 9..=u32::MAX, 1..=u32::MAX);
    let most = (option::of(1..=u64::MAX), option::of(1..=u64::MAX));
    let rest = (
        any::<bool>(),
        limit(),
        any::<bool>(),
        millis(),
        text(),
        most,
        bounds(),
        [text(), text()],
        option::of(entries()),
    );
    (numbers, launch(), vec(pe, 0..5), text(), rest).prop_map(
        |((key, width, depth), launch, pes, process_mapping, rest)| HostLaunch {
            key,
            width,
            depth,
            launch,
            pes,
            process_mapping,
            alone: rest.0,
            others: if rest.0 { Vec::new() } else { vec![width] },
            cpu_limit: rest.1,
            stdin: rest.2,
            kill_grace: rest.3,
            marker: rest.4,
            memory_per_pe: rest.5.0,
            pids_max: rest.5.1,
            bounds: rest.6,
            pmix_name: rest.7[0].clone(),
            host_index: width - 1,
            pmix_folder: rest.7[1].clone(),
            spawned: rest.8.map(|entries| Spawned {
                entries,
                pmix: if width % 2 == 0 { vec![b"A=1".to_vec()] } else { Vec::new() },
            }),
        },
    )
}

fn bounds() -> impl Strategy<Value = Bounds> {
    let most = 1..=u64::MAX;
    (most.clone(), most.clone(), most).prop_map(|(output, stdin, pmi)| Bounds {
        output,
        stdin,
        pmi,
    })
}

fn host_bounds() -> impl Strategy<Value = HostBounds> {
    let most = || 1..=u64::MAX;
    let wait = any::<u64>().prop_map(Duration::from_nanos);
    let launches = (most(), most(), most(), most(), most());
    (most(), most(), most(), launches, (wait.clone(), wait.clone(), wait)).prop_map(
        |(connections, connections_user, applications, launches, waits)| HostBounds {
            connections,
            connections_user,
            applications,
            launches_user: launches.0,
            launch_bytes: launches.1,
            launch_bytes_user: launches.2,
            programs: launches.3,
            programs_user: launches.4,
            freeze_wait: waits.0,
            idle_after: waits.1,
            silence: waits.2,
        },
    )
}

fn stop_means() -> impl Strategy<Value = StopMeans> {
    prop_oneof![Just(StopMeans::Freezer), Just(StopMeans::Signals)]
}

/// Members without repetition, and slices of theirs.
fn slice_plan() -> impl Strategy<Value = SlicePlan> {
    let numbers = (any::<u64>(), any::<(u64, u64)>(), any::<bool>());
    let slices = vec((1..u64::MAX, any::<u8>()), 0..4);
    (numbers, btree_set(key(), 0..6), slices).prop_map(|(numbers, members, slices)| {
        let (generation, (begins_ns, more), agreed) = numbers;
        let members: Vec<Key> = members.into_iter().collect();
        let party = |bits: u8| {
            let of = |(n, key): (usize, &Key)| (bits >> n & 1 == 1).then_some(*key);
            members.iter().enumerate().filter_map(of).collect()
        };
        let slice = |(length, bits): &(u64, u8)| PlannedSlice {
            length: Duration::from_nanos(*length),
            party: party(*bits),
        };
        let slices = slices.iter().map(slice).collect();
        let takers = members.iter().rev().skip(1).copied().collect();
        SlicePlan {
            takers,
            generation,
            begins_ns,
            from_ns: begins_ns.saturating_add(more),
            agreed,
            slices,
            members,
        }
    })
}

fn switches() -> impl Strategy<Value = Switches> {
    let switch = (any::<[u64; 6]>(), any::<u32>(), vec(key(), 0..3), vec(key(), 0..3)).prop_map(
        |(
            [generation, due_ns, began_ns, freeze_ns, gap_ns, brought],
            not_yet_frozen,
            stopped,
            started,
        )| {
            Switch {
                generation,
                due_ns,
                began_ns,
                freeze_ns,
                gap_ns,
                not_yet_frozen,
                stopped,
                started,
                brought,
            }
        },
    );
    let peaks = vec((key(), nid(), any::<u64>()), 0..3);
    let times = || vec((key(), any::<u64>().prop_map(Duration::from_nanos)), 0..3);
    (vec(switch, 0..3), any::<u64>(), peaks, times(), times()).prop_map(
        |(switches, left_out, peaks, ran, idle)| Switches { switches, left_out, peaks, ran, idle },
    )
}

fn host_note() -> impl Strategy<Value = HostNote> {
    let about = prop_oneof![
        Just(NoteAbout::Host),
        Just(NoteAbout::Isolation),
        key().prop_map(NoteAbout::App)
    ];
    (about, text()).prop_map(|(about, text)| HostNote { about, text })
}

fn node_hello() -> impl Strategy<Value = node::Hello> {
    let texts = (text(), text(), text(), text(), text(), text(), text());
    let lists = (nids(), vec(host_note(), 0..3), vec(any::<u32>(), 0..4), vec(text(), 0..3));
    let bank = (vec(any::<u32>(), 0..3), any::<u64>());
    let banks = vec(bank.prop_map(|(cpus, memory)| Bank { cpus, memory }), 0..3);
    let lists = (lists, (vec(text(), 0..3), banks));
    (any::<u32>(), texts, lists, any::<u64>(), any::<u64>(), stop_means()).prop_map(
        |(
            protocol,
            texts,
            ((nids, notes, cpus, limits), (back_ends, banks)),
            epoch,
            memory,
            stops,
        )| {
            node::Hello {
                protocol,
                socket: texts.0,
                hostname: texts.1,
                boot_id: texts.2,
                nids,
                pid: 0,
                notes,
                store_id: texts.3,
                epoch,
                cpus,
                memory,
                limits,
                stops,
                roll_out: match &*texts.4 {
                    "" => node::RollOut::Untold,
                    arch if arch.len() % 3 == 0 => node::RollOut::ByCheckpoint,
                    arch if arch.len() % 2 == 0 => node::RollOut::Can,
                    arch => node::RollOut::Cant(arch.to_owned()),
                },
                arch: texts.4,
                back_ends,
                banks,
                host: texts.5,
                address: texts.6,
                remote: false,
                parts: memory % 2 == 0,
                leads_on: memory % 3 == 0,
                stacks: memory % 5 == 0,
                images: memory % 7 == 0,
            }
        },
    )
}

fn welcome() -> impl Strategy<Value = Welcome> {
    let spec = (nid(), 1..5000u32, vec(any::<u32>(), 0..4), any::<u32>(), any::<u64>()).prop_map(
        |(nid, processors, cpus, first_processor, memory)| NodeSpec {
            nid,
            processors,
            cpus,
            first_processor,
            memory,
        },
    );
    let start = (any::<u64>(), text(), any::<u64>()).prop_map(|(epoch, id, commits)| Start {
        epoch,
        id,
        commits,
    });
    let store = (text(), any::<u64>(), vec(start, 0..3), any::<u64>());
    let clock = (any::<(u64, u64)>(), text());
    let key = proptest::option::of(any::<[u8; 32]>()).prop_map(|key| key.map(SealKey));
    let lists = (vec(spec, 0..4), vec(any::<u64>().prop_map(Apid), 0..3));
    (store, lists, millis(), clock, host_bounds(), key).prop_map(
        |((store_id, epoch, starts, commits), lists, kill_grace, clock, bounds, checkpoint_key)| {
            let (nodes, unreadable) = lists;
            Welcome {
                store_id,
                epoch,
                nodes,
                kill_grace,
                mono_ns: clock.0.0,
                boot_id: clock.1,
                next_apid: clock.0.1,
                starts,
                commits,
                unreadable,
                bounds,
                checkpoint_key,
            }
        },
    )
}

fn place_command() -> impl Strategy<Value = PlaceCommand> {
    let who = (key(), owner(), placement(), vec(host_part(), 1..3), ticket());
    let isolation = (0..Isolation::ALL.len()).prop_map(|i| Isolation::ALL[i].0);
    let posting = (any::<[u8; 16]>(), text());
    let most = (option::of(1..=u64::MAX), option::of(1..=u64::MAX), bounds());
    let yields = (0..=19u32, vec(nid(), 0..4)).prop_map(|(nice, nids)| Yields { nice, nids });
    let shift = any::<(u64, u64, i64)>().prop_map(|(output, stdin, clock_ns)| node::Shift {
        output,
        stdin,
        clock_ns,
    });
    let restoring = prop_oneof![
        Just(node::Restoring::No),
        Just(node::Restoring::Begun),
        shift.prop_map(node::Restoring::Done),
    ];
    let moved = (any::<u32>(), any::<bool>(), restoring);
    let restart = (key(), any::<u64>()).prop_map(|(from, ns)| {
        let parts = vec![ns as u32; ns as usize % 3];
        node::Restart { from, run: Duration::from_nanos(ns), parts }
    });
    let seat = (any::<[bool; 3]>(), option::of(account()), yields, moved, option::of(restart));
    let rest = (most, isolation, posting, millis(), seat);
    (who, millis(), limit(), limit(), millis(), rest).prop_map(
        |((key, owner, (shape, places), hosts, ticket), left, cpu, time, grace, rest)| {
            let ((memory, pids, bounds), isolation, (request_id, command), front, seat) = rest;
            let (
                [shares, exclusive, user_bus],
                account,
                yields,
                (number, fixed, restoring),
                restart,
            ) = seat;
            let born = if number > 0 { places.nids().collect() } else { Vec::new() };
            let moved = node::Moved { number, born, fixed, restoring };
            // Of two apinits if that can be, else of others than its nodes say.
            let hosts: Vec<HostPart> = match (places.0.split_first(), fixed) {
                (Some((first, rest)), true) if !rest.is_empty() => {
                    let of = |places: &[Place]| HostPart {
                        nids: places.iter().map(|place| place.nid).collect(),
                        ..hosts[0].clone()
                    };
                    vec![of(std::slice::from_ref(first)), of(rest)]
                }
                _ => hosts,
            };
            let map = RankMap::of(&places, &hosts);
            let process_mapping = mapping_of(&map, &hosts, isolation != Isolation::Off);
            let whole = PlaceCommand {
                part: part::Part { index: None, map, process_mapping },
                key,
                owner,
                shape,
                places,
                hosts: hosts.into(),
                ticket,
                ticket_left: left,
                cpu_limit: cpu,
                time_limit: time,
                kill_grace: grace,
                front_kill_grace: front,
                memory_per_pe: memory,
                pids_max: pids,
                bounds,
                isolation,
                fan_out: bounds.output as u32,
                user_bus,
                request_id,
                command,
                shares,
                exclusive,
                account,
                yields,
                moved,
                restart,
            };
            match whole.hosts.len() {
                2 if number % 3 < 2 => match whole.part_of(number % 3) {
                    None => whole,
                    Some(part) => {
                        let born =
                            if number > 0 { part.places.nids().collect() } else { Vec::new() };
                        PlaceCommand { moved: node::Moved { born, ..part.moved }, ..part }
                    }
                },
                _ => whole,
            }
        },
    )
}

fn foreign() -> impl Strategy<Value = Foreign> {
    let phase = prop_oneof![
        Just(Phase::Placed),
        Just(Phase::Launched),
        Just(Phase::Running),
        Just(Phase::Ended),
    ];
    let application = (place_command(), phase, millis())
        .prop_map(|(place, phase, run)| ForeignApplication { place, phase, run });
    (text(), any::<u64>(), text(), vec(application, 0..3)).prop_map(
        |(store_id, epoch, why, applications)| Foreign { store_id, epoch, why, applications },
    )
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        place_command().prop_map(|place| Command::Place(Box::new(place))),
        (key(), any::<u64>()).prop_map(|(key, number)| Command::TakeBack { key, number }),
        (key(), numbered_signal()).prop_map(|(key, signal)| Command::Signal { key, signal }),
        (key(), cause(), millis()).prop_map(|(key, cause, kill_after)| Command::Terminate {
            key,
            cause,
            kill_after
        }),
        key().prop_map(Command::AcknowledgeEnd),
        key().prop_map(Command::Discard),
        Just(Command::Adopt),
        any::<u32>().prop_map(|uid| Command::Purge { uid }),
        host_bounds().prop_map(Command::Bounds),
        slice_plan().prop_map(|plan| Command::Plan(Box::new(plan))),
        any::<u64>().prop_map(Command::AgreePlan),
        any::<u64>().prop_map(Command::WithdrawPlan),
        (key(), any::<u32>(), place_command()).prop_map(|(key, number, place)| {
            Command::Move(Box::new(node::MoveCommand { key, number, places: place.places }))
        }),
        key().prop_map(Command::RollOut),
    ]
}

fn report() -> impl Strategy<Value = Report> {
    prop_oneof![
        key().prop_map(Report::Launched),
        key().prop_map(Report::Running),
        (key(), any::<u64>()).prop_map(|(key, number)| Report::TakenBack { key, number }),
        (key(), any::<u64>()).prop_map(|(key, number)| Report::SignalsTaken { key, number }),
        (key(), nid(), vec(text(), 0..3)).prop_map(|(key, nid, processes)| Report::Stuck {
            key,
            nid,
            processes
        }),
        host_end().prop_map(|end| Report::Ended(Box::new(end))),
        (key(), any::<bool>()).prop_map(|(key, ends)| Report::ToHear { key, ends }),
        any::<u64>().prop_map(Report::PlanTaken),
        switches().prop_map(|told| Report::Switches(Box::new(told))),
        (key(), option::of(migration_blocker()))
            .prop_map(|(key, blocker)| Report::Movable { key, blocker }),
        (key(), any::<u32>(), any::<u64>()).prop_map(|(key, number, ns)| Report::Moved {
            key,
            number,
            frozen: Duration::from_nanos(ns),
        }),
        (key(), any::<u32>(), migration_blocker())
            .prop_map(|(key, number, why)| Report::MoveFailed { key, number, why }),
        (key(), any::<u64>(), option::of("[a-z ]{1,9}"))
            .prop_map(|(key, bytes, why)| Report::RolledOut { key, bytes, why }),
    ]
}

fn output() -> impl Strategy<Value = Output> {
    let end = prop_oneof![any::<u8>().prop_map(PeEnd::Exit), (1..=64).prop_map(PeEnd::Signal)];
    let report = (any::<u32>(), any::<u64>(), end).prop_map(|(pid, us, end)| PeReport {
        pid,
        elapsed: Duration::from_micros(us),
        end,
    });
    let report = option::of(report);
    (any::<u32>(), 0..u64::MAX / 2, any::<u32>(), nid(), any::<bool>(), data(), report).prop_map(
        |(source, offset, rank, nid, stderr, data, report)| Output {
            source,
            offset,
            rank,
            nid,
            stderr,
            data,
            report,
        },
    )
}

fn taken() -> impl Strategy<Value = OutputTaken> {
    any::<(u32, u64)>().prop_map(|(source, offset)| OutputTaken { source, offset })
}

fn entries() -> impl Strategy<Value = Vec<PmiEntry>> {
    vec((data(), data()).prop_map(|(key, value)| PmiEntry { key, value }), 0..4)
}

fn spawned_pe() -> impl Strategy<Value = SpawnedPe> {
    (text(), any::<u32>()).prop_map(|(space, rank)| SpawnedPe { space, rank })
}

fn letter() -> impl Strategy<Value = Letter> {
    let ranks = || vec(any::<u32>(), 0..4);
    let text = prop_oneof![
        option::of(spawned_pe()).prop_map(|spawned| LetterText::Modex { spawned }),
        (ranks(), any::<u64>(), ranks(), data(), vec(Just(b"a:1".to_vec()), 0..3)).prop_map(
            |(ranks, turn, here, data, spawned)| LetterText::Fence {
                ranks,
                spawned,
                turn,
                here,
                data
            }
        ),
        (text(), 1..9u32, ranks(), any::<u32>(), option::of(spawned_pe())).prop_map(
            |(space, width, firsts, parent, spawner)| {
                LetterText::Spawning(Spawning { space, width, firsts, parent, spawner })
            }
        ),
        text().prop_map(LetterText::SpawnedEnded),
        (data(), data()).prop_map(|(name, port)| LetterText::Publish { name, port }),
        data().prop_map(LetterText::LookUp),
        data().prop_map(LetterText::Unpublish),
        (data(), data(), any::<bool>())
            .prop_map(|(key, data, once)| { LetterText::PublishData { key, data, once } }),
        (data(), any::<bool>()).prop_map(|(key, wait)| LetterText::LookUpData { key, wait }),
        data().prop_map(LetterText::UnpublishData),
        (any::<i32>(), data()).prop_map(|(status, data)| LetterText::Answer { status, data }),
    ];
    (any::<(u32, u32, u64)>(), text).prop_map(|((to, from, number), text)| Letter {
        to,
        from,
        number,
        text,
    })
}

fn barrier_in() -> impl Strategy<Value = BarrierIn> {
    (any::<u64>(), entries()).prop_map(|(generation, entries)| BarrierIn { generation, entries })
}

fn barrier_out() -> impl Strategy<Value = BarrierOut> {
    (any::<u64>(), any::<u32>(), any::<bool>(), entries()).prop_map(
        |(generation, piece, last, entries)| BarrierOut { generation, piece, last, entries },
    )
}

fn stdin_piece() -> impl Strategy<Value = StdinPiece> {
    (0..u64::MAX / 2, data()).prop_map(|(offset, data)| StdinPiece { offset, data })
}

fn stdin_credit() -> impl Strategy<Value = StdinCredit> {
    any::<(u64, u64)>().prop_map(|(credit, received)| StdinCredit { credit, received })
}

fn numbered_signal() -> impl Strategy<Value = NumberedSignal> {
    (any::<u64>(), 1..=64i32).prop_map(|(number, signal)| NumberedSignal { number, signal })
}

fn to_apinit() -> impl Strategy<Value = ToApinit> {
    prop_oneof![
        (key(), ticket(), launch()).prop_map(|(key, ticket, launch)| ToApinit::Launch {
            key,
            ticket,
            launch: Box::new(launch)
        }),
        (key(), ticket(), vec(taken(), 0..3)).prop_map(|(key, ticket, taken)| ToApinit::Resume {
            key,
            ticket,
            taken
        }),
        stdin_piece().prop_map(ToApinit::Stdin),
        any::<u64>().prop_map(ToApinit::StdinEnd),
        taken().prop_map(ToApinit::OutputTaken),
        numbered_signal().prop_map(ToApinit::Signal),
        (front_reason(), millis())
            .prop_map(|(reason, kill_after)| ToApinit::Terminate { reason, kill_after }),
    ]
}

fn front_reason() -> impl Strategy<Value = FrontReason> {
    prop_oneof![
        Just(FrontReason::StdoutClosed),
        Just(FrontReason::Gone),
        (1..=64i32).prop_map(|signal| FrontReason::Withdrawn { signal }),
    ]
}

fn to_peer() -> impl Strategy<Value = ToPeer> {
    prop_oneof![
        (key(), ticket(), launch()).prop_map(|(key, ticket, launch)| ToPeer::Launch {
            key,
            ticket,
            launch: Box::new(launch)
        }),
        (key(), ticket(), vec(taken(), 0..3)).prop_map(|(key, ticket, taken)| ToPeer::Resume {
            key,
            ticket,
            taken
        }),
        taken().prop_map(ToPeer::OutputTaken),
        numbered_signal().prop_map(ToPeer::Signal),
        (cause(), millis()).prop_map(|(cause, kill_after)| ToPeer::Terminate { cause, kill_after }),
        Just(ToPeer::Go),
        barrier_out().prop_map(ToPeer::BarrierOut),
        letter().prop_map(ToPeer::Letter),
        vec(onward(), 0..=SOURCES_MAX).prop_map(|hosts| ToPeer::Sources {
            hosts: hosts.into_iter().map(|onward| onward.at).collect()
        }),
    ]
}

fn indices() -> impl Strategy<Value = Indices> {
    vec((any::<u32>(), any::<u32>()), 0..4).prop_map(Indices)
}

fn onward() -> impl Strategy<Value = Onward> {
    (any::<u32>(), text(), text(), text()).prop_map(|(index, host, address, socket)| Onward {
        index,
        at: HostAddress { host, address, socket },
    })
}

/// As it is, and on a stream that leads on.
fn to_peers() -> impl Strategy<Value = ToPeer> {
    let lead = (key(), any::<u32>(), any::<u32>(), vec(onward(), 0..4));
    prop_oneof![
        to_peer(),
        (indices(), to_peer())
            .prop_map(|(to, message)| ToPeer::Pass(Box::new(Pass { to, message }))),
        lead.prop_map(|(key, index, fan_out, hosts)| ToPeer::Lead { key, index, fan_out, hosts }),
    ]
}

fn from_peers() -> impl Strategy<Value = FromPeer> {
    let all = || prop_oneof![from_peer(), text().prop_map(FromPeer::Lost)];
    let beyond =
        |(index, message): (u32, FromPeer)| FromPeer::Beyond(Box::new(Beyond { index, message }));
    prop_oneof![all(), (any::<u32>(), all()).prop_map(beyond)]
}

fn from_peer() -> impl Strategy<Value = FromPeer> {
    prop_oneof![
        Just(FromPeer::Accepted),
        (text(), option::of(cause())).prop_map(|(text, cause)| FromPeer::Refused { text, cause }),
        text().prop_map(FromPeer::NotNow),
        Just(FromPeer::Ready),
        Just(FromPeer::Going),
        output().prop_map(FromPeer::Output),
        any::<u64>().prop_map(FromPeer::SignalsTaken),
        notice().prop_map(FromPeer::Notice),
        barrier_in().prop_map(FromPeer::BarrierIn),
        letter().prop_map(FromPeer::Letter),
        decisive().prop_map(FromPeer::Decisive),
        Just(FromPeer::Done),
    ]
}

fn from_apinit() -> impl Strategy<Value = FromApinit> {
    prop_oneof![
        Just(FromApinit::Accepted),
        (text(), option::of(cause())).prop_map(|(text, cause)| FromApinit::Refused { text, cause }),
        text().prop_map(FromApinit::NotNow),
        Just(FromApinit::Going),
        output().prop_map(FromApinit::Output),
        stdin_credit().prop_map(FromApinit::StdinCredit),
        any::<u64>().prop_map(FromApinit::SignalsTaken),
        notice().prop_map(FromApinit::Notice),
        any::<u32>().prop_map(FromApinit::ProgramWanted),
        Just(FromApinit::Done),
    ]
}

fn migration_blocker() -> impl Strategy<Value = MigrationBlocker> {
    use MigrationBlocker as M;
    prop_oneof![
        Just(M::SeveralHosts),
        Just(M::ProcessorsNamed),
        Just(M::NotGoing),
        Just(M::Ending),
        Just(M::NotHere),
        Just(M::AnotherMove),
        Just(M::Checkpointing),
        Just(M::MemoryUnderWay),
        Just(M::NotStopped),
        Just(M::NotObeyed),
        nid().prop_map(M::StrangeNode),
        Just(M::OtherShape),
        text().prop_map(M::NotBound),
    ]
}

fn notice() -> impl Strategy<Value = Notice> {
    let what = prop_oneof![
        cause().prop_map(Seen::Ends),
        (any::<u32>(), text()).prop_map(|(rank, text)| Seen::Pmi { rank, text }),
        any::<u64>().prop_map(Seen::ProcessLimit),
        text().prop_map(Seen::Process),
    ];
    prop_oneof![
        (nid(), any::<u64>(), what).prop_map(|(nid, at_ns, what)| Notice::Seen {
            nid,
            at_ns,
            what
        }),
        text().prop_map(Notice::Process),
        Just(Notice::NoRecord),
        Just(Notice::MemoryNotLimited),
        nid().prop_map(Notice::Unreachable),
        vec(nid(), 0..3).prop_map(|nids| Notice::Silent { nids }),
        text().prop_map(Notice::Unheard),
        Just(Notice::LaunchedAlready),
        (nid(), text()).prop_map(|(nid, why)| Notice::NotCopied { nid, why }),
    ]
}

fn shepherd_hello() -> impl Strategy<Value = shepherd::Hello> {
    (any::<u32>(), key(), any::<(bool, bool, bool, bool)>(), any::<(u64, u64)>()).prop_map(
        |(protocol, key, how_far, (output_taken, stdin_taken))| shepherd::Hello {
            protocol,
            key,
            launched: how_far.0,
            going: how_far.1,
            ended: how_far.2,
            output_taken,
            stdin_taken,
            several: how_far.3,
            stacks: protocol % 2 == 0,
        },
    )
}

/// Bytes without a null byte, at least one.
fn word() -> impl Strategy<Value = Vec<u8>> {
    vec(1..=u8::MAX, 1..20)
}

fn given_program() -> impl Strategy<Value = GivenProgram> {
    let digest = option::of(any::<[u8; 32]>());
    let identity = (any::<(u64, u64, u64, i64)>(), digest.clone());
    let identity = identity.prop_map(|((device, inode, size, mtime_ns), digest)| FileIdentity {
        device,
        inode,
        size,
        mtime_ns,
        digest,
    });
    (any::<u32>(), word(), option::of(identity), text(), digest).prop_map(
        |(part, path, identity, why_not, digest)| GivenProgram {
            part,
            path,
            identity,
            why_not,
            digest,
        },
    )
}

fn to_shepherd() -> impl Strategy<Value = ToShepherd> {
    prop_oneof![
        shepherd_hello().prop_map(ToShepherd::Hello),
        host_launch().prop_map(|launch| ToShepherd::Launch(Box::new(launch))),
        Just(ToShepherd::Go),
        (cause(), millis())
            .prop_map(|(cause, kill_after)| ToShepherd::Terminate { cause, kill_after }),
        numbered_signal().prop_map(ToShepherd::Signal),
        stdin_piece().prop_map(ToShepherd::Stdin),
        any::<u64>().prop_map(ToShepherd::StdinEnd),
        any::<u64>().prop_map(ToShepherd::OutputTaken),
        barrier_out().prop_map(ToShepherd::BarrierOut),
        letter().prop_map(ToShepherd::Letter),
        Just(ToShepherd::Release),
        key().prop_map(ToShepherd::Rekey),
        (any::<u64>(), key(), any::<u32>(), 0..=RANKS_MAX).prop_map(
            |(number, key, first, count)| {
                ToShepherd::Processes(Question { number, key, first, count })
            }
        ),
        vec(given_program(), 0..3).prop_map(|programs| ToShepherd::Programs { programs }),
        (any::<(u64, u32, u32, bool)>(), key()).prop_map(|(rest, key)| {
            let (number, rank, uid, administrator) = rest;
            ToShepherd::Stacks(stacks::Question { number, key, rank, uid, administrator })
        }),
        any::<u64>().prop_map(ToShepherd::StacksWithdrawn),
        (any::<(u64, bool)>(), text()).prop_map(|((number, spawned), why_not)| {
            ToShepherd::DebuggerPlaced(stacks::Placed { number, why_not, spawned })
        }),
    ]
}

fn from_shepherd() -> impl Strategy<Value = FromShepherd> {
    prop_oneof![
        shepherd_hello().prop_map(FromShepherd::Hello),
        Just(FromShepherd::Ready),
        decisive().prop_map(FromShepherd::Failed),
        output().prop_map(FromShepherd::Output),
        stdin_credit().prop_map(FromShepherd::StdinCredit),
        any::<u64>().prop_map(FromShepherd::SignalsTaken),
        barrier_in().prop_map(FromShepherd::BarrierIn),
        letter().prop_map(FromShepherd::Letter),
        decisive().prop_map(FromShepherd::Decisive),
        notice().prop_map(FromShepherd::Notice),
        vec(text(), 0..3).prop_map(FromShepherd::Stuck),
        (any::<u64>(), key(), vec(any::<(u32, u32)>(), 0..3), text()).prop_map(
            |(number, key, pes, why_not)| {
                let process = |(rank, pid)| PeProcess { rank, pid };
                let processes = pes.into_iter().map(process).collect();
                FromShepherd::Processes(Answer { number, key, processes, why_not })
            }
        ),
        (any::<(u64, u32, u32, bool)>(), key(), text(), text()).prop_map(
            |((number, rank, pid, cut), key, text, why_not)| {
                let answer = stacks::Answer { number, key, rank, pid, text, cut, why_not };
                FromShepherd::Stacks(answer)
            }
        ),
        any::<(u64, u32, u32, bool)>().prop_map(|(number, nid, pid, spawned)| {
            FromShepherd::DebuggerMade(stacks::Made { number, nid: Nid(nid), pid, spawned })
        }),
        host_end().prop_map(|end| FromShepherd::Ended(Box::new(end))),
        vec((any::<u32>(), any::<u64>(), word()), 0..3).prop_map(|programs| {
            let program = |(part, size, name)| WantedProgram { part, size, name };
            FromShepherd::ProgramsWanted { programs: programs.into_iter().map(program).collect() }
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn what_psched_and_its_clients_say(posting in posting(), why in explanation(), owner in owner(),
                                       (_, places) in placement(), host in host_part()) {
        prop_assert_eq!(there_and_back::<_, pb::PostRequest>(&posting), Ok(posting));
        prop_assert_eq!(there_and_back::<_, pb::Explanation>(&why), Ok(why));
        prop_assert_eq!(there_and_back::<_, pb::Owner>(&owner), Ok(owner));
        prop_assert_eq!(there_and_back::<_, pb::HostPart>(&host), Ok(host));
        prop_assert_eq!(placement_list(wire_places(&places)), Ok(places));
    }

    #[test]
    fn what_psched_and_apinit_say(hello in node_hello(), welcome in welcome(),
                                  command in command(), report in report(), key in key(),
                                  foreign in foreign()) {
        prop_assert_eq!(there_and_back::<_, pb::Foreign>(&foreign), Ok(foreign));
        prop_assert_eq!(there_and_back::<_, pb::NodeHello>(&hello), Ok(hello));
        prop_assert_eq!(there_and_back::<_, pb::Welcome>(&welcome), Ok(welcome));
        prop_assert_eq!(there_and_back::<_, pb::NodeReport>(&report), Ok(report));
        let frame = pb::ToNode { seq: 1, commits: 2, message: Some(command.clone().into()), ..Default::default() };
        let frame = pb::ToNode::decode(&frame.encode_to_vec()[..]).expect("whole");
        let back = frame.message.expect("there").try_into();
        prop_assert_eq!(back, Ok::<Command, Malformed>(command));
        let items = vec![(key, Phase::Placed), (key, Phase::Launched), (key, Phase::Running),
            (key, Phase::Ended)];
        prop_assert_eq!(there_and_back::<_, pb::Inventory>(&items), Ok(items));
    }

    #[test]
    fn what_aprun_and_apinit_say(to in to_apinit(), from in from_apinit()) {
        prop_assert_eq!(there_and_back::<_, pb::ToApinit>(&to), Ok(to));
        prop_assert_eq!(there_and_back::<_, pb::FromApinit>(&from), Ok(from));
    }

    #[test]
    fn what_the_head_and_another_host_say(to in to_peers(), from in from_peers()) {
        prop_assert_eq!(there_and_back::<_, pb::ToPeer>(&to), Ok(to));
        prop_assert_eq!(there_and_back::<_, pb::FromPeer>(&from), Ok(from));
    }

    #[test]
    fn what_apinit_and_apshepherd_say(to in to_shepherd(), from in from_shepherd()) {
        prop_assert_eq!(there_and_back::<_, pb::ToShepherd>(&to), Ok(to));
        prop_assert_eq!(there_and_back::<_, pb::FromShepherd>(&from), Ok(from));
    }

    /// A frame of any bytes that happens to be protobuf is judged without a panic.
    #[test]
    fn garbage_is_judged(bytes in vec(any::<u8>(), 0..200)) {
        let bytes = Bytes::from(bytes);
        if let Ok(wire) = pb::ToShepherd::decode(bytes.clone()) {
            let _ = ToShepherd::try_from(wire);
        }
        if let Ok(wire) = pb::ToApinit::decode(bytes.clone()) {
            let _ = ToApinit::try_from(wire);
        }
        if let Ok(wire) = pb::ToPeer::decode(bytes.clone()) {
            let _ = ToPeer::try_from(wire);
        }
        if let Ok(wire) = pb::HostEnd::decode(bytes) {
            let _ = HostEnd::try_from(wire);
        }
    }
}

/// The refusal of a message, in words.
#[track_caller]
fn refusal<T: TryFrom<W, Error = Malformed>, W>(wire: W) -> String {
    match T::try_from(wire) {
        Ok(_) => panic!("it was taken"),
        Err(malformed) => malformed.to_string(),
    }
}

#[test]
fn refusals_name_the_message_and_the_field() {
    let posting = pb::PostRequest { request_id: vec![1; 15].into(), ..Default::default() };
    assert_eq!(refusal::<Posting, _>(posting), "PostRequest.request_id: 15 bytes, it has to be 16");
    let posting = pb::PostRequest { request_id: vec![1; 16].into(), ..Default::default() };
    assert_eq!(refusal::<Posting, _>(posting), "PostRequest.shape: it is missing");
    let (request_id, shape) =
        (vec![1; 16].into(), Some(pb::Shape { width: 1, depth: 1, per_node: 0 }));
    let account = "two words".into();
    let posting = pb::PostRequest { request_id, shape, account, ..Default::default() };
    assert_eq!(
        refusal::<Posting, _>(posting),
        "PostRequest.account: an account is 1 to 64 letters (of ASCII), digits, dots, underscores and \
         hyphens"
    );
    let executable = b"a.out"[..].into();
    let launch = pb::Launch { executable, binding: 6, ..Default::default() };
    assert_eq!(
        refusal::<Launch, _>(launch.clone()),
        "Launch.binding: 6 is an unknown kind of binding: this psched is older than aprun, \
         and has to be upgraded"
    );
    let lists = pb::Launch { binding: pb::launch::Binding::Lists.into(), ..launch };
    assert_eq!(
        refusal::<Launch, _>(lists),
        "Launch.binding_lists: the binding has 0 lists: give 1 to 4096"
    );
    let shape = pb::Shape { width: 1, depth: 0, per_node: 0 };
    assert_eq!(refusal::<Shape, _>(shape), "Shape.depth: 0 is too small, at least 1 is needed");
    assert_eq!(refusal::<Cause, _>(pb::Cause::default()), "Cause.kind: it is missing");
    let cause = pb::Cause { kind: 77, ..Default::default() };
    assert_eq!(refusal::<Cause, _>(cause), "Cause.kind: 77 is an unknown kind");
    let cause =
        pb::Cause { kind: pb::cause::Kind::PeSignal.into(), signal: 65, ..Default::default() };
    assert_eq!(refusal::<Cause, _>(cause), "Cause.signal: 65 is too large, at most 64 is allowed");
    let place = pb::Place { nid: 0, processors: vec![1, 2, 3], pes: 2 };
    assert_eq!(refusal::<Place, _>(place), "Place.processors: 3 for 2 PEs, not as many for each");
    assert_eq!(
        refusal::<ToShepherd, _>(pb::ToShepherd { message: None }),
        "ToShepherd.message: it is empty, or of a kind that this release does not know"
    );
    let launch = pb::Launch {
        executable: Bytes::from_static(b"/bin/true"),
        arguments: vec![Bytes::from_static(b"a\0b")],
        ..Default::default()
    };
    assert_eq!(refusal::<Launch, _>(launch), "Launch.arguments: it holds a NUL byte");
    let part = |first_rank, executable: &'static [u8]| pb::LaunchPart {
        first_rank,
        executable: executable.into(),
        ..Default::default()
    };
    let launch = |parts| pb::Launch { executable: b"a"[..].into(), parts, ..Default::default() };
    for (parts, said) in [
        (vec![part(1, b"")], "LaunchPart.executable: it is missing"),
        (vec![part(0, b"b")], "LaunchPart.first_rank: 0 is too small, at least 1 is needed"),
        (
            vec![part(3, b"b"), part(3, b"c")],
            "Launch.parts: one begins with PE 3, and the one after it with PE 3",
        ),
        (vec![part(1, b"b"); 256], "Launch.parts: 256 entries, more than 255"),
    ] {
        assert_eq!(refusal::<Launch, _>(launch(parts)), said);
    }
    let long = pb::LaunchPart { arguments: vec![Bytes::new(); 1 << 19], ..part(1, b"b") };
    let longer =
        pb::LaunchPart { first_rank: 2, arguments: vec![Bytes::new(); 1 << 19], ..long.clone() };
    let arguments = vec![Bytes::new()];
    assert_eq!(
        refusal::<Launch, _>(pb::Launch { arguments, ..launch(vec![long, longer]) }),
        "Launch.parts: 1048577 arguments in all, more than 1048576"
    );
    let owner = pb::Owner { groups: vec![0; super::LIST_MAX + 1], ..Default::default() };
    assert_eq!(refusal::<Owner, _>(owner), "Owner.groups: 65537 entries, more than 65536");
    assert_eq!(
        refusal::<Command, _>(pb::to_node::Message::Welcome(pb::Welcome::default())),
        "ToNode.message: it is not a command"
    );
}

/// An apinit of a release that would run the first program in all PEs knows no such message.
#[test]
fn a_launch_of_several_programs_is_another_message() {
    let several = vec![Part { first: 1, executable: b"b".to_vec(), ..Part::default() }];
    for (more, is_other) in [(vec![], false), (several, true)] {
        let launch = Launch { executable: b"a".to_vec(), more, ..Launch::default() };
        let ticket = Ticket([1; 16]);
        let key = Key::parse("12.1").expect("a key");
        let message = ToApinit::Launch { key, ticket, launch: Box::new(launch) };
        let wire = pb::ToApinit::from(message).message;
        let other = matches!(wire, Some(pb::to_apinit::Message::LaunchSeveral(_)));
        assert_eq!(other, is_other, "{wire:?}");
    }
}

/// One of the release before does not say that it can execute several programs.
#[test]
fn a_shepherd_that_does_not_say_it_runs_one_program() {
    let key = Some(pb::ApplicationKey { apid: 1, incarnation: 1 });
    let hello = pb::ShepherdHello { protocol: 1, key, ..Default::default() };
    assert!(!shepherd::Hello::try_from(hello).expect("good").several);
}

#[test]
fn a_place_that_is_not_of_the_shape_is_refused() {
    let good = pb::PlaceCommand {
        key: Some(pb::ApplicationKey { apid: 1, incarnation: 1 }),
        owner: Some(pb::Owner::default()),
        shape: Some(pb::Shape { width: 2, depth: 1, per_node: 0 }),
        places: vec![pb::Place { nid: 0, processors: vec![0, 1], pes: 2 }],
        hosts: vec![pb::HostPart::default()],
        ticket: vec![0; 16].into(),
        request_id: vec![0; 16].into(),
        ..Default::default()
    };
    assert!(PlaceCommand::try_from(good.clone()).is_ok());
    let narrow = pb::PlaceCommand {
        shape: Some(pb::Shape { width: 1, depth: 1, per_node: 0 }),
        ..good.clone()
    };
    assert_eq!(
        refusal::<PlaceCommand, _>(narrow),
        "PlaceCommand.places: they do not add up to the shape"
    );
    // PEs may share processors, and processors are no PE's without one.
    let shares = |processors| pb::PlaceCommand {
        shape: Some(pb::Shape { width: 5, depth: 1, per_node: 0 }),
        places: vec![pb::Place { nid: 0, processors, pes: 5 }],
        ..good.clone()
    };
    assert!(PlaceCommand::try_from(shares(vec![0, 1])).is_ok());
    assert_eq!(
        refusal::<PlaceCommand, _>(shares(vec![])),
        "PlaceCommand.places: they do not add up to the shape"
    );
    assert_eq!(
        refusal::<PlaceCommand, _>(shares((0..6).collect())),
        "Place.processors: 6 for 5 PEs, not as many for each"
    );
    let nowhere = pb::PlaceCommand { hosts: vec![], ..good };
    assert_eq!(refusal::<PlaceCommand, _>(nowhere), "PlaceCommand.hosts: no node holds PE 0");
}

#[test]
fn a_long_command_is_cut_and_a_short_limit_is_none_the_less_one() {
    let posting = Posting {
        command: "ä".repeat(super::TEXT_MAX / 2),
        cpu_limit: Some(Duration::from_micros(1)),
        ..Posting::plain([7; 16], Shape { width: 1, depth: 1, per_node: None })
    };
    let back = there_and_back::<_, pb::PostRequest>(&posting).expect("it fits now");
    assert!(back.command.ends_with("ä...") && back.command.len() <= COMMAND_MAX);
    // Also from a client, or in a record, that cuts nothing.
    let whole = pb::PostRequest { command: posting.command.clone(), ..posting.clone().into() };
    assert_eq!(Posting::try_from(whole).expect("good").command, back.command);
    assert_eq!(back.cpu_limit, Some(Duration::from_millis(1)));
    assert_eq!(back.time_limit, None);
}

/// Output is passed on, not copied: the bytes lie where they lay in the frame.
#[test]
fn output_is_not_copied() {
    let output = Output {
        source: 0,
        offset: 0,
        rank: 0,
        nid: Nid(0),
        stderr: false,
        data: Bytes::from(vec![b'x'; 100_000]),
        report: None,
    };
    let frame = Bytes::from(pb::FromShepherd::from(FromShepherd::Output(output)).encode_to_vec());
    let bounds = frame.as_ptr_range();
    let wire = pb::FromShepherd::decode(frame.clone()).expect("whole");
    let Ok(FromShepherd::Output(output)) = FromShepherd::try_from(wire) else {
        panic!("it is output");
    };
    assert!(bounds.contains(&output.data.as_ptr()));
}

/// psched keeps these texts, and shows them to all users.
#[test]
fn of_what_a_host_says_of_itself_some_is_taken() {
    let long = || "ä".repeat(super::TEXT_MAX / 2);
    let note = || pb::HostNote { text: long(), ..pb::HostNote::default() };
    let told = pb::NodeNotes { notes: vec![note(); NOTES_MAX + 1], ..pb::NodeNotes::default() };
    let (notes, ..): (Vec<HostNote>, RollOut, ClockTold) = told.try_into().expect("it is cut");
    assert_eq!(notes.len(), NOTES_MAX);
    assert!(notes.iter().all(|note| note.text.len() <= SAID_MAX), "{}", notes[0].text.len());
    let stuck = pb::StuckReport {
        key: Some(Key { apid: Apid(1), incarnation: Incarnation(1) }.into()),
        processes: vec![long(); STUCK_MAX + 1],
        ..pb::StuckReport::default()
    };
    let stuck = pb::NodeReport { report: Some(pb::node_report::Report::Stuck(stuck)) };
    let Ok(Report::Stuck { processes, .. }) = Report::try_from(stuck) else { panic!("it is cut") };
    assert_eq!(processes.len(), STUCK_MAX);
    assert!(processes.iter().all(|text| text.len() <= SAID_MAX));
}

/// aprun of release 0.1 takes a kind of notice that it does not know for nonsense, and closes the
/// stream. This one skips what a later release adds.
#[test]
fn a_newer_notice_says_nothing_to_those_who_do_not_know_it() {
    use pb::from_apinit::Message;
    let notice = FromApinit::Notice(Notice::Silent { nids: vec![Nid(3)] });
    let wire = pb::FromApinit::from(notice);
    assert_eq!(wire.message, Some(Message::SignalsTaken(0)));
    let unknown = pb::FromApinit { newer_notice: Some(pb::Notice { notice: None }), ..wire };
    assert_eq!(FromApinit::try_from(unknown), Ok(FromApinit::SignalsTaken(0)));
}
