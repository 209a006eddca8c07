//! The conversation with psched: the posting and its events, looks and kills.
//!
//! Everything runs in tasks, whose outcome goes to the loop as a [`Note`]; what an older connection
//! still has to say is told apart by its number.

use super::note::{Note, Store};
use crate::aprun::decide::closing::Ended;
use crate::aprun::decide::session::{
    Ask, Event, FIRST_PATIENCE_NS, Looked, Placement, PschedEvent, Retried,
};
use crate::apteam::Apid;
use crate::apteam::ending::HostEnd;
use crate::apteam::launch::Launch;
use crate::machine::Nid;
use crate::os::host::monotonic_ns;
use crate::rpc::connect::{ConnectError, connect_to_process, status_text};
use crate::rpc::convert::places_of;
use crate::rpc::listen::is_absent;
use crate::rpc::node_list::nodes_by_pages;
use crate::rpc::{Malformed, pb};
use crate::variables::units::nanos;
use pb::application_event::Event::Accepted;
use pb::psched_client::PschedClient;
use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::Sender;
use tokio::time::{sleep, timeout};
use tonic::transport::Channel;
use tonic::{Code, Status};

/// How long aprun waits for psched on the machine's socket while psched is away: an upgrade takes
/// seconds.
const SYSTEM_PATIENCE: Duration = Duration::from_secs(60);

/// How long psched may take to tell its nodes, a page at a time, and how soon it is asked again.
const ANSWER_WAIT: Duration = Duration::from_secs(30);
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// The largest page, in bytes.
const HOSTS_MAX: usize = 64 << 20;

/// How long a psched that does not answer on this socket is waited for: as long as `given` says, else
/// [`SYSTEM_PATIENCE`] where psched's units have made the socket's folder, which stays while psched is
/// restarted or upgraded. `None`: a few seconds, and not at all where there is no socket.
pub fn patience(socket: &Path, given: Option<Duration>) -> Option<Duration> {
    let of_system = socket.starts_with("/run") && !socket.starts_with("/run/user");
    let made = || of_system && socket.parent().is_some_and(Path::exists);
    given.or_else(|| made().then_some(SYSTEM_PATIENCE))
}

/// Connects, asks for events, and passes them on until the stream ends. `waits`: a socket that is not
/// there may come.
pub async fn events(
    link: u32,
    socket: PathBuf,
    waits: bool,
    ask: Ask,
    request: pb::PostRequest,
    store: Store,
    notes: Sender<Note>,
) {
    let tell = async |event| {
        let _ = notes.send(Note::Psched { link, event }).await;
    };
    let (channel, pid) = match connect_to_process(&socket).await {
        Ok(connected) => connected,
        Err(error) => return tell(down(&socket, &error, waits)).await,
    };
    let mut client = PschedClient::new(channel.clone());
    let _ = notes.send(Note::Channel { link, channel }).await;
    tell(Event::PschedUp { pid }).await;
    let stream = match ask {
        Ask::Post => client.post(request).await,
        Ask::Watch(apid) => {
            let Store { id: store_id, epoch, start_id } = store;
            let request_id = request.request_id;
            let apid = apid.0;
            let request = pb::WatchRequest {
                apid,
                store_id,
                epoch,
                request_id,
                start_id,
                signal: request.signal,
            };
            client.watch(request).await
        }
    };
    let mut stream = match stream {
        Ok(stream) => stream.into_inner(),
        Err(status) => return tell(refused(status)).await,
    };
    loop {
        let message = stream.message().await;
        if let Ok(Some(pb::ApplicationEvent { event: Some(Accepted(accepted)) })) = &message {
            let pb::Accepted { store_id, epoch, start_id, .. } = accepted.clone();
            let store = Store { id: store_id, epoch, start_id };
            let _ = notes.send(Note::Store(store)).await;
        }
        let event = match message {
            Ok(Some(message)) => match event(message) {
                Ok(Some(event)) => Event::Psched(event),
                Ok(None) => continue,
                Err(error) => {
                    lost(format!("psched sent a message that aprun can't decode: {error}"))
                }
            },
            Ok(None) => lost("psched closed the connection".to_owned()),
            Err(status) => refused(status),
        };
        let last = !matches!(event, Event::Psched(_));
        tell(event).await;
        if last {
            return;
        }
    }
}

