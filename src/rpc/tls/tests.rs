mod faults;

use super::*;
use crate::certs::tests::Place;
use crate::certs::{AUTHORITIES, REVOKED};
use crate::rpc::connect::status_text;
use crate::rpc::pb;
use crate::rpc::pb::nodes_server::{Nodes, NodesServer};
use std::fs;
use std::path::Path;
use tokio::io::AsyncWriteExt;
use tonic::{Request, Response, Status, Streaming};

/// Answers with the name of the calling host, and refuses hosts without the role node.
struct Names;

#[tonic::async_trait]
impl Nodes for Names {
    type LinkStream = tokio_stream::Once<Result<pb::ToNode, Status>>;

    async fn link(
        &self,
        request: Request<Streaming<pb::FromNode>>,
    ) -> Result<Response<Self::LinkStream>, Status> {
        let host = request.extensions().get::<HostPeer>().expect("it has a certificate");
        host.needs(Role::Node, "offer nodes")?;
        let message = Some(pb::to_node::Message::Refused(host.name.to_string()));
        Ok(Response::new(tokio_stream::once(Ok(pb::ToNode { message, ..Default::default() }))))
    }
}

/// A host of this name.
pub(in crate::rpc) fn host_peer(name: &str) -> HostPeer {
    HostPeer {
        name: name.into(),
        roles: "login".parse().expect("roles"),
        serial: "1".into(),
        address: "10.0.0.1:7".parse().expect("an address"),
        hang_up: CancellationToken::new(),
        users: Arc::default(),
        log: RefusalLog::default(),
        revoked: watch::channel(Arc::default()).1,
    }
}

/// A server with the certificate of this folder, and its address.
async fn serve(folder: &Path) -> (String, Arc<Keyring>, AbortOnDropHandle<()>) {
    let keyring = Arc::new(Keyring::open(folder).expect("good"));
    let listener = listen("127.0.0.1:0".parse().expect("an address"), "test").expect("free");
    let address = listener.local_addr().expect("bound").to_string();
    let connections = incoming(listener, Arc::clone(&keyring)).expect("watched");
    let server = tonic::transport::Server::builder().add_service(NodesServer::new(Names));
    let served = tokio::spawn(async move {
        let _ = server.serve_with_incoming(connections).await;
    });
    (address, keyring, AbortOnDropHandle::new(served))
}

fn control() -> Expect {
    Expect { name: None, role: Role::Control }
}

/// What the server says to a host with the certificate of this folder.
async fn call(address: &str, folder: &Path, expect: Expect) -> Result<String, String> {
    let keyring = Arc::new(Keyring::open(folder).expect("good"));
    call_with(address, &keyring, expect).await
}

async fn call_with(
    address: &str,
    keyring: &Arc<Keyring>,
    expect: Expect,
) -> Result<String, String> {
    let channel = connect(address, expect, Arc::clone(keyring)).await.map_err(|e| e.0)?;
    let mut client = pb::nodes_client::NodesClient::new(channel);
    let mut stream = client.link(tokio_stream::pending()).await.map_err(status_text)?.into_inner();
    match stream.message().await.map_err(status_text)?.and_then(|told| told.message) {
        Some(pb::to_node::Message::Refused(text)) => Ok(text),
        other => Err(format!("{other:?}")),
    }
}

#[tokio::test]
async fn hosts_of_a_cluster_know_each_other() {
    let place = Place::cluster("tls");
    let (address, _keyring, _server) = serve(place.path()).await;
    let n1 = place.host("n1", "node");
    assert_eq!(call(&address, &n1, control()).await, Ok("n1".into()));
    let role = call(&address, &place.host("n2", "login"), control()).await.expect_err("no node");
    assert_eq!(
        role,
        "the host n2 may not offer nodes: the roles of its certificate are login, and it needs \
         node; make it another one with `psched certs host n2 --role login,node`"
    );
    let named = Expect { name: Some("n7".into()), role: Role::Control };
    let wrong = call(&address, &n1, named).await.expect_err("another host");
    assert!(wrong.contains("presents a certificate of head, not of n7"), "{wrong}");
}

