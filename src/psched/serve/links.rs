//! The service Nodes: the streams of apinits.

use super::input::Input;
use super::processes::Questions;
use super::services::caller;
use crate::apteam::posting::cut;
use crate::apteam::protocol::node::{Foreign, Hello, Report};
use crate::apteam::silence::Silence;
use crate::certs::Role;
use crate::machine::format_nids;
use crate::os::host::monotonic_ns;
use crate::psched::decide::{Event, LinkId};
use crate::rpc::arrivals::Arrivals;
use crate::rpc::connect::heard_text;
use crate::rpc::pb;
use crate::rpc::tls::HostPeer;
use crate::variables::units::format_duration;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

/// Commands that may wait for an apinit that does not read: several for each application that it may
/// hold. One that leaves more lying is hung up on, and its next inventory puts all right.
const COMMANDS_MAX: usize = 16_384;

/// The service.
pub struct Nodes {
    /// Into the loop.
    pub inputs: mpsc::Sender<Input>,
    /// Counts links.
    pub next: AtomicU64,
    /// psched ends.
    pub stop: CancellationToken,
    /// What apinits are asked beside the loop.
    pub questions: Questions,
    /// How long an apinit may say nothing before it is taken for cut off.
    pub silence: watch::Receiver<Duration>,
    /// The apinits that have gone and not come back.
    pub lost: Lost,
}

/// Apinits that have gone and not come back, as the log names them, by their host.
#[derive(Clone, Debug, Default)]
pub struct Lost(Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>);

impl Lost {
    /// The most of a host, and the bytes of a name: what an apinit says of itself has no other bound here. What goes
    /// beyond is not said to have come back.
    const MOST: (usize, usize) = (64, 200);

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, BTreeSet<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn name(host: &str, nids: &str) -> String {
        let shown: String = nids.chars().take(Self::MOST.1).collect();
        let more = if shown.len() < nids.len() { "..." } else { "" };
        let nids = if shown.contains([',', '-']) { "NIDs" } else { "NID" };
        match host {
            "" => format!("the apinit of {nids} {shown}{more}"),
            _ => format!("the apinit of {nids} {shown}{more} (host {host})"),
        }
    }

    fn add(&self, (host, apinit): (String, String)) {
        let mut all = self.all();
        let of_host = all.entry(host).or_default();
        if of_host.len() < Self::MOST.0 {
            of_host.insert(apinit);
        }
    }

    fn found(&self, (host, apinit): &(String, String)) -> bool {
        self.all().get_mut(host).is_some_and(|of_host| of_host.remove(apinit))
    }
}

/// Whether an apinit is there, for the log.
struct Presence {
    lost: Lost,
    /// Its host, and its name in the log, once it has said what it has.
    apinit: Option<(String, String)>,
    /// Its host, if that is another one.
    host: Option<HostPeer>,
}

impl Presence {
    fn is_there(&mut self, apinit: &(String, String)) {
        if self.lost.found(apinit) {
            tracing::warn!("{} is back", apinit.1);
        }
        self.apinit = Some(apinit.clone());
    }

    fn is_revoked(&self) -> bool {
        self.host.as_ref().is_some_and(HostPeer::is_revoked)
    }

    fn ended(self, link: LinkId, how: Result<(), Status>) {
        let why = how.err().map(heard_text);
        let revoked = self.is_revoked();
        match self.apinit {
            Some(apinit) => {
                let why = match revoked {
                    true => "the certificate of its host has been revoked".to_owned(),
                    false => why.unwrap_or_else(|| "it has closed its connection".to_owned()),
                };
                tracing::warn!("{} has gone: {why}; its nodes are suspect", apinit.1);
                self.lost.add(apinit);
            }
            None => tracing::info!(link = link.0, why, "an apinit's connection has ended"),
        }
    }
}

#[tonic::async_trait]
impl pb::nodes_server::Nodes for Nodes {
    type LinkStream = Pin<Box<dyn Stream<Item = Result<pb::ToNode, Status>> + Send>>;

