//! What a PE is given of its caller: environment, directory, mask, limits.

use super::Failure;
use crate::apteam::launch::{Limit, Spawned};
use crate::apteam::{Apid, Key, launcher_variables, library_variables};
use crate::os::instance;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::stat::{Mode, umask};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// What another application, in which this aprun runs, has left in the environment: it is not this
/// application's.
const NOT_OURS: &[&str] = &[
    "PMI_FD",
    "PMI_RANK",
    "PMI_SIZE",
    "PMI_PORT",
    "PMI_ID",
    "PMI_SPAWNED",
    "ALPS_APP_PE",
    "ALPS_APP_DEPTH",
    "ALPS_APP_ID",
    Spawned::VARIABLE,
    instance::APPLICATION,
    instance::INSTANCE,
];

/// The environment as NAME=VALUE, with what `-e` sets. What `-x` names is the user's, whatever an outer application set.
pub fn environment(
    own: impl Iterator<Item = (OsString, OsString)>,
    set: &[Vec<u8>],
    exported: &[Vec<u8>],
) -> Vec<Vec<u8>> {
    let name_of = |entry: &[u8]| entry.split(|b| *b == b'=').next().unwrap_or_default().to_vec();
    let own: Vec<(OsString, OsString)> = own.collect();
    let value_of =
        |of: &str| own.iter().find_map(|(name, value)| (name == of).then_some(value.as_bytes()));
    let (marker, depth) = (value_of(instance::APPLICATION), value_of("ALPS_APP_DEPTH"));
    let outer = within(marker.and_then(|marker| std::str::from_utf8(marker).ok()));
    let of_outer = |name: &[u8], value: &[u8]| {
        !exported.iter().any(|own| own == name)
            && (launcher_variables::is_of_outer(name, value, marker.is_some(), depth)
                || outer.is_some_and(|outer| library_variables::is_of_outer(name, value, outer)))
    };
    let mut all: Vec<Vec<u8>> = own
        .iter()
        .filter(|(name, _)| !NOT_OURS.iter().any(|n| name == n))
        .filter(|(name, value)| !of_outer(name.as_bytes(), value.as_bytes()))
        .map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat())
        .collect();
    for entry in set {
        let name = name_of(entry);
        all.retain(|e| name_of(e) != name);
        all.push(entry.clone());
    }
    all
}

/// The application in which this process runs, by what its environment has of
/// [`instance::APPLICATION`].
pub fn within(marker: Option<&str>) -> Option<Apid> {
    let (_, key) = marker?.split_once('.')?;
    Some(Key::parse(key)?.apid)
}

/// The working directory.
pub fn directory() -> Result<Vec<u8>, Failure> {
    match std::env::current_dir() {
        Ok(path) => Ok(path.into_os_string().into_vec()),
        Err(e) => Err(Failure::failed(format!(
            "the working directory no longer has a path ({}): change to another directory",
            super::program::plain(&e)
        ))),
    }
}

/// The directory in which PEs are to run: this process's own, or the one of `--chdir`, seen from there.
/// Whether it exists each host finds out for itself.
pub fn directory_of_pes(chdir: Option<&[u8]>) -> Result<Vec<u8>, Failure> {
    let Some(chdir) = chdir.map(|name| Path::new(OsStr::from_bytes(name))) else {
        return directory();
    };
    let path = match chdir.is_absolute() {
        true => chdir.to_owned(),
        false => Path::new(OsStr::from_bytes(&directory()?)).join(chdir),
    };
    // (Without the dots in its middle.)
    Ok(path.components().collect::<PathBuf>().into_os_string().into_vec())
}

/// The file mode creation mask, which can only be read by setting it.
pub fn mask() -> u32 {
    let mask = umask(Mode::empty());
    umask(mask);
    mask.bits()
}

