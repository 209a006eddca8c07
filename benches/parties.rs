//! How long a plan takes, of large components and of one that has changed among many.
//!
//! `cargo bench --bench parties`. Machines of nodes with 16 processors on which gangs sit up to four
//! deep, placed at random (the same each time); the time to make the plan of a component, and to bring the
//! graph up to date when a gang comes and goes. Each is the median and the largest of some runs.

#[path = "support/figures.rs"]
mod figures;

use figures::{Sample, is_bench, machine};
use psched::apteam::Apid;
use psched::gang::Gang;
use psched::gang::accounts::Accounts;
use psched::gang::competition::Competition;
use psched::gang::floor::{Chosen, plan};
use psched::gang::plan::Rules;
use std::collections::BTreeSet;
use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Of each node.
const PROCESSORS: u32 = 16;
/// Gangs on one processor.
const RESIDENTS: u8 = 4;
const RUNS: usize = 25;
const RULES: Rules = Rules { time_slice: Duration::from_secs(1), switch_share: 50 };

struct Machine {
    competition: Competition,
    accounts: Accounts,
    residents: Vec<u8>,
    random: fastrand::Rng,
    nodes: u32,
}

impl Machine {
    /// `nodes` nodes with `gangs` gangs, whose widths are such that they sit two and a half deep.
    fn new(nodes: u32, gangs: u64) -> Machine {
        let processors = (nodes * PROCESSORS) as usize;
        let mut machine = Machine {
            competition: Competition::new(processors, vec![u64::MAX; nodes as usize]),
            accounts: Accounts::default(),
            residents: vec![0; processors],
            random: fastrand::Rng::with_seed(7),
            nodes,
        };
        let mean = f64::from(nodes) * 2.5 / gangs as f64;
        let mut apid = 0;
        let mut tries = 0;
        while apid < gangs && tries < 20 * gangs {
            tries += 1;
            let width = (machine.random.f64() * 2.0 * mean).ceil().max(1.0) as u32;
            apid += u64::from(machine.place(Apid(apid + 1), width.min(nodes)));
        }
        assert_eq!(apid, gangs, "the machine is full");
        machine
    }

    /// Whether there was room where chance has put it.
    fn place(&mut self, apid: Apid, width: u32) -> bool {
        let first = self.random.u32(0..=self.nodes - width) * PROCESSORS;
        let processors: Vec<u32> = (first..first + width * PROCESSORS).collect();
        let room = processors.iter().all(|p| self.residents[*p as usize] < RESIDENTS);
        if room {
            processors.iter().for_each(|p| self.residents[*p as usize] += 1);
            self.competition.add(apid, Gang { processors, memory: Vec::new() });
            self.accounts.add(apid, 1, Duration::ZERO, 0);
        }
        room
    }
}

fn timed(runs: usize, mut what: impl FnMut(usize)) -> String {
    let time = |run| {
        let began = Instant::now();
        what(run);
        began.elapsed()
    };
    let times = Sample::new((0..runs).map(time).collect());
    format!("{:9.3} ms, most {:9.3}", times.median_ms(), times.percentile_ms(100))
}

fn main() -> anyhow::Result<ExitCode> {
    if !is_bench("parties") {
        return Ok(ExitCode::SUCCESS);
    }
    println!("{}", machine());
    for (nodes, gangs) in [(1_000, 100), (1_000, 400), (100_000, 10_000), (100_000, 40_000)] {
        let mut machine = Machine::new(nodes, gangs);
        let components = machine.competition.components();
        let largest = components.iter().max_by_key(|c| c.len()).cloned().unwrap_or_default();
        let middle = components.iter().filter(|c| c.len() > 1).nth(components.len() / 8).cloned();
        println!(
            "{gangs} gangs on {nodes} nodes: {} components, the largest of {}",
            components.len(),
            largest.len()
        );
        let Machine { competition, accounts, .. } = &mut machine;
        let planned = |competition: &Competition, members: &[Apid]| {
            let leads: BTreeSet<Apid> = members.first().copied().into_iter().collect();
            let chosen = Chosen { leads: &leads, early: &[], is_out: &|_| false };
            black_box(plan(competition, accounts, members, chosen, &RULES, 0, None));
        };
        println!(
            "  plan, the largest            {}",
            timed(5, |_| {
                planned(competition, &largest);
            })
        );
        let changed = middle.unwrap_or(largest);
        let apid = changed[0];
        let gang = competition.gang(apid).cloned().unwrap_or_default();
        println!(
            "  one of a component of {:6} goes and comes, and its component is planned anew",
            changed.len()
        );
        println!(
            "                               {}",
            timed(RUNS, |_| {
                competition.remove(apid);
                competition.add(apid, gang.clone());
                let members = competition.component(apid);
                planned(competition, &members);
            })
        );
    }
    Ok(ExitCode::SUCCESS)
}
