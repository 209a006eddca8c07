//! An application of tests/programs/phases.c, whose phases can be told apart from outside, and
//! whose every byte is accounted for.
//!
//! ```text
//!            spawned      its folder         going          wired.*         go             exit
//!               |  posting    |    launch      |   wire-up     |     run     |    exit      |
//!  made by      aprun      apinit           apinit          the PEs       the test        aprun
//! ```

use super::machine::{AppFolder, Machine};
use super::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The exit code of its PEs: no other has it.
pub const CODE: i32 = 7;
/// Its PEs.
pub const WIDTH: u32 = 2;
/// Barriers of its wire-up.
const LAPS: &str = "25";
/// Lines of stdout that are shown where something is missing.
const SHOWN: usize = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Posting,
    Launch,
    WireUp,
    Run,
    Exit,
}

pub const PHASES: [Phase; 5] =
    [Phase::Posting, Phase::Launch, Phase::WireUp, Phase::Run, Phase::Exit];

/// What the application is.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Across both nodes, and so both apinits; else on one.
    pub spread: bool,
    pub meets: Meets,
}

/// How its PEs meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meets {
    /// By PMI-1, which they speak by themselves.
    ByHand,
    /// As a program of MPICH.
    Mpich,
    /// As one of Open MPI, by PMIx.
    OpenMpi,
}

/// The program, built once.
fn program(meets: Meets) -> &'static Path {
    static BUILT: [OnceLock<PathBuf>; 3] = [const { OnceLock::new() }; 3];
    let (compiler, options, test): (_, &[&str], _) = match meets {
        Meets::ByHand => ("cc", &[], "kills"),
        Meets::Mpich => ("mpicc.mpich", &["-DWITH_MPI"], "kills-mpi"),
        Meets::OpenMpi => ("mpicc.openmpi", &["-DWITH_MPI"], "kills-open-mpi"),
    };
    BUILT[meets as usize].get_or_init(|| mpi::build(compiler, options, test, "phases"))
}

/// One that is under way.
pub struct Flow {
    folder: tempfile::TempDir,
    aprun: Running,
    began: Instant,
    feeder: JoinHandle<()>,
    enough: Arc<AtomicBool>,
    /// Lines that its stdin has been given.
    fed: Arc<AtomicU64>,
    /// Applications that were there before it.
    before: Vec<psched::apteam::Key>,
    /// Control groups that were seen of it.
    pub groups: Vec<PathBuf>,
}

impl Flow {
    pub fn start(machine: &Machine, kind: Kind) -> Flow {
        let folder = tempfile::Builder::new().prefix("it").tempdir_in("/tmp").expect("made");
        let before = machine.applications().into_iter().map(|a| a.key).collect();
        let shape = if kind.spread { "-n 2 -N 1" } else { "-n 2" };
        let mut command = machine.command("aprun", words(shape));
        command.arg(program(kind.meets)).arg(folder.path());
        command.args([LAPS, &CODE.to_string()]).stdin(Stdio::piped());
        let began = Instant::now();
        let mut aprun = Running::start(&mut command);
        let mut stdin = aprun.child.stdin.take().expect("piped");
        let enough = Arc::new(AtomicBool::new(false));
        let fed = Arc::new(AtomicU64::new(0));
        let (stop, lines) = (Arc::clone(&enough), Arc::clone(&fed));
        let feeder = std::thread::spawn(move || {
            let mut line = 0;
            // aprun may end without having read all.
            while !stop.load(Ordering::Relaxed) && writeln!(stdin, "line {line}").is_ok() {
                line = lines.fetch_add(1, Ordering::Relaxed) + 1;
                std::thread::sleep(Duration::from_micros(500));
            }
        });
        Flow { folder, aprun, began, feeder, enough, fed, before, groups: Vec::new() }
    }

    /// Lines that its stdin has been given so far.
    pub fn fed(&self) -> u64 {
        self.fed.load(Ordering::Relaxed)
    }

    /// Whether each PE has left this mark.
    pub fn marks(&self, name: &str) -> bool {
        (0..WIDTH).all(|rank| self.folder.path().join(format!("{name}.{rank}")).exists())
    }

    /// Its folders in the runtime directories.
    pub fn app_folders(&mut self, machine: &Machine) -> Vec<AppFolder> {
        let all = machine.applications();
        let own: Vec<_> = all.into_iter().filter(|app| !self.before.contains(&app.key)).collect();
        for app in &own {
            if let Ok(group) = std::fs::read_to_string(app.path.join("groups"))
                && !group.is_empty()
                && !self.groups.contains(&PathBuf::from(&group))
            {
                self.groups.push(group.into());
            }
        }
        own
    }