#[tokio::test]
async fn a_server_without_the_role_is_not_believed() {
    let place = Place::cluster("tls-role");
    let (n1, n2) = (place.host("n1", "node,login"), place.host("n2", "node"));
    let (address, _keyring, _server) = serve(&n1).await;
    let wrong = call(&address, &n2, control()).await.expect_err("no psched");
    assert!(wrong.contains("the host n1 at") && wrong.contains("has not the role control"));
}

#[tokio::test]
async fn a_stranger_is_told_and_so_is_the_log() {
    let (ours, theirs) = (Place::cluster("tls-ours"), Place::cluster("tls-theirs"));
    let (address, _keyring, _server) = serve(ours.path()).await;
    let (n1, x1) = (ours.host("n1", "node"), theirs.host("n1", "node"));
    let there = call(&address, &x1, control()).await.expect_err("another cluster");
    assert!(there.contains("is signed by an authority that this host does not know"), "{there}");
    // It believes us, but we do not believe it.
    fs::copy(n1.join(AUTHORITIES), x1.join(AUTHORITIES)).expect("copied");
    let here = call(&address, &x1, control()).await.expect_err("another cluster");
    assert!(here.starts_with("the host head refuses this host: it is signed by"), "{here}");
}

#[tokio::test]
async fn an_expired_certificate_and_one_of_tomorrow_are_told_apart_where_they_are_judged() {
    use rustls::CertificateError::{ExpiredContext, NotValidYetContext};
    use rustls::pki_types::UnixTime;
    let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    let expired = ExpiredContext { time: at(2_000_000_000), not_after: at(1_900_000_000) };
    let text = sentence("10.0.0.1:7", &rustls::Error::InvalidCertificate(expired));
    assert_eq!(
        text,
        "the certificate of 10.0.0.1:7 expired at 2030-03-17T17:46:40Z, and the clock of this \
         host says 2033-05-18T03:33:20Z: renew it with `psched certs renew`, or set the clock"
    );
    let early = NotValidYetContext { time: at(1_900_000_000), not_before: at(2_000_000_000) };
    let text = sentence("n1", &rustls::Error::InvalidCertificate(early));
    assert!(text.contains("is not valid before 2033-05-18T03:33:20Z"), "{text}");
}

