//! Postings of `cpr -r`: a manifest comes, and a posting is made of it.
//!
//! The manifest is believed for its seal alone, which only this psched and its apinits can make; whose it is
//! must agree with what the kernel says of the caller. What is wrong with it is told in the words of `cpr -i`.

use super::services::Service;
use crate::apteam::posting::{Owner, Posting};
use crate::apteam::protocol::node::Restart;
use crate::apteam::record::{Apteam, State};
use crate::checkpoint::{Flaw, Manifest, Restarting, SealKey, restarting};
use crate::psched::decide::Origin;
use crate::rpc::listen::Peer;
use crate::rpc::pb;
use std::sync::Arc;
use tonic::Status;

/// What is posted of a checkpoint.
#[derive(Debug, PartialEq)]
pub(super) struct Recovered {
    pub posting: Posting,
    /// Who it is for: the caller, with the groups that the application had.
    pub owner: Owner,
    pub origin: Origin,
    /// The store that gave the number that it had.
    store: String,
}

/// Makes a posting of a manifest that this caller has sent.
///
/// # Errors
/// Why he gets none.
pub(super) fn recovered(
    manifest: &[u8],
    request_id: [u8; 16],
    caller: &Owner,
    key: Option<&SealKey>,
) -> Result<Recovered, Status> {
    let key = key.ok_or_else(|| {
        Status::failed_precondition(
            "this psched has no key to verify checkpoints with; its log says why",
        )
    })?;
    let manifest = Manifest::read(manifest, Some(key)).map_err(flaw)?;
    manifest.may_be_restarted_by(caller).map_err(flaw)?;
    let Restarting { posting, restart } = restarting(&manifest, request_id)
        .map_err(|why| Status::invalid_argument(format!("it can't be restarted: {why}")))?;
    let recovery = manifest.recovery;
    // All of them are the caller's, as has just been found.
    let Owner { gid, groups, .. } = recovery.owner;
    let owner = Owner { gid, groups, ..caller.clone() };
    Ok(Recovered {
        owner,
        origin: match restart {
            Some(restart) => Origin::Running(restart),
            None => Origin::Waiting { apid: recovery.apid, free: None },
        },
        store: manifest.made.store,
        posting,
    })
}

fn flaw(flaw: Flaw) -> Status {
    match flaw {
        Flaw::NotOwner { .. } | Flaw::NotMember { .. } => {
            Status::permission_denied(flaw.to_string())
        }
        _ => Status::invalid_argument(flaw.to_string()),
    }
}

/// Whether what this record is of has ended without having been launched, and is the posting that is posted
/// again: then its number may stand for it again.
fn is_its_own(team: &Apteam, owner: &Owner, posting: &Posting) -> bool {
    team.state == State::Ended
        && team.running_at_ns == 0
        && team.end.as_ref().is_none_or(|end| !end.launched)
        && team.owner.uid == owner.uid
        && (team.posting.shape, &team.posting.command) == (posting.shape, &posting.command)
}

impl Service {
    /// Whether images can be restored for this caller. Those of several parts are restored on his host, for they are
    /// connected with each other by addresses of one host; so are all that his front end does not bring to another.
    ///
    /// # Errors
    /// They can't, whatever else runs.
    pub(super) async fn can_restore(
        &self,
        peer: &Peer,
        restart: &Restart,
        brings: bool,
    ) -> Result<(), Status> {
        let parts = !restart.parts.is_empty();
        if brings && !parts {
            return Ok(());
        }
        let (host, own) = (self.host_of(peer), peer.relayed.is_none());
        let named = Arc::clone(&host);
        if self.read(peer.uid, move |s| s.has_nodes_of(&named, own)).await? {
            return Ok(());
        }
        let host = match &*host {
            "" => "this host".to_owned(),
            host => format!("host {host}"),
        };
        Err(Status::failed_precondition(match parts {
            true => format!(
                "it has images of several apinits, which are restored on the host where cpr or aprun runs, and \
                 {host} offers no nodes: call cpr -r on a host with nodes, where the folder must be too"
            ),
            false => format!(
                "cpr or aprun is of an older release, which restores a checkpoint on its own host only, and {host} \
                 offers no nodes: upgrade it, or call cpr -r on a host with nodes, where the folder must be too"
            ),
        }))
    }

