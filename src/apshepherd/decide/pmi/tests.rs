use super::*;
use proptest::prelude::*;

const SPACE: u64 = 64 << 20;

fn server(alone: bool) -> Pmi {
    Pmi::new("psched_12_1".into(), 4, "(vector,(0,1,4))".into(), alone, SPACE, [0, 1])
}

/// The text of the only answer.
fn ask(pmi: &mut Pmi, rank: u32, line: &str) -> String {
    match &pmi.read(rank, format!("{line}\n").as_bytes())[..] {
        [Effect::Reply(to, text)] if *to == rank => {
            String::from_utf8(text.to_vec()).expect("ascii").trim_end().to_owned()
        }
        other => panic!("{line}: {other:?}"),
    }
}

/// Its user is told, once.
#[test]
fn a_client_of_another_version_has_not_begun() {
    let mut pmi = server(true);
    let answer = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1";
    let line = "cmd=init pmi_version=2 pmi_subversion=0";
    let effects = pmi.read(0, format!("{line}\n").as_bytes());
    let [Effect::Notice { rank: 0, text }, Effect::Reply(0, reply)] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert!(text.contains("PMI-2") && reply.starts_with(answer.as_bytes()), "{effects:?}");
    assert_eq!(ask(&mut pmi, 1, line), answer);
    assert_eq!(pmi.progress(0), Progress::Outside);
}

#[test]
fn the_conversation_of_an_mpich_rank() {
    let mut pmi = server(true).with_universe(6);
    for (line, answer) in [
        (
            "cmd=init pmi_version=1 pmi_subversion=1",
            "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
        ),
        ("cmd=get_maxes", "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024"),
        ("cmd=get_appnum", "cmd=appnum rc=0 appnum=0"),
        ("cmd=get_universe_size", "cmd=universe_size rc=0 size=6"),
        ("cmd=get_my_kvsname", "cmd=my_kvsname rc=0 kvsname=psched_12_1"),
        (
            "cmd=get kvsname=psched_12_1 key=PMI_process_mapping",
            "cmd=get_result rc=0 msg=success value=(vector,(0,1,4))",
        ),
        ("cmd=put kvsname=psched_12_1 key=P0 value=a=b#c", "cmd=put_result rc=0 msg=success"),
        ("cmd=get kvsname=psched_12_1 key=P0", "cmd=get_result rc=0 msg=success value=a=b#c"),
        ("cmd=get kvsname=other key=P0", "cmd=get_result rc=-1 msg=key_not_found value=unknown"),
        ("cmd=publish_name service=s port=p", "cmd=publish_result info=ok rc=0 msg=success"),
        ("cmd=finalize", "cmd=finalize_ack rc=0"),
    ] {
        assert_eq!(ask(&mut pmi, 0, line), answer);
    }
    assert_eq!((pmi.progress(0), pmi.progress(1)), (Progress::Finalized, Progress::Outside));
}

/// MPI_APPNUM.
#[test]
fn each_program_has_its_number() {
    let mut pmi = server(true).with_appnums(|rank| if rank == 0 { 0 } else { 7 });
    assert_eq!(ask(&mut pmi, 0, "cmd=get_appnum"), "cmd=appnum rc=0 appnum=0");
    assert_eq!(ask(&mut pmi, 1, "cmd=get_appnum"), "cmd=appnum rc=0 appnum=7");
}

#[test]
fn a_barrier_alone_ends_here() {
    let mut pmi = server(true);
    assert_eq!(pmi.read(1, b"cmd=barrier_in\n"), []);
    let out = Bytes::from_static(b"cmd=barrier_out rc=0\n");
    assert_eq!(
        pmi.read(0, b"cmd=barrier_in\n"),
        [Effect::Reply(0, out.clone()), Effect::Reply(1, out)]
    );
}

