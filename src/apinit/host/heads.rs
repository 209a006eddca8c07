//! Heads, which are other hosts' apinits: the Peers service.

use super::attach::{listen_to, next_conn};
use super::events::{Events, TaskEvent};
use super::programs::{self, Places};
use super::stream_sender::{HEAD_WORDS_MAX, Head, StreamSender};
use crate::apteam::protocol::programs::{ProgramOf, WantedProgram, name_of};
use crate::certs::Role;
use crate::node::frames::MESSAGE_MAX;
use crate::rpc::listen::Peer;
use crate::rpc::pb;
use crate::rpc::pb::peers_server::{Peers, PeersServer};
use crate::rpc::tls::HostPeer;
use std::pin::Pin;
use tokio::sync::oneshot;
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

/// The service, which tells these events. A launch comes with its envelope.
pub(super) fn service(events: Events) -> PeersServer<RelayService> {
    let service = RelayService { events, places: Places::default() };
    PeersServer::new(service).max_decoding_message_size(2 * MESSAGE_MAX)
}

/// The user who calls, the host by its certificate (empty: this one), and what ends the connection. The apinit of
/// another host counts as the user of this one: psched has started both.
fn caller<T>(request: &Request<T>) -> Result<(u32, String, CancellationToken), Status> {
    if let Some(host) = request.extensions().get::<HostPeer>() {
        host.needs(Role::Node, "launch applications on this host")?;
        let uid = rustix::process::geteuid().as_raw();
        return Ok((uid, host.name.to_string(), host.hang_up.clone()));
    }
    let peer = request.extensions().get::<Peer>();
    let unknown = || Status::internal("the kernel does not report the caller's user id");
    let peer = peer.ok_or_else(unknown)?;
    Ok((peer.uid, String::new(), peer.hang_up.clone()))
}

pub(super) struct RelayService {
    events: Events,
    places: Places,
}

#[tonic::async_trait]
impl Peers for RelayService {
    type RelayStream = Pin<Box<dyn Stream<Item = Result<pb::FromPeer, Status>> + Send>>;

    async fn relay(
        &self,
        request: Request<Streaming<pb::ToPeer>>,
    ) -> Result<Response<Self::RelayStream>, Status> {
        let (uid, host, hang_up) = caller(&request)?;
        let conn = next_conn();
        let (sender, told) = StreamSender::new(hang_up, HEAD_WORDS_MAX);
        let over = CancellationToken::new();
        let listening = over.clone().drop_guard();
        let head = Head::new(sender, listening);
        let opened = TaskEvent::HeadOpened { conn, uid, host, head };
        let events = self.events.clone();
        let gone = |_| Status::unavailable("apinit is ending");
        events.send(opened).await.map_err(gone)?;
        let read = move |message: pb::ToPeer| {
            message.message.is_some().then(|| Ok(TaskEvent::HeadSaid(conn, message.try_into()?)))
        };
        let listens = listen_to(conn, request.into_inner(), events, read);
        tokio::spawn(over.run_until_cancelled_owned(listens));
        Ok(Response::new(Box::pin(told)))
    }

    type FetchStream = Pin<Box<dyn Stream<Item = Result<pb::FetchPiece, Status>> + Send>>;

    async fn fetch(
        &self,
        request: Request<pb::FetchRequest>,
    ) -> Result<Response<Self::FetchStream>, Status> {
        let (uid, host, _) = caller(&request)?;
        if !nix::unistd::Uid::from_raw(uid).is_root() && uid != rustix::process::geteuid().as_raw()
        {
            return Err(Status::permission_denied("programs are for other apinits"));
        }
        let wrong = |text: String| Status::invalid_argument(text);
        let pb::FetchRequest { program, size, name, offset } = request.into_inner();
        let of = program.ok_or_else(|| wrong("it does not say which program".into()))?;
        let of = ProgramOf::try_from(of).map_err(|e| wrong(e.to_string()))?;
        let name = name_of(&name).filter(|own| own.len() == name.len());
        let name = name.ok_or_else(|| wrong("its name is no name of a file".into()))?.to_vec();
        let program = WantedProgram { part: of.part, size, name };
        let (answers, answer) = oneshot::channel();
        let gone = || Status::unavailable("apinit is ending");
        let asked = TaskEvent::ProgramAsked(of, program, answers);
        self.events.send(asked).await.map_err(|_| gone())?;
        let copy = answer.await.map_err(|_| gone())?;
        let copy = copy.ok_or_else(|| Status::not_found("it has no such program"))?;
        let place = self.places.take(&host).ok_or_else(|| {
            Status::resource_exhausted("too many programs are passed on from here just now")
        })?;
        if copy.program.size != size || offset > size {
            return Err(wrong(format!("the program has {} bytes", copy.program.size)));
        }
        Ok(Response::new(Box::pin(programs::give(copy, offset, place))))
    }
}
