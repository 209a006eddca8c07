//! A user on another host: what the apinit of that host knows of him, in a header of each request
//! that it passes on.
//!
//! The kernel of his host has told that apinit who he is ([`Peer`]). What it says is believed under
//! a certificate with the role login, and nowhere else: a header of this name that comes from a user
//! is replaced ([`pass_on`]), and a daemon does not read it on a unix socket.

use super::listen::{Doubt, Peer, Relayed};
use super::pb;
use super::tls::HostPeer;
use crate::certs::Role;
use crate::os::peer::has_terminal;
use prost::Message;
use std::sync::Arc;
use tonic::codegen::http::{HeaderMap, HeaderName};
use tonic::metadata::{BinaryMetadataValue, MetadataMap};
use tonic::{Request, Status};

/// The socket through which apruns reach apinits of other hosts, beside psched's.
pub const RELAY_SOCKET: &str = "relay.sock";
/// The header by which an aprun names such an apinit: its host's name, a blank, its address.
pub const HEAD_HEADER: &str = "psched-head";
/// The header.
const HEADER: &str = "psched-caller-bin";
/// What the headers of daemons begin with: a user's own of such names go no further.
const OURS: &str = "psched-";
/// Supplementary groups that are passed on.
pub const GROUPS_MAX: usize = 20_000;
/// The longest folder of the sockets of a login host's apinit that psched takes, in bytes, with its
/// inode and device: it goes into refusals of others.
pub const FOLDER_MAX: usize = 192;
/// Requests that the apinit of a login host passes on at once, of all its users: two of each aprun
/// for which there is a connection (`connections_max`). (Those of root and of its own user are not
/// counted.)
pub const RELAYED_MAX: usize = 16_384;
/// Requests of a host with all its users that may wait to be begun: of two apinits with folders of
/// their own, of which each passes on as many as it may, and a reserve for their daemons and root.
/// The connection of a host with more is closed.
pub const HOST_WAITING_MAX: usize = 5 * RELAYED_MAX / 2;
/// Bytes of all headers of a request: enough for so many groups, each of which takes five bytes before base64 makes four
/// bytes of three, and for as many headers of the user's own as a login host takes.
pub const HEADERS_MAX: u32 = 160 * 1024;

/// Puts who calls into the headers of a request that is passed on.
///
/// # Errors
/// The user is in too many groups.
pub fn pass_on(headers: &mut HeaderMap, peer: &Peer, boot_id: &str) -> Result<(), Status> {
    let theirs: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with(OURS)).cloned().collect();
    for name in theirs {
        headers.remove(name);
    }
    if peer.groups.len() > GROUPS_MAX {
        return Err(Status::permission_denied(format!(
            "you are in {} groups, and at most {GROUPS_MAX} can be passed on to psched, which is \
             on another host",
            peer.groups.len()
        )));
    }
    let caller = pb::Caller {
        uid: peer.uid,
        gid: peer.gid,
        groups: peer.groups.clone(),
        pid: peer.pid,
        started: peer.started,
        terminal: has_terminal(peer.pid),
        boot_id: boot_id.to_owned(),
        doubt: peer.doubt.map(|doubt| doubt.name().to_owned()).unwrap_or_default(),
    };
    let mut metadata = MetadataMap::from_headers(std::mem::take(headers));
    let value = BinaryMetadataValue::from_bytes(&caller.encode_to_vec());
    metadata.insert_bin(HEADER, value);
    *headers = metadata.into_headers();
    Ok(())
}

