//! Variables by which other launchers tell a process its place, and which programs read: RANK and MASTER_ADDR of
//! torchrun, MPI_LOCALRANKID of mpiexec, OMP_NUM_THREADS.
//!
//! A program that was started by another launcher finds what it looks for, so that a script has to set nothing:
//!
//! ```
//! use psched_pure::apteam::launcher_variables::{Rendezvous, of};
//! # use psched_pure::apteam::launch::{HostLaunch, Launch, LocalPe};
//! # use psched_pure::apteam::{Apid, Key};
//! # use psched_pure::machine::Nid;
//! # let pe = |rank| LocalPe { rank, nid: Nid(0), cpus: vec![], nice: 0, depth: 4 };
//! # let launch = Launch { rendezvous: Some(Rendezvous::of(Apid(12), &[])), ..Launch::default() };
//! # let host = HostLaunch { key: Key::default(), width: 4, depth: 4, launch, pes: vec![pe(2), pe(3)],
//! #     process_mapping: String::new(), alone: false, others: vec![], cpu_limit: None, stdin: false, kill_grace: Default::default(),
//! #     marker: String::new(), memory_per_pe: None, pids_max: None, bounds: Default::default(), host_index: 1,
//! #     pmix_name: String::new(), pmix_folder: String::new(), spawned: None };
//! let set = of(&host, &host.pes[1]);
//! for item in ["RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=1", "NODE_RANK=1", "MASTER_PORT=20012", "OMP_NUM_THREADS=4"] {
//!     assert!(set.iter().any(|(name, value)| format!("{name}={value}") == item), "{item}");
//! }
//! ```
//!
//! A variable that the user has set stays as it is. In an application the variables of a PE are not taken for the user's
//! by an aprun that the PE calls ([`is_of_outer`]).

use super::Apid;
use super::launch::{HostLaunch, Launch, LocalPe, ServePmix, sets};
use super::place::HostPart;

/// How many threads a program of OpenMP begins with.
pub const THREADS: &str = "OMP_NUM_THREADS";
/// What torchrun sets, and programs that find each other as its do read.
const OF_TORCHRUN: [&str; 7] = [
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
];
/// What mpiexec sets for PEs of one host. No user sets them, as none sets PMI_RANK.
const OF_MPIEXEC: [&str; 2] = ["MPI_LOCALRANKID", "MPI_LOCALNRANKS"];

/// What Open MPI's mpirun sets: wrappers choose a device or a file by them. Not where PMIx is not even offered: a program
/// of MPICH would be taken for one of Open MPI. (No user sets them, either.)
const OF_OPEN_MPI: [&str; 5] = [
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "OMPI_COMM_WORLD_NODE_RANK",
];

/// The first of the ports of which an application has one. They are below those that Linux gives to outgoing
/// connections (32768 to 60999, if nothing else is set).
const PORT_FIRST: u32 = 20_000;
/// How many ports there are.
const PORTS: u64 = 10_000;

/// Where the PEs of an application can meet, if their program makes the connections itself.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Rendezvous {
    /// Address or name of the host of PE 0; empty: not known yet.
    pub address: String,
    /// A port there, which no process listens on before the program does so; 0: not known yet.
    pub port: u32,
}

impl Rendezvous {
    /// Of an application on these hosts, of which the first one has PE 0.
    ///
    /// ```
    /// # use psched_pure::apteam::{Apid, launcher_variables::Rendezvous, place::HostPart};
    /// let host = |id: &str, address: &str| HostPart {
    ///     host_id: id.to_owned(),
    ///     address: address.to_owned(),
    ///     ..HostPart::default()
    /// };
    /// let (one, two) = (host("n1/a", "10.0.0.1:7717"), host("n2/b", "[fd00::2]:7717"));
    /// let of = |hosts: &[HostPart]| Rendezvous::of(Apid(30_012), hosts).address;
    /// assert_eq!(of(&[one.clone(), two.clone()]), "10.0.0.1");
    /// assert_eq!(of(&[two.clone(), one.clone()]), "fd00::2");
    /// assert_eq!(of(&[one.clone(), one.clone()]), "127.0.0.1");
    /// assert_eq!(of(&[host("n1/a", ""), two]), "n1");
    /// assert_eq!(Rendezvous::of(Apid(30_012), &[one]).port, 20_012);
    /// ```
    pub fn of(apid: Apid, hosts: &[HostPart]) -> Rendezvous {
        let address = match hosts.first() {
            Some(first) if hosts.iter().any(|host| host.host_id != first.host_id) => {
                match first.address.rsplit_once(':') {
                    Some((address, _)) => address.trim_matches(['[', ']']).to_owned(),
                    None => first.host_name().to_owned(),
                }
            }
            // No network is needed.
            _ => "127.0.0.1".to_owned(),
        };
        Rendezvous { address, port: port(apid.0) }
    }

