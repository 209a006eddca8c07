//! The loop's dealings with appmix: it begins before the PEs, which find it by their environment, and ends after them.

use super::loaded::{LOOK_MAX, has_pmix_3};
use super::packets::{Packets, PacketsError};
use super::program::Refusal;
use super::*;
use crate::apshepherd::decide::pmix::{FromMix, Job, ToMix};
use crate::apteam::ending::NOT_THE_PROGRAM;
use crate::apteam::fault::Fault;
use crate::apteam::launch::{LocalPe, ServePmix};
use crate::apteam::library_variables::{NO_FABRIC, PORTS, YIELDS, first_port};
use crate::os::fork::wait_for;
use crate::os::host::hostname;
use crate::os::pmix::{LIBRARY, PACKAGE};
use crate::os::pmix_folder;
use crate::os::untraced::{NOT_EXECUTED, Untraced};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::unistd::{Pid, geteuid};
use prost::Message;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::path::Path;

/// The program.
const PROGRAM: &str = "appmix";
/// How long it may take to begin: as a rule it is a hundredth of a second.
const BEGIN: Duration = Duration::from_secs(20);
/// How long it may take to end, once it is told to.
const END: Duration = Duration::from_secs(2);
/// One whose connection has failed is killed: how long its end is waited for, and how often that is checked.
const REAPED: Duration = Duration::from_millis(100);
const REAPED_LOOK: Duration = Duration::from_millis(1);
/// The most bytes of data that it may have: what PEs ask of it takes memory that is no PE's.
const DATA: u64 = 2 << 30;

/// Files of hwloc's that are not loaded.
const HWLOC_PARTS: &str = "hwloc_gl.so,hwloc_opencl.so,hwloc_cuda.so,hwloc_nvml.so,hwloc_rsmi.so,hwloc_levelzero.so,hwloc_xml_libxml.so";

/// The variable that has the path of its folder.
const FOLDER: &str = "PMIX_SERVER_TMPDIR=";
/// The devices of networks beside Ethernet.
const FABRICS: [&str; 2] = ["/sys/class/infiniband", "/sys/class/cxi"];

/// How variables begin that lead to a PMIx server: those of an outer one are not for our PEs.
pub const NAMES: [&str; 12] = [
    "PMIX_NAMESPACE=",
    "PMIX_RANK=",
    "PMIX_HOSTNAME=",
    "PMIX_VERSION=",
    "PMIX_SERVER_",
    "PMIX_SYSTEM_TMPDIR=",
    "PMIX_SECURITY_MODE=",
    "PMIX_PTL_MODULE=",
    "PMIX_BFROP_BUFFER_TYPE=",
    "PMIX_GDS_MODULE=",
    "PMIX_DSTORE_",
    "JSM_JSRUN_PORT=",
];

/// appmix, as the loop has it.
#[derive(Debug, Default)]
pub struct Mix {
    /// Its process, until it has been reaped.
    pid: Option<Pid>,
    connection: Option<Packets>,
    /// Something waits to be sent to it, and so much that it is not heard.
    waits: (bool, bool),
    /// The launch that waits for it to begin, and until when.
    launch: Option<(Box<HostLaunch>, u64)>,
    /// What it leads PEs to it by.
    pub environment: Vec<CString>,
    /// It has said that it can't serve.
    failed: bool,
    /// Why it was killed.
    killed: Option<&'static str>,
    /// Until this time the end of a PE is not told of before that of appmix.
    reaped_until: u64,
    /// It was told to end: it is killed at this time.
    ending: Option<u64>,
    folder: String,
}

impl Mix {
    /// Whether this process is it.
    pub fn is_it(&self, pid: i32) -> bool {
        self.pid.is_some_and(|own| own.as_raw() == pid)
    }

    /// Whether there is one.
    pub fn is_there(&self) -> bool {
        self.pid.is_some()
    }

    /// When it has to be looked at, in nanoseconds of the clock of this loop.
    pub fn due(&self) -> Option<u64> {
        self.launch.as_ref().map(|(_, until)| *until).or(self.ending)
    }
}