    async fn link(
        &self,
        request: Request<Streaming<pb::FromNode>>,
    ) -> Result<Response<Self::LinkStream>, Status> {
        let from = Caller::of(&request)?;
        let link = LinkId(self.next.fetch_add(1, Ordering::Relaxed) + 1);
        let (sender, receiver) = mpsc::channel(COMMANDS_MAX);
        let (inputs, stop) = (self.inputs.clone(), self.stop.clone());
        let questions = self.questions.clone();
        let host = request.extensions().get::<HostPeer>().cloned();
        let incoming = Heard::new(request, self.silence.clone());
        let lost = self.lost.clone();
        tokio::spawn(async move {
            let mut presence = Presence { lost, apinit: None, host };
            let talk = listen(incoming, link, from, sender, &inputs, &questions, &mut presence);
            tokio::select! {
                ended = talk => {
                    if presence.is_revoked() {
                        let _ = inputs.send(Input::Event(Box::new(Event::Revoked { link }))).await;
                    }
                    presence.ended(link, ended);
                }
                () = stop.cancelled() => {}
            }
            questions.closed(link);
            let _ = inputs.send(Input::Event(Box::new(Event::LinkClosed { link }))).await;
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}

/// An apinit, as the kernel or its host's certificate has it.
enum Caller {
    /// Of psched's own host, with its pid.
    Here(i32),
    /// Of the host of this name, at this address.
    Host(Arc<str>, IpAddr),
}

impl Caller {
    /// The caller of a request.
    fn of<T>(request: &Request<T>) -> Result<Caller, Status> {
        if let Some(host) = request.extensions().get::<HostPeer>() {
            host.needs(Role::Node, "offer nodes")?;
            return Ok(Caller::Host(Arc::clone(&host.name), host.address.ip()));
        }
        let peer = caller(request)?;
        let own = rustix::process::geteuid().as_raw();
        match peer.uid == 0 || peer.uid == own {
            true => Ok(Caller::Here(peer.pid)),
            false => Err(Status::permission_denied(format!(
                "only root and user {own} may offer nodes to this psched; this apinit runs as user {}",
                peer.uid
            ))),
        }
    }

    /// What it says of itself, with what it can't say itself.
    fn introduces(&self, hello: Hello) -> Hello {
        let port = |hello: &Hello| hello.address.strip_prefix(':').map(str::to_owned);
        match self {
            Caller::Here(pid) => {
                let address = match port(&hello) {
                    Some(port) => format!("{}:{port}", hello.host),
                    None => hello.address.clone(),
                };
                Hello { pid: *pid, address, ..hello }
            }
            Caller::Host(name, ip) => {
                let address = match port(&hello).and_then(|port| port.parse().ok()) {
                    Some(port) => SocketAddr::new(*ip, port).to_string(),
                    None => hello.address.clone(),
                };
                Hello { host: name.to_string(), address, remote: true, ..hello }
            }
        }
    }
}

/// What comes from an apinit, as long as it is not silent for too long.
struct Heard {
    incoming: Streaming<pb::FromNode>,
    arrivals: Arrivals,
    silence: watch::Receiver<Duration>,
}

impl Heard {
    fn new(
        incoming: Request<Streaming<pb::FromNode>>,
        silence: watch::Receiver<Duration>,
    ) -> Heard {
        let arrivals = incoming.extensions().get::<Arrivals>().cloned().unwrap_or_default();
        Heard { incoming: incoming.into_inner(), arrivals, silence }
    }

    /// The next message.
    async fn message(&mut self) -> Result<Option<pb::FromNode>, Status> {
        let mut silence = Silence::new(*self.silence.borrow());
        // (What had come with the message before counts no more.)
        self.arrivals.any();
        loop {
            let bound = *self.silence.borrow();
            silence.allow(bound);
            if let Ok(message) = timeout(silence.every(), self.incoming.message()).await {
                return message;
            }
            match self.arrivals.any() {
                true => silence.heard(),
                false => silence.beat(),
            }
            if silence.is_over() {
                let silence = format_duration(bound);
                let why = format!("it was silent for {silence} (host_silence)");
                return Err(Status::deadline_exceeded(why));
            }
        }
    }
}

async fn listen(
    mut incoming: Heard,
    link: LinkId,
    from: Caller,
    sender: super::input::LinkSender,
    inputs: &mpsc::Sender<Input>,
    questions: &Questions,
    presence: &mut Presence,
) -> Result<(), Status> {
    let closed = sender.downgrade();
    let mut sender = Some(sender);
    let mut apinit = (String::new(), String::new());
    loop {
        let Some(message) = incoming.message().await?.and_then(|m| m.message) else {
            return Ok(());
        };
        if closed.upgrade().is_none() {
            // The loop has let this link go.
            return Ok(());
        }
        let input = match (message, sender.take()) {
            (pb::from_node::Message::Hello(hello), Some(sender)) => {
                let hello = from.introduces(Hello::try_from(hello).map_err(malformed)?);
                let nids = format_nids(hello.nids.iter().copied());
                let (pid, host) = (hello.pid, &hello.host);
                apinit = (host.clone(), Lost::name(host, &nids));
                let nids = cut(nids, Lost::MOST.1);
                tracing::info!(link = link.0, pid, host, nids, "an apinit has connected");
                questions.linked(link, &sender, hello.stacks);
                Input::LinkOpened { link, hello: Box::new(hello), sender }
            }
            (_, Some(_)) => {
                return Err(Status::failed_precondition("the first message must be a hello"));
            }
            (pb::from_node::Message::Inventory(inventory), None) => {
                let items = inventory.try_into().map_err(malformed)?;
                presence.is_there(&apinit);
                Input::Event(Box::new(Event::Inventory { link, items }))
            }
            (pb::from_node::Message::Foreign(foreign), None) => {
                let foreign = Box::new(Foreign::try_from(foreign).map_err(malformed)?);
                Input::Event(Box::new(Event::Foreign { link, foreign }))
            }
            (pb::from_node::Message::Notes(notes), None) => {
                let (notes, roll_out, clock) = notes.try_into().map_err(malformed)?;
                Input::Event(Box::new(Event::Noted { link, notes, roll_out, clock }))
            }
            (pb::from_node::Message::Clock(pb::ClockQuestion { asked_ns }), None) => {
                // Not by the loop: what it does meanwhile would be taken for time on the way.
                let told_ns = monotonic_ns();
                let clock = Some(pb::ClockAnswer { asked_ns, received_ns: told_ns, told_ns });
                if let Some(sender) = closed.upgrade() {
                    // (An Err: it does not read, which the loop notices.)
                    let _ = sender.try_send(Ok(pb::ToNode { clock, ..Default::default() }));
                }
                continue;
            }
            (pb::from_node::Message::Processes(answer), None) => {
                questions.answered(link, answer.try_into().map_err(malformed)?);
                continue;
            }
            (pb::from_node::Message::Stacks(answer), None) => {
                questions.told_stacks(link, answer.try_into().map_err(malformed)?);
                continue;
            }
            (pb::from_node::Message::Report(report), None) => {
                let report = Box::new(Report::try_from(report).map_err(malformed)?);
                Input::Event(Box::new(Event::Report { link, report }))
            }
            (pb::from_node::Message::Heartbeat(_), None) => {
                // Answered at once: by this an apinit knows that psched hears it.
                if let Some(sender) = closed.upgrade() {
                    let _ = sender.try_send(Ok(pb::ToNode::default()));
                }
                Input::Beat(link)
            }
            (pb::from_node::Message::Hello(_), None) => {
                return Err(Status::failed_precondition("apinit sent a second hello"));
            }
        };
        if inputs.send(input).await.is_err() {
            return Ok(());
        }
    }
}

fn malformed(error: crate::rpc::Malformed) -> Status {
    Status::invalid_argument(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::bodies;
    use prost::Message as _;
    use tonic::codec::Codec as _;
    use tonic::codegen::http;

    #[test]
    fn an_apinit_of_one_node_is_named_by_its_nid() {
        assert_eq!(Lost::name("h1", "1"), "the apinit of NID 1 (host h1)");
        assert_eq!(Lost::name("", "0-3"), "the apinit of NIDs 0-3");
        assert_eq!(Lost::name("", "0,2"), "the apinit of NIDs 0,2");
    }

    /// A message of a slow connection takes longer than the other side may be silent.
    #[tokio::test(start_paused = true)]
    async fn a_part_of_a_message_is_a_sign_of_life() {
        let (parts, incoming) = mpsc::unbounded_channel();
        let (_silence, silence) = watch::channel(Duration::from_secs(6));
        let request = Arrivals::of_request(http::Request::new(bodies::channel(incoming)));
        let (head, body) = request.into_parts();
        let decoder = tonic_prost::ProstCodec::<pb::ToNode, pb::FromNode>::default().decoder();
        let mut request = Request::new(Streaming::new_request(decoder, body, None, None));
        *request.extensions_mut() = head.extensions;
        let mut heard = Heard::new(request, silence);

        let notes = pb::NodeNotes { clock_at_ns: u64::MAX, ..Default::default() };
        let message = Some(pb::from_node::Message::Notes(notes));
        let message = pb::FromNode { message }.encode_to_vec();
        let mut bytes = vec![0];
        bytes.extend((message.len() as u32).to_be_bytes());
        bytes.extend(message);
        let sender = tokio::spawn(async move {
            for byte in bytes {
                tokio::time::sleep(Duration::from_secs(5)).await;
                parts.send(vec![byte].into()).expect("it reads");
            }
            parts
        });
        let begun = tokio::time::Instant::now();
        assert!(heard.message().await.is_ok_and(|message| message.is_some()));
        assert!(begun.elapsed() >= Duration::from_secs(60), "{:?}", begun.elapsed());
        let _parts = sender.await.expect("it ends");
        let begun = tokio::time::Instant::now();
        let silent = heard.message().await.expect_err("nothing comes any more");
        assert_eq!(silent.message(), "it was silent for 6s (host_silence)");
        assert!(begun.elapsed() <= Duration::from_secs(7), "{:?}", begun.elapsed());
    }
}
