//! How the PEs of an MPI program find one another: by PMI-1 (MPICH and its relatives), by PMIx (Open MPI), or not at all.
//!
//! What a program is linked with tells. An interpreter, or a program that runs another one, tells nothing, and neither
//! does one whose libraries may be linked with an MPI or are all in it: both are offered to it, so that no program runs as
//! many worlds of one PE without a word. PMIx takes some milliseconds of a launch: what needs nothing but the libraries of its
//! language, and is known to run no other program, goes without.

use crate::apteam::launch::ServePmix;
use crate::apteam::posting::Mpi;

/// What `--pmi` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Wireup {
    /// Nothing: the programs tell.
    #[default]
    Found,
    /// PMI-1 and nothing else.
    Pmi1,
    /// The same by a port, for wrappers that close descriptors.
    Port,
    /// PMIx and nothing else.
    Pmix,
    /// Both.
    All,
    /// Neither: independent processes.
    None,
}

/// What a program tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It is linked with this MPI.
    Linked(Mpi),
    /// It may load one, or run a program that does.
    Unknown,
    /// It needs nothing that could be linked with one.
    Plain,
}

/// Programs that need few libraries and run others, whatever these are: by the name of the file.
const RUN_OTHERS: [&str; 57] = [
    "sh",
    "dash",
    "bash",
    "ash",
    "ksh",
    "zsh",
    "fish",
    "csh",
    "tcsh",
    "busybox",
    "env",
    "time",
    "timeout",
    "nice",
    "ionice",
    "chrt",
    "stdbuf",
    "setsid",
    "nohup",
    "taskset",
    "numactl",
    "strace",
    "ltrace",
    "perf",
    "gdb",
    "valgrind",
    "xargs",
    "find",
    "make",
    "watch",
    "sudo",
    "su",
    "doas",
    "expect",
    "tini",
    "dumb-init",
    "nsys",
    "ncu",
    "ch-run",
    "shifter",
    "sarus",
    "unshare",
    "nsenter",
    "chroot",
    "setarch",
    "linux64",
    "setpriv",
    "prlimit",
    "flock",
    "script",
    "runuser",
    "cgexec",
    "firejail",
    "bwrap",
    "apptainer",
    "singularity",
    "podman",
];
/// Beginnings of the names of interpreters, which come with a version.
const INTERPRETERS: [&str; 13] = [
    "python", "pypy", "perl", "ruby", "julia", "Rscript", "lua", "node", "java", "octave", "tclsh",
    "php", "guile",
];
/// Beginnings of the names of libraries that are linked with no MPI: of the C compiler and its relatives.
const OF_COMPILERS: [&str; 19] = [
    "libc.so",
    "libm.so",
    "libmvec.so",
    "libdl.so",
    "librt.so",
    "libpthread.so",
    "libutil.so",
    "libgcc_s.so",
    "libstdc++.so",
    "libgfortran.so",
    "libquadmath.so",
    "libgomp.so",
    "libatomic.so",
    "libselinux.so",
    "libcap.so",
    "libacl.so",
    "libattr.so",
    "ld-linux",
    "ld64",
];

/// Whether a library may be linked with an MPI.
pub fn may_have_mpi(library: &[u8]) -> bool {
    !OF_COMPILERS.iter().any(|own| library.starts_with(own.as_bytes()))
}

/// What a program tells: by its path, its MPI, and whether it may have one that it does not name.
///
/// ```
/// # use psched_pure::aprun::decide::wireup::{Seen, seen};
/// # use psched_pure::apteam::posting::Mpi;
/// assert_eq!(seen("/bin/sleep", Mpi::None, false), Seen::Plain);
/// assert_eq!(seen("/usr/bin/python3.11", Mpi::None, false), Seen::Unknown);
/// assert_eq!(seen("/bin/sh", Mpi::None, false), Seen::Unknown);
/// assert_eq!(seen("./a.out", Mpi::None, true), Seen::Unknown);
/// ```
pub fn seen(path: &str, mpi: Mpi, may_have_mpi: bool) -> Seen {
    let name = path.rsplit('/').next().unwrap_or(path);
    let runs_others =
        RUN_OTHERS.contains(&name) || INTERPRETERS.iter().any(|known| name.starts_with(known));
    match mpi {
        Mpi::None if runs_others || may_have_mpi => Seen::Unknown,
        Mpi::None => Seen::Plain,
        mpi => Seen::Linked(mpi),
    }
}

/// Whether PMI-1 is served to these programs, and whether PMIx is.
pub fn served(wireup: Wireup, programs: impl IntoIterator<Item = Seen>) -> (bool, ServePmix) {
    match wireup {
        Wireup::Pmi1 | Wireup::Port => (true, ServePmix::No),
        Wireup::Pmix => (false, ServePmix::Needed),
        Wireup::All => (true, ServePmix::Needed),
        Wireup::None => (false, ServePmix::No),
        Wireup::Found => {
            let (mut pmi1, mut pmix) = (false, ServePmix::No);
            for seen in programs {
                match seen {
                    Seen::Linked(Mpi::OpenMpi) => pmix = ServePmix::Needed,
                    Seen::Linked(_) | Seen::Plain => pmi1 = true,
                    Seen::Unknown => {
                        pmi1 = true;
                        if pmix == ServePmix::No {
                            pmix = ServePmix::Offered;
                        }
                    }
                }
            }
            (pmi1, pmix)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_programs_tell_is_served() {
        use Seen::*;
        let (mpich, open) = (Linked(Mpi::Mpich), Linked(Mpi::OpenMpi));
        for (programs, expected) in [
            (&[Plain][..], (true, ServePmix::No)),
            (&[mpich], (true, ServePmix::No)),
            (&[open], (false, ServePmix::Needed)),
            (&[Unknown], (true, ServePmix::Offered)),
            (&[Unknown, open], (true, ServePmix::Needed)),
            (&[open, Unknown], (true, ServePmix::Needed)),
            (&[Plain, open], (true, ServePmix::Needed)),
        ] {
            assert_eq!(served(Wireup::Found, programs.iter().copied()), expected, "{programs:?}");
        }
    }

    #[test]
    fn an_option_decides_alone() {
        for (wireup, expected) in [
            (Wireup::Pmi1, (true, ServePmix::No)),
            (Wireup::Port, (true, ServePmix::No)),
            (Wireup::Pmix, (false, ServePmix::Needed)),
            (Wireup::All, (true, ServePmix::Needed)),
            (Wireup::None, (false, ServePmix::No)),
        ] {
            for seen in [Seen::Plain, Seen::Unknown, Seen::Linked(Mpi::OpenMpi)] {
                assert_eq!(served(wireup, [seen]), expected);
            }
        }
    }

    #[test]
    fn libraries_of_compilers_have_no_mpi() {
        for (library, expected) in [
            ("libc.so.6", false),
            ("libstdc++.so.6", false),
            ("ld-linux-x86-64.so.2", false),
            ("liblammps.so.0", true),
            ("libcrypto.so.3", true),
            ("libmpi.so.40", true),
        ] {
            assert_eq!(may_have_mpi(library.as_bytes()), expected, "{library}");
        }
    }
}
