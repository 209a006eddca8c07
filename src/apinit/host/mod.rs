//! apinit for real: sockets, groups and processes around the pure [`crate::apinit::decide`].
//!
//! One task owns the agent and everything that it decides about ([`shell`]); it takes one event
//! after the other, applies it, and does what comes of it, without waiting for anybody. What has to
//! wait is in tasks of its own: the link to psched ([`link`]), attached front ends ([`attach`]),
//! shepherds ([`shepherds`]), other hosts' apinits ([`peers`], [`heads`], [`network`]). They tell the one task through one
//! bounded channel, so that whoever talks faster than it is applied is held back.
//!
//! Gangs are stopped and let run by a thread of its own ([`switching`]).
//!
//! What front ends have said half is bounded by user ([`crate::rpc::partial_messages`]).
//!
//! The other way nothing may hold the one task back: a front end that does not read must not delay
//! the others. What waits for a front end is bounded by the output window of its application
//! (variable `output_max`, for each host), and by a number of other messages; a front end that leaves
//! more lying is hung up on, and so is a shepherd or a psched that lets its bounded queue fill.
//!
//! Files, next to psched's socket:
//!
//! ```text
//!   apinit-0.sock            where front ends and other apinits connect; 0 is the lowest NID
//!   apinit-0.door            where cpr passes a folder ([`fd_channel`])
//!   apps-0/welcome           the store that is obeyed, and the nodes
//!   apps-0/commits           the last commit of that store that was heard of
//!   apps-0/distrusted        starts of psched on old copies of it
//!   apps-0/plans             the slice plans that are held
//!   apps-0/cpus              the processors by which its nodes are counted
//!   apps-0/12.1/             one application:
//!       shepherd.sock        where its shepherd listens
//!       place                its placement, as psched sent it
//!       shepherd groups front going      pids with start times, path, time of go
//!       ran                              how long it has run, and when that was, of one that was stopped
//!       sessions                         the PEs' pids, likewise, where there are no groups
//!       images                           a copy of what it is being brought back from
//!       dump-7                           images that are being made
//!       dumped                           it is being dumped, and stands still
//!   programs-0/12.1/         copies of its programs, in memory ([`programs`])
//! ```
//!
//! By these an apinit that is started again takes up what the one before has left running.

mod asker;
mod attach;
mod claims;
mod coming;
mod doorway;
mod dump;
mod events;
mod fake;
mod fd_channel;
mod hardware;
mod heads;
mod image_space;
pub mod inside;
mod link;
mod login;
mod memory_out;
mod network;
mod notes;
mod obeyed;
mod open_link;
mod passed;
mod peer_queue;
mod peers;
mod places;
mod process_tracking;
mod programs;
mod promised_room;
mod rebind;
mod relay;
mod restore;
mod runtime;
mod shell;
mod shepherd_handle;
mod shepherd_sockets;
mod shepherd_writer;
mod shepherds;
mod stream_sender;
mod switching;