#[tokio::test]
async fn who_has_no_certificate_or_no_tls_is_refused() {
    let place = Place::cluster("tls-none");
    let (address, _keyring, _server) = serve(place.path()).await;
    let mut plain = TcpStream::connect(&address).await.expect("listens");
    plain.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("written");
    let mut answer = Vec::new();
    let read = timeout(HANDSHAKE, plain.read_to_end(&mut answer)).await.expect("closed at once");
    assert!(read.is_err() || answer.len() < 64, "an alert at most");
    // The other way round: a server that speaks something else.
    let other = TcpListener::bind("127.0.0.1:0").await.expect("free");
    let at = other.local_addr().expect("bound").to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = other.accept().await {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let n1 = place.host("n1", "node");
    let wrong = call(&at, &n1, control()).await.expect_err("no TLS");
    assert!(wrong.contains("does not speak TLS"), "{wrong}");
    let nobody = call("127.0.0.1:1", &n1, control()).await.expect_err("nobody");
    assert!(nobody.contains("nothing listens on 127.0.0.1:1"), "{nobody}");
}

/// Any user of a host can open them, from its address.
#[tokio::test]
async fn silent_connections_keep_no_host_out() {
    let place = Place::cluster("tls-silent");
    let (address, _keyring, _server) = serve(place.path()).await;
    let mut silent = Vec::new();
    for _ in 0..HANDSHAKES_MAX.1 {
        silent.push(TcpStream::connect(&address).await.expect("listens"));
    }
    let n1 = place.host("n1", "node");
    assert_eq!(call(&address, &n1, control()).await, Ok("n1".into()));
    // The oldest has made room.
    let mut byte = [0];
    let closed = timeout(HANDSHAKE / 2, silent[0].read(&mut byte)).await.expect("closed at once");
    assert!(matches!(closed, Ok(0) | Err(_)), "{closed:?}");
    let open = timeout(Duration::from_millis(20), silent[1].read(&mut byte)).await;
    assert!(open.is_err(), "no more than one has: {open:?}");
}

/// A connection to this listener, as it is accepted.
async fn accepted(connections: &mut Incoming) -> HostStream {
    let next = tokio_stream::StreamExt::next(connections).await;
    next.expect("one comes").expect("it is no error")
}

/// It would have its place for as long as its host is there.
#[tokio::test]
async fn a_host_that_says_nothing_after_its_handshake_is_hung_up_on() {
    let place = Place::cluster("tls-speechless");
    let keyring = Arc::new(Keyring::open(place.path()).expect("good"));
    let listener = listen("127.0.0.1:0".parse().expect("an address"), "test").expect("free");
    let address = listener.local_addr().expect("bound").to_string();
    let mut connections = incoming(listener, keyring).expect("watched");
    let client = Keyring::open(&place.host("n1", "node")).expect("good");
    let control = control();
    let serves = async {
        let mut stream = accepted(&mut connections).await;
        assert!(stream.silent.is_some(), "it is to speak");
        stream.write_all(b"x").await.expect("written");
        stream.flush().await.expect("written");
        stream
    };
    let (client, mut served) = tokio::join!(super::open(&address, &control, &client), serves);
    let mut client = client.expect("connected");
    client.write_all(b"y").await.expect("written");
    client.flush().await.expect("written");
    let mut bytes = [0; 4];
    assert_eq!(served.read(&mut bytes).await.expect("it speaks"), 1);
    assert!(served.silent.is_none(), "it may be silent for as long as it likes");

    served.silent = Some(Box::pin(sleep(Duration::from_millis(20))));
    let read = timeout(SPEAKS, served.read(&mut bytes)).await.expect("it is not waited for");
    assert_eq!(read.expect_err("given up").kind(), io::ErrorKind::TimedOut);
}

#[tokio::test]
async fn some_connections_of_a_host_are_for_its_daemons() {
    let counts = Counted::default();
    let peer = |host: &str| HostPeer {
        users: Arc::new(UsersPlace { counts: counts.clone(), taken: OnceLock::new() }),
        ..host_peer(host)
    };
    let mut carry: Vec<HostPeer> = (0..HOST_USERS_MAX).map(|_| peer("n1")).collect();
    assert!(carry.iter().all(|peer| peer.carries_users().is_ok()));
    assert!(carry[0].clone().carries_users().is_ok(), "each request has no place of its own");
    let more = peer("n1");
    let refused = more.carries_users().expect_err("one too many");
    assert!(refused.message().contains("the users of the host n1 have the maximum"), "{refused}");
    assert!(peer("n2").carries_users().is_ok());
    // It is told so, and closed.
    assert!(!more.hang_up.is_cancelled());
    timeout(10 * TOLD, more.hang_up.cancelled()).await.expect("closed");
    carry.pop();
    assert!(peer("n1").carries_users().is_ok());
}

/// What waits to be sent goes with the connection, although the other host does not read.
#[tokio::test]
async fn a_connection_is_cut_at_once() {
    let place = Place::cluster("tls-cut");
    let keyring = Arc::new(Keyring::open(place.path()).expect("good"));
    let listener = listen("127.0.0.1:0".parse().expect("an address"), "test").expect("free");
    let address = listener.local_addr().expect("bound").to_string();
    let mut connections = incoming(listener, keyring).expect("watched");
    let serving = tokio::spawn(async move {
        let mut stream = accepted(&mut connections).await;
        // The settings of a server of HTTP/2, which are empty.
        stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.expect("written");
        stream.flush().await.expect("written");
        stream
    });
    let client = Arc::new(Keyring::open(&place.host("n1", "node")).expect("good"));
    let (_channel, cut) = connect_to_cut(&address, control(), client).await.expect("connected");
    let mut stream = serving.await.expect("served");
    cut.cut();
    let mut rest = Vec::new();
    let ended = timeout(HANDSHAKE, stream.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "the connection is still open");
}

/// Of a host whose cable is out the kernel says nothing for a long time.
#[tokio::test]
async fn a_connection_on_which_nothing_comes_breaks() {
    let place = Place::cluster("tls-quiet");
    let (address, _keyring, _server) = serve(place.path()).await;
    let client = Keyring::open(&place.host("n1", "node")).expect("good");
    let mut stream = super::open(&address, &control(), &client).await.expect("connected");
    stream.quiet = Some(Quiet::new(Duration::from_millis(20)));
    let mut rest = Vec::new();
    let ended = timeout(HANDSHAKE, stream.read_to_end(&mut rest)).await.expect("it ends");
    let error = ended.expect_err("by an error");
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert!(error.to_string().contains("sent nothing"), "{error}");
}

/// The steps of psched-certs(8), with connections all the time.
#[tokio::test]
async fn authorities_are_replaced_while_hosts_talk() {
    let place = Place::cluster("tls-roll");
    let (address, server, _served) = serve(place.path()).await;
    let n1 = place.host("n1", "node");
    let client = Arc::new(Keyring::open(&n1).expect("good"));
    let talk = async |when: &str| {
        [&server, &client].iter().for_each(|keyring| keyring.refresh());
        let said = call_with(&address, &client, control()).await;
        assert_eq!(said, Ok("n1".into()), "{when}");
    };
    talk("before").await;
    place.workshop().next("authority B").expect("made");
    talk("with two authorities").await;
    place.workshop().renew(&n1, 30).expect("renewed");
    talk("with a new certificate of the node").await;
    place.workshop().renew(place.path(), 30).expect("renewed");
    talk("with a new certificate of psched's host").await;
    place.workshop().retire().expect("retired");
    talk("without the old authority").await;
}

#[tokio::test]
async fn a_revoked_host_is_hung_up_on_and_kept_out() {
    let place = Place::cluster("tls-revoked");
    let (address, keyring, _server) = serve(place.path()).await;
    let (n1, n2) = (place.host("n1", "node"), place.host("n2", "node"));
    let open = |folder: &Path| Keyring::open(folder).expect("good");
    let (keys1, keys2) = (open(&n1), open(&n2));
    let mut first = super::open(&address, &control(), &keys1).await.expect("connected");
    let second = super::open(&address, &control(), &keys2).await.expect("connected");
    place.workshop().revoke("n1").expect("revoked");
    keyring.refresh();
    let mut rest = Vec::new();
    let ended = timeout(HANDSHAKE, first.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "the connection is still open");
    let again = call(&address, &n1, control()).await.expect_err("revoked");
    assert!(again.contains("its certificate has been revoked"), "{again}");
    assert!(!second.peer().hang_up.is_cancelled());
    assert_eq!(call(&address, &n2, control()).await, Ok("n2".into()));
    // The list comes to nodes, too: they do not speak to a psched that was revoked.
    assert!(n2.join(REVOKED).exists());
}

#[test]
fn an_address_has_a_port() {
    for (address, whole) in [
        ("head", "head:7117"),
        ("head:1", "head:1"),
        ("10.0.0.1", "10.0.0.1:7117"),
        ("10.0.0.1:1", "10.0.0.1:1"),
        ("::1", "[::1]:7117"),
        ("[::1]", "[::1]:7117"),
        ("[::1]:1", "[::1]:1"),
    ] {
        assert_eq!(with_port(address, PORT_PSCHED), whole);
    }
}

#[test]
fn an_address_is_said_once() {
    let at: SocketAddr = "10.88.0.1:7117".parse().expect("an address");
    let error = io::Error::from(rustix::io::Errno::NETUNREACH);
    assert_eq!(
        unconnected(at, "h0:7117", &error),
        "no route to 10.88.0.1:7117 (h0:7117): Network is unreachable (os error 101); check the network"
    );
    let error = io::Error::from(rustix::io::Errno::CONNREFUSED);
    assert_eq!(
        unconnected(at, "10.88.0.1:7117", &error),
        "nothing listens on 10.88.0.1:7117: is the daemon there running?"
    );
}