    /// The same for a request.
    ///
    /// A posting that waited gets its own number back where that is free, so that nothing is doubled: it was
    /// given by this store, whose record of it has ended and was never launched. (One that ran after its
    /// checkpoint was made keeps its number for the history of that run.) The scheduler looks, when it takes
    /// it, whether somebody has the number now.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) async fn recover(
        &self,
        request: &pb::PostRequest,
        caller: &Owner,
    ) -> Result<Recovered, Status> {
        let request_id = request.request_id[..].try_into().map_err(|_| {
            Status::invalid_argument(
                "a malformed request: PostRequest.request_id: it has to be 16 bytes",
            )
        })?;
        let key = self.identity.checkpoint_key.as_ref();
        let mut recovered = recovered(&request.restart, request_id, caller, key)?;
        recovered.posting.brings_images = request.brings_images;
        if let Origin::Waiting { apid, free } = &mut recovered.origin
            && recovered.store == self.identity.store_id
        {
            let apid = *apid;
            let team = self.ask_store(move |s| s.team(apid)).await?;
            let its = team.filter(|team| is_its_own(team, caller, &recovered.posting));
            *free = its.map(|team| team.incarnation);
        }
        Ok(recovered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apteam::ending::HostEnd;
    use crate::checkpoint::{Kind, example};
    use crate::psched::serve::tests::team;
    use tonic::Code;

    const KEY: SealKey = SealKey([7; 32]);
    const NUMBER: [u8; 16] = [5; 16];

    /// Who owns the example, on another terminal and with a group more.
    fn caller() -> Owner {
        let owner = example().recovery.owner;
        let groups = owner.groups.iter().copied().chain([4_711]).collect();
        Owner { groups, terminal: !owner.terminal, name: "now".into(), ..owner }
    }

    fn refused(text: &str, caller: &Owner, key: Option<&SealKey>) -> (Code, String) {
        let status = recovered(text.as_bytes(), NUMBER, caller, key).expect_err("refused");
        (status.code(), status.message().to_owned())
    }

    #[test]
    fn a_posting_is_made_of_the_manifest() {
        let manifest = example();
        let text = manifest.seal(&KEY).expect("sound");
        let found = recovered(text.as_bytes(), NUMBER, &caller(), Some(&KEY)).expect("good");
        assert_eq!(found.posting.request_id, NUMBER);
        assert_eq!(found.posting.command, "./ring 1000");
        assert!(matches!(&found.origin, Origin::Running(restart) if restart.from.apid.0 == 12));
        // Its ids are those that it had, of which the caller has all.
        let Owner { gid, groups, .. } = manifest.recovery.owner.clone();
        assert_eq!(found.owner, Owner { gid, groups, ..caller() });
        let waiting = Manifest { kind: Kind::Waiting, files: Vec::new(), ..manifest };
        let text = waiting.seal(&KEY).expect("sound");
        let found = recovered(text.as_bytes(), NUMBER, &caller(), Some(&KEY)).expect("good");
        assert_eq!(found.origin, Origin::Waiting { apid: waiting.recovery.apid, free: None });
    }

    #[test]
    fn what_is_not_sealed_by_this_key_is_refused() {
        let text = example().seal(&SealKey([8; 32])).expect("sound");
        let (code, why) = refused(&text, &caller(), Some(&KEY));
        assert_eq!((code, why), (Code::InvalidArgument, Flaw::Foreign.to_string()));
        let text = example().seal(&KEY).expect("sound");
        let (code, why) = refused(&text.replace("./ring", "./rink"), &caller(), Some(&KEY));
        assert_eq!(code, Code::InvalidArgument);
        assert!(why.contains("manifest.json is damaged"), "{why}");
        let (code, why) = refused(&text, &caller(), None);
        assert_eq!(code, Code::FailedPrecondition);
        assert!(why.contains("no key to verify checkpoints"), "{why}");
    }

    #[test]
    fn another_users_is_refused() {
        let text = example().seal(&KEY).expect("sound");
        let other = Owner { uid: 1, ..caller() };
        let (code, why) = refused(&text, &other, Some(&KEY));
        assert_eq!(code, Code::PermissionDenied);
        assert!(why.contains("only its owner can restart it"), "{why}");
        // Root is no owner either, and who has left a group has not what it had.
        assert_eq!(refused(&text, &Owner { uid: 0, ..caller() }, Some(&KEY)).0, code);
        let left = Owner { groups: Vec::new(), gid: 1, ..caller() };
        assert_eq!(refused(&text, &left, Some(&KEY)).0, code);
    }

    #[test]
    fn what_can_not_be_restarted_says_why() {
        let mut manifest = example();
        manifest.recovery.run = std::time::Duration::from_secs(4_000);
        let text = manifest.seal(&KEY).expect("sound");
        let (code, why) = refused(&text, &caller(), Some(&KEY));
        assert_eq!(code, Code::InvalidArgument);
        assert_eq!(
            why,
            "it can't be restarted: it has reached its time limit of 3600 s; run the program \
             again, with a longer --time-limit"
        );
    }

    /// Nobody pays twice for the time before the checkpoint, which its nodes count.
    #[test]
    fn what_it_had_run_is_the_others() {
        let seconds = std::time::Duration::from_secs;
        let restart = team(2, State::Ended).restart.map(|r| Restart { run: seconds(900), ..r });
        let end = Some(HostEnd { run: seconds(905), ..HostEnd::default() });
        let ended = Apteam { running_at_ns: 1, end, restart, ..team(2, State::Ended) };
        assert_eq!(crate::psched::serve::views::ran_ns(&ended), 5_000_000_000);
        assert_eq!(
            crate::psched::serve::views::ran_ns(&Apteam { restart: None, ..ended }),
            905_000_000_000
        );
    }

    #[test]
    fn a_number_is_its_own_while_nothing_has_run_under_it() {
        let ended = Apteam { running_at_ns: 0, end: None, ..team(12, State::Ended) };
        let its = |team: &Apteam| is_its_own(team, &ended.owner, &ended.posting);
        assert!(its(&ended));
        assert!(!its(&Apteam { state: State::Posted, ..ended.clone() }));
        assert!(!its(&Apteam { running_at_ns: 1, ..ended.clone() }));
        let launched = HostEnd { launched: true, ..HostEnd::default() };
        assert!(!its(&Apteam { end: Some(launched), ..ended.clone() }));
        let other = Owner { uid: 1, ..ended.owner.clone() };
        assert!(!its(&Apteam { owner: other, ..ended.clone() }));
        let posting = Posting { command: "another".into(), ..ended.posting.clone() };
        assert!(!its(&Apteam { posting, ..ended.clone() }));
    }
}
