//! aprun, played: in the test, or as a process of its own that can be killed.

use super::rig::{TICKET, bounded, key};
use psched::apteam::Key;
use psched::apteam::ending::{EndCount, PeEnd};
use psched::apteam::launch::Launch;
use psched::apteam::protocol::attach::{FromApinit, OutputTaken, ToApinit};
use psched::rpc::connect::connect;
use psched::rpc::pb;
use psched::rpc::pb::apinit_client::ApinitClient;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Stdio};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

pub struct Front {
    pub sender: mpsc::Sender<pb::ToApinit>,
    pub stream: Streaming<pb::FromApinit>,
    pub output: String,
    /// Of each source, so many bytes.
    pub had: BTreeMap<u32, u64>,
}

impl Front {
    pub async fn attach(socket: &Path, first: ToApinit) -> Front {
        let channel = connect(socket).await.expect("apinit answers");
        let (sender, receiver) = mpsc::channel(64);
        sender.send(first.into()).await.expect("it is open");
        let stream = ApinitClient::new(channel).attach(ReceiverStream::new(receiver)).await;
        let stream = stream.expect("apinit takes it").into_inner();
        Front { sender, stream, output: String::new(), had: BTreeMap::new() }
    }

    pub async fn launch(socket: &Path, key: Key, script: &str) -> Front {
        Front::attach(socket, launch(key, script)).await
    }

    pub async fn say(&self, message: ToApinit) {
        self.sender.send(message.into()).await.expect("it is open");
    }

    /// The next message that is not output; output is taken. `None`: the stream has ended.
    pub async fn next(&mut self) -> Option<FromApinit> {
        loop {
            let message = bounded("apinit", self.stream.message()).await.expect("no error")?;
            let message = FromApinit::try_from(message).expect("a good message");
            let FromApinit::Output(output) = message else { return Some(message) };
            let had = self.had.entry(output.source).or_default();
            assert_eq!(*had, output.offset, "output without gaps");
            *had += output.data.len() as u64;
            self.output += std::str::from_utf8(&output.data).expect("text");
            let taken = OutputTaken { source: output.source, offset: *had };
            // An Err: it is over.
            let _ = self.sender.send(ToApinit::OutputTaken(taken).into()).await;
        }
    }

    pub async fn until_done(&mut self) {
        while let Some(message) = self.next().await {
            if message == FromApinit::Done {
                return;
            }
        }
        panic!("the stream has ended before Done");
    }

    pub async fn until_going(&mut self) {
        assert_eq!(self.next().await, Some(FromApinit::Accepted));
        loop {
            match self.next().await {
                Some(FromApinit::Going) => return,
                Some(FromApinit::StdinCredit(_) | FromApinit::Notice(_)) => {}
                other => panic!("{other:?} instead of Going"),
            }
        }
    }

    /// Without saying that it has been taken.
    pub async fn until_output_untaken(&mut self, text: &str) {
        while !self.output.contains(text) {
            let message = bounded("output", self.stream.message()).await.expect("no error");
            let message = FromApinit::try_from(message.expect("it goes on")).expect("a good one");
            if let FromApinit::Output(output) = message {
                *self.had.entry(output.source).or_default() += output.data.len() as u64;
                self.output += std::str::from_utf8(&output.data).expect("text");
            }
        }
    }

    pub async fn until_output(&mut self, text: &str) {
        self.until_output_untaken(text).await;
        for (source, offset) in self.had.clone() {
            self.say(ToApinit::OutputTaken(OutputTaken { source, offset })).await;
        }
    }

    pub async fn until_pid(&mut self) -> String {
        self.until_output("\n").await;
        self.output.trim().to_string()
    }
}

pub fn launch(key: Key, script: &str) -> ToApinit {
    let launch = Launch {
        executable: b"/bin/bash".to_vec(),
        arguments: ["sh", "-c", script].iter().map(|a| a.as_bytes().to_vec()).collect(),
        environment: vec![b"PATH=/usr/bin:/bin".to_vec()],
        directory: b"/".to_vec(),
        umask: 0o22,
        pmi: true,
        ..Launch::default()
    };
    ToApinit::Launch { key, ticket: TICKET, launch: Box::new(launch) }
}

pub fn exits(code: u8, count: u32) -> Vec<EndCount> {
    vec![EndCount { end: PeEnd::Exit(code), count, consequence: false }]
}

pub fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// How a front end that is a process of its own is told what to do.
const HELPER: &str = "PSCHED_TEST_FRONT";

/// Not a test: what [`front_process`] starts.
#[tokio::test]
#[ignore = "a helper of other tests"]
async fn helper() {
    let Ok(told) = std::env::var(HELPER) else { return };
    let mut told = told.splitn(3, ' ');
    let mut word = || told.next().expect("three words");
    let (socket, name, script) = (word(), word(), word());
    let mut front = Front::launch(Path::new(socket), key(name), script).await;
    while let Some(message) = front.next().await {
        println!("<{message:?}>");
        if message == FromApinit::Done {
            break;
        }
    }
    println!("<{}>", front.output);
}

/// A front end in a process of its own, as another user if so wanted.
pub fn front_process(socket: &Path, name: &str, script: &str, uid: Option<u32>) -> Child {
    let own = std::env::current_exe().expect("it is here");
    let mut command = match uid {
        Some(uid) => {
            let mut command = std::process::Command::new("setpriv");
            command.args([&format!("--reuid={uid}"), &format!("--regid={uid}"), "--groups=54000"]);
            command.arg("--").arg(own);
            command
        }
        None => std::process::Command::new(own),
    };
    command
        .args(["--exact", "apinit::front::helper", "--ignored", "--nocapture"])
        .env(HELPER, format!("{} {name} {script}", socket.display()))
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts")
}
