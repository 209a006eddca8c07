//! psched for real: the loop, the store, the services.
//!
//! ```text
//!  unix socket --> services, links (tonic) --Input--> core (one thread, owns scheduler::Scheduler)
//!                  (threads of their own) <-snapshot-   |  ^
//!                                                Commit v  | Outcome
//!                                                  committer (one thread, owns the store)
//! ```
//!
//! [`run`] puts them together and takes them apart again in bounded time.

mod budget;
mod checkpoints;
mod clock;
pub mod committer;
mod compare;
pub mod core;
mod deposits;
mod fair;
mod front_handle;
mod fronts;
mod input;
mod kept_recordings;
mod links;
mod logins;
mod management;
mod names;
mod network;
pub mod people;
mod private;
mod processes;
mod reading;
mod record_pieces;
mod recordings;
pub mod records;
mod reload;
mod restarts;
mod runs_now;
mod services;
mod serving;
mod stacks;
pub mod store;
mod tune;
mod tuner;
mod turns_view;
mod usage;
mod views;

pub use reload::configuration_of;

#[cfg(test)]
mod tests;

use crate::config::Config;
use crate::node::checkpoint::dir::{KEY_FILE, load_or_make_key};
use crate::os::instance::{self, Member};
use crate::os::notify::Notify;
use crate::os::signal_helper::{SignalHelper, leave_users_to_the_helper};
use crate::psched::decide::tuning::Tuning;
use crate::psched::decide::{Abilities, RollsOut, Scheduler, Settings};
use crate::psched::drive::Identity;
use crate::rpc::arrivals::Arrivals;
use crate::rpc::caller::HOST_WAITING_MAX;
use crate::rpc::partial_messages::{HEADERS, HostLimits, Limits, PartialMessages};
use crate::rpc::request_turns::RequestTurns;
use crate::rpc::{REQUEST_MAX, listen, pb};
use crate::variables::Variables;
use std::os::fd::{OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::{Arc, RwLock};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tonic::service::InterceptorLayer;
use tower::util::{MapRequestLayer, MapResponseLayer};

/// What a user's commands may have half said: requests are small, but for a manifest.
const HALVES: Limits =
    Limits { small: 16 * 1024, large: 8, halves: 256, requests: 2_048, headers: HEADERS.0 };
/// Requests of a user that may wait for their turns, at least.
const WAITING_LEAST: usize = 4_096;
/// HTTP/2's windows, in bytes, of a connection and of a stream: what may wait to be read.
const WINDOW: u32 = 64 * 1024;
/// Inputs that may wait for the loop: whoever has one more waits himself.
const INPUTS_MAX: usize = 8_192;
/// The largest message between psched and an apinit, in bytes, of which each knows that the other is
/// root's or its own user's: an inventory, or what a foreign node holds.
const NODE_MESSAGE_MAX: usize = 64 * 1024 * 1024;
/// What the daemons of another host may have half said: its few apinits have a link each. (The hello of an apinit with
/// 100,000 nodes and the inventory of 65,536 applications take about a megabyte.)
const HALVES_OF_HOST: HostLimits = HostLimits::new(NODE_MESSAGE_MAX, 8, 4_096);
/// Threads that read and write connections of users of this host, and as many for other hosts. Two
/// for the same wake each other all the time, for which each launch paid 4 %; what takes long is
/// for other threads.
const SERVING_THREADS: usize = 1;
/// After how many tasks such a thread takes one from the queue of all threads. What does not fit
/// into its own queue, of 256 tasks, goes there, whoever's it is: with tokio's usual 31 to 127 it
/// would wait for long.
const OVERFLOWN: u32 = 4;
/// Threads for what takes its time or waits for the disk, of which each user may have few.
const BLOCKING_THREADS: usize = 64;
/// How long connections are given when psched ends.
const DRAIN_TIME: Duration = Duration::from_secs(1);
/// How often the configuration is read again while a name in it could not be looked up.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// How long all of that may take: the loop until its last commits are kept, connections, the store.
const END_TIME: Duration = Duration::from_secs(4);

/// The command line of the daemon.
#[derive(Clone, Debug, Default)]
pub struct Arguments {
    /// psched.yaml; none: /etc/psched/psched.yaml.
    pub config: Option<PathBuf>,
    /// The state directory; none: as configured, else /var/lib/psched.
    pub state: Option<PathBuf>,
    /// A pipe at whose end of file everything ends: the private instance is over.
    pub lifeline: Option<RawFd>,
    /// The folder of a private instance: whoever leaves it last removes it.
    pub runtime: Option<PathBuf>,
}

/// The state directory: what the command line says, else what psched.yaml says.
pub fn state_directory(named: Option<&Path>, config: &Config) -> PathBuf {
    let configured = || config.state.as_ref().map(PathBuf::from);
    named.map(Path::to_owned).or_else(configured).unwrap_or_else(|| "/var/lib/psched".into())
}

/// Runs the daemon until a signal ends it. The status: 0 after a signal, 1 when it could not start.
pub fn run(arguments: Arguments) -> ExitCode {
    crate::logging::init_daemon("psched");
    if let Err(error) = crate::os::dispositions::unblock_all() {
        tracing::warn!(%error, "can't unblock signals");
    }
    let outcome = start(&arguments);
    crate::logging::flush();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("psched: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(arguments: &Arguments) -> anyhow::Result<()> {
    // First: it is to have none of psched's files and memory.
    let signals = SignalHelper::start().inspect_err(|error| {
        tracing::warn!(%error, "can't send SIGUSR1 to front ends; they learn of their places \
                                without it");
    });
    // The last member of a private instance ends what is left of it.
    if arguments.runtime.is_none() {
        leave_users_to_the_helper();
    }
    let files = listen::raise_descriptor_limit().unwrap_or_else(|error| {
        tracing::warn!(%error, "can't raise the limit of open files");
        listen::FILES_USUAL
    });
    let config = reload::configuration(arguments)?;
    let state = state_directory(arguments.state.as_deref(), &config);
    let mut store = store::Store::open(&state)?;
    let restored = store.restore()?;
    let (tuning, wrong) = Tuning::new(config.variables.clone(), restored.variables);
    for text in wrong {
        tracing::warn!("{text}");
    }
    let variables = tuning.in_force();
    store.history_max = variables.history_max();
    store.records_user_max.store(variables.records_user_max(), Ordering::Relaxed);
    let identity = Identity {
        store_id: store.id.clone(),
        epoch: store.epoch,
        starts: store.starts.clone(),
        boot_id: crate::os::host::boot_id(),
        kill_grace: variables.kill_grace(),
        checkpoint_key: load_or_make_key(&state.join(KEY_FILE))
            .inspect_err(|why| tracing::warn!("applications can't be checkpointed: {why}"))
            .ok(),
    };
    let state = std::path::absolute(&state).unwrap_or(state);
    tracing::info!(
        store = identity.store_id,
        epoch = identity.epoch,
        applications = restored.teams.len(),
        "psched starts"
    );
    let now = clock::now();
    let (mut scheduler, effects) = Scheduler::restore(
        config.machine.clone(),
        settings(&variables),
        restored.teams,
        restored.boots,
        restored.orders,
        restored.next_apid,
        now,
    );
    scheduler.has_numbers_below(restored.numbers_below);
    scheduler.has_had(now, restored.shares);
    scheduler.started(identity.epoch, identity.start(identity.epoch).unwrap_or_default());
    scheduler.can_not_read(&identity.store_id, &restored.unreadable);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_name("psched")
        .enable_all()
        .build()?;
    // What users ask is read, put together and written beside the loop, not by its thread.
    let serving = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(SERVING_THREADS)
        .global_queue_interval(OVERFLOWN)
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_name("psched-serves")
        .enable_all()
        .build()?;
    // Other hosts must not hold up users of this one.
    let hosts = config.network.map(|_| {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(SERVING_THREADS)
            .global_queue_interval(OVERFLOWN)
            .max_blocking_threads(BLOCKING_THREADS)
            .thread_name("psched-hosts")
            .enable_all()
            .build()
    });
    let hosts = hosts.transpose()?;
    let outcome = runtime.block_on(serve(
        (serving.handle(), hosts.as_ref().map_or(serving.handle(), |hosts| hosts.handle())),
        arguments,
        &config,
        files,
        store,
        identity,
        state,
        (scheduler, effects),
        tuning,
        signals.ok(),
    ));
    if let Some(hosts) = hosts {
        hosts.shutdown_timeout(DRAIN_TIME);
    }
    serving.shutdown_timeout(DRAIN_TIME);
    runtime.shutdown_timeout(DRAIN_TIME);
    outcome
}

#[allow(clippy::too_many_arguments)]
async fn serve(
    (serving, hosts): (&tokio::runtime::Handle, &tokio::runtime::Handle),
    arguments: &Arguments,
    config: &Config,
    files: u64,
    store: store::Store,
    identity: Identity,
    state: PathBuf,
    (scheduler, effects): (Scheduler, Vec<crate::psched::decide::Effect>),
    tuning: Tuning,
    signals: Option<SignalHelper>,
) -> anyhow::Result<()> {
    let socket = match &arguments.runtime {
        // A private instance's is its own, whatever the file says.
        Some(folder) => folder.join(instance::SOCKET_FILE),
        None => socket_path(config),
    };
    // Held until the end: while it is, nobody takes the folder for a dead instance's.
    let member = arguments.runtime.as_deref().map(|folder| {
        Member::join(folder).map_err(|error| {
            anyhow::anyhow!(
                "{} is not the runtime directory of a private instance: {error}; `psched start` \
                 makes one and passes --runtime",
                folder.display()
            )
        })
    });
    let member = member.transpose()?;
    // Signals are caught before the socket is there: whoever sees it may send one.
    let ended = ends(arguments.lifeline)?;
    let mut hup = signal(SignalKind::hangup())?;
    // A private instance's manager is `psched start`.
    let notify = match arguments.lifeline {
        None => Notify::from_environment(),
        Some(_) => Notify::default(),
    };
    let listener = {
        let _serving = serving.enter();
        listen::listen(&socket, 0o666).map_err(|error| error.chosen_by(&chosen_by(arguments)))?
    };
    let (inputs, queue) = mpsc::channel(INPUTS_MAX);
    let (asked, questions) = fair::channel();
    let (back, outcomes) = mpsc::unbounded_channel();
    let database = store.path().to_path_buf();
    let records_user_max = Arc::clone(&store.records_user_max);
    let (hidden, private) = watch::channel(tuning.in_force().private());
    let (away, away_max) = watch::channel(tuning.in_force().login_host_away());
    let (silent, silence) = watch::channel(tuning.in_force().host_silence());
    let durable = store.commits();
    let (commits, trouble, store_thread) = committer::start(store, back)?;
    let variables = tuning.in_force();
    let connections_bounds = watch::Sender::new(bounds(&variables, files));
    let connections = listen::incoming_within(listener, connections_bounds.subscribe());
    let turns = RequestTurns::new(waiting_max(&variables), HOST_WAITING_MAX);
    let waiting = turns.clone();
    let tuned = Arc::new(move |variables: &Variables| {
        waiting.allow(waiting_max(variables));
        records_user_max.store(variables.records_user_max(), Ordering::Relaxed);
        hidden.send_replace(variables.private());
        silent.send_replace(variables.host_silence());
        away.send_replace(variables.login_host_away());
        connections_bounds.send_replace(bounds(variables, files));
    });
    let tuner = tuner::Tuner { tuning, tuned };
    let weak = inputs.downgrade();
    let parts = core::Parts {
        commits,
        trouble: trouble.clone(),
        durable,
        inputs: weak,
        identity: identity.clone(),
        state,
        tuner,
        signals,
        away_max,
    };
    let core = core::Core::begin(scheduler, effects, parts);
    let notify = Arc::new(notify);
    let told = Arc::clone(&notify);
    let mut core = tokio::spawn(async move { core.run(queue, questions, outcomes, &told).await });
    let named = config.clone();
    tokio::task::spawn_blocking(move || people::warn_of_unknown(&named));
    let stop = CancellationToken::new();
    let administrators = Arc::new(RwLock::new(people::administrators(config)));
    let running = Arc::new(RwLock::new(config.clone()));
    let reload = Arc::new(tokio::sync::Mutex::new(reload::Reload {
        arguments: arguments.clone(),
        running: Arc::clone(&running),
        administrators: Arc::clone(&administrators),
        inputs: inputs.clone(),
    }));
    // A private instance is of one host.
    let network = match config.network.filter(|_| arguments.lifeline.is_none()) {
        Some(address) => Some(network::Network::open(address, config)?),
        None => None,
    };
    let questions = processes::Questions::default();
    let service = services::Service {
        asked,
        budgets: budget::Budgets::default(),
        private,
        reload: Arc::clone(&reload),
        store: database,
        administrators: Arc::clone(&administrators),
        identity: identity.clone(),
        trouble: trouble.clone(),
        running: Arc::clone(&running),
        deposits: deposits::Deposits::default(),
        questions: questions.clone(),
        host: network.as_ref().map(|network| network.host().into()).unwrap_or_default(),
    };
    let service =
        pb::psched_server::PschedServer::new(service).max_decoding_message_size(REQUEST_MAX);
    let nodes = Arc::new(links::Nodes {
        inputs: inputs.clone(),
        next: std::sync::atomic::AtomicU64::new(0),
        stop: stop.clone(),
        questions,
        silence,
        lost: links::Lost::default(),
    });
    let nodes =
        pb::nodes_server::NodesServer::from_arc(nodes).max_decoding_message_size(NODE_MESSAGE_MAX);
    let halves = PartialMessages::new(HALVES, HALVES_OF_HOST);
    let headers = {
        let halves = halves.clone();
        move |request| halves.headers(request)
    };
    let bound = move |request| halves.bound(request);
    let network = network.map(|network| {
        let logins = logins::Logins {
            inputs: inputs.clone(),
            next: std::sync::atomic::AtomicU64::new(0),
            stop: stop.clone(),
        };
        let logins = pb::logins_server::LoginsServer::new(logins);
        let services = (nodes.clone(), service.clone(), logins);
        // (Each thread has its own: neither waits for the other's look at all users.)
        let halves = PartialMessages::new(HALVES, HALVES_OF_HOST);
        network.serve(hosts, services, halves, turns.clone(), stop.clone())
    });
    let streams_max = u32::try_from(variables.streams_max()).unwrap_or(u32::MAX);
    let server = |streams_max| {
        tonic::transport::Server::builder()
            // What is not yet looked at waits within these, for each connection that there may be.
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .http2_keepalive_interval(Some(Duration::from_secs(30)))
            .http2_keepalive_timeout(Some(variables.answer_time()))
            .max_concurrent_streams(streams_max)
            .layer(InterceptorLayer::new(listen::admitted))
            .layer(MapRequestLayer::new(headers.clone()))
            .layer(turns.clone())
            .layer(MapRequestLayer::new(bound.clone()))
            .layer(MapRequestLayer::new(Arrivals::of_request))
            .layer(MapResponseLayer::new(budget::metered))
            .add_service(service.clone())
            .add_service(nodes.clone())
    };
    let serving::Split { users, few, own } = serving::split(connections, streams_max);
    let stopped = || stop.clone().cancelled_owned();
    let few_streams = streams_max.min(serving::FEW);
    let mut servers = vec![
        serving.spawn(server(streams_max).serve_with_incoming_shutdown(users, stopped())),
        serving.spawn(server(few_streams).serve_with_incoming_shutdown(few, stopped())),
        tokio::spawn(server(streams_max).serve_with_incoming_shutdown(own, stopped())),
    ];
    servers.extend(network);
    tracing::info!(socket = %socket.display(), "psched answers");
    notify.ready();
    let mut look_again = tokio::time::interval(LOOK_AGAIN);
    look_again.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    look_again.tick().await;
    tokio::pin!(ended);
    let why = loop {
        tokio::select! {
            why = over(&mut ended, &mut core) => break why,
            _ = look_again.tick() => {
                if names::names().missed() {
                    tokio::select! {
                        why = over(&mut ended, &mut core) => break why,
                        () = async { reload.lock().await.names_again().await } => {}
                    }
                }
            }
            _ = hup.recv() => {
                notify.reloading();
                tokio::select! {
                    why = over(&mut ended, &mut core) => break why,
                    () = async { reload.lock().await.hup().await } => notify.ready(),
                }
            }
        }
    };
    notify.stopping();
    tracing::info!("psched ends: {}", why.words());
    stop.cancel();
    let _ = std::fs::remove_file(&socket);
    let over = tokio::time::Instant::now() + END_TIME;
    let stopped = async {
        if why != Why::Loop {
            let _ = inputs.send(input::Input::Stop).await;
            let _ = core.await;
        }
    };
    let _ = tokio::time::timeout_at(over - DRAIN_TIME, stopped).await;
    // A silent peer would hold the server's graceful end for ever.
    let drained = tokio::time::Instant::now() + DRAIN_TIME;
    for server in servers {
        let abort = server.abort_handle();
        if tokio::time::timeout_at(drained, server).await.is_err() {
            abort.abort();
        }
    }
    let written = tokio::task::spawn_blocking(move || store_thread.join());
    let _ = tokio::time::timeout_at(over, written).await;
    if why == Why::Lifeline
        && let Some(member) = member
    {
        // Blocks, and nothing else is left to be done.
        let (wait, clear) = instance::LEAVE;
        member.leave(wait, clear);
    }
    // Without its loop psched answers nobody: an error, so that systemd restarts it.
    anyhow::ensure!(
        why != Why::Loop,
        "the main loop has ended by an internal error; see the log and the recording in the state \
         directory"
    );
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Signal,
    Lifeline,
    /// The loop has panicked.
    Loop,
}

impl Why {
    fn words(&self) -> &'static str {
        match self {
            Why::Signal => "it got a signal",
            Why::Lifeline => "its lifeline was closed",
            Why::Loop => "its main loop has panicked",
        }
    }
}

/// Resolves when psched ends: it is to, or the loop has ended by itself.
async fn over(ended: impl Future<Output = Why>, core: &mut tokio::task::JoinHandle<()>) -> Why {
    tokio::select! {
        biased;
        _ = core => Why::Loop,
        why = ended => why,
    }
}

/// Resolves when psched is to end.
fn ends(lifeline: Option<RawFd>) -> anyhow::Result<impl Future<Output = Why>> {
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    let mut quit = signal(SignalKind::quit())?;
    let pipe = lifeline.map(lifeline_pipe).transpose()?;
    Ok(async move {
        let closed = async {
            match &pipe {
                Some(pipe) => {
                    let _ = pipe.readable().await;
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = term.recv() => Why::Signal,
            _ = int.recv() => Why::Signal,
            _ = quit.recv() => Why::Signal,
            () = closed => Why::Lifeline,
        }
    })
}

/// The read end of a pipe on which nothing is ever written: readable means end of file.
fn lifeline_pipe(fd: RawFd) -> anyhow::Result<tokio::io::unix::AsyncFd<Arc<OwnedFd>>> {
    let pipe = crate::os::inherit::take(fd)
        .map_err(|e| anyhow::anyhow!("--lifeline {fd} can't be used: {e}"))?;
    Ok(crate::os::watch::watch(Arc::new(pipe), tokio::io::Interest::READABLE)?)
}

fn socket_path(config: &Config) -> PathBuf {
    config.listen.as_ref().map_or_else(|| PathBuf::from("/run/psched/psched.sock"), PathBuf::from)
}

/// What says where the socket is.
fn chosen_by(arguments: &Arguments) -> String {
    match &arguments.runtime {
        Some(_) => "--runtime chooses it".into(),
        None => format!(
            "`listening: PATH` in {} chooses the socket; aprun and the other commands then need \
             PSCHED_SOCKET=PATH, and apinit --socket PATH",
            reload::path(arguments).display()
        ),
    }
}

/// A connection takes its socket and its peer's pidfd.
const FILES_EACH: u64 = 2;

/// How many connections there may be.
fn bounds(v: &Variables, files: u64) -> listen::Bounds {
    listen::Bounds::new(v.connections_max(), v.connections_user_max(), files, FILES_EACH)
}

/// Requests of a user that may wait for their turns: an aprun has two.
fn waiting_max(v: &Variables) -> usize {
    usize::try_from(v.connections_user_max().saturating_mul(2))
        .unwrap_or(usize::MAX)
        .max(WAITING_LEAST)
}

fn settings(v: &Variables) -> Settings {
    let own = rustix::process::geteuid().as_raw();
    let abilities = Abilities { moves: true, says: true, roll_out: RollsOut::AtHome };
    Settings {
        only_uid: (own != 0).then_some(own),
        utc_offset: utc_offset(),
        abilities,
        keeps_shares: true,
        ..v.into()
    }
}

/// Seconds by which the local time is ahead of UTC now.
fn utc_offset() -> i32 {
    jiff::tz::TimeZone::system().to_offset(jiff::Timestamp::now()).seconds()
}
