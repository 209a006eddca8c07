//! Launching: where PEs are, what they see, what comes back.

use crate::support::*;
use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

#[test]
fn ranks_are_on_their_nodes() {
    let instance = instance(4, 2);
    let run = instance.aprun(words("-q -n 8 -N 2 --dry-run true")).expect(0);
    assert_eq!(run.out().lines().filter(|l| !l.trim().is_empty()).count(), 9, "{}", run.out());
    assert!(instance.apstat("--history")["history"].as_array().expect("a list").is_empty());
    // %n is the NID.
    let directory = instance.directory();
    let pattern = directory.join("%a.%n.%r");
    let pattern = pattern.to_str().expect("text");
    let options = format!("-q -n 6 -N 2 --output {pattern}");
    let run = instance.script(&options, "echo $ALPS_APP_PE").expect(0);
    assert_eq!(run.out(), "");
    let mut names: Vec<String> = std::fs::read_dir(&directory)
        .expect("there")
        .map(|e| e.expect("read").file_name().into_string().expect("text"))
        .collect();
    names.sort();
    let apid: u64 = names[0].split('.').next().expect("three parts").parse().expect("a number");
    let layout: Vec<(u64, u64)> = names
        .iter()
        .map(|n| {
            let parts: Vec<u64> = n.split('.').map(|p| p.parse().expect("a number")).collect();
            assert_eq!(parts[0], apid);
            (parts[1], parts[2])
        })
        .collect();
    let first = layout[0].0;
    let expected: Vec<(u64, u64)> = (0..6).map(|rank| (first + rank / 2, rank)).collect();
    assert_eq!(layout, expected);
    for name in &names {
        let text = std::fs::read_to_string(directory.join(name)).expect("there");
        assert_eq!(text.trim(), name.rsplit('.').next().expect("the rank"));
    }
}

#[test]
fn pes_see_who_they_are() {
    let instance = instance(2, 4);
    let script = "echo $ALPS_APP_PE $ALPS_APP_DEPTH $ALPS_APP_ID $PMI_RANK $PMI_SIZE $X";
    let mut command = instance.command("aprun", words("-q -n 3 -d 2 -e X=given sh -c"));
    let run = run(command.arg(script).env("X", "inherited")).expect(0);
    let expected: Vec<String> = (0..3).map(|r| format!("{r} 2 1 {r} 3 given")).collect();
    assert_eq!(run.sorted(), expected);
}

/// --chdir is seen from where aprun is called, and so is the program; files for output stay where they were.
#[test]
fn pes_run_in_the_directory_that_is_named() {
    let instance = instance(1, 2);
    let directory = instance.directory();
    std::fs::create_dir(directory.join("run")).expect("made");
    let program = directory.join("program");
    std::fs::write(&program, "#!/bin/sh\npwd\necho $PWD\n").expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).expect("ours");
    let there = directory.join("run");
    let there = there.to_str().expect("text");
    for name in ["run", "./run/", there] {
        let mut command = instance.command("aprun", ["-q", "--chdir", name, "./program"]);
        let run = run(command.current_dir(&directory)).expect(0);
        assert_eq!(run.sorted(), [there, there], "{name}");
    }
    let mut command = instance.command("aprun", words("-q --chdir run --output out ./program"));
    run(command.current_dir(&directory)).expect(0);
    assert!(directory.join("out").exists());
    let missing = instance.aprun(words("-n 2 --chdir /no/such/place true")).expect(125);
    let host = nix::unistd::gethostname().expect("a name").into_string().expect("text");
    missing.says(&format!(
        "it can't enter its working directory /no/such/place on host {host}: No such file or \
         directory; make it there, or give another one with --chdir"
    ));
}

#[test]
fn directory_umask_and_limits_are_the_callers() {
    let instance = instance(1, 1);
    let directory = instance.directory();
    let script = "umask 027; ulimit -S -c 0; exec \"$0\" -q sh -c 'pwd; umask; ulimit -S -c'";
    let mut command = instance.command("sh", ["-c", script]);
    command.arg(instance.bins.join("aprun")).current_dir(&directory);
    let run = run(&mut command).expect(0);
    assert_eq!(run.out(), format!("{}\n0027\n0\n", directory.display()));
}

/// The processors of each PE of an application, as the kernel has them.
fn affinities(run: &Run) -> Vec<BTreeSet<u32>> {
    let mut lines = run.sorted();
    lines.sort_by_key(|l| l.split(':').next().and_then(|r| r.trim().parse::<u32>().ok()));
    lines.iter().map(|l| cpu_list(l.rsplit(char::is_whitespace).next().expect("a word"))).collect()
}

