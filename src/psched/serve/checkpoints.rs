//! What psched has to say for a checkpoint.
//!
//! A checkpoint needs no decision of psched's: whoever may, gets what psched knows of the application, sealed,
//! and the apinit that has it does the rest. Of one that still waits for a place there is nothing to dump: its
//! aprun is asked for the launch, and what comes of it is a checkpoint without images.

use super::clock::now;
use super::input::Input;
use super::services::{Service, caller, ending, process_of};
use crate::apteam::launch::Launch;
use crate::apteam::place::HostPart;
use crate::apteam::record::Apteam;
use crate::apteam::{Apid, SealKey};
use crate::checkpoint::{Kind, Made, Manifest, Recovery};
use crate::os::host;
use crate::psched::decide::Scheduler;
use crate::rpc::listen::Peer;
use crate::rpc::pb;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tonic::{Request, Response, Status};

/// How long an aprun may take to say what it would launch.
const DEPOSIT_WAIT: Duration = Duration::from_secs(10);
/// Hosts of an application that are named.
const NAMED: usize = 8;

/// Whether a cpr of this host (empty: it has no certificate) can have the application dumped. `far`: the apinit of its
/// PE 0 takes requests of other hosts.
///
/// # Errors
/// It can't; why, and what to do instead.
fn dumped_there(team: &Apteam, cpr: &str, far: bool) -> Result<(), String> {
    let apid = team.apid;
    // (The host of a part is not named where its apinit takes no connections of other hosts.)
    let of = |host: &'_ HostPart| match &host.host[..] {
        "" => cpr.to_owned(),
        name => name.to_owned(),
    };
    let hosts: BTreeSet<String> = team.hosts.iter().map(of).collect();
    let own = "or let the program save itself (aprun --checkpoint)";
    let mut names = hosts.iter().map(String::as_str);
    match (names.next(), names.next()) {
        (Some(host), None) if host != cpr && team.hosts.len() > 1 => Err(format!(
            "application {apid} is on nodes of several apinits of host {host}, and images of such an application are \
             made by a cpr of its host: call cpr on {host}, with a folder there, {own}"
        )),
        (Some(host), None) if host != cpr && !far => Err(format!(
            "application {apid} runs on host {host}, whose apinit is of an older release, or unreachable now: images \
             of its processes go to no other host; call cpr on {host}, with a folder there, {own}"
        )),
        (Some(first), Some(second)) => {
            let all = [first, second].into_iter().chain(names).take(NAMED).collect::<Vec<_>>();
            let more = if hosts.len() > NAMED { ", ..." } else { "" };
            Err(format!(
                "application {apid} runs on several hosts ({}{more}), and images of processes are made of an \
                 application on one host only: launch it on nodes of one host, {own}",
                all.join(", ")
            ))
        }
        _ => Ok(()),
    }
}

impl Service {
    /// The host of a caller, by its certificate; empty: it has none.
    pub(super) fn host_of(&self, peer: &Peer) -> Arc<str> {
        let host = peer.relayed.as_ref().map(|relayed| &relayed.host);
        Arc::clone(host.unwrap_or(&self.host))
    }

    /// cpr -c.
    pub(super) async fn checkpoint_of(
        &self,
        request: Request<pb::CheckpointRequest>,
    ) -> Result<Response<pb::CheckpointReply>, Status> {
        let peer = caller(&request)?;
        let apid = Apid(request.into_inner().apid);
        let known = |s: &Scheduler, team: &Apteam| {
            let far = team.hosts.first().is_some_and(|part| s.images_go_from(part));
            (team.clone(), s.attained(team.apid, host::monotonic_ns()), far)
        };
        let (team, run, far) = self.known(&peer, apid, known).await?;
        // An administrator may end it, and not have what it has in its memory.
        if peer.uid != team.owner.uid && peer.uid != 0 {
            let why = format!(
                "application {apid} belongs to {}: only that user and root can checkpoint it",
                team.owner.name
            );
            return Err(self.not_his(&peer, apid, team.owner.uid, why));
        }
        let key = self.sealing()?;
        let kind = Kind::of(&team).map_err(Status::failed_precondition)?;
        let made = Made {
            at_ns: now().wall_ns,
            host: host::hostname(),
            boot: self.identity.boot_id.clone(),
            store: self.identity.store_id.clone(),
            psched: env!("CARGO_PKG_VERSION").into(),
        };
        let recovery = Recovery::of(&team, run);
        let files = Vec::new();
        let dumped = kind.is_dumped();
        let cpr = self.host_of(&peer);
        if dumped {
            dumped_there(&team, &cpr, far).map_err(Status::failed_precondition)?;
        }
        let mut launch = if dumped { None } else { Some(self.launch_of(peer.uid, apid).await?) };
        if let (Kind::Running { .. }, Some(launch)) = (&kind, &mut launch) {
            // Its programs may be built anew before it is started again. (One that waited executes what was
            // there when it was posted, or nothing.)
            launch.forget_identities();
        }
        let manifest = Manifest { made, kind, recovery, launch, files };
        let sealed = || {
            let sealed = manifest.seal(&key);
            sealed.map_err(|flaw| Status::failed_precondition(flaw.to_string()))
        };
        let found = match (&manifest.kind, &team.hosts[..]) {
            (Kind::Waiting, _) => pb::checkpoint_reply::Found::Waiting(sealed()?),
            // Who has the manifest before the program has saved itself has nothing but the launch of his own
            // program, which he can have at any time.
            (Kind::Running { .. }, _) if !dumped => {
                let (manifest, key) = (sealed()?, Some(team.key().into()));
                pb::checkpoint_reply::Found::Saving(pb::SavingCheckpoint { manifest, key })
            }
            (Kind::Running { .. }, hosts) => {
                let mut sockets = hosts.iter().map(|host| host.socket.clone());
                let at = hosts.first().map(|host| host.reached_from(&cpr)).unwrap_or_default();
                pb::checkpoint_reply::Found::Running(pb::RunningCheckpoint {
                    key: Some(team.key().into()),
                    socket: sockets.next().unwrap_or_default(),
                    draft: manifest.draft(&key).into(),
                    more_sockets: sockets.collect(),
                    host: at.host,
                    address: at.address,
                })
            }
        };
        Ok(Response::new(pb::CheckpointReply { found: Some(found) }))
    }