impl Shell {
    /// Begins with it, if this launch is to have one. Then the PEs are made when it has begun, and this is `None`.
    pub(super) fn first_mix(&mut self, launch: Box<HostLaunch>) -> Option<Box<HostLaunch>> {
        if let Some(spawned) = launch.spawned.as_ref().filter(|spawned| !spawned.pmix.is_empty()) {
            // (It is that of another apshepherd.)
            self.mix.environment = leads(spawned.pmix.clone(), &launch);
        }
        let wanted = launch.launch.pmix != ServePmix::No;
        if !wanted || self.mix.pid.is_some() || launch.pes.is_empty() {
            return Some(launch);
        }
        match self.begin_mix(&launch) {
            Ok(()) => {
                let until = monotonic_ns().saturating_add(BEGIN.as_nanos() as u64);
                self.mix.launch = Some((launch, until));
                None
            }
            Err(e) => self.without_mix(launch, false, &e.to_string()),
        }
    }

    fn begin_mix(&mut self, launch: &HostLaunch) -> std::io::Result<()> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
        let (ours, theirs) = (high(ours)?, high(theirs)?);
        watch(&self.epoll, ours.as_fd(), Token::Mix, EpollFlags::EPOLLIN)?;
        let folder = match &*launch.pmix_folder {
            // (An apinit of an older release gives none.)
            "" => pmix_folder::new_path()?,
            given => given.to_owned(),
        };
        // Beside this program.
        let program = std::env::current_exe()?.with_file_name(PROGRAM);
        let environment = [
            ("PATH", "/usr/bin:/bin".to_owned()),
            // (No configuration and no parts of the library of the user's, which would run outside of all turns.)
            ("HOME", "/".to_owned()),
            ("TMPDIR", folder.clone()),
            // Parts of hwloc that load the libraries of screens and accelerators, of which nothing is told; and the one
            // that goes from processor to processor, which have others' programs.
            ("HWLOC_PLUGINS_BLACKLIST", HWLOC_PARTS.to_owned()),
            ("HWLOC_COMPONENTS", "-x86,-gl,-opencl,-cuda,-nvml,-rsmi,-levelzero".to_owned()),
            ("MALLOC_ARENA_MAX", "2".to_owned()),
            // Without this it has 8 MiB of files for each application.
            ("PMIX_MCA_gds", "hash".to_owned()),
            // Lists are packed as text.
            ("PMIX_MCA_preg", "^compress".to_owned()),
        ];
        let guard = self.placing.as_ref();
        let (program, environment) = (&program, &environment);
        let pid = Untraced { program, environment, data_max: DATA, guard }.start(theirs.as_fd())?;
        self.mix.pid = Some(Pid::from_raw(pid));
        self.mix.connection = Some(Packets::new(ours));
        self.say_to_mix(ToMix::Begin(job_of(launch, folder.clone())));
        self.mix.folder = folder;
        Ok(())
    }

    /// It can't be had: the launch that goes on without it, unless its program needs it.
    fn without_mix(
        &mut self,
        launch: Box<HostLaunch>,
        missing: bool,
        why: &str,
    ) -> Option<Box<HostLaunch>> {
        if launch.launch.pmix == ServePmix::Offered {
            let host = hostname();
            let why = match missing {
                true => format!(
                    "host {host} has no {LIBRARY}: install {PACKAGE} (Debian, Ubuntu) or pmix (Fedora, SUSE) there"
                ),
                false => format!("PMIx can't be served on host {host}: {why}"),
            };
            self.happened.push(Event::NoMix(why));
            return Some(launch);
        }
        let text = match missing {
            true => format!(
                "its program needs PMIx, and host {} has no {LIBRARY} ({why}): install {PACKAGE} (Debian, Ubuntu) \
                 or pmix (Fedora, SUSE) there",
                hostname()
            ),
            false => format!("PMIx can't be served on host {}: {why}", hostname()),
        };
        let fault = if missing { Fault::User } else { Fault::Busy };
        let rank = launch.pes.first().map_or(0, |pe| pe.rank);
        let refusal = Refusal { errno: NOT_THE_PROGRAM, text, fault };
        self.fork_pes(launch, Err((rank, refusal)));
        None
    }

    pub(super) fn mix_ready(&mut self, flags: EpollFlags) {
        if flags.contains(EpollFlags::EPOLLOUT) {
            self.flush_mix();
        }
        self.read_mix(TURNS);
        self.flush();
    }

    /// Takes what it has said, up to so many messages.
    pub(super) fn read_mix(&mut self, turns: usize) {
        for _ in 0..turns {
            let Some(connection) = &mut self.mix.connection else { return };
            if connection.is_full() && self.mix.pid.is_some() {
                return;
            }
            let said = match connection.receive(&mut self.buffer) {
                Ok(Some(whole)) => pb::FromMix::decode(whole).ok(),
                Ok(None) => return,
                Err(PacketsError::Closed) => return self.lose_mix(None),
                Err(_) => return self.lose_mix(Some("its connection has failed")),
            };
            match said.and_then(|said| FromMix::try_from(said).ok()) {
                // (One that has ended since serves nobody.)
                Some(FromMix::Serves { .. }) if self.mix.pid.is_none() => {}
                Some(FromMix::Serves { environment, version }) => {
                    self.mix_serves(environment, &version)
                }
                Some(FromMix::Fails { missing, text }) => {
                    self.mix.failed = true;
                    self.mix_fails(missing, &text);
                }
                Some(said) => {
                    self.look_at_spawner(&said);
                    self.happens(Event::Mix(said));
                }
                None => return self.lose_mix(Some("its message can't be decoded")),
            }
        }
    }

    /// Where other hosts have PEs: which PMIx one has that wants to spawn.
    fn look_at_spawner(&mut self, said: &FromMix) {
        let FromMix::Spawn { rank, .. } = said else { return };
        let several = self.launch.as_ref().is_some_and(|launch| !launch.alone);
        let Some((_, pe)) = self.pes.of_rank(*rank).filter(|(_, pe)| several && !pe.ended) else {
            return;
        };
        if has_pmix_3(pe.pid.as_raw(), &mut { LOOK_MAX }) {
            self.happens(Event::Pmix3(*rank));
        }
    }

    fn mix_serves(&mut self, environment: Vec<Vec<u8>>, version: &str) {
        let Some((launch, _)) = self.mix.launch.take() else { return };
        tracing::debug!("appmix serves: {version}");
        self.mix.environment = leads(environment, &launch);
        self.fork_pes(launch, Ok(()));
        self.settle();
    }

    fn mix_fails(&mut self, missing: bool, why: &str) {
        if let Some((launch, _)) = self.mix.launch.take()
            && let Some(launch) = self.without_mix(launch, missing, why)
        {
            self.fork_pes(launch, Ok(()));
        }
        self.settle();
    }

    pub(super) fn say_to_mix(&mut self, message: ToMix) {
        if let Some(connection) = &mut self.mix.connection {
            connection.push(pb::ToMix::from(message).encode_to_vec());
            self.flush_mix();
        }
    }

    fn flush_mix(&mut self) {
        let Some(connection) = &mut self.mix.connection else { return };
        let Ok(all) = connection.flush() else { return };
        // (While much waits for it, it is not heard: it would ask for more.)
        let waits = (!all, connection.is_full());
        if waits != self.mix.waits {
            let mut flags = EpollFlags::empty();
            flags.set(EpollFlags::EPOLLOUT, waits.0);
            flags.set(EpollFlags::EPOLLIN, !waits.1);
            let mut event = EpollEvent::new(flags, Token::Mix.number());
            let _ = self.epoll.modify(connection.as_fd(), &mut event);
            self.mix.waits = waits;
        }
    }

    fn hang_up_mix(&mut self) {
        if let Some(connection) = self.mix.connection.take() {
            let _ = self.epoll.delete(connection.as_fd());
        }
    }

    /// Its connection has failed, so it can serve nobody: it is killed, if it has not ended by itself.
    fn lose_mix(&mut self, why: Option<&'static str>) {
        self.hang_up_mix();
        if let Some(pid) = self.mix.pid {
            let _ = kill(pid, Signal::SIGKILL);
            self.mix.killed = self.mix.killed.or(why);
            self.mix.reaped_until = monotonic_ns().saturating_add(REAPED.as_nanos() as u64);
        }
    }

    /// A PE has ended, perhaps because appmix has: then the end of appmix is told of first.
    pub(super) fn mix_lost_first(&mut self) {
        let lost = self.mix.connection.is_none() && self.mix.ending.is_none();
        let Some(pid) = self.mix.pid.filter(|_| lost) else { return };
        loop {
            match wait_for(pid.as_raw()) {
                Waited::News(child) if !matches!(child.change, Change::Stopped(_)) => {
                    return self.mix_ended(child.change);
                }
                Waited::NoChild => return,
                _ if monotonic_ns() < self.mix.reaped_until => std::thread::sleep(REAPED_LOOK),
                _ => return,
            }
        }
    }

    /// After a restart from a checkpoint: the folder was removed when the application ended that was checkpointed.
    pub(super) fn remake_mix_folder(&mut self) {
        let folder = |item: &CString| Some(item.to_str().ok()?.strip_prefix(FOLDER)?.to_owned());
        let Some(folder) = self.mix.environment.iter().find_map(folder) else { return };
        if self.mix.pid.is_some()
            && let Err(error) = pmix_folder::make_again(&folder)
        {
            self.diagnostics.say(format_args!("{folder} can't be made: {error}"));
            self.lose_mix(Some("its folder in /tmp can't be made again"));
        }
    }

    /// It is told to end: nothing of the application is left but it.
    pub(super) fn end_mix(&mut self) {
        if self.mix.pid.is_some() && self.mix.ending.is_none() {
            self.read_mix(LAST_READS);
            self.hang_up_mix();
            self.mix.ending = Some(monotonic_ns().saturating_add(END.as_nanos() as u64));
        }
    }

    /// It has been reaped.
    pub(super) fn mix_ended(&mut self, change: Change) {
        let how = match change {
            Change::Stopped(_) => return,
            Change::Exited(NOT_EXECUTED) => {
                "appmix can't be executed: is it beside apshepherd?".into()
            }
            Change::Exited(code) => format!("it has ended with exit code {code}"),
            Change::Died(signal) => match Signal::try_from(signal) {
                Ok(signal) => format!("it has died by {signal}"),
                Err(_) => format!("it has died by signal {signal}"),
            },
        };
        // (It may have died of something else before it was killed.)
        let killed =
            self.mix.killed.take().filter(
                |_| matches!(change, Change::Died(signal) if signal == Signal::SIGKILL as i32),
            );
        let how = killed.map_or(how, str::to_owned);
        self.mix.pid = None;
        self.read_mix(LAST_READS + 4 * self.pes.all.len());
        self.hang_up_mix();
        pmix_folder::remove(Path::new(&self.mix.folder), geteuid().as_raw());
        // (PEs that it has not begun to serve have lost nothing: it is only that they are not served.)
        self.mix.failed |= self.mix.launch.is_some();
        self.mix_fails(false, &how);
        if self.mix.ending.take().is_none() && !self.mix.failed {
            self.happens(Event::MixEnded(how));
        }
    }

    /// Everything is killed: PEs that waited for it are not made.
    pub(super) fn give_up_mix(&mut self) {
        if let Some((launch, _)) = self.mix.launch.take() {
            let rank = launch.pes.first().map_or(0, |pe| pe.rank);
            let text = "it was ended before its PEs were made".to_owned();
            let refusal = Refusal { errno: NOT_THE_PROGRAM, text, fault: Fault::Busy };
            self.fork_pes(launch, Err((rank, refusal)));
        }
    }

    /// One that takes too long to begin or to end is killed.
    pub(super) fn look_after_mix(&mut self) {
        if self.mix.due().is_some_and(|at| at <= monotonic_ns())
            && let Some(pid) = self.mix.pid
        {
            let _ = kill(pid, Signal::SIGKILL);
            if self.mix.launch.is_some() {
                self.mix.killed = Some("it took too long to begin");
            }
            // (Once: until it has been reaped there is nothing more to do.)
            if let Some(at) = &mut self.mix.ending {
                *at = u64::MAX;
            }
            if let Some((_, until)) = &mut self.mix.launch {
                *until = u64::MAX;
            }
        }
    }
}