fn cpu_list(text: &str) -> BTreeSet<u32> {
    let mut cpus = BTreeSet::new();
    for part in text.trim().split(',') {
        let (a, b) = part.split_once('-').unwrap_or((part, part));
        cpus.extend(a.parse::<u32>().expect("a number")..=b.parse::<u32>().expect("a number"));
    }
    cpus
}

#[test]
fn each_pe_is_bound_to_its_own_processors() {
    let status = std::fs::read_to_string("/proc/self/status").expect("there");
    let allowed = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")).expect("there");
    let allowed = cpu_list(allowed);
    let instance = instance(2, 2);
    let script = "grep Cpus_allowed_list /proc/self/status";
    let bound = affinities(&instance.script("-q -n 4 --label", script).expect(0));
    assert_eq!(bound.len(), 4);
    assert!(bound.iter().all(|cpus| cpus.len() == 1 && cpus.is_subset(&allowed)), "{bound:?}");
    // No two share one while another is free; beyond that by turns.
    let used: BTreeSet<u32> = bound.iter().flatten().copied().collect();
    assert_eq!(used.len(), allowed.len().min(4).min(real_cores(&allowed)), "{bound:?}");
    let free = affinities(&instance.script("-q -n 2 -cc none --label", script).expect(0));
    // Not bound one by one, and on no processors of others.
    let two = 2.min(real_cores(&allowed));
    let own = |cpus: &BTreeSet<u32>| cpus.len() == two && cpus.is_subset(&allowed);
    assert!(free.iter().all(|cpus| own(cpus) && *cpus == free[0]), "{free:?}");
    let deep = affinities(&instance.script("-q -n 1 -d 2 --label", script).expect(0));
    assert_eq!(deep[0].len(), 2.min(real_cores(&allowed)), "{deep:?}");
}

/// Those processors of these that are the first of their core, in order: what a private instance's
/// processors 0, 1, ... are.
fn first_of_cores(allowed: &BTreeSet<u32>) -> Vec<u32> {
    let siblings = |cpu: u32| {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        std::fs::read_to_string(path).map_or_else(|_| [cpu].into(), |text| cpu_list(&text))
    };
    let first = |cpu: u32| siblings(cpu).into_iter().find(|sibling| allowed.contains(sibling));
    allowed.iter().copied().filter(|cpu| first(*cpu) == Some(*cpu)).collect()
}

/// As it is asked for: the sets of all PEs, as the kernel has them.
#[test]
fn bindings_by_depth_numa_node_and_lists() {
    let status = std::fs::read_to_string("/proc/self/status").expect("there");
    let allowed = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")).expect("there");
    let allowed = cpu_list(allowed);
    let cores = first_of_cores(&allowed);
    let instance = instance(2, 4);
    let real = |nid: usize, numbers: &[usize]| -> BTreeSet<u32> {
        numbers.iter().map(|n| cores[(4 * nid + n) % cores.len()]).collect()
    };
    let script = "grep Cpus_allowed_list /proc/self/status";
    let has = |options: &str, expected: &[BTreeSet<u32>]| {
        let sets = affinities(&instance.script(&format!("-q --label {options}"), script).expect(0));
        assert_eq!(sets, expected, "{options}");
    };
    has("-n 2 -d 2 -cc depth", &[real(0, &[0, 1]), real(0, &[2, 3])]);
    // The application's on that node: all that are in the first one's NUMA node.
    let domain = |cpu: u32| {
        let folders = std::fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten();
        let list = |folder: &Path| std::fs::read_to_string(folder.join("cpulist")).ok();
        let mut cpus = folders.filter_map(|f| list(&f.path())).filter(|l| !l.trim().is_empty());
        cpus.find(|l| cpu_list(l).contains(&cpu))
    };
    let near = |own: usize| -> BTreeSet<u32> {
        let own = real(0, &[own]).first().copied().expect("one");
        let all = real(0, &[0, 1, 2]);
        all.into_iter().filter(|cpu| domain(*cpu) == domain(own)).collect()
    };
    has("-n 3 -cc numa_node", &[near(0), near(1), near(2)]);
    let of_node = |nid| [real(nid, &[1]), real(nid, &[0, 2, 3]), allowed.clone(), real(nid, &[1])];
    has("-n 8 -N 4 -cc 1:3-2,0:x", &[of_node(0), of_node(1)].concat());
    // What can be known is told before psched is asked; what the placement alone tells, before
    // anything runs.
    let said = "aprun: -cc: list 1 names processor 7, and the application has 2 processors, numbers 0 \
                to 1, on a node at most: name one of those, or ask for more (-n, -N, -d)\n";
    assert_eq!(instance.aprun(words("-n 2 -cc 7 false")).expect(125).stderr, said);
    let marker = instance.directory().join("ran");
    let mut command = instance.command("aprun", words("-n 3 -N 2 -cc 0,1 touch"));
    let run = run(command.arg(&marker)).expect(125);
    let said = "aprun: -cc: list 1 names processor 1, and the application has 1 processor, number 0, \
                on NID 1: name one of those, or ask for more (-n, -N, -d)\n";
    assert_eq!(run.stderr, said);
    assert!(!marker.exists());
    instance.wait_until_free();
}