    /// The same for a part of an application that is a world of its own: parts of one application differ by `number`.
    pub fn inside(apid: Apid, number: u64) -> Rendezvous {
        let port = port(apid.0.wrapping_add(number));
        Rendezvous { port, ..Rendezvous::of(apid, &[]) }
    }
}

/// Applications one after the other have different ports: one that ends keeps its port busy for a while.
fn port(number: u64) -> u32 {
    PORT_FIRST + (number % PORTS) as u32
}

/// The variables of a PE, without those that the user has set. None, if the launch asks for none.
pub fn of(launch: &HostLaunch, pe: &LocalPe) -> Vec<(&'static str, String)> {
    let Some(Rendezvous { address, port }) = &launch.launch.rendezvous else { return Vec::new() };
    let local = launch.pes.iter().filter(|other| other.rank < pe.rank).count().to_string();
    let here = launch.pes.len().to_string();
    let depth = if pe.depth == 0 { launch.depth } else { pe.depth };
    let [rank, world, local_rank, local_world, node_rank, master, master_port] = OF_TORCHRUN;
    let [mpi_rank, mpi_ranks] = OF_MPIEXEC;
    let open = [
        pe.rank.to_string(),
        launch.width.to_string(),
        local.clone(),
        here.clone(),
        // (Of one application: the same as the rank on the host.)
        local.clone(),
    ];
    let open = OF_OPEN_MPI.into_iter().zip(open);
    let open = open.filter(|_| launch.launch.pmix != ServePmix::No);
    let all = [
        (rank, pe.rank.to_string()),
        (world, launch.width.to_string()),
        (local_rank, local.clone()),
        (local_world, here.clone()),
        (node_rank, launch.host_index.to_string()),
        (master, address.clone()),
        (master_port, if *port == 0 { String::new() } else { port.to_string() }),
        (mpi_rank, local),
        (mpi_ranks, here),
        // (A depth of 1 may have been asked for or not, which aprun knows.)
        (THREADS, if depth > 1 { depth.to_string() } else { String::new() }),
    ];
    let known = all.into_iter().chain(open).filter(|(_, value)| !value.is_empty());
    known.filter(|(name, _)| !launch.launch.sets(name.as_bytes())).collect()
}

/// A variable with the rank of a PE that the environment sets, to the same value for all PEs; not if the user has set or
/// exported it for this application (`asked`: -e, -x).
pub fn set_for_all(launch: &Launch, asked: &[Vec<u8>]) -> Option<&'static str> {
    let [rank, _, local_rank, ..] = OF_TORCHRUN;
    launch.rendezvous.as_ref()?;
    let by_chance = |name: &&str| {
        launch.sets(name.as_bytes())
            && !(sets(asked, name.as_bytes()) || asked.iter().any(|item| item == name.as_bytes()))
    };
    [rank, local_rank].into_iter().find(by_chance)
}