/// What PEs are given to find appmix: what it says itself, and what Open MPI is told beside.
fn leads(environment: Vec<Vec<u8>>, launch: &HostLaunch) -> Vec<CString> {
    let environment = environment.into_iter().filter_map(|item| CString::new(item).ok());
    // With it Open MPI 4 takes its launch for one without a daemon of its own.
    environment.chain([c"JSM_JSRUN_PORT=1".to_owned()]).chain(for_open_mpi(launch)).collect()
}

/// What Open MPI is told beside, unless its user has.
///
/// - A PE that waits for another lets it run, where they share processors. (Its own launchers tell it so, too.)
/// - Its PEs listen at ports of their application's own. (They take the first that are free, from 1024 on: an application
///   that is restarted from a checkpoint would find those of another one there.)
/// - Where there is no network but Ethernet, the libraries of others are not loaded. (Two of them measure for 0.1 s how
///   fast the processor's clock is, and one, which Debian has switched off, reads all symbols of the kernel.)
fn for_open_mpi(launch: &HostLaunch) -> Vec<CString> {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let told = |name: &str| launch.launch.sets(name.as_bytes());
    let port = first_port(launch.key.apid).to_string();
    let mut items = PORTS.map(|name| (name, port.as_str())).to_vec();
    if share_processors(&launch.pes, all) {
        items.push(YIELDS);
    }
    if !told("OMPI_MCA_pml") && !has_fabric() {
        items.push(NO_FABRIC);
    }
    let items = items.into_iter().filter(|(name, _)| !told(name));
    items.filter_map(|(name, value)| CString::new(format!("{name}={value}")).ok()).collect()
}

