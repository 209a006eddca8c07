//! What one replay is of: the machine, who runs when, and how the log is taken.

use super::values::Word;
use super::{SimulateArgs, assignment};
use crate::config::{NODES_MAX, PROCESSORS_MAX, embedded};
use crate::machine::Machine;
use crate::simulate::workload::{Bad, NoEstimate, Overrun};
use crate::simulate::{Moves, Setup};
use crate::variables;
use crate::variables::units::parse_duration;
use anyhow::Context;
use clap::ValueEnum;
use std::collections::BTreeSet;
use std::time::Duration;

/// The largest value of variables that are costs: what is simulated may be more.
const COST_MAX: Duration = Duration::from_secs(3600);

/// Who runs when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Policy {
    /// psched's own scheduler
    Gang,
    /// First come first served
    Fcfs,
    /// EASY backfilling, by users' estimates
    Easy,
    /// All share all processors at the same rate, at no cost: a bound
    Ideal,
}

impl Policy {
    /// As it is written.
    pub fn name(self) -> String {
        written(self)
    }

    /// Gangs take turns, start at a cost and may be moved.
    pub fn turns(self) -> bool {
        self == Policy::Gang
    }
}

/// As the command line has it.
fn written(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// What one replay is of.
#[derive(Clone, Debug)]
pub struct Setting {
    pub policy: Policy,
    /// Its machine is empty where the log says it.
    pub setup: Setup,
    pub overrun: Overrun,
    /// --bad.
    pub bad: Bad,
    pub no_estimate: NoEstimate,
    /// The offered load, where it is not the log's own.
    pub load: Option<f64>,
    /// Runs shorter than this count as this in slowdowns.
    pub bound: Duration,
    /// What a second of the log is.
    pub unit: Duration,
    /// How it differs from the first, as it was written.
    differs: Vec<String>,
    /// Variables that were given a value by name: they do not follow the options.
    said: BTreeSet<String>,
}

impl Setting {
    /// That of the command line, and one for each --compare.
    pub fn all(args: &SimulateArgs) -> anyhow::Result<Vec<Setting>> {
        let mut settings = vec![Setting::first(args)?];
        for pairs in &args.compare {
            let mut setting = settings[0].clone();
            for change in &pairs.0 {
                setting.change(change);
            }
            setting.follow();
            settings.push(setting);
        }
        Ok(settings)
    }

    fn first(args: &SimulateArgs) -> anyhow::Result<Setting> {
        let read = |path| {
            crate::psched::serve::configuration_of(path, "give --config the path of a psched.yaml")
        };
        let config = args.config.as_deref().map(read).transpose()?;
        let (configured, mut variables) =
            config.map(|config| (config.machine, config.variables)).unwrap_or_default();
        let configured_so = variables.show().into_iter().filter(|shown| !shown.is_default());
        let mut said: BTreeSet<String> = configured_so.map(|shown| shown.name).collect();
        for (name, value) in &args.set {
            variables.set(name, value).context("--set")?;
            said.insert(name.clone());
        }
        let machine = match (args.procs, args.nodes) {
            (Some(nodes), _) => machine(nodes, 1),
            (_, Some((nodes, processors))) => machine(nodes, processors),
            (None, None) => configured,
        };
        let (start_cost, move_cost, moves) = (args.start_cost, args.move_cost, args.moves.0);
        let mut setting = Setting {
            policy: args.policy,
            setup: Setup { machine, variables, start_cost, move_cost, moves },
            overrun: args.overrun.0,
            bad: args.bad.0,
            no_estimate: args.no_estimate.0,
            load: args.load,
            bound: args.bound,
            unit: args.unit,
            differs: Vec::new(),
            said,
        };
        setting.follow();
        Ok(setting)
    }

    /// Variables that nobody gave a value have one that goes with what is simulated: the scheduler reckons
    /// with the costs that its nodes have, in every domain, and a machine that is overloaded is one to the
    /// end of the log.
    fn follow(&mut self) {
        let Setup { start_cost, move_cost, .. } = self.setup;
        let cost = |cost: Duration| format!("{}ms", cost.min(COST_MAX).as_millis());
        let domains: Vec<String> = self.setup.variables.domains().map(str::to_owned).collect();
        for domain in domains {
            self.unless_said(&format!("{domain}.start_cost"), &cost(start_cost));
            self.unless_said(&format!("{domain}.load_balance.move_cost"), &cost(move_cost));
        }
        for name in ["postings_max", "postings_user_max", "records_user_max"] {
            let most = variables::row(name).map_or(u64::MAX, |row| row.max);
            self.unless_said(name, &most.to_string());
        }
    }

    fn unless_said(&mut self, name: &str, value: &str) {
        if !self.said.contains(name) {
            let set = self.setup.variables.set(name, value);
            debug_assert!(set.is_ok(), "{name}={value}: {set:?}");
        }
    }

    /// With a difference.
    fn change(&mut self, Change { what, written }: &Change) {
        let setup = &mut self.setup;
        match what {
            What::Policy(policy) => self.policy = *policy,
            What::Overrun(overrun) => self.overrun = *overrun,
            What::NoEstimate(no_estimate) => self.no_estimate = *no_estimate,
            What::Moves(moves) => setup.moves = *moves,
            What::Load(load) => self.load = Some(*load),
            What::Bound(bound) => self.bound = *bound,
            What::Unit(unit) => self.unit = *unit,
            What::Nodes(nodes, processors) => setup.machine = machine(*nodes, *processors),
            What::StartCost(cost) => setup.start_cost = *cost,
            What::MoveCost(cost) => setup.move_cost = *cost,
            What::Variable(name, value) => {
                let set = setup.variables.set(name, value);
                debug_assert!(set.is_ok(), "{written}: {set:?}");
                self.said.insert(name.clone());
            }
        }
        if !matches!(what, What::Policy(_) | What::Moves(_)) {
            self.differs.push(written.clone());
        }
    }

    /// The same under another policy.
    pub fn under(&self, policy: Policy) -> Setting {
        Setting { policy, ..self.clone() }
    }

    /// In a few words: the policy, which moves there are where there are any, and what is different.
    pub fn label(&self) -> String {
        let moves = self.moves().map(|moves| format!("moves={moves}"));
        let words = [self.policy.name()].into_iter().chain(moves).chain(self.differs.clone());
        words.collect::<Vec<String>>().join(" ")
    }

    /// Which moves there are, under a policy with any.
    pub fn moves(&self) -> Option<String> {
        self.policy.turns().then(|| written(Word(self.setup.moves)))
    }
}

/// Nodes for applications, numbered from 0.
fn machine(nodes: u32, processors: u32) -> Machine {
    embedded(nodes, processors).machine
}

/// A machine of so many nodes of one processor each.
///
/// # Errors
/// There can't be so many.
pub fn of_processors(processors: u32) -> Result<Machine, String> {
    match processors as usize {
        1..=NODES_MAX => Ok(machine(processors, 1)),
        _ => Err(format!(
            "MaxProcs of the log, {processors}, is out of range; give --procs or --nodes, {NODES}"
        )),
    }
}

/// What its applications have.
pub fn processors(machine: &Machine) -> u32 {
    u32::try_from(machine.application_processors()).unwrap_or(u32::MAX)
}

/// How many nodes there may be.
const NODES: &str = "from 1 to 1000000";

fn one_of<T: ValueEnum>(name: &str, value: &str) -> Result<T, String> {
    T::from_str(value, false).map_err(|_| {
        let names: Vec<String> = T::value_variants().iter().cloned().map(written).collect();
        format!("\"{value}\" is not a value of {name}; give {}", names.join(" or "))
    })
}

/// The number of --procs.
pub fn parse_procs(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|n| (1..=NODES_MAX).contains(n));
    number.map(|n| n as u32).ok_or_else(|| format!("give a number {NODES}"))
}

