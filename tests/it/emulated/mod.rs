//! What only the emulated machine can show: memory limits, the oldest kernel, another boot.

mod machine;

use crate::support::{Running, binaries, hosts, mpi, skip};
use machine::Machine;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

#[test]
fn the_whole_path_on_the_oldest_kernel() {
    let Some(machine) = Machine::build("emulated::the_whole_path_on_the_oldest_kernel", &[]) else {
        return;
    };
    machine.run(include_str!("whole.sh"), None);
}

#[test]
fn limits_are_kept_and_told() {
    let name = "emulated::limits_are_kept_and_told";
    let own = ["psview", "psmgr"].map(|program| binaries().join(program));
    let own = own.each_ref().map(|path| path.as_path());
    let Some(machine) = Machine::build(name, &own) else { return };
    machine.run(include_str!("limits.sh"), None);
}

#[test]
fn no_pe_leaves_its_group_or_its_processors() {
    let name = "emulated::no_pe_leaves_its_group_or_its_processors";
    let psmgr = binaries().join("psmgr");
    let Some(machine) = Machine::build(name, &[&psmgr]) else { return };
    machine.run(include_str!("walls.sh"), None);
}

/// (Root of a container may not dump processes of others.)
#[test]
fn a_user_is_given_back_what_is_hers() {
    let name = "emulated::a_user_is_given_back_what_is_hers";
    let own = ["cpr", "psview"].map(|program| binaries().join(program));
    let own = own.each_ref().map(|path| path.as_path());
    let Some(machine) = Machine::with_criu(name, &own) else { return };
    machine.run(include_str!("user.sh"), None);
}

#[test]
fn another_boot() {
    let name = "emulated::another_boot";
    let Some(machine) = Machine::build(name, &[]) else { return };
    let Some(disk) = machine.disk(name) else { return };
    machine.run(include_str!("boot_before.sh"), Some(&disk));
    machine.run(include_str!("boot_after.sh"), Some(&disk));
}

#[test]
fn units_start_again_whatever_runs() {
    let name = "emulated::units_start_again_whatever_runs";
    let Some(machine) = Machine::build(name, &[]) else { return };
    machine.run(include_str!("units.sh"), None);
}

#[test]
fn gangs_with_more_memory_than_the_host_take_turns() {
    let name = "emulated::gangs_with_more_memory_than_the_host_take_turns";
    let Some(pages) = mpi::plain(name, "pages") else { return };
    let own = ["psview", "psmgr"].map(|program| binaries().join(program));
    let programs = [&pages, &own[0], &own[1]].map(|path| path.as_path());
    let Some(machine) = Machine::build(name, &programs) else { return };
    let swap = machine.swap();
    machine.run(include_str!("memory.sh"), Some(&swap));
}

#[test]
fn a_gang_that_stands_goes_to_swap_and_comes_back() {
    let name = "emulated::a_gang_that_stands_goes_to_swap_and_comes_back";
    let Some(pages) = mpi::plain(name, "pages") else { return };
    let Some(machine) = Machine::build(name, &[&pages]) else { return };
    let swap = machine.swap();
    machine.run(include_str!("swap.sh"), Some(&swap));
}

/// Two machines whose clocks drift, one of which changes its pace meanwhile, beside psched: what psched
/// shows of their clocks is true within the error that it shows, and programs take turns on both.
#[test]
fn hosts_know_the_clock_of_psched_while_theirs_drift() {
    let name = "emulated::hosts_know_the_clock_of_psched_while_theirs_drift";
    if machine::may_be(name).is_none() || !hosts::may_be(name) {
        return;
    }
    if !Command::new("python3").arg("--version").output().is_ok_and(|out| out.status.success()) {
        return skip(name, "python3 is not installed (apt-get install python3)");
    }
    let bench = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/hosts/drift");
    let mut command = Command::new("python3");
    command.arg(bench).args(["--check", "--minutes", "0.3"]).arg(binaries());
    // (It has bounds of its own for each thing that it waits for.)
    println!("{}", Running::start(&mut command).wait(Duration::from_secs(600)).expect(0).out());
}