#[test]
fn a_barrier_across_hosts_carries_what_was_put() {
    let mut pmi = server(false);
    ask(&mut pmi, 0, "cmd=put kvsname=psched_12_1 key=P0 value=here");
    assert_eq!(pmi.read(1, b"cmd=barrier_in\n"), []);
    assert_eq!(pmi.barriers(), []);
    let entry = |k: &str, v: &str| PmiEntry {
        key: Bytes::copy_from_slice(k.as_bytes()),
        value: Bytes::copy_from_slice(v.as_bytes()),
    };
    let up = BarrierIn { generation: 1, entries: vec![entry("P0", "here")] };
    assert_eq!(pmi.read(0, b"cmd=barrier_in\n"), [Effect::BarrierIn(up.clone())]);
    assert_eq!(pmi.barriers(), std::slice::from_ref(&up));
    let leave =
        |generation, piece, entries| BarrierOut { generation, piece, last: piece == 1, entries };
    let first = leave(1, 0, vec![entry("P0", "here")]);
    let second = leave(1, 1, vec![entry("P2", "there")]);
    // Of another barrier, the second piece before the first, and the first twice.
    for (piece, count) in [
        (leave(2, 0, vec![]), 0),
        (second.clone(), 0),
        (first.clone(), 0),
        (first, 0),
        (second.clone(), 2),
        (second, 0),
    ] {
        assert_eq!(pmi.barrier_out(piece).len(), count);
    }
    assert_eq!(pmi.barriers(), std::slice::from_ref(&up));
    assert_eq!(
        ask(&mut pmi, 1, "cmd=get kvsname=psched_12_1 key=P2"),
        "cmd=get_result rc=0 msg=success value=there"
    );
    // The next barrier carries only what is new.
    assert_eq!(pmi.read(0, b"cmd=barrier_in\n"), []);
    let next = BarrierIn { generation: 2, entries: vec![] };
    assert_eq!(pmi.read(1, b"cmd=barrier_in\n"), [Effect::BarrierIn(next.clone())]);
    // The head may have died before all hosts heard of the first.
    assert_eq!(pmi.barriers(), [up, next]);
}

#[test]
fn what_a_host_puts_fits_in_a_frame_however_small_the_keys_are() {
    let mut pmi = server(false);
    let mut many = String::new();
    for i in 0..FRESH_MAX {
        many += &format!("cmd=put key={i:x} value=\n");
    }
    let full = "cmd=put_result rc=-1 msg=kvs_full\n";
    let refused = |e: &Effect| matches!(e, Effect::Reply(0, data) if data[..] == *full.as_bytes());
    assert!(
        many.split_inclusive('\n').any(|line| pmi.read(0, line.as_bytes()).iter().any(refused))
    );
    pmi.read(0, b"cmd=barrier_in\n");
    let effects = pmi.read(1, b"cmd=barrier_in\n");
    let [Effect::BarrierIn(arrival)] = &effects[..] else { panic!("{effects:?}") };
    let cost: usize = arrival.entries.iter().map(PmiEntry::cost).sum();
    assert!(cost <= FRESH_MAX && arrival.entries.len() > FRESH_MAX / 30, "{cost}");
}

#[test]
fn a_full_space_is_told_with_its_variable_and_what_is_there_stays() {
    let space = (4 + 4 + PMI_ENTRY_COST) as u64 * 2;
    let mut pmi = Pmi::new("psched_12_1".into(), 1, String::new(), true, space, [0]);
    for key in ["key1", "key2"] {
        let put = format!("cmd=put key={key} value=1234");
        assert_eq!(ask(&mut pmi, 0, &put), "cmd=put_result rc=0 msg=success");
    }
    let text = "can't put a key and its value by PMI: the keys and values of all PEs may take 48: \
                put fewer, or have an administrator raise pmi_max (48) with psmgr set";
    assert_eq!(
        pmi.read(0, b"cmd=put key=key3 value=1234\n"),
        [
            Effect::Notice { rank: 0, text: text.into() },
            Effect::Reply(0, "cmd=put_result rc=-1 msg=kvs_full\n".into())
        ]
    );
    let get = ask(&mut pmi, 0, "cmd=get key=key2");
    assert_eq!(get, "cmd=get_result rc=0 msg=success value=1234");
}

#[test]
fn more_than_all_hosts_may_put_is_refused_clearly() {
    let mut pmi = server(false);
    let value = Bytes::from(vec![b'v'; VALUE_MAX]);
    let count = SPACE as usize / (VALUE_MAX + PMI_ENTRY_COST) + 1;
    let key = |i: usize| Bytes::from(format!("{i}"));
    let entries = (0..count).map(|i| PmiEntry { key: key(i), value: value.clone() }).collect();
    pmi.read(0, b"cmd=barrier_in\n");
    pmi.read(1, b"cmd=barrier_in\n");
    let pieces = BarrierOut::pieces(1, entries);
    assert!(pieces.len() >= 64 && pieces.iter().all(|p| p.entries.len() < 1100));
    let last = pieces.into_iter().flat_map(|piece| pmi.barrier_out(piece)).last();
    assert_eq!(last, Some(Effect::Garbage { rank: 0, text: too_much(SPACE) }));
}