fn lost(text: String) -> Event {
    Event::PschedDown { text, absent: false, answered: false }
}

fn down(socket: &Path, error: &ConnectError, waits: bool) -> Event {
    // A socket that is there and that nobody listens on is one of a psched that is being
    // restarted, perhaps. One that is not there is the wrong one, or there is no psched.
    let absent = !error.may_pass()
        || matches!(error, ConnectError::NobodyAnswers(_) if !waits && is_absent(socket));
    Event::PschedDown { text: error.to_string(), absent, answered: false }
}

/// Whether psched itself has said no for good, or is only away.
fn refused(status: Status) -> Event {
    let from_psched = status.source().is_none();
    let code = status.code();
    let text = status_text(status);
    let for_good = !matches!(
        code,
        Code::Unavailable
            | Code::Cancelled
            | Code::Unknown
            | Code::Aborted
            | Code::DeadlineExceeded
    );
    match (from_psched, for_good) {
        (true, true) => Event::PschedRefused(text),
        (true, false) => Event::PschedDown { text, absent: false, answered: true },
        (false, _) => lost(text),
    }
}

/// Asks for the placement.
pub async fn look(link: u32, channel: Channel, apid: Apid, notes: Sender<Note>) {
    let reply = PschedClient::new(channel).look(pb::LookRequest { apid: apid.0 }).await;
    let looked = match reply {
        Ok(reply) => answer(reply.into_inner()).unwrap_or_else(|e| Looked::Failed(e.to_string())),
        Err(status) => Looked::Failed(status_text(status)),
    };
    let _ = notes.send(Note::Psched { link, event: Event::Looked(looked) }).await;
}

/// Asks to withdraw. Whatever the answer, there is nothing else to be done about it.
pub async fn kill(link: u32, channel: Channel, apid: Apid, signal: i32, notes: Sender<Note>) {
    let request = pb::KillRequest { apids: vec![apid.0], signal };
    if let Err(status) = PschedClient::new(channel).kill(request).await {
        tracing::debug!(%apid, "psched did not take the kill: {}", status_text(status));
    }
    let _ = notes.send(Note::Psched { link, event: Event::Killed }).await;
}

/// Says what would be launched. Whoever wants to know it says that it did not come.
pub async fn deposit(channel: Channel, apid: Apid, launch: Launch) {
    let request = pb::DepositRequest { apid: apid.0, launch: Some(launch.into()) };
    if let Err(status) = PschedClient::new(channel).deposit(request).await {
        tracing::debug!(%apid, "psched did not take the launch: {}", status_text(status));
    }
}

/// The nodes of the machine, each with its host. A psched that is away is waited for: so long, else for some
/// seconds where there is a socket.
pub async fn hosts(
    socket: &Path,
    patience: Option<Duration>,
) -> Result<Vec<(Nid, String)>, String> {
    let until = Instant::now() + patience.unwrap_or(Duration::from_nanos(FIRST_PATIENCE_NS));
    loop {
        let (text, passes) = match ask_for_hosts(socket).await {
            Ok(nodes) => return Ok(nodes),
            Err(failed) => failed,
        };
        let comes = passes && (patience.is_some() || !is_absent(socket));
        if !comes || Instant::now() >= until {
            return Err(text);
        }
        sleep(ASK_AGAIN).await;
    }
}

/// (Err: why not, and whether it may be otherwise in a moment.)
async fn ask_for_hosts(socket: &Path) -> Result<Vec<(Nid, String)>, (String, bool)> {
    let channel = connect_to_process(socket).await;
    let (channel, _) = channel.map_err(|error| (error.to_string(), error.may_pass()))?;
    let mut client = PschedClient::new(channel).max_decoding_message_size(HOSTS_MAX);
    nodes_by_pages(async |request| {
        let asked = timeout(ANSWER_WAIT, client.list(request)).await;
        let late = |_| ("psched does not answer".to_owned(), true);
        let reply = asked.map_err(late)?.map_err(|status| {
            let passes = status.source().is_some() || status.code() == Code::Unavailable;
            (status_text(status), passes)
        })?;
        Ok(reply.into_inner())
    })
    .await
}