/// The two numbers of --nodes.
pub fn parse_nodes(text: &str) -> Result<(u32, u32), String> {
    let numbers = || {
        let (nodes, processors) = text.split_once(['x', 'X'])?;
        let processors = processors.parse().ok().filter(|n| (1..=PROCESSORS_MAX).contains(n))?;
        Some((parse_procs(nodes).ok()?, processors))
    };
    numbers().ok_or_else(|| {
        format!(
            "give NODESxPROCESSORS as 64x16: nodes {NODES}, processors from 1 to {PROCESSORS_MAX}"
        )
    })
}

/// What --load takes.
pub fn parse_load(text: &str) -> Result<f64, String> {
    let load = text.parse().ok().filter(|load| (0.001..=100.0).contains(load));
    load.ok_or_else(|| "give a number from 0.001 to 100: 0.9 keeps nine tenths busy".into())
}

/// What costs are written as.
pub fn parse_cost(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| error.to_string())
}

/// What --bound and --unit take.
pub fn parse_some_time(text: &str) -> Result<Duration, String> {
    match parse_cost(text)? {
        Duration::ZERO => Err("give a time above 0".into()),
        time => Ok(time),
    }
}

/// One `NAME=VALUE` of --compare.
#[derive(Clone, Debug)]
struct Change {
    what: What,
    /// As it was written.
    written: String,
}