#[test]
fn a_spawn_is_asked_for_after_its_last_block_and_answered_once() {
    let mut pmi = server(true);
    let block = "mcmd=spawn\nnprocs=1\nexecname=./a b\ntotspawns=2\nspawnssofar=1\nendcmd\n";
    assert_eq!(pmi.spawned(0, true), []);
    for (runs, said) in
        [(false, "cmd=spawn_result rc=-1 msg=not_spawned\n"), (true, "cmd=spawn_result rc=0\n")]
    {
        assert_eq!(pmi.read(0, block.as_bytes()), []);
        let effects = pmi.read(0, block.replace("sofar=1", "sofar=2").as_bytes());
        let [Effect::Spawn { rank: 0, request }] = &effects[..] else { panic!("{effects:?}") };
        assert_eq!((request.pes(), request.programs[1].command.as_slice()), (2, &b"./a b"[..]));
        assert_eq!(pmi.spawned(0, runs), [Effect::Reply(0, said.into())]);
        assert_eq!(pmi.spawned(0, runs), []);
    }
    let twice = [block, block].concat().replace("totspawns=2", "totspawns=1");
    let effects = pmi.read(0, twice.as_bytes());
    let text = "a spawn before the last one was answered".into();
    assert_eq!(effects.last(), Some(&Effect::Garbage { rank: 0, text }));
}