/// Takes the header of a request that has come from a host, for the services that ask who calls.
///
/// # Errors
/// The host may not speak for users, or says what can't be.
#[allow(clippy::result_large_err)]
pub fn received(mut request: Request<()>) -> Result<Request<()>, Status> {
    let Some(value) = request.metadata().get_bin(HEADER) else { return Ok(request) };
    let Some(host) = request.extensions().get::<HostPeer>() else {
        return Err(Status::unauthenticated("only a host with a certificate speaks for users"));
    };
    host.needs(Role::Login, "speak for its users")?;
    host.carries_users()?;
    let malformed = || Status::invalid_argument("the header psched-caller-bin is malformed");
    let bytes = value.to_bytes().map_err(|_| malformed())?;
    let caller = pb::Caller::decode(&bytes[..]).map_err(|_| malformed())?;
    if caller.groups.len() > GROUPS_MAX || caller.boot_id.is_empty() || caller.boot_id.len() > 64 {
        return Err(malformed());
    }
    let doubt = match &*caller.doubt {
        "" => None,
        name => Some(Doubt::of(name).ok_or_else(malformed)?),
    };
    let peer = Peer {
        uid: caller.uid,
        gid: caller.gid,
        groups: caller.groups,
        pid: caller.pid,
        pidfd: None,
        started: caller.started,
        doubt,
        turned: None,
        hang_up: host.hang_up.clone(),
        relayed: Some(Relayed {
            host: Arc::clone(&host.name),
            boot_id: caller.boot_id.into(),
            terminal: caller.terminal,
        }),
    };
    request.extensions_mut().insert(peer);
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certs::Roles;
    use crate::rpc::listen::tests::peer_of;

    fn peer() -> Peer {
        Peer {
            gid: 100,
            groups: vec![7, 8],
            pid: 4,
            started: 5,
            doubt: Some(Doubt::NoPid),
            ..peer_of(1000)
        }
    }

    fn host(roles: &str) -> HostPeer {
        let roles = roles.parse::<Roles>().expect("roles");
        HostPeer { roles, ..crate::rpc::tls::tests::host_peer("n1") }
    }

    fn request(headers: HeaderMap, host: Option<HostPeer>) -> Request<()> {
        let mut request = Request::from_parts(
            MetadataMap::from_headers(headers),
            tonic::Extensions::default(),
            (),
        );
        if let Some(host) = host {
            request.extensions_mut().insert(host);
        }
        request
    }

    #[test]
    fn a_user_is_the_one_that_his_host_names() {
        let mut headers = HeaderMap::new();
        headers.insert("user-agent", "x".parse().expect("a header"));
        // What the user says of himself goes no further.
        headers.insert(HEADER, "AAAA".parse().expect("a header"));
        headers.insert(HEAD_HEADER, "n9 1.2.3.4:5".parse().expect("a header"));
        pass_on(&mut headers, &peer(), "boot").expect("passed on");
        assert_eq!((headers.len(), headers.contains_key("user-agent")), (2, true));
        let request = received(request(headers, Some(host("login,node")))).expect("believed");
        let seen: &Peer = request.extensions().get().expect("a caller");
        assert_eq!((seen.uid, seen.gid, &*seen.groups), (1000, 100, &[7, 8][..]));
        assert_eq!((seen.pid, seen.started, seen.doubt), (4, 5, Some(Doubt::NoPid)));
        let relayed = seen.relayed.as_ref().expect("of another host");
        assert_eq!((relayed.host_and_boot().as_str(), relayed.terminal), ("n1/boot", false));
    }

    #[test]
    fn a_host_without_the_role_speaks_for_nobody() {
        let mut headers = HeaderMap::new();
        pass_on(&mut headers, &peer(), "boot").expect("passed on");
        let refused = received(request(headers.clone(), Some(host("node,control"))));
        let refused = refused.expect_err("it is a node");
        assert!(refused.message().contains("the host n1 may not speak for its users"), "{refused}");
        assert!(received(request(headers, None)).is_err());
        // Without the header it is a host that calls.
        let plain = received(request(HeaderMap::new(), Some(host("node")))).expect("passes");
        assert!(plain.extensions().get::<Peer>().is_none());
    }

    #[test]
    fn a_user_in_all_groups_has_room_in_the_headers() {
        let mut headers = HeaderMap::new();
        headers.insert("own", "x".repeat(16 * 1024 - 64).parse().expect("a header"));
        let many = Peer { groups: vec![u32::MAX - 1; GROUPS_MAX], ..peer() };
        pass_on(&mut headers, &many, &"b".repeat(64)).expect("passed on");
        let bytes = |(name, value): (&HeaderName, &tonic::codegen::http::HeaderValue)| {
            name.as_str().len() + value.len() + 32
        };
        let all: usize = headers.iter().map(bytes).sum();
        assert!(all + 1_000 < HEADERS_MAX as usize, "{all}");
    }

    #[test]
    fn what_is_no_caller_is_refused() {
        for text in ["", "A", "/////w==", "CgA="] {
            let mut headers = HeaderMap::new();
            headers.insert(HEADER, text.parse().expect("a header"));
            let refused = received(request(headers, Some(host("login"))));
            assert!(refused.is_err_and(|s| s.code() == tonic::Code::InvalidArgument), "{text}");
        }
        let many = Peer { groups: vec![1; GROUPS_MAX + 1], ..peer() };
        let mut headers = HeaderMap::new();
        let refused = pass_on(&mut headers, &many, "boot").expect_err("too many");
        assert!(refused.message().contains("you are in 20001 groups"), "{refused}");
    }
}