    /// Waits until a phase has begun; false: aprun has ended before.
    pub fn wait_for(&mut self, machine: &Machine, phase: Phase) -> bool {
        let until = Instant::now() + BOUND;
        loop {
            let folders = self.app_folders(machine);
            let begun = match phase {
                Phase::Posting => true,
                Phase::Launch => !folders.is_empty(),
                Phase::WireUp => folders.iter().any(|app| app.has("going")),
                Phase::Run | Phase::Exit => self.marks("wired"),
            };
            if begun {
                if phase == Phase::Exit {
                    self.let_go();
                }
                return true;
            }
            if !self.aprun.runs() {
                return false;
            }
            if Instant::now() > until {
                self.tell_all();
                panic!("{phase:?} does not begin");
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// From now on it may end.
    /// Starts it, and it runs.
    #[track_caller]
    pub fn running(machine: &Machine, kind: Kind) -> Flow {
        let mut flow = Flow::start(machine, kind);
        assert!(flow.wait_for(machine, Phase::Run), "it runs");
        flow
    }

    /// Lets it go, and it ends as if nothing had been.
    #[track_caller]
    pub fn ends_well(self, machine: &Machine) -> Ended {
        self.let_go();
        let ended = self.wait(machine);
        assert_eq!(ended.run.status, CODE, "{}", ended.run.stderr);
        ended.expect_every_byte();
        ended
    }

    pub fn let_go(&self) {
        self.enough.store(true, Ordering::Relaxed);
        std::fs::write(self.folder.path().join("go"), "").expect("written");
    }

    pub fn runs(&mut self) -> bool {
        self.aprun.runs()
    }

    fn tell_all(&self) {
        for (pid, line) in processes_with(self.folder.path().to_str().expect("text")) {
            eprintln!("still there: {pid} {line}");
        }
    }

    /// Waits for its end.
    #[track_caller]
    pub fn wait(mut self, machine: &Machine) -> Ended {
        let until = self.began + BOUND;
        while self.aprun.runs() {
            if Instant::now() > until {
                self.tell_all();
                eprintln!("{:#}", machine.apstat("-a"));
                for app in machine.applications() {
                    eprintln!("{} with {:?}", app.path.display(), listing(&app.path));
                }
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let Flow { folder, aprun, began, feeder, fed, groups, .. } = self;
        let run = aprun.wait(Duration::from_secs(1));
        feeder.join().expect("it does not fail");
        let fed = fed.load(Ordering::Relaxed);
        Ended { run, fed, took: began.elapsed(), groups, _folder: folder }
    }
}

/// How it ended.
pub struct Ended {
    pub run: Run,
    /// Lines that its stdin was given.
    pub fed: u64,
    pub took: Duration,
    pub groups: Vec<PathBuf>,
    _folder: tempfile::TempDir,
}

impl Ended {
    /// Every line that the PEs wrote is there, once and in order, and every line of stdin was read.
    #[track_caller]
    pub fn expect_every_byte(&self) {
        let out = self.run.out();
        // What is missing or doubled is seen best in what came, and aprun may have said something.
        let shown: Vec<&str> = out.lines().take(SHOWN).collect();
        let said: Vec<&str> = self.run.stderr.lines().filter(|line| !own(line)).collect();
        eprintln!("{}\n...\n{}", shown.join("\n"), said.join("\n"));
        let mut counts = BTreeMap::new();
        let mut read = 0;
        for line in out.lines() {
            if let Some(line) = line.strip_prefix("IN line ") {
                assert_eq!(line, read.to_string(), "stdin in order");
                read += 1;
            } else {
                count(&mut counts, "O", line);
            }
        }
        assert_eq!(read, self.fed, "lines of stdin that came back");
        self.run.stderr.lines().filter(own).for_each(|line| count(&mut counts, "E", line));
        for rank in 0..WIDTH {
            for stream in ["O", "E"] {
                let end = counts.get(&format!("{rank} {stream}")).copied();
                assert!(matches!(end, Some((_, true))), "PE {rank} on {stream}: {end:?}");
            }
        }
    }
}

/// Whether a line of stderr is a PE's.
fn own(line: &&str) -> bool {
    line.starts_with(|c: char| c.is_ascii_digit())
}

/// Takes a line `RANK STREAM NUMBER` or `RANK STREAM end COUNT` into account.
#[track_caller]
fn count(counts: &mut BTreeMap<String, (u64, bool)>, stream: &str, line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    let (rank, number, end) = match words[..] {
        [rank, of, number] if of == stream => (rank, number, false),
        [rank, of, "end", number] if of == stream => (rank, number, true),
        _ => panic!("not a line of a PE's: {line:?}"),
    };
    let (next, over) = counts.entry(format!("{rank} {stream}")).or_default();
    assert_eq!((number, *over), (&*next.to_string(), false), "in order, nothing doubled: {line}");
    *next += u64::from(!end);
    *over = end;
}

/// How long each phase lasts here and now, when nobody is killed: the median of a few.
pub fn lengths(machine: &Machine, kind: Kind) -> [Duration; 5] {
    const TIMES: usize = 3;
    let mut all: [Vec<Duration>; 5] = Default::default();
    for _ in 0..TIMES {
        let mut flow = Flow::start(machine, kind);
        let mut last = Instant::now();
        for (number, next) in PHASES.iter().enumerate().skip(1) {
            if *next == Phase::Exit {
                // The run goes on for as long as the test lets it.
                std::thread::sleep(RUN);
            }
            assert!(flow.wait_for(machine, *next), "it goes through its phases");
            all[number - 1].push(last.elapsed());
            last = Instant::now();
        }
        let ended = flow.wait(machine);
        all[4].push(last.elapsed());
        assert_eq!(ended.run.status, CODE, "{}", ended.run.stderr);
        ended.expect_every_byte();
        machine.wait_until_clear(&ended.groups);
    }
    all.map(|mut times| {
        times.sort();
        times[TIMES / 2]
    })
}

/// How long a run is let go on.
pub const RUN: Duration = Duration::from_millis(40);