use crate::apteam::bounds::HostBounds;
use crate::certs::{Role, keyring};
use crate::machine::{Nid, parse_nids};
use crate::node::checkpoint::GHOST_LIMIT;
use crate::node::checkpoint::fd_channel::beside;
use crate::node::groups::Groups;
use crate::os::instance::{self, Member};
use crate::os::notify::Notify;
use crate::os::signal_helper::SignalHelper;
use crate::os::wait;
use crate::rpc::caller::HOST_WAITING_MAX;
use crate::rpc::listen::{
    Bounds, FILES_USUAL, PATH_MAX, admitted, incoming_within, listen, listen_for_descriptors,
    raise_descriptor_limit,
};
use crate::rpc::partial_messages::{HEADERS, HostLimits, Limits, PartialMessages};
use crate::rpc::request_turns::RequestTurns;
use crate::variables::units::parse_size;
use anyhow::{Context, bail};
use doorway::Doorway;
use fd_channel::Askers;
use network::{Network, Psched};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::fd::{OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;
use tonic::service::InterceptorLayer;
use tower::util::MapRequestLayer;

/// The command line.
#[derive(Clone, Debug, clap::Parser)]
#[command(
    name = "apinit",
    version,
    max_term_width = 80,
    override_usage = "apinit --socket PATH --nids LIST [OPTIONS]\n       \
    apinit --psched HOST[:PORT] [--nids LIST] [OPTIONS]",
    about = "Offers nodes of this host to psched and runs applications on them"
)]
pub struct Options {
    /// psched's unix socket, on the host of psched
    #[arg(long, value_name = "PATH", required_unless_present_any = ["hold_groups", "psched"])]
    pub socket: Option<PathBuf>,
    /// psched's host, from another host: its address, and its port if that is not 7117
    #[arg(long, value_name = "HOST[:PORT]", conflicts_with = "socket")]
    pub psched: Option<String>,
    /// The folder of this host's certificate, which makes it known to other hosts
    /// [default with --psched: /etc/psched/certs]
    #[arg(long, value_name = "DIR", env = "PSCHED_CERTIFICATES")]
    pub certificates: Option<PathBuf>,
    /// Where apinits of other hosts connect [default where there is a certificate: 0.0.0.0:7118]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    /// The runtime directory, with --psched [default: /run/psched]
    #[arg(long, value_name = "DIR", conflicts_with = "socket")]
    pub runtime: Option<PathBuf>,
    /// The nodes that this host offers: 0-3,8; without it, with --psched, the host has users only
    #[arg(long, value_name = "LIST", value_parser = nids, required_unless_present_any = ["hold_groups", "psched"])]
    pub nids: Option<Nids>,
    /// Make applications' control groups below this one, not below its own
    #[arg(long, value_name = "GROUP")]
    pub groups: Option<PathBuf>,
    /// Where there is no swap: take memory of gangs whose next turn is far out by a checkpoint, made in this folder
    #[arg(long, value_name = "FOLDER", env = "PSCHED_ROLL_OUT")]
    pub roll_out: Option<PathBuf>,
    /// Bytes of removed files that an application may still have open, where it is checkpointed: 4G
    #[arg(long, value_name = "SIZE", value_parser = parse_size, env = "PSCHED_GHOST_LIMIT",
          default_value_t = GHOST_LIMIT, hide_default_value = true)]
    pub ghost_limit: u64,
    /// Only hold the control group in which it is started, for another's --groups
    #[arg(long, conflicts_with_all = ["socket", "psched", "nids", "groups", "lifeline"])]
    pub hold_groups: bool,
    /// Kill everything and go when this descriptor, a pipe's end, reports that the other end is closed
    #[arg(long, value_name = "FD", value_parser = descriptor)]
    pub lifeline: Option<RawFd>,
    /// Fake so many hosts, which share the nodes evenly: nothing is executed, and a PE ends after as many
    /// seconds as its program's first argument says
    #[arg(long, value_name = "HOSTS", requires_all = ["socket", "nids"],
          value_parser = clap::value_parser!(u32).range(1..=i64::from(fake::HOSTS_MAX)),
          conflicts_with_all = ["psched", "certificates", "listen", "groups", "roll_out", "lifeline"])]
    pub fake: Option<u32>,
    /// Look like another host (for tests)
    #[arg(long, value_name = "TEXT", hide = true)]
    pub host_id: Option<String>,
}

impl Options {
    fn nodes(&self) -> BTreeSet<Nid> {
        self.nids.as_ref().map(|nids| nids.0.clone()).unwrap_or_default()
    }
}

/// A list of NIDs on the command line.
#[derive(Clone, Debug)]
pub struct Nids(pub BTreeSet<Nid>);

fn nids(text: &str) -> Result<Nids, String> {
    parse_nids(text).map(Nids).map_err(|e| e.to_string())
}

fn descriptor(text: &str) -> Result<RawFd, String> {
    text.parse().map_err(|_| "expected the number of an open file descriptor".to_owned())
}

/// Where an apinit has its things.
#[derive(Clone, Debug)]
struct Paths {
    /// Its own socket.
    own: PathBuf,
    /// The runtime directory.
    apps: PathBuf,
    /// Copies of programs.
    programs: PathBuf,
}

impl Paths {
    /// `directory`: of psched's socket, or the runtime directory if psched is on another host
    /// (`far`).
    fn new(directory: &Path, lowest: Nid, far: bool) -> anyhow::Result<Paths> {
        let own = directory.join(format!("apinit-{lowest}.sock"));
        let apps = directory.join(format!("{}{lowest}", instance::RUNTIMES));
        // The longest names there can be: 20 digits, a point, 10 digits.
        let longest = apps.join("18446744073709551615.4294967295").join("shepherd.sock");
        let length = longest.as_os_str().len();
        if length > PATH_MAX {
            bail!(
                "the path {} is too long for apinit's sockets by {} bytes: use a shorter directory",
                directory.display(),
                length - PATH_MAX
            );
        }
        if !directory.is_dir() {
            let cure = match far {
                true => "make it, or name another one with --runtime",
                false => "start psched first, or name its socket with --socket",
            };
            bail!("{} is not a directory: {cure}", directory.display());
        }
        let programs = directory.join(format!("programs-{lowest}"));
        Ok(Paths { own, apps, programs })
    }
}