/// Requests that are never whole take no more than the space of keys may.
#[test]
fn requests_to_spawn_have_a_bound_together() {
    let mut pmi = Pmi::new("x".into(), 4, String::new(), true, 1 << 20, 0..4);
    let line = format!("arg1={}\n", "x".repeat(8000));
    let mut taken = 0;
    for rank in 0..4 {
        pmi.read(rank, b"mcmd=spawn\n");
        while taken < 1000 {
            match &pmi.read(rank, line.as_bytes())[..] {
                [] => taken += 1,
                [Effect::Garbage { text, .. }] => {
                    assert_eq!(text, "a spawn that is too large beside those of other PEs");
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert!((120..=131).contains(&taken), "{taken}");
}

#[test]
fn who_was_spawned_finds_what_was_put_for_him() {
    let entries = [PmiEntry { key: "PARENT_ROOT_PORT_NAME".into(), value: "tag#0$x".into() }];
    let mut pmi = server(true).with_entries(&entries);
    let found = "cmd=get_result rc=0 msg=success value=tag#0$x";
    assert_eq!(ask(&mut pmi, 1, "cmd=get key=PARENT_ROOT_PORT_NAME"), found);
}

#[test]
fn abort_has_its_code() {
    let mut pmi = server(true);
    let abort = |code| [Effect::Abort { rank: 0, code }];
    assert_eq!(pmi.read(0, b"cmd=abort exitcode=3\n"), abort(3));
    assert_eq!(pmi.read(0, b"cmd=abort exitcode=-1\n"), abort(-1));
    assert_eq!(pmi.read(0, b"cmd=abort\n"), abort(1));
}

#[test]
fn garbage_is_named_once_and_harms_nobody_else() {
    for (bytes, text) in [
        (&b"hello\n"[..], "\"hello\" is not a command"),
        (b"\n", "\"\" is not a command"),
        (b"cmd=dance\n", "the unknown command \"dance\""),
        (b"cmd=put key=a\x1b value\n", "\"value\" in a command, where key=value belongs"),
        (b"cmd=abort exitcode=x\n", "\"x\" where a number belongs"),
        (b"cmd=\x1b[2J\n", "the unknown command \"\\x1b[2J\""),
        (b"cmd=barrier_in\ncmd=barrier_in\n", "barrier_in twice without a barrier_out between"),
    ] {
        let mut pmi = server(true);
        assert_eq!(pmi.read(0, bytes), [Effect::Garbage { rank: 0, text: text.into() }]);
        assert_eq!(pmi.read(0, b"hello\n"), []);
        assert_eq!(ask(&mut pmi, 1, "cmd=get_appnum"), "cmd=appnum rc=0 appnum=0");
    }
}

#[test]
fn what_is_too_long_is_refused() {
    let mut pmi = server(true);
    let long = "k".repeat(KEY_MAX + 1);
    assert_eq!(
        ask(&mut pmi, 0, &format!("cmd=put key={long} value=v")),
        "cmd=put_result rc=-1 msg=key_too_long"
    );
    let long = "v".repeat(VALUE_MAX + 1);
    assert_eq!(
        ask(&mut pmi, 0, &format!("cmd=put key=k value={long}")),
        "cmd=put_result rc=-1 msg=value_too_long"
    );
    let endless = vec![b'x'; LINE_MAX + 1];
    assert!(matches!(&pmi.read(0, &endless)[..], [Effect::Garbage { rank: 0, .. }]));
}

#[test]
fn the_space_between_barriers_is_bounded() {
    let mut pmi = server(true);
    let value = "v".repeat(VALUE_MAX);
    let put = |i: usize| format!("cmd=put key={i:04} value={value}");
    let room = FRESH_MAX / (4 + VALUE_MAX + PMI_ENTRY_COST);
    for i in 0..room {
        assert_eq!(ask(&mut pmi, 0, &put(i)), "cmd=put_result rc=0 msg=success");
    }
    let notice = "can't put a key and its value by PMI: the PEs of a host may put 4M between two \
                  barriers: put less, or put a barrier in between";
    let refused = Effect::Reply(0, "cmd=put_result rc=-1 msg=kvs_full\n".into());
    assert_eq!(
        pmi.read(0, format!("{}\n", put(room)).as_bytes()),
        [Effect::Notice { rank: 0, text: notice.into() }, refused.clone()]
    );
    // Its user is told once.
    assert_eq!(pmi.read(0, format!("{}\n", put(room)).as_bytes()), [refused]);
    pmi.read(0, b"cmd=barrier_in\n");
    pmi.read(1, b"cmd=barrier_in\n");
    assert_eq!(ask(&mut pmi, 0, &put(room)), "cmd=put_result rc=0 msg=success");
}

const LINES: [&str; 10] = [
    "cmd=init pmi_version=1 pmi_subversion=1\n",
    "cmd=get_maxes\n",
    "cmd=put kvsname=psched_12_1 key=a value=b\n",
    "cmd=get kvsname=psched_12_1 key=a\n",
    "cmd=barrier_in\n",
    "mcmd=spawn\nnprocs=2\nendcmd\n",
    "cmd=finalize\n",
    "cmd=abort exitcode=7\n",
    "rubbish\n",
    "cmd=put key=\n",
];

proptest! {
    #[test]
    fn random_bytes_do_no_harm(chunks in prop::collection::vec(any::<Vec<u8>>(), 0..20)) {
        let mut pmi = server(true);
        for chunk in &chunks {
            for effect in pmi.read(0, chunk) {
                prop_assert!(matches!(effect, Effect::Garbage { rank: 0, .. }), "{effect:?}");
            }
        }
        prop_assert_eq!(ask(&mut pmi, 1, "cmd=get_appnum"), "cmd=appnum rc=0 appnum=0");
    }

    #[test]
    fn where_reads_are_cut_does_not_matter(
        lines in prop::collection::vec(0..LINES.len(), 0..12),
        cuts in prop::collection::vec(1usize..20, 1..40),
    ) {
        let text: String = lines.iter().map(|i| LINES[*i]).collect();
        let whole = server(true).read(0, text.as_bytes());
        let mut pmi = server(true);
        let (mut rest, mut pieces) = (text.as_bytes(), Vec::new());
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, after) = rest.split_at(rest.len().min(*cut));
            pieces.extend(pmi.read(0, piece));
            rest = after;
        }
        prop_assert_eq!(whole, pieces);
    }
}

#[test]
fn names_are_published_looked_up_and_taken_back() {
    let mut pmi = Pmi::new("k".into(), 2, String::new(), true, 200, 0..2);
    let mut ask = |rank, line: &str| {
        let effects = pmi.read(rank, format!("{line}\n").as_bytes());
        let Some(Effect::Reply(to, answer)) = effects.last() else { panic!("{effects:?}") };
        assert_eq!(*to, rank);
        String::from_utf8_lossy(answer).trim_end().to_owned()
    };
    let not_found = "cmd=lookup_result info=service_not_found rc=-1 msg=service_not_found";
    assert_eq!(ask(1, "cmd=lookup_name service=a"), not_found);
    let published = "cmd=publish_result info=ok rc=0 msg=success";
    assert_eq!(ask(0, "cmd=publish_name service=a port=tag#0$x"), published);
    let found = "cmd=lookup_result info=ok rc=0 msg=success port=tag#0$x";
    assert_eq!(ask(1, "cmd=lookup_name service=a"), found);
    assert!(ask(1, "cmd=publish_name service=a port=b").contains("duplicate_service"));
    let long = format!("cmd=publish_name service=b port={}", "x".repeat(200));
    assert!(ask(1, &long).contains("kvs_full"));
    let gone = "cmd=unpublish_result info=ok rc=0 msg=success";
    assert_eq!(ask(0, "cmd=unpublish_name service=a"), gone);
    assert!(ask(0, "cmd=unpublish_name service=a").contains("service_not_found"));
    assert_eq!(ask(1, "cmd=lookup_name service=a"), not_found);
    // What it took is free again.
    for _ in 0..10 {
        assert_eq!(ask(0, "cmd=publish_name service=a port=tag#0$x"), published);
        assert_eq!(ask(0, "cmd=unpublish_name service=a"), gone);
    }
}

/// Of four PEs on two hosts.
fn of_host(ranks: std::ops::Range<u32>) -> Pmi {
    Pmi::new("k".into(), 4, String::new(), false, 1 << 20, ranks)
}

/// What PE 2 of the other host asks of PE 0's, as a letter of this number.
fn asks(other: &mut Pmi, line: &str, number: u64) -> Letter {
    let effects = other.read(2, format!("{line}\n").as_bytes());
    let [Effect::Ask { rank: 2, text }] = &effects[..] else { panic!("{effects:?}") };
    Letter { to: 0, from: 2, number, text: text.clone() }
}

/// The answer, which comes back to PE 2.
fn answered(other: &mut Pmi, effects: Vec<Effect>) -> String {
    let [Effect::Answer(Letter { to: 2, from: 0, text, .. })] = &effects[..] else {
        panic!("{effects:?}")
    };
    let LetterText::Answer { status, data } = text else { panic!("{text:?}") };
    let effects = other.answered(2, *status, data);
    let [Effect::Reply(2, line)] = &effects[..] else { panic!("{effects:?}") };
    String::from_utf8_lossy(line).trim_end().to_owned()
}

#[test]
fn names_are_kept_at_the_host_of_the_first_pe() {
    let (mut first, mut other) = (of_host(0..2), of_host(2..4));
    let mut ask = |line: &str, number| {
        let letter = asks(&mut other, line, number);
        let effects = first.asked(letter.clone());
        // It may come twice, for its answer may be lost: nothing else is said then.
        assert_eq!(first.asked(letter), effects, "{line}");
        answered(&mut other, effects)
    };
    assert!(ask("cmd=lookup_name service=a", 1).contains("service_not_found"));
    assert!(ask("cmd=publish_name service=a port=x", 2).contains("rc=0"));
    assert!(ask("cmd=publish_name service=a port=y", 3).contains("duplicate_service"));
    assert!(ask("cmd=lookup_name service=a", 4).ends_with("port=x"));
    assert!(ask("cmd=unpublish_name service=a", 5).contains("rc=0"));
    assert!(ask("cmd=unpublish_name service=a", 6).contains("service_not_found"));
    // The PEs of the first host know the same names, and ask nobody.
    assert!(ask("cmd=publish_name service=b port=z", 7).contains("rc=0"));
    let found = "cmd=lookup_result info=ok rc=0 msg=success port=z\n";
    assert_eq!(first.read(1, b"cmd=lookup_name service=b\n"), [Effect::Reply(1, found.into())]);
}

#[test]
fn an_old_question_about_a_name_does_nothing() {
    let (mut first, mut other) = (of_host(0..2), of_host(2..4));
    let old = asks(&mut other, "cmd=unpublish_name service=a", 1);
    let effects = first.asked(old.clone());
    answered(&mut other, effects);
    let publish = asks(&mut other, "cmd=publish_name service=a port=x", 2);
    let effects = first.asked(publish);
    answered(&mut other, effects);
    assert_eq!(first.asked(old), []);
    let look_up = asks(&mut other, "cmd=lookup_name service=a", 3);
    let effects = first.asked(look_up);
    assert!(answered(&mut other, effects).ends_with("port=x"));
    // Of no PE of this application.
    let text = LetterText::LookUp("a".into());
    assert_eq!(first.asked(Letter { to: 0, from: 4, number: 1, text }), []);
}

#[test]
fn a_second_question_about_a_name_before_the_answer_is_garbage() {
    let mut other = of_host(2..4);
    asks(&mut other, "cmd=lookup_name service=a", 1);
    let effects = other.read(2, b"cmd=lookup_name service=b\n");
    assert!(matches!(&effects[..], [Effect::Garbage { rank: 2, .. }]), "{effects:?}");
    // Nor is an answer that nobody waits for one.
    assert_eq!(other.answered(3, 0, b""), []);
}