/// Cores among these processors, siblings counted once.
fn real_cores(allowed: &BTreeSet<u32>) -> usize {
    let siblings = |cpu: &u32| {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        std::fs::read_to_string(path).unwrap_or_else(|_| cpu.to_string())
    };
    allowed.iter().map(siblings).collect::<BTreeSet<String>>().len()
}

#[test]
fn stdin_goes_to_pe_0() {
    let instance = instance(1, 2);
    let mut command = instance.command("aprun", words("-q -n 2 --label sh -c"));
    command.arg("cksum").stdin(Stdio::piped());
    let mut running = Running::start(&mut command);
    let mut stdin = running.child.stdin.take().expect("piped");
    let bytes: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    let sent = bytes.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&sent).expect("taken"));
    let run = running.wait(BOUND).expect(0);
    writer.join().expect("written");
    let mut own = std::process::Command::new("cksum");
    let mut own = own.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("cksum");
    own.stdin.take().expect("piped").write_all(&bytes).expect("taken");
    let own = String::from_utf8(own.wait_with_output().expect("ended").stdout).expect("text");
    let mut expected = vec![format!("0: {}", own.trim()), "1: 4294967295 0".to_owned()];
    expected.sort();
    assert_eq!(run.sorted(), expected);
}

#[test]
fn a_closed_stdin_is_an_empty_one() {
    let instance = instance(1, 1);
    let mut command = instance.command("sh", ["-c", "exec \"$0\" -q wc -c <&-"]);
    let run = run(command.arg(instance.bins.join("aprun"))).expect(0);
    assert_eq!(run.out().trim(), "0");
}

#[test]
fn big_output_is_complete_and_whole() {
    let instance = instance(1, 2);
    // 2 x 8 MB, in lines; -T keeps each whole.
    let script = "r=$ALPS_APP_PE; yes $r$r$r$r$r$r$r$r$r$r$r$r$r$r$r | head -n 500000";
    let run = instance.script("-q -n 2 -T", script).expect(0);
    assert_eq!(run.stdout.len(), 2 * 500_000 * 16);
    let mut counts = [0, 0];
    for line in run.stdout.split(|b| *b == b'\n').filter(|l| !l.is_empty()) {
        match line {
            b"000000000000000" => counts[0] += 1,
            b"111111111111111" => counts[1] += 1,
            other => panic!("a torn line: {}", String::from_utf8_lossy(other)),
        }
    }
    assert_eq!(counts, [500_000, 500_000]);
    // Bytes of any kind, unlabelled, in order.
    let run = instance.script("-q", "seq 1 400000; printf 'no newline\\377'").expect(0);
    let mut expected: Vec<u8> = (1..=400_000).flat_map(|i| format!("{i}\n").into_bytes()).collect();
    expected.extend(b"no newline\xff");
    assert!(run.stdout == expected, "{} bytes", run.stdout.len());
}

#[test]
fn stdout_and_stderr_stay_apart() {
    let instance = instance(1, 2);
    let run = instance.script("-q -n 2 --label", "echo out; echo err >&2").expect(0);
    assert_eq!(run.sorted(), ["0: out", "1: out"]);
    let mut errors: Vec<&str> = run.stderr.lines().collect();
    errors.sort_unstable();
    assert_eq!(errors, ["0: err", "1: err"]);
    let directory = instance.directory();
    let file = directory.join("all");
    let file = file.to_str().expect("text");
    let options = format!("-q --output {file} --error {file}");
    let run = instance.script(&options, "echo out; echo err >&2").expect(0);
    assert_eq!((run.out(), run.stderr), (String::new(), String::new()));
    let text = std::fs::read_to_string(file).expect("made");
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["err", "out"]);
}