/// The soft limits that travel: of core size and CPU time, or all.
pub fn limits(all: bool) -> Vec<Limit> {
    use Resource::*;
    let few = [RLIMIT_CORE, RLIMIT_CPU];
    let many = [
        RLIMIT_AS,
        RLIMIT_DATA,
        RLIMIT_FSIZE,
        RLIMIT_LOCKS,
        RLIMIT_MEMLOCK,
        RLIMIT_MSGQUEUE,
        RLIMIT_NICE,
        RLIMIT_NOFILE,
        RLIMIT_NPROC,
        RLIMIT_RSS,
        RLIMIT_RTPRIO,
        RLIMIT_RTTIME,
        RLIMIT_SIGPENDING,
        RLIMIT_STACK,
    ];
    few.into_iter()
        .chain(many.into_iter().filter(|_| all))
        .filter_map(|which| {
            let (soft, _) = getrlimit(which).ok()?;
            Some(Limit { resource: which as u32, soft })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_set_once_and_not_inherited_from_an_outer_application() {
        let own = [("A", "1"), ("PMI_RANK", "3"), ("B", "x=y")];
        let own = own.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let set = [b"A=2".to_vec(), b"C=".to_vec(), b"A=3".to_vec()];
        let all = environment(own.into_iter(), &set, &[]);
        assert_eq!(all, [b"B=x=y".to_vec(), b"C=".to_vec(), b"A=3".to_vec()]);
    }

    /// RANK of a PE that calls aprun is not the user's wish for its PEs; what -e sets is.
    #[test]
    fn ranks_of_an_outer_application_do_not_travel() {
        // (Of application 12.)
        let outer = [
            ("RANK", "3"),
            ("OMP_NUM_THREADS", "4"),
            library_variables::YIELDS,
            (library_variables::PORTS[0], "10384"),
            ("ALPS_APP_DEPTH", "4"),
            ("B", "1"),
        ];
        let outer = outer.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let marker = (OsString::from(instance::APPLICATION), OsString::from("0.12.1"));
        let set = [b"WORLD_SIZE=7".to_vec()];
        let inside = || outer.clone().into_iter().chain([marker.clone()]);
        let inner = environment(inside(), &set, &[]);
        assert_eq!(inner, [b"B=1".to_vec(), b"WORLD_SIZE=7".to_vec()]);
        let exported = [b"RANK".to_vec(), b"OMPI_MCA_mpi_yield_when_idle".to_vec()];
        let inner = environment(inside(), &set, &exported);
        let expected = ["RANK=3", "OMPI_MCA_mpi_yield_when_idle=1", "B=1", "WORLD_SIZE=7"];
        assert_eq!(inner, expected.map(|item| item.as_bytes().to_vec()));
        let alone = environment(outer.into_iter(), &[], &[]);
        let port = format!("{}=10384", library_variables::PORTS[0]);
        let expected =
            ["RANK=3", "OMP_NUM_THREADS=4", "OMPI_MCA_mpi_yield_when_idle=1", &port, "B=1"];
        assert_eq!(alone, expected.map(|item| item.as_bytes().to_vec()));
    }

    #[test]
    fn a_directory_is_seen_from_here() {
        let own = directory().expect("ours");
        let of = |name: &str| directory_of_pes(Some(name.as_bytes())).expect("good");
        assert_eq!(directory_of_pes(None).expect("ours"), own);
        assert_eq!(of("."), own);
        assert_eq!(of("./a//b/"), [&own[..], b"/a/b"].concat());
        // Where that is, the links of each host say.
        assert_eq!(of("/x/../y"), b"/x/../y");
    }

    #[test]
    fn limits_travel() {
        let few: Vec<u32> = limits(false).iter().map(|l| l.resource).collect();
        assert_eq!(few, [libc::RLIMIT_CORE, libc::RLIMIT_CPU]);
        let all = limits(true);
        assert_eq!(all.len(), 16);
        let files = all.iter().find(|l| l.resource == libc::RLIMIT_NOFILE).expect("there");
        let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).expect("readable");
        assert_eq!(files.soft, soft);
    }

    #[test]
    fn the_mask_is_left_as_it_is() {
        assert_eq!(mask(), mask());
    }
}