/// Asks where it would go.
pub async fn dry_run(socket: &Path, request: pb::PostRequest) -> Result<Looked, String> {
    let (channel, _) = connect_to_process(socket).await.map_err(|e| e.to_string())?;
    let reply = PschedClient::new(channel).dry_run(request).await.map_err(status_text)?;
    answer(reply.into_inner()).map_err(|e| e.to_string())
}

/// An event; `None`: of a kind that this release does not know.
fn event(message: pb::ApplicationEvent) -> Result<Option<PschedEvent>, Malformed> {
    use pb::application_event::Event as Wire;
    let Some(event) = message.event else { return Ok(None) };
    Ok(Some(match event {
        Wire::Accepted(accepted) => PschedEvent::Accepted(Apid(accepted.apid)),
        Wire::Placed(placed) => PschedEvent::Placed(placed.incarnation),
        Wire::Launched(_) => PschedEvent::Launched,
        Wire::AskLaunch(_) => PschedEvent::AskLaunch,
        Wire::Ended(end) => PschedEvent::Ended(Box::new(ended(end)?)),
        Wire::Waiting(why) => PschedEvent::Waiting(why.try_into()?),
        Wire::Retried(pb::Retried { incarnation, cause, attempt, most }) => {
            let cause = cause.ok_or_else(|| Malformed::new("Retried", "cause", "it is missing"))?;
            let cause = cause.try_into()?;
            PschedEvent::Retried(Retried { incarnation, cause, attempt, most })
        }
    }))
}

fn answer(reply: pb::LookReply) -> Result<Looked, Malformed> {
    use pb::look_reply::Answer;
    Ok(match reply.answer {
        Some(Answer::Placement(placement)) => {
            Looked::Placement(Box::new(self::placement(placement)?))
        }
        Some(Answer::Waiting(why)) => Looked::Waiting(why.try_into()?),
        Some(Answer::Ended(end)) => Looked::Ended(Box::new(ended(end)?)),
        None => return Err(Malformed::new("LookReply", "answer", "it is missing")),
    })
}

fn placement(wire: pb::Placement) -> Result<Placement, Malformed> {
    let hosts = wire.hosts.into_iter().map(TryInto::try_into).collect::<Result<_, Malformed>>()?;
    // A dry run has neither key nor ticket.
    let ticket = match wire.ticket.len() {
        0 => [0; 16],
        _ => wire.ticket[..]
            .try_into()
            .map_err(|_| Malformed::new("Placement", "ticket", "it has to be 16 bytes"))?,
    };
    Ok(Placement {
        key: wire.key.map(TryInto::try_into).transpose()?.unwrap_or_default(),
        places: places_of(wire.places, wire.place_runs)?,
        hosts,
        ticket: crate::apteam::Ticket(ticket),
        front_host: wire.front_host,
    })
}

/// An end, whose times are of this host's clock: that of psched's host may have begun at any other time.
fn ended(mut wire: pb::Ended) -> Result<Ended, Malformed> {
    let by_name = std::mem::take(&mut wire.by_name);
    let ago = wire.ago_ms.map(Duration::from_millis);
    let (status, mut end): (u8, HostEnd) = wire.try_into()?;
    if let (Some(ago), Some(first)) = (ago, &mut end.first) {
        first.at_ns = monotonic_ns().saturating_sub(nanos(ago));
    }
    Ok(Ended { status, end, told: false, by_name, host: String::new(), no_copy: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// psched's host has been up for a day more than this one, or for a day less.
    #[test]
    fn an_end_is_told_by_the_clock_of_this_host() {
        let now = monotonic_ns();
        for at_mono_ns in [now + 86_400_000_000_000, 1] {
            let cause = pb::Cause { kind: pb::cause::Kind::FrontGone.into(), ..Default::default() };
            let first = Some(pb::Decisive { at_mono_ns, cause: Some(cause) });
            let key = Some(pb::ApplicationKey { apid: 7, incarnation: 1 });
            let end = Some(pb::HostEnd { key, first, ..Default::default() });
            let told = |ago_ms| {
                let wire =
                    pb::Ended { status: 137, end: end.clone(), ago_ms, ..Default::default() };
                ended(wire).expect("read").end.first.expect("told").at_ns
            };
            let ago = told(Some(5)).abs_diff(now.saturating_sub(5_000_000));
            assert!(ago < 1_000_000_000, "{ago}");
            // A psched of the release before does not say.
            assert_eq!(told(None), at_mono_ns);
        }
    }
}