#[test]
fn all_go_together_or_none() {
    let instance = instance(1, 2);
    let directory = instance.directory();
    // Its interpreter goes away between the posting and the launch: the machine is full meanwhile.
    let long = instance.start_script("-q -n 2", "exec sleep 1000");
    let apid = instance.wait_for("running", 1)[0];
    let (interpreter, script) = (directory.join("interpreter"), directory.join("script"));
    copy_program("/bin/sh", &interpreter);
    let text =
        format!("#!{}\ntouch {}/ran.$ALPS_APP_PE\n", interpreter.display(), directory.display());
    write_program(&script, text, 0o755);
    let mut command = instance.command("aprun", ["-q", "-n", "2"]);
    let waits = Running::start(command.arg(&script));
    instance.wait_for("posted", 1);
    std::fs::remove_file(&interpreter).expect("there");
    instance.run("apkill", ["-9", &apid.to_string()]).expect(0);
    long.wait(BOUND).expect(137);
    let run = waits.wait(BOUND);
    assert!([126, 127].contains(&run.status), "{}: {}", run.status, run.stderr);
    assert!(run.stderr.contains("script"), "{}", run.stderr);
    let ran = std::fs::read_dir(&directory).expect("there").flatten();
    assert_eq!(ran.filter(|e| e.file_name().to_string_lossy().starts_with("ran")).count(), 0);
}

#[test]
fn an_executable_changed_since_the_posting_is_refused() {
    let instance = instance(1, 1);
    let program = instance.directory().join("program");
    std::fs::copy("/bin/true", &program).expect("copied");
    let long = instance.start_script("-q", "exec sleep 1000");
    let apid = instance.wait_for("running", 1)[0];
    let mut command = instance.command("aprun", ["-q"]);
    let waits = Running::start(command.arg(&program));
    instance.wait_for("posted", 1);
    let before = std::fs::metadata(&program).expect("there").ino();
    std::fs::remove_file(&program).expect("there");
    std::fs::copy("/bin/false", &program).expect("copied");
    assert!(std::fs::metadata(&program).expect("there").len() > 0 && before > 0);
    instance.run("apkill", ["-9", &apid.to_string()]).expect(0);
    long.wait(BOUND).expect(137);
    let run = waits.wait(BOUND);
    assert!([125, 126].contains(&run.status), "{}: {}", run.status, run.stderr);
    assert!(run.stderr.contains("changed"), "{}", run.stderr);
}

#[test]
fn two_apinits_are_one_machine() {
    let instance = Plan::new().nodes(4, 1).arg("--apinits").arg("2").start();
    let run = instance.script("-q -n 4 --label", "echo $ALPS_APP_PE").expect(0);
    assert_eq!(run.sorted(), ["0: 0", "1: 1", "2: 2", "3: 3"]);
    instance.script("-q -n 4", "[ $ALPS_APP_PE != 3 ] || exit 4").expect(4);
    // A death on one host ends the PEs of the other.
    let run = instance.script("-n 4", "[ $ALPS_APP_PE != 3 ] || kill -SEGV $$; exec sleep 1000");
    run.expect(139).says("[NID 00003]").says("PE 3 died: Segmentation fault");
    instance.wait_until_free();
    // stdin, and a lot of output from both.
    let run = instance.script("-q -n 4", "seq 1 100000 | md5sum; seq 1 200000").expect(0);
    assert_eq!(run.out().lines().count(), 4 * 200_001);
}

#[test]
fn no_descriptor_of_apruns_reaches_a_pe() {
    let instance = instance(1, 2);
    let output = tempfile::NamedTempFile::new().expect("a file");
    let own = tempfile::NamedTempFile::new().expect("a file");
    // aprun's stdout, stdin and one more descriptor are files; a PE's are pipes, /dev/null (for
    // those that are not rank 0), its connection for PMI, and the folder that ls looks at.
    let aprun = binaries().join("aprun");
    let script = r#"exec "$0" -q -n 2 ls -l /proc/self/fd 7<&0"#;
    let mut command = instance.command("sh", ["-c".as_ref(), script.as_ref(), aprun.as_os_str()]);
    let mut child = command
        .stdin(own.reopen().expect("opened"))
        .stdout(output.reopen().expect("opened"))
        .spawn()
        .expect("aprun");
    assert!(child.wait().expect("waited").success());
    let text = std::fs::read_to_string(output.path()).expect("text");
    let links = text.lines().filter_map(|line| line.split_once(" -> "));
    let lines: Vec<(&str, &str)> =
        links.filter_map(|(before, what)| Some((before.rsplit(' ').next()?, what))).collect();
    let numbers: BTreeSet<&str> = lines.iter().map(|(fd, _)| *fd).collect();
    assert_eq!(numbers, BTreeSet::from(["0", "1", "2", "3", "29"]), "{text}");
    for (fd, what) in &lines {
        let expected = match *fd {
            "29" => what.starts_with("socket:"),
            "3" => what.starts_with("/proc/"),
            "0" => what.starts_with("pipe:") || *what == "/dev/null",
            _ => what.starts_with("pipe:"),
        };
        assert!(expected, "{text}");
    }
}