/// What `main` of apinit does, after the command line.
pub fn main(options: &Options) -> ExitCode {
    crate::logging::init_daemon("apinit");
    if let Err(error) = crate::os::dispositions::unblock_all() {
        tracing::warn!(%error, "can't unblock signals");
    }
    let outcome = if options.hold_groups { hold_groups() } else { run(options) };
    crate::logging::flush();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("apinit: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Takes the descriptor that the command line names.
fn lifeline(fd: Option<RawFd>) -> anyhow::Result<Option<OwnedFd>> {
    let Some(fd) = fd.filter(|fd| *fd >= 0) else { return Ok(None) };
    crate::os::inherit::take(fd)
        .map(Some)
        .with_context(|| format!("--lifeline {fd} is not an open descriptor"))
}

/// Holds the group in which it was started until TERM or INT; applications in it stay.
fn hold_groups() -> anyhow::Result<()> {
    use nix::sys::signal::{SigSet, Signal};
    // HUP has no meaning here, and must not end it.
    let signals: SigSet = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().collect();
    signals.thread_block()?;
    let groups = Groups::hold().map_err(|why| anyhow::anyhow!("no control groups: {why}"))?;
    for note in groups.notes() {
        tracing::warn!("{note}");
    }
    let notify = Notify::from_environment();
    notify.ready();
    while signals.wait()? == Signal::SIGHUP {}
    notify.stopping();
    Ok(())
}

fn run(options: &Options) -> anyhow::Result<()> {
    let lifeline = lifeline(options.lifeline)?;
    // In a private instance's folder: whoever of the instance leaves last clears it.
    let network = Network::of(options)?.map(Arc::new);
    let (psched, directory) = Psched::of(options, network.as_ref())?;
    let member = lifeline.as_ref().and_then(|_| Member::join(&directory).ok());
    // First: it is to have none of apinit's files and memory.
    let helper = psched.address().and_then(|_| {
        let helper = SignalHelper::start();
        helper.inspect_err(|error| tracing::warn!(%error, "can't send SIGUSR1 to front ends")).ok()
    });
    if let Some(count) = options.fake {
        return fake::run(options, count, &directory, &psched);
    }
    if options.nids.is_none() {
        return login_only(options, &directory, psched, network, helper);
    }
    let Some(lowest) = options.nodes().first().copied() else {
        bail!("--nids names no node: name at least one, as in --nids 0-3")
    };
    let paths = Paths::new(&directory, lowest, options.psched.is_some())?;
    let apshepherd = shepherds::Program::find()?;
    append_to_log();
    let files = raise_descriptor_limit().unwrap_or_else(|error| {
        tracing::warn!(%error, "can't raise the limit of open files");
        FILES_USUAL
    });
    // What a shepherd leaves behind when it dies comes to us.
    nix::sys::prctl::set_child_subreaper(true).context("can't become a subreaper (prctl)")?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().thread_name("apinit").enable_all().build()?;
    let to_psched = (psched, network, directory, helper);
    let outcome = runtime.block_on(serve(options, paths, files, apshepherd, lifeline, to_psched));
    // Streams that are still open wait for peers that may never answer.
    runtime.shutdown_timeout(Duration::from_millis(500));
    let everything = outcome?;
    if let Some(member) = member.filter(|_| everything) {
        let (wait, clear) = instance::LEAVE;
        member.leave(wait, clear);
    }
    Ok(())
}

/// Whoever writes to stderr adds to the end of it, if that is a file: apshepherds inherit it, and one of
/// which a log is open in another way can't be brought back from a checkpoint once that has grown.
fn append_to_log() {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    let stderr = std::io::stderr();
    let is_file =
        |stat| rustix::fs::FileType::from_raw_mode(stat) == rustix::fs::FileType::RegularFile;
    if rustix::fs::fstat(&stderr).is_ok_and(|stat| is_file(stat.st_mode))
        && let Ok(flags) = fcntl(&stderr, FcntlArg::F_GETFL)
    {
        // An Err: it is no file that takes it.
        let flags = OFlag::from_bits_truncate(flags) | OFlag::O_APPEND;
        let _ = fcntl(&stderr, FcntlArg::F_SETFL(flags));
    }
}

/// What a user's front ends may have half said. Most launches are small, and all pieces of stdin; an Attach lasts as
/// long as its aprun, of which connections_user_max is the bound.
const HALVES: Limits = Limits {
    small: 128 * 1024,
    large: 8,
    halves: 1_024,
    requests: tokio::sync::Semaphore::MAX_PERMITS,
    headers: HEADERS.0,
};

/// Bytes of one user's connections that are read in a turn: programs and stdin come on them, and
/// few requests.
const PORTION: usize = 32 * 1024;
/// Requests of a user that may wait to be begun: four on each of the usual number of connections.
const WAITING_MAX: usize = 8_192;
/// What the apinits of another host may have half said, which are heads of applications here: a launch with its envelope
/// is their largest message, and as many may come at once as applications are launched there.
const HALVES_OF_HOST: HostLimits =
    HostLimits::new(2 * crate::node::frames::MESSAGE_MAX, 32, network::STREAMS_MAX as usize);

/// How psched and other hosts are reached, the runtime directory, and what signals front ends of a
/// psched on another host.
type ToPsched = (Psched, Option<Arc<Network>>, PathBuf, Option<SignalHelper>);

/// How often it is looked whether the certificate of this host has the role login.
const ROLE_AGAIN: Duration = Duration::from_secs(2);

/// Serves the users of this host until the handle is dropped, and psched's link for their front
/// ends, while its certificate has the role login. Without the role users are told so.
fn for_users(
    network: &Arc<Network>,
    psched: &Psched,
    directory: &Path,
    helper: Option<SignalHelper>,
    bounds: watch::Receiver<Bounds>,
) -> AbortOnDropHandle<()> {
    let (network, psched, directory) = (Arc::clone(network), psched.clone(), directory.to_owned());
    let helper = Arc::new(helper);
    AbortOnDropHandle::new(tokio::spawn(async move {
        let (mut tasks, mut served) = (Vec::new(), None);
        loop {
            let serves = network.has(Role::Login);
            if served.replace(serves) != Some(serves) {
                // (What was passed on with another role ends.)
                tasks.clear();
                let has;
                (tasks, has) = relay::Relay::serve(&network, psched.address(), &directory, &bounds);
                if serves {
                    let directory = directory.clone();
                    let kept = login::keep(psched.clone(), directory, Arc::clone(&helper), has);
                    let away = psched.address().is_some();
                    tasks.extend(away.then(|| AbortOnDropHandle::new(tokio::spawn(kept))));
                } else {
                    tracing::info!(
                        "the certificate of this host has not the role login: its users can't run \
                         applications from here"
                    );
                }
            }
            tokio::time::sleep(ROLE_AGAIN).await;
        }
    }))
}

/// A host without nodes: it serves its users until a signal ends it.
fn login_only(
    options: &Options,
    directory: &Path,
    psched: Psched,
    network: Option<Arc<Network>>,
    helper: Option<SignalHelper>,
) -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let Some(network) = network else { bail!("--psched is missing: name the host of psched") };
    let files = raise_descriptor_limit()
        .inspect_err(|error| tracing::warn!(%error, "can't raise the limit of open files"))
        .unwrap_or(FILES_USUAL);
    // (Such a host does not hear of psched's variables.)
    let HostBounds { connections, connections_user, .. } = HostBounds::default();
    let bounds = Bounds::new(connections, connections_user, files, relay::FILES_EACH);
    let bounds = Bounds { portion: PORTION, ..bounds };
    let (_bounds, bounds) = watch::channel(bounds);
    let runtime =
        tokio::runtime::Builder::new_current_thread().thread_name("apinit").enable_all().build()?;
    let outcome: anyhow::Result<()> = runtime.block_on(async {
        let ends = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
        let [mut term, mut int, mut hup] = ends.map(signal);
        let tasks = for_users(&network, &psched, directory, helper, bounds);
        let follow = keyring::follow(network.keyring());
        let notify = match options.lifeline {
            None => Notify::from_environment(),
            Some(_) => Notify::default(),
        };
        notify.ready();
        let mut beat = notify.beat().map(tokio::time::interval);
        tokio::pin!(follow);
        loop {
            tokio::select! {
                () = wait::tick(&mut beat) => notify.alive(),
                () = &mut follow => {}
                _ = ended(&mut term) => break,
                _ = ended(&mut int) => break,
                _ = ended(&mut hup) => break,
            }
        }
        notify.stopping();
        drop(tasks);
        Ok(())
    });
    runtime.shutdown_timeout(Duration::from_millis(500));
    outcome
}

/// Until this signal comes; for ever if it can't be caught.
async fn ended(signal: &mut std::io::Result<tokio::signal::unix::Signal>) {
    match signal {
        Ok(signal) => {
            signal.recv().await;
        }
        Err(_) => std::future::pending().await,
    }
}

/// Until it ends; whether everything ends with it.
async fn serve(
    options: &Options,
    paths: Paths,
    files: u64,
    apshepherd: shepherds::Program,
    lifeline: Option<OwnedFd>,
    (psched, network, directory, helper): ToPsched,
) -> anyhow::Result<bool> {
    // A socket in a directory of root's is for everybody: who calls is known by the kernel.
    let mode = if nix::unistd::geteuid().is_root() { 0o666 } else { 0o600 };
    let chosen = "apinit's sockets are beside psched's, which --socket names";
    let listener = listen(&paths.own, mode).map_err(|error| error.chosen_by(chosen))?;
    let door = listen_for_descriptors(&beside(&paths.own), mode)
        .map_err(|error| error.chosen_by(chosen))?;
    let runtime = runtime::Runtime::open(paths.apps.clone())?;
    let (task, events) = shell::Task::new(
        options,
        &paths,
        runtime,
        files,
        apshepherd,
        lifeline,
        (psched.clone(), network.clone()),
    )?;
    let mut task = task;
    let connections = incoming_within(listener, task.bounds());
    task.take_up().await;
    let dialling = task.dial();
    let (door_events, askers) = (events.clone(), Askers::default());
    let above = task.shelf().unwrap_or_else(|| paths.apps.clone());
    let doorway = Arc::new(Doorway::new(&above, askers.clone(), task.promised(), events.clone()));
    let others = match &network {
        Some(network) => {
            let served = network.serve(events.clone(), Arc::clone(&doorway))?;
            Some((served, for_users(network, &psched, &directory, helper, task.bounds())))
        }
        None => None,
    };
    let (fronts, heads) = (attach::service(events.clone(), Some(doorway)), heads::service(events));
    let halves = PartialMessages::new(HALVES, HALVES_OF_HOST);
    let headers = halves.clone();
    let server = tonic::transport::Server::builder()
        // What is not yet looked at waits within these, for each connection that there may be.
        .initial_stream_window_size(128 * 1024)
        .initial_connection_window_size(256 * 1024)
        .http2_keepalive_interval(Some(Duration::from_secs(10)))
        .http2_keepalive_timeout(Some(Duration::from_secs(20)))
        // An aprun and a head have one on each connection.
        .max_concurrent_streams(4)
        .layer(InterceptorLayer::new(admitted))
        .layer(MapRequestLayer::new(move |request| headers.headers(request)))
        .layer(RequestTurns::new(WAITING_MAX, HOST_WAITING_MAX))
        .layer(MapRequestLayer::new(move |request| halves.bound(request)))
        .add_service(fronts)
        .add_service(heads)
        .serve_with_incoming(connections);
    let server = tokio::spawn(server);
    let door = tokio::spawn(fd_channel::serve(door, door_events, askers));
    let notify = match options.lifeline {
        None => Notify::from_environment(),
        Some(_) => Notify::default(),
    };
    notify.ready();
    let outcome = task.run(&notify).await;
    drop((dialling, others));
    notify.stopping();
    server.abort();
    door.abort();
    for socket in [paths.own.clone(), beside(&paths.own)] {
        let _ = std::fs::remove_file(socket);
    }
    let everything = outcome == shell::Ending::Everything;
    match outcome {
        shell::Ending::Everything => task.end_everything().await,
        shell::Ending::Alone => task.finish().await,
    }
    Ok(everything)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_directory_that_is_not_there_is_told_with_what_cures_it() {
        let said = |far| {
            let missing =
                Paths::new(Path::new("/no/such"), Nid(0), far).expect_err("it is not there");
            missing.to_string()
        };
        let far = "/no/such is not a directory: make it, or name another one with --runtime";
        assert_eq!(said(true), far);
        let here =
            "/no/such is not a directory: start psched first, or name its socket with --socket";
        assert_eq!(said(false), here);
    }
}