/// An option of this command, or a variable of psched's.
#[derive(Clone, Debug)]
enum What {
    Policy(Policy),
    Overrun(Overrun),
    NoEstimate(NoEstimate),
    Moves(Moves),
    Load(f64),
    Bound(Duration),
    Unit(Duration),
    Nodes(u32, u32),
    StartCost(Duration),
    MoveCost(Duration),
    Variable(String, String),
}

/// The options that a comparison can change.
const OPTIONS: &str =
    "policy, procs, nodes, overrun, no-estimate, start-cost, move-cost, load, moves, bound, unit";

/// The differences of one --compare.
#[derive(Clone, Debug)]
pub struct Compared(Vec<Change>);

/// What --compare takes.
pub fn parse_compared(text: &str) -> Result<Compared, String> {
    text.split(',').map(change).collect::<Result<_, _>>().map(Compared)
}

fn change(pair: &str) -> Result<Change, String> {
    let (name, value) = pair.split_once('=').ok_or("give NAME=VALUE[,NAME=VALUE...]")?;
    let what = match name {
        "policy" => What::Policy(one_of(name, value)?),
        "overrun" => What::Overrun(one_of::<Word<_>>(name, value)?.0),
        "no-estimate" => What::NoEstimate(one_of::<Word<_>>(name, value)?.0),
        "moves" => What::Moves(one_of::<Word<_>>(name, value)?.0),
        "load" => What::Load(parse_load(value)?),
        "bound" => What::Bound(parse_some_time(value)?),
        "unit" => What::Unit(parse_some_time(value)?),
        "procs" => What::Nodes(parse_procs(value)?, 1),
        "nodes" => {
            let (nodes, processors) = parse_nodes(value)?;
            What::Nodes(nodes, processors)
        }
        "start-cost" => What::StartCost(parse_cost(value)?),
        "move-cost" => What::MoveCost(parse_cost(value)?),
        _ => {
            let (name, value) =
                assignment(pair).map_err(|e| format!("not one of {OPTIONS}: {e}"))?;
            What::Variable(name, value)
        }
    };
    Ok(Change { what, written: pair.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: SimulateArgs,
    }

    fn settings(words: &str) -> Result<Vec<Setting>, String> {
        let line = ["simulate", "log.swf"].into_iter().chain(words.split_whitespace());
        let line = Line::try_parse_from(line).map_err(|e| e.to_string())?;
        Setting::all(&line.args).map_err(|e| format!("{e:#}"))
    }

    #[test]
    fn a_comparison_is_the_first_with_some_changes() {
        let words = "--nodes 4x2 --set application.time_slice=2s --compare policy=fcfs \
                     --compare load=0.9,nodes=8x4,application.time_slice=3s,start-cost=1m";
        let all = settings(words).expect("good");
        let labels: Vec<String> = all.iter().map(Setting::label).collect();
        let third = "gang moves=daemon load=0.9 nodes=8x4 application.time_slice=3s start-cost=1m";
        assert_eq!(labels, ["gang moves=daemon", "fcfs", third]);
        assert_eq!(
            all.iter().map(|s| processors(&s.setup.machine)).collect::<Vec<_>>(),
            [8, 8, 32]
        );
        let slice = |s: &Setting| s.setup.variables.get("application.time_slice");
        assert_eq!(slice(&all[1]).as_deref(), Some("2s"));
        assert_eq!(slice(&all[2]).as_deref(), Some("3s"));
        assert_eq!((all[2].load, all[2].setup.start_cost.as_secs()), (Some(0.9), 60));
        assert_eq!(all[1].setup.start_cost.as_secs(), 5);
    }

    #[test]
    fn the_scheduler_reckons_with_what_is_simulated_unless_told_otherwise() {
        let words = "--set application.start_cost=7s --start-cost 9s --compare move-cost=2h,moves=all \
                     --compare application.start_cost=1s";
        let all = settings(words).expect("good");
        let values = |name: &str| -> Vec<String> {
            all.iter().map(|s| s.setup.variables.get(name).expect("a variable")).collect()
        };
        assert_eq!(values("application.start_cost"), ["7s", "7s", "1s"]);
        assert_eq!(values("application.load_balance.move_cost"), ["30s", "1h", "30s"]);
        assert_eq!(values("postings_user_max"), ["10000000"; 3]);
        let said = settings("--set postings_max=5").expect("good");
        assert_eq!(said[0].setup.variables.postings_max(), 5);
        // In every domain of a machine.
        let file = tempfile::NamedTempFile::new().expect("a file");
        let regions = "nodes: [{ nids: 0, processors: 2, flavors: [su, os, ap] }]\n\
                       regions: [{ name: all, nids: 0, domain: quick }]\n";
        std::fs::write(file.path(), regions).expect("written");
        let words = format!("--config {} --start-cost 9s", file.path().display());
        let all = settings(&words).expect("good");
        assert_eq!(all[0].setup.variables.get("quick.start_cost").as_deref(), Some("9s"));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_cure() {
        for (words, said) in [
            (
                "--compare policy=sjf",
                "\"sjf\" is not a value of policy; give gang or fcfs or easy or ideal",
            ),
            ("--compare easy", "give NAME=VALUE[,NAME=VALUE...]"),
            (
                "--compare procs=4,polici=easy",
                "not one of policy, procs, nodes, overrun, no-estimate, ",
            ),
            ("--compare application.time_slice=soon", "is not a value of application.time_slice"),
            ("--compare kill_grase=5s", "did you mean kill_grace?"),
            ("--nodes 4", "give NODESxPROCESSORS as 64x16"),
            ("--nodes 4x5000", "processors from 1 to 4096"),
            ("--procs 0", "from 1 to 1000000"),
            ("--load 0", "from 0.001 to 100"),
            ("--start-cost soon", "is not a duration"),
            ("--bound 0s", "give a time above 0"),
            ("--compare bound=soon", "is not a duration"),
            ("--procs 4 --nodes 2x2", "cannot be used with"),
            ("--config /nowhere/psched.yaml", "can't be read"),
        ] {
            let error = settings(words).expect_err(words);
            assert!(error.contains(said), "{words}: {error}");
        }
    }
}