#[test]
fn mpirun_is_the_same_program() {
    let instance = instance(1, 2);
    for name in ["mpirun", "mpiexec"] {
        let run = instance.run(name, ["-np", "2", "echo", "x"]).expect(0);
        assert_eq!(run.out(), "x\nx\n", "{name}");
        let said = instance.run(name, ["-n", "0", "true"]).expect(125);
        assert!(said.stderr.starts_with(&format!("{name}: -n: ")), "{said:?}");
    }
}

#[test]
fn a_slow_reader_delays_no_one_else() {
    let instance = instance(1, 2);
    // Nobody reads: the pipe fills, then the window, then the PE stops.
    let mut command = instance.command("aprun", words("-q sh -c"));
    command.arg("seq 1 6000000").stdout(Stdio::piped()).stderr(Stdio::null());
    let mut slow = command.spawn().expect("started");
    let mut stdout = slow.stdout.take().expect("piped");
    instance.wait_for("running", 1);
    let (aprun, apinit) = (slow.id() as i32, instance.daemon("apinit"));
    let shepherd = children(apinit).into_iter().find(|(_, n)| n == "apshepherd");
    let processes =
        [("aprun", aprun), ("apinit", apinit), ("apshepherd", shepherd.expect("it has one").0)];
    let before = processes.map(|(_, pid)| resident_kib(pid));
    std::thread::sleep(Duration::from_secs(3));
    for ((name, pid), before) in processes.into_iter().zip(before) {
        let now = resident_kib(pid);
        assert!(now < before + 32 * 1024, "{name} went from {before} to {now} KiB");
    }
    assert!(slow.try_wait().expect("asked").is_none(), "the output went nowhere");
    let quick = instance.script("-q", "seq 1 100000").expect(0);
    assert_eq!(quick.out().lines().count(), 100_000);
    let mut all = Vec::new();
    std::io::Read::read_to_end(&mut stdout, &mut all).expect("read");
    let expected: Vec<u8> = (1..=6_000_000).flat_map(|i| format!("{i}\n").into_bytes()).collect();
    assert!(all == expected, "{} bytes of {}", all.len(), expected.len());
    assert!(slow.wait().expect("ended").success());
}

/// A command line that was written for another launcher runs as it is.
#[test]
fn options_of_other_launchers_run() {
    let instance = instance(1, 2);
    let host = nix::unistd::gethostname().expect("a name").into_string().expect("text");
    let file = instance.folder().join("hosts");
    std::fs::write(&file, format!("# all of them\n{host} slots=2\n")).expect("written");
    let file = file.to_str().expect("text");
    let show = "[ \"$A$B\" = 12 ] && pwd";
    for hosts in
        [["-hostfile", file], ["-machinefile", file], ["-host", &host], ["-host", "localhost"]]
    {
        let line =
            [&hosts[..], &["-np", "2", "-x", "A=1", "-env", "B", "2", "-wdir", "/"]].concat();
        let line = [&line[..], &["--bind-to", "core", "sh", "-c", show]].concat();
        assert_eq!(instance.run("mpirun", line).expect(0).out(), "/\n/\n", "{hosts:?}");
    }
    let tagged = instance.run("mpirun", words("-tag-output -np 2 echo here")).expect(0);
    assert_eq!(tagged.sorted(), ["0: here", "1: here"]);
    // (Of mpiexec, in seconds.)
    let late = instance.run("mpirun", words("-timeout 1 -n 1 sleep 600"));
    assert_ne!(late.status, 0);
    late.says("its time limit of 1 s is over");
    let missing = instance.run("mpirun", ["-host", "no-such-host", "-n", "1", "true"]).expect(125);
    assert!(missing.stderr.contains("no node on a host \"no-such-host\""), "{missing:?}");
    // It was taken for -h, which prints the help, and the status was 0.
    let said = instance.run("aprun", ["-hostlist", file, "true"]).expect(125);
    assert!(said.stderr.contains("\"-hostlist\" is not an option"), "{said:?}");
}

