//! Subcommands that other schedulers have (Slurm, PBS, Flux, HyperQueue), and the program that does it here.
//!
//! Who types `psched run` or `psmgr cancel` is told the command, in place of a subcommand that is spelled
//! like the word.

/// All of them, by what they are for.
const FOREIGN: &[(&[&str], &str)] = &[
    (
        &[
            "run", "exec", "launch", "submit", "batch", "alloc", "mpirun", "mpiexec", "srun",
            "sbatch",
        ],
        "aprun runs a parallel program, as in `aprun -n 4 ./a.out`",
    ),
    (
        &["status", "ps", "list", "ls", "jobs", "job", "queue", "stat", "top", "info"],
        "apstat shows applications, apstat -n shows nodes",
    ),
    (&["kill", "cancel", "del", "delete", "signal"], "apkill APID ends an application"),
    (&["nodes", "hosts", "workers"], "apstat -n shows nodes"),
    (&["history", "acct", "events"], "apstat --history shows applications that have ended"),
    (&["shares", "usage"], "apstat --shares shows what users have had"),
    (&["checkpoint", "restart"], "cpr APID makes a checkpoint, cpr -r DIR restarts it"),
    (&["undrain", "online", "enable", "open"], "psmgr resume NIDS opens nodes"),
    (&["offline", "disable", "close"], "psmgr drain NIDS closes nodes"),
    (&["get", "config"], "psmgr show shows variables"),
    (&["stop", "shutdown"], "systemctl stop psched ends the daemon; applications run on"),
    (&["server", "daemon", "serve"], "psched without a subcommand is the daemon"),
];

/// The command to use in place of this subcommand; `None`: it is none of another scheduler that is known.
pub fn advice(subcommand: &str) -> Option<&'static str> {
    FOREIGN.iter().find(|(names, _)| names.contains(&subcommand)).map(|(_, advice)| *advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_stands_once() {
        let mut all: Vec<&str> = FOREIGN.iter().flat_map(|(names, _)| *names).copied().collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        assert_eq!(advice("cancel"), Some("apkill APID ends an application"));
        assert_eq!(advice("simulat"), None);
    }
}