/// Whether a variable is that of an outer launcher, and not the user's. `depth`: ALPS_APP_DEPTH of the application in
/// which the caller runs; `within`: it runs in one.
///
/// Of the variables of a PE, a user sets OMP_NUM_THREADS in a script as well, so it has to have the value that the outer
/// application has given it.
pub fn is_of_outer(name: &[u8], value: &[u8], within: bool, depth: Option<&[u8]>) -> bool {
    let is = |names: &[&str]| names.iter().any(|one| one.as_bytes() == name);
    is(&OF_MPIEXEC)
        || is(&OF_OPEN_MPI)
        || within && is(&OF_TORCHRUN)
        || within && name == THREADS.as_bytes() && depth == Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apteam::{Key, bounds::Bounds};
    use crate::machine::Nid;
    use std::time::Duration;

    /// Ranks 4, 5 and 6 of 8 on two nodes of the second host.
    fn launch(environment: &[&str], depth: u32) -> HostLaunch {
        let pe = |(rank, nid)| LocalPe { rank, nid: Nid(nid), cpus: vec![], nice: 0, depth };
        let rendezvous = Some(Rendezvous { address: "10.0.0.1".to_owned(), port: 20_012 });
        let environment = environment.iter().map(|item| item.as_bytes().to_vec()).collect();
        HostLaunch {
            key: Key { apid: Apid(12), ..Key::default() },
            width: 8,
            depth: 1,
            launch: Launch { environment, rendezvous, ..Launch::default() },
            pes: [(4, 2), (5, 2), (6, 3)].map(pe).to_vec(),
            process_mapping: String::new(),
            alone: false,
            others: Vec::new(),
            cpu_limit: None,
            stdin: false,
            kill_grace: Duration::ZERO,
            marker: String::new(),
            memory_per_pe: None,
            pids_max: None,
            bounds: Bounds::default(),
            host_index: 1,
            pmix_folder: String::new(),
            spawned: None,
            pmix_name: String::new(),
        }
    }

    fn shown(launch: &HostLaunch, pe: usize) -> Vec<String> {
        let set = of(launch, &launch.pes[pe]);
        set.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    #[test]
    fn a_pe_is_told_its_place() {
        let all = [
            "RANK=6",
            "WORLD_SIZE=8",
            "LOCAL_RANK=2",
            "LOCAL_WORLD_SIZE=3",
            "NODE_RANK=1",
            "MASTER_ADDR=10.0.0.1",
            "MASTER_PORT=20012",
            "MPI_LOCALRANKID=2",
            "MPI_LOCALNRANKS=3",
        ];
        // Counted on the host, not on the node.
        assert_eq!(shown(&launch(&[], 1), 2), all);
        let threads = shown(&launch(&[], 4), 0);
        assert_eq!(threads.last().map(String::as_str), Some("OMP_NUM_THREADS=4"));
    }

    #[test]
    fn what_the_user_has_set_stays() {
        let set = shown(&launch(&["MASTER_PORT=1", "RANKS=3", "OMP_NUM_THREADS=2"], 4), 0);
        assert!(set.contains(&"RANK=4".to_owned()), "{set:?}");
        assert!(!set.iter().any(|item| item.starts_with("MASTER_PORT=")), "{set:?}");
        assert!(!set.iter().any(|item| item.starts_with("OMP_NUM_THREADS=")), "{set:?}");
        let mut none = launch(&[], 4);
        none.launch.rendezvous = None;
        assert!(shown(&none, 0).is_empty());
    }

    #[test]
    fn variables_of_an_outer_application_are_known() {
        for (name, value, within, outer) in [
            ("RANK", "3", true, true),
            ("RANK", "3", false, false),
            ("MASTER_ADDR", "h1", true, true),
            ("MPI_LOCALRANKID", "0", false, true),
            ("OMPI_COMM_WORLD_RANK", "0", false, true),
            ("OMP_NUM_THREADS", "4", true, true),
            ("OMP_NUM_THREADS", "2", true, false),
            ("OMP_NUM_THREADS", "4", false, false),
            ("RANKS", "4", true, false),
        ] {
            let found = is_of_outer(name.as_bytes(), value.as_bytes(), within, Some(b"4"));
            assert_eq!(found, outer, "{name}={value} {within}");
        }
    }

    #[test]
    fn ports_are_below_those_of_outgoing_connections() {
        for apid in [0, 1, 9_999, 10_000, u64::MAX] {
            let port = Rendezvous::of(Apid(apid), &[]).port;
            assert!((20_000..30_000).contains(&port), "{port}");
        }
        assert_ne!(Rendezvous::inside(Apid(12), 1), Rendezvous::inside(Apid(12), 2));
    }
}
