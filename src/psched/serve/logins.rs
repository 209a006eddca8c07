//! Login hosts: what their apinits say of the front ends that wait there.
//!
//! psched names the processes that it waits for; the apinit of their host watches them, says which
//! have ended, and sends SIGUSR1. After a break of the connection psched names all of them again, so
//! that none is lost; processes of a former boot of the host have ended.

use super::input::Input;
use crate::apteam::record::FrontProcess;
use crate::certs::Role;
use crate::psched::decide::login_hosts::LoginSays;
use crate::rpc::caller::FOLDER_MAX;
use crate::rpc::pb;
use crate::rpc::tls::HostPeer;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

/// Messages that may wait for a login host that does not read. One that leaves more lying is hung up
/// on, and hears everything again on its next connection.
const QUEUE: usize = 4_096;
/// Processes in one message.
const PROCESSES_MAX: usize = 65_536;
/// The longest boot id, in bytes.
const BOOT_MAX: usize = 64;

/// What comes of it for the loop.
pub struct LoginEvent {
    /// What has happened.
    pub says: LoginSays,
    /// Towards the host, if it has connected.
    pub sender: Option<LoginSender>,
}

impl From<LoginSays> for LoginEvent {
    fn from(says: LoginSays) -> LoginEvent {
        LoginEvent { says, sender: None }
    }
}

/// Towards the apinit of a login host.
#[derive(Clone, Debug)]
pub struct LoginSender {
    messages: mpsc::Sender<Result<pb::ToLogin, Status>>,
    hang_up: CancellationToken,
    refused: CancellationToken,
}

impl LoginSender {
    /// One, and what goes to the host.
    pub fn new() -> (LoginSender, mpsc::Receiver<Result<pb::ToLogin, Status>>) {
        let (messages, receiver) = mpsc::channel(QUEUE);
        let (hang_up, refused) = Default::default();
        (LoginSender { messages, hang_up, refused }, receiver)
    }

    /// Names processes that psched waits for.
    pub fn watch<'a>(&self, processes: impl IntoIterator<Item = &'a FrontProcess>) {
        let processes: Vec<pb::FrontEnd> = processes.into_iter().map(wire).collect();
        for processes in processes.chunks(PROCESSES_MAX) {
            let processes = processes.to_vec();
            self.send(pb::to_login::Message::Watched(pb::FrontEnds { processes }));
        }
    }

    /// Has SIGUSR1 sent to a process, with the rights of this user.
    pub fn nudge(&self, process: &FrontProcess, uid: u32) {
        let process = Some(wire(process));
        self.send(pb::to_login::Message::Nudge(pb::Nudge { process, uid }));
    }

    /// Ends the connection, and says why.
    pub fn refuse(&self, why: &str) {
        let _ = self.messages.try_send(Err(Status::failed_precondition(why)));
        self.refused.cancel();
    }

    fn send(&self, message: pb::to_login::Message) {
        if self.messages.try_send(Ok(pb::ToLogin { message: Some(message) })).is_err() {
            self.hang_up.cancel();
        }
    }
}

fn wire(process: &FrontProcess) -> pb::FrontEnd {
    pb::FrontEnd { pid: process.pid, started: process.started }
}

/// The service.
pub struct Logins {
    /// Into the loop.
    pub inputs: mpsc::Sender<Input>,
    /// Counts connections.
    pub next: AtomicU64,
    /// psched ends.
    pub stop: CancellationToken,
}

#[tonic::async_trait]
impl pb::logins_server::Logins for Logins {
    type LinkStream = Pin<Box<dyn Stream<Item = Result<pb::ToLogin, Status>> + Send>>;

    async fn link(
        &self,
        request: Request<Streaming<pb::FromLogin>>,
    ) -> Result<Response<Self::LinkStream>, Status> {
        let host = request.extensions().get::<HostPeer>().cloned();
        let host = host.ok_or_else(|| Status::unauthenticated("only a host may call this"))?;
        host.needs(Role::Login, "speak for its users")?;
        let number = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let (sender, receiver) = LoginSender::new();
        let (inputs, stop) = (self.inputs.clone(), self.stop.clone());
        let incoming = request.into_inner();
        tokio::spawn(async move {
            let (full, refused) = (sender.hang_up.clone(), sender.refused.clone());
            let ended = tokio::select! {
                ended = listen(incoming, number, &host.name, sender, &inputs) => ended,
                () = full.cancelled() => Err(Status::resource_exhausted("it does not read")),
                () = refused.cancelled() => Ok(()),
                () = stop.cancelled() => Ok(()),
            };
            if let Err(status) = ended {
                let host = &*host.name;
                tracing::info!(host, "a login host's connection ended: {}", status.message());
            }
            // (Err: psched ends.)
            let closed = LoginSays::Closed { number }.into();
            let _ = inputs.send(Input::Login(closed)).await;
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}

async fn listen(
    mut incoming: Streaming<pb::FromLogin>,
    number: u64,
    host: &Arc<str>,
    sender: LoginSender,
    inputs: &mpsc::Sender<Input>,
) -> Result<(), Status> {
    let (mut sender, mut boot_id) = (Some(sender), String::new());
    while let Some(message) = incoming.message().await? {
        let event = match (message.message, sender.take()) {
            (Some(pb::from_login::Message::Hello(hello)), Some(sender))
                if (1..=BOOT_MAX).contains(&hello.boot_id.len())
                    && hello.folder.len() <= FOLDER_MAX =>
            {
                boot_id = hello.boot_id;
                let (host, boot_id) = (Arc::clone(host), boot_id.clone());
                let says = LoginSays::Opened { number, host, boot_id, folder: hello.folder };
                LoginEvent { says, sender: Some(sender) }
            }
            (Some(pb::from_login::Message::Gone(gone)), None)
                if gone.processes.len() <= PROCESSES_MAX =>
            {
                let ids = gone.processes.into_iter().map(|process| (process.pid, process.started));
                let (host, boot_id) = (Arc::clone(host), boot_id.clone());
                LoginSays::Gone { host, boot_id, processes: ids.collect() }.into()
            }
            _ => return Err(Status::invalid_argument("a message that does not belong here")),
        };
        if inputs.send(Input::Login(event)).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}