/// Programs of torchrun and of mpiexec find their place; what the user sets stays.
#[test]
fn pes_find_the_variables_of_other_launchers() {
    let instance = instance(2, 4);
    let aprun = |line: &str, script: &str| {
        let words = words(line).chain(["sh", "-c", script]);
        let mut command = instance.command("aprun", words);
        for name in ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS"] {
            command.env_remove(name);
        }
        let out = run(&mut command).expect(0).out();
        let mut lines: Vec<String> = out.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let show = "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $NODE_RANK $MASTER_ADDR \
                $MPI_LOCALRANKID/$MPI_LOCALNRANKS $((ALPS_APP_ID + 20000 - MASTER_PORT)) [$OMP_NUM_THREADS]";
    // The two nodes are on one host.
    let expected =
        |rank: u32, threads: &str| format!("{rank}/4 {rank}/4 0 127.0.0.1 {rank}/4 0 [{threads}]");
    assert_eq!(aprun("-q -n 4 -N 2", show), [0, 1, 2, 3].map(|rank| expected(rank, "")));
    assert_eq!(aprun("-q -n 4 -N 2 -d 2", show), [0, 1, 2, 3].map(|rank| expected(rank, "2")));
    assert_eq!(aprun("-q -n 4 -N 2 -d 1", show), [0, 1, 2, 3].map(|rank| expected(rank, "1")));
    for depth in 1..=2 {
        let line = format!("-q -d {depth} -e RANK=x -e OMP_NUM_THREADS=9");
        assert_eq!(aprun(&line, "echo $RANK $OMP_NUM_THREADS"), ["x 9"]);
    }
    // RANK is still set in the user's shell.
    let left = |line: &str| {
        let words = words(line).chain(["sh", "-c", "echo $RANK"]);
        run(instance.command("aprun", words).env("RANK", "7").env_remove("LOCAL_RANK")).expect(0)
    };
    let said = left("-q -n 2");
    assert_eq!(said.out(), "7\n7\n");
    said.says("RANK is set in the environment");
    for line in ["-q -n 1", "-q -n 2 -e RANK=8", "-q -n 2 --env=none"] {
        assert_eq!(left(line).stderr, "", "{line}");
    }
    // Nodes 0 and 1 are of one host, and its PEs are in one numbering there.
    let show = "echo $OMPI_COMM_WORLD_RANK/$OMPI_COMM_WORLD_SIZE \
                $OMPI_COMM_WORLD_LOCAL_RANK/$OMPI_COMM_WORLD_LOCAL_SIZE $OMPI_COMM_WORLD_NODE_RANK";
    let expected = [0, 1, 2].map(|rank| format!("{rank}/3 {rank}/3 {rank}"));
    assert_eq!(aprun("-q -n 3 -N 2", show), expected);
    // All that aprun(1) names are set, and none of them with --env=none.
    let manual = include_str!("../../man/aprun.1");
    let table = manual.split_once("\nRANK ").expect("the table").1;
    let table = table.split_once("\n.fi").expect("its end").0;
    let others = table.lines().skip(1).map(|row| row.split(' ').next().expect("a name"));
    let names: Vec<&str> = ["RANK"].into_iter().chain(others).collect();
    assert_eq!(names.len(), 15, "{names:?}");
    let show: Vec<String> = names.iter().map(|name| format!("${{{name}:+x}}")).collect();
    let show = format!("echo $ALPS_APP_PE{}", show.concat());
    assert_eq!(aprun("-d 2", &show), [format!("0{}", "x".repeat(names.len()))]);
    // A program of MPICH alone is not taken for one of Open MPI.
    assert_eq!(aprun("--pmi=pmi1 -d 2", &show), [format!("0{}", "x".repeat(10))]);
    assert_eq!(aprun("--env=none -d 2", &show), ["0"]);
    assert_eq!(aprun("--env=none -d 1", &show), ["0"]);
    // What the outer application has set is not taken for the user's.
    let inner = format!(
        "{} --inside -q -n 2 sh -c 'echo $RANK/$WORLD_SIZE [$OMP_NUM_THREADS]'",
        binaries().join("aprun").display()
    );
    assert_eq!(aprun("-q -n 1 -d 2", &inner), ["0/2 []", "1/2 []"]);
}
