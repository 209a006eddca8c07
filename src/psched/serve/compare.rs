//! `psched check --diff`: what a psched.yaml would change, were it read now.
//!
//! The file comes in pieces, for it may be larger than a request. It is read as at SIGHUP, by
//! the same functions, and the scheduler tries it on a copy of itself; so what is told is what would be.

use super::input::Input;
use super::people::groups_looked_up;
use super::reload::merged;
use super::services::{Service, ending};
use crate::config::{self, SIZE_MAX};
use crate::rpc::pb;
use std::sync::PoisonError;
use tokio::sync::oneshot;
use tonic::{Request, Response, Status, Streaming};

impl Service {
    /// psched check --diff.
    pub(super) async fn compare_with(
        &self,
        request: Request<Streaming<pb::CompareRequest>>,
    ) -> Result<Response<pb::CompareReply>, Status> {
        let by = self.administrator(&request).await?;
        let text = text_of(request.into_inner()).await?;
        // A large file takes a moment, and so does a name service, which nobody else is to wait for.
        let read = tokio::task::spawn_blocking(move || {
            let mut new = config::read(&text)?;
            groups_looked_up(&mut new);
            Ok::<_, Vec<_>>(new)
        });
        let new = match read.await.map_err(|_| ending())? {
            Ok(new) => new,
            Err(problems) => {
                let problems = problems.iter().map(ToString::to_string).collect();
                return Ok(Response::new(pb::CompareReply { problems, ..Default::default() }));
            }
        };
        let running = self.running.read().unwrap_or_else(PoisonError::into_inner).clone();
        let (new, told) = merged(&running, new);
        let (answer, compared) = oneshot::channel();
        let (variables, machine) = (Box::new(new.variables), Box::new(new.machine));
        self.ask(by.uid, Input::Compare { variables, machine, answer }).await?;
        let (tuned, applications) = compared.await.map_err(|_| ending())?;
        Ok(Response::new(pb::CompareReply {
            changes: tuned.changes.into_iter().chain(told.changes).collect(),
            waits: told.waits.into_iter().chain(tuned.waits).collect(),
            applications,
            problems: Vec::new(),
        }))
    }
}

/// The pieces together.
async fn text_of(mut pieces: Streaming<pb::CompareRequest>) -> Result<String, Status> {
    let mut text = Vec::new();
    while let Some(pb::CompareRequest { piece }) = pieces.message().await? {
        if text.len() + piece.len() > SIZE_MAX {
            let what = format!(
                "the file has more than {SIZE_MAX} bytes; write nodes that are alike as one entry"
            );
            return Err(Status::invalid_argument(what));
        }
        text.extend(piece);
    }
    String::from_utf8(text).map_err(|_| Status::invalid_argument("the file is not UTF-8 text"))
}