/// Whether this host has a network beside Ethernet, as far as Linux has a class for it.
fn has_fabric() -> bool {
    FABRICS
        .iter()
        .any(|class| std::fs::read_dir(class).is_ok_and(|mut devices| devices.next().is_some()))
}

/// Whether PEs have fewer processors than there are of them; `all`: those of the host.
fn share_processors(pes: &[LocalPe], all: usize) -> bool {
    let bound: BTreeSet<u32> = pes.iter().flat_map(|pe| pe.cpus.iter().copied()).collect();
    let some_are_free = pes.iter().any(|pe| pe.cpus.is_empty());
    pes.len() > if some_are_free { all } else { bound.len() }
}

/// What appmix is to know of an application.
fn job_of(launch: &HostLaunch, folder: String) -> Job {
    Job {
        name: launch.pmix_name.clone(),
        width: launch.width,
        mapping: launch.process_mapping.clone(),
        firsts: launch.launch.more.iter().map(|part| part.first).collect(),
        ranks: launch.pes.iter().map(|pe| pe.rank).collect(),
        folder,
        universe: launch.universe(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Nid;

    #[test]
    fn pes_share_processors_where_there_are_fewer() {
        let pes = |cpus: &[&[u32]]| -> Vec<LocalPe> {
            let pe = |(rank, cpus): (u32, &&[u32])| LocalPe {
                rank,
                nid: Nid(0),
                cpus: cpus.to_vec(),
                nice: 0,
                depth: 0,
            };
            (0..).zip(cpus).map(pe).collect()
        };
        assert!(!share_processors(&pes(&[&[0], &[1]]), 2));
        assert!(share_processors(&pes(&[&[0], &[1], &[0]]), 8));
        assert!(!share_processors(&pes(&[&[0, 1], &[2, 3]]), 4));
        // Those that are bound to none.
        assert!(!share_processors(&pes(&[&[], &[]]), 2));
        assert!(share_processors(&pes(&[&[], &[], &[]]), 2));
    }
}