    /// What `of` says of an application that has not ended.
    pub(super) async fn known<T: Send + 'static>(
        &self,
        peer: &Peer,
        apid: Apid,
        of: impl FnOnce(&Scheduler, &Apteam) -> T + Send + 'static,
    ) -> Result<T, Status> {
        let found = self.read(peer.uid, move |s| s.team(apid).map(|team| of(s, team)));
        match found.await? {
            Some(found) => Ok(found),
            None => {
                let team = self.ended(peer, apid).await?;
                Err(Status::failed_precondition(format!("application {} has ended", team.apid)))
            }
        }
    }

    /// What checkpoints are sealed with.
    fn sealing(&self) -> Result<SealKey, Status> {
        self.identity.checkpoint_key.clone().ok_or_else(|| {
            Status::failed_precondition(
                "this psched has no key to seal checkpoints with: its log says why",
            )
        })
    }

    /// What the aprun of an application would launch, or has launched.
    async fn launch_of(&self, uid: u32, apid: Apid) -> Result<Launch, Status> {
        let waits = self.deposits.expect(apid).ok_or_else(|| {
            Status::resource_exhausted(
                "psched checkpoints the maximum number of postings: try again later",
            )
        })?;
        self.ask(uid, Input::AskLaunch { apid }).await?;
        match tokio::time::timeout(DEPOSIT_WAIT, waits).await {
            Ok(Ok(launch)) => Ok(launch),
            Ok(Err(_)) => Err(ending()),
            Err(_) => Err(Status::unavailable(format!(
                "the aprun of application {apid} has not said within {} s what it launches: it is stopped, \
                 of an older release, or has just ended",
                DEPOSIT_WAIT.as_secs()
            ))),
        }
    }

    /// aprun's answer.
    pub(super) async fn deposited(
        &self,
        request: Request<pb::DepositRequest>,
    ) -> Result<Response<pb::DepositReply>, Status> {
        let peer = caller(&request)?;
        let pb::DepositRequest { apid, launch } = request.into_inner();
        let apid = Apid(apid);
        let launch = launch.ok_or_else(|| Status::invalid_argument("the request has no launch"))?;
        let launch = Launch::try_from(launch);
        let launch = launch.map_err(|e| Status::invalid_argument(e.to_string()))?;
        let known = |_: &Scheduler, team: &Apteam| {
            (team.owner.uid, team.front.clone(), Kind::of(team).is_ok_and(|kind| !kind.is_dumped()))
        };
        let (owner, front, wanted) = self.known(&peer, apid, known).await?;
        let is_front = owner == peer.uid && front == Some(process_of(&peer));
        if !is_front {
            let why = format!("only the aprun of application {apid} may say what it would launch");
            return Err(self.not_his(&peer, apid, owner, why));
        }
        if wanted {
            self.deposits.came(apid, &launch);
        }
        Ok(Response::new(pb::DepositReply {}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apteam::record::State;
    use crate::psched::serve::tests::team;

    #[test]
    fn images_are_made_of_what_is_on_one_host() {
        let on = |hosts: &[&str]| {
            let part = |host: &&str| HostPart { host: (*host).into(), ..HostPart::default() };
            Apteam { hosts: hosts.iter().map(part).collect(), ..team(5, State::Running) }
        };
        let own: [(&[&str], _); 4] =
            [(&["h1"], "h1"), (&["h1", "h1"], "h1"), (&["", ""], ""), (&[""], "h0")];
        for (hosts, cpr) in own {
            assert_eq!(dumped_there(&on(hosts), cpr, false), Ok(()), "{hosts:?}");
        }
        assert_eq!(dumped_there(&on(&["h1"]), "h0", true), Ok(()));
        let refused =
            |hosts: &[&str], far| dumped_there(&on(hosts), "h0", far).expect_err("elsewhere");
        let why = refused(&["h1"], false);
        assert!(
            why.contains("host h1, whose apinit is of an older release, or unreachable"),
            "{why}"
        );
        assert!(why.ends_with("call cpr on h1, with a folder there, or let the program save itself (aprun --checkpoint)"), "{why}");
        let why = refused(&["h1", "h1"], true);
        assert!(why.contains("several apinits of host h1"), "{why}");
        let why = refused(&["h1", "h2"], true);
        assert!(why.starts_with("application 5 runs on several hosts (h1, h2), and "), "{why}");
        let names: Vec<String> = (0..20).map(|n| format!("h{n:02}")).collect();
        let why = refused(&names.iter().map(String::as_str).collect::<Vec<_>>(), true);
        assert!(why.contains("h07, ...)"), "{why}");
    }
}
