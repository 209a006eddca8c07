//! How the folder of a checkpoint comes to the apinit that restores it.
//!
//! It goes through the apinit's door before the launch, as a descriptor: root follows no path of a user's. To the apinit
//! of another host its files go ([`super::door`]).

use super::attach::Target;
use super::door::ask;
use crate::aprun::decide::session::Event;
use crate::apteam::protocol::attach::FromApinit;
use crate::apteam::{Key, Ticket};
use crate::node::checkpoint::dir::Dir;
use crate::node::checkpoint::fd_channel::{Answer, Ask, Door, beside};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long an apinit may take for an answer.
const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// How long it may take until it has heard of the placement, which psched tells it and us at once.
const PLACE_WAIT: Duration = Duration::from_secs(10);
/// Between two questions whether it has: at first, for mostly it is about to hear, and at last.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

/// Gives this apinit the folder. The door stays open as long as cpr waits for what is
/// restored.
///
/// # Errors
/// It does not take it: what has happened instead of the launch.
pub async fn pass(
    target: &Target,
    key: Key,
    ticket: Ticket,
    folder: Option<Arc<Dir>>,
) -> Result<Door, Event> {
    let Some(folder) = folder else {
        return Err(refused("its checkpoint was released, because it has already run".into()));
    };
    pass_it(target, &Ask::Restore { key, ticket }, &folder).await
}

fn refused(text: String) -> Event {
    Event::Apinit(FromApinit::Refused { text, cause: None })
}

/// psched may have taken the place back before this apinit heard of it, and then it never will:
/// psched is asked again.
fn not_now() -> Event {
    Event::Apinit(FromApinit::NotNow("it has not heard of the placement from psched yet".into()))
}

fn down(text: String) -> Event {
    Event::ApinitDown { text, connected: false }
}

async fn pass_it(target: &Target, question: &Ask, folder: &Dir) -> Result<Door, Event> {
    // (Where its socket is gone too it is being restarted.)
    if target.head.is_none() && target.socket.exists() && !beside(&target.socket).exists() {
        return Err(refused(
            "its apinit is of an older release, which can't restart applications: upgrade apinit"
                .into(),
        ));
    }
    let lost = |_| down("the thread that asked apinit was lost".into());
    let begun = Instant::now();
    let mut pause = PAUSES.0;
    loop {
        let door = ask(target, question, folder.as_fd()).await;
        let mut door = door.map_err(|why| match why.for_good {
            true => refused(why.text),
            false => down(why.text),
        })?;
        let hears = tokio::task::spawn_blocking(move || (door.answer(ANSWER_WAIT), door));
        let (answer, door) = hears.await.map_err(lost)?;
        match answer {
            Ok(Answer::Taken) => return Ok(door),
            Ok(Answer::Refused(why)) => return Err(refused(why)),
            Ok(Answer::NotYet) if begun.elapsed() < PLACE_WAIT => {
                tokio::time::sleep(pause).await;
                pause = (2 * pause).min(PAUSES.1);
            }
            Ok(Answer::NotYet) => return Err(not_now()),
            Ok(other) => {
                return Err(down(format!(
                    "apinit gave an unexpected answer ({other:?}); install cpr and apinit of one release"
                )));
            }
            Err(error) => return Err(down(error.to_string())),
        }
    }
}
