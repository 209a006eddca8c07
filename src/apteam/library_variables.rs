//! Variables by which PEs tell their MPI library what it can't know: parameters of Open MPI (OMPI_MCA_*) and of MPICH
//! (MPIR_CVAR_*). None is set for an application whose user has set it.
//!
//! ```
//! use psched_pure::apteam::library_variables::{YIELDS, is_of_outer};
//! use psched_pure::apteam::Apid;
//!
//! let (name, value) = YIELDS;
//! assert!(is_of_outer(name.as_bytes(), value.as_bytes(), Apid(7)));
//! assert!(!is_of_outer(name.as_bytes(), b"0", Apid(7)));
//! ```

use super::Apid;

/// MPICH speaks PMI-1: its release 5 does not begin where it finds PMIx as well and is not told.
pub const PMI_1: (&str, &str) = ("MPIR_CVAR_PMI_VERSION", "1");
/// The first fence of Open MPI brings nothing: each PE asks those that it speaks with for what they have put.
pub const DIRECT: (&str, &str) = ("OMPI_MCA_pmix_base_async_modex", "1");
/// A PE of Open MPI 4 is alone: else it starts a daemon for what it may spawn.
pub const ISOLATED: (&str, &str) = ("OMPI_MCA_ess_singleton_isolated", "1");
/// A PE that waits lets others run, with which it shares processors.
pub const YIELDS: (&str, &str) = ("OMPI_MCA_mpi_yield_when_idle", "1");
/// Libraries of fabrics that this host does not have are not loaded. (Each takes its time to find that out.)
pub const NO_FABRIC: (&str, &str) = ("OMPI_MCA_mtl", "^ofi,psm,psm2");
/// From which port on PEs listen, by IPv4 and IPv6 ([`first_port`]).
pub const PORTS: [&str; 2] = ["OMPI_MCA_btl_tcp_port_min_v4", "OMPI_MCA_btl_tcp_port_min_v6"];

/// The ports at which PEs of Open MPI listen: so many for each of so many applications one after the other. (They are below
/// the ephemeral ports of Linux, and below those of MASTER_PORT.)
const PORTS_FIRST: u64 = 10_000;
const PORTS_EACH: u64 = 32;
const PORTS_APPLICATIONS: u64 = 312;

/// The first of the ports of an application.
pub fn first_port(apid: Apid) -> u64 {
    PORTS_FIRST + PORTS_EACH * (apid.0 % PORTS_APPLICATIONS)
}

/// Whether psched may have given a variable to the PEs of the application `outer`, in which the caller runs: with this
/// value it is not taken for the user's.
pub fn is_of_outer(name: &[u8], value: &[u8], outer: Apid) -> bool {
    let fixed = [PMI_1, DIRECT, ISOLATED, YIELDS, NO_FABRIC];
    let port = first_port(outer).to_string();
    let ports = PORTS.map(|name| (name, port.as_str()));
    fixed.into_iter().chain(ports).any(|(n, v)| (n.as_bytes(), v.as_bytes()) == (name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_application_has_ports_of_its_own() {
        assert_eq!(
            [0, 1, 311, 312].map(|apid| first_port(Apid(apid))),
            [10_000, 10_032, 19_952, 10_000]
        );
        let [name, _] = PORTS.map(str::as_bytes);
        for (apid, value, ours) in [(1, "10032", true), (2, "10032", false), (1, "10000", false)] {
            assert_eq!(is_of_outer(name, value.as_bytes(), Apid(apid)), ours, "{apid} {value}");
        }
    }
}
