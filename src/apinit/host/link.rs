//! The link to psched: dialled, kept, dialled again.

use super::events::{Events, TaskEvent};
use super::login::jitter;
use super::network::Psched;
use super::open_link::Link;
use crate::apinit::decide::clock::{Exchange, Moment};
use crate::apinit::decide::exchanges::{Exchanges, Learned};
use crate::apteam::protocol::node::{ClockTold, Command, Hello, HostNote, RollOut, Welcome};
use crate::apteam::silence::Silence;
use crate::os::host::{clocks, monotonic_ns};
use crate::rpc::arrivals::Arrivals;
use crate::rpc::connect::status_text;
use crate::rpc::convert::wire_roll_out;
use crate::rpc::pb;
use crate::rpc::pb::from_node::Message as Said;
use crate::rpc::pb::nodes_client::NodesClient;
use crate::variables::units::format_duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Interval, MissedTickBehavior, interval, sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tower::util::MapResponse;

/// How long psched may take for its welcome.
const WELCOME: Duration = Duration::from_secs(10);
/// The first wait before dialling again, and the longest.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// A link that has lasted for so long is said to hold, where the log says that there was none.
pub(super) const LASTING: Duration = Duration::from_secs(2);
/// The largest message to or from psched, in bytes: both are root's, or one user's. An inventory is
/// the largest, or what a foreign node holds.
const MESSAGE_MAX: usize = 64 * 1024 * 1024;
/// Messages to psched that may wait: several for each application that this host may hold, for all of them
/// may end at once. A psched that does not take them is hung up on; the next inventory tells it everything.
const QUEUE: usize = 16_384;

/// Keeps a link for ever. `hello` is what is said at the beginning of each; its notes are said again
/// when they change.
pub(super) async fn keep(psched: Psched, mut hello: watch::Receiver<Hello>, events: Events) {
    let mut back_off = BackOff::default();
    let mut last_error = String::new();
    loop {
        let begun = tokio::time::Instant::now();
        let error = match dial(&psched, &mut hello, &events, &mut last_error).await {
            Ok(()) => "psched has closed the link".to_string(),
            Err(text) => text,
        };
        if events.is_closed() {
            return;
        }
        if error != last_error {
            tracing::warn!("no link to psched: {error}");
            last_error.clone_from(&error);
        }
        if begun.elapsed() > BACK_OFF.1 {
            back_off = BackOff::default();
        }
        sleep(back_off.next(jitter())).await;
    }
}

/// How long apinit waits before it dials again. All apinits of a machine lose psched at the same time, and should not
/// dial at the same time.
struct BackOff {
    /// About how long the next wait is.
    about: Duration,
}

impl Default for BackOff {
    fn default() -> Self {
        BackOff { about: BACK_OFF.0 }
    }
}

impl BackOff {
    /// The next wait: half as long or half as long again, by a chance between 0 and 1.
    fn next(&mut self, chance: f64) -> Duration {
        let wait = self.about.mul_f64(0.5 + chance);
        self.about = (self.about * 2).min(BACK_OFF.1);
        wait
    }
}

/// The notes of a hello, and what is known of psched's clock.
fn notes((notes, roll_out): &(Vec<HostNote>, RollOut), clock: ClockTold) -> Said {
    let roll_out = wire_roll_out(roll_out.clone());
    let notes = notes.iter().cloned().map(Into::into).collect();
    Said::Notes(pb::NodeNotes {
        notes,
        roll_out,
        clock_error_ns: clock.error_ns,
        clock_at_ns: clock.at_ns,
        clock_ahead_ns: clock.ahead_ns,
        clock_pace: clock.pace,
        clock_growth: clock.growth,
    })
}

/// Both clocks of this host, now.
fn moment() -> Moment {
    let (mono_ns, raw_ns, apart_ns) = clocks();
    Moment { mono_ns, raw_ns, apart_ns }
}

/// How long it is until a time of this host's clock.
fn until(at_ns: u64) -> Duration {
    Duration::from_nanos(at_ns.saturating_sub(monotonic_ns()))
}

/// When to say that this apinit is there.
fn beats_of(silence: &Silence) -> Interval {
    let mut beats = interval(silence.every());
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    beats
}

/// One link, from its beginning to its end.
async fn dial(
    psched: &Psched,
    hello: &mut watch::Receiver<Hello>,
    events: &Events,
    last_error: &mut String,
) -> Result<(), String> {
    let (channel, arrivals) = (psched.connect().await?, Arrivals::default());
    let noted = arrivals.clone();
    let channel = MapResponse::new(channel, move |answer| noted.of_answer(answer));
    let mut client = NodesClient::new(channel)
        .max_decoding_message_size(MESSAGE_MAX)
        .max_encoding_message_size(MESSAGE_MAX);
    let (sender, receiver) = mpsc::channel(QUEUE);
    let first = hello.borrow_and_update().clone();
    let boot_id = first.boot_id.clone();
    let mut told = (first.notes.clone(), first.roll_out.clone());
    let first = pb::FromNode { message: Some(Said::Hello(first.into())) };
    sender.try_send(first).map_err(|e| e.to_string())?;
    let answer = timeout(WELCOME, client.link(ReceiverStream::new(receiver)));
    let late = |_| format!("psched does not answer on {psched}");
    let mut stream = answer.await.map_err(late)?.map_err(status_text)?.into_inner();
    let welcome = timeout(WELCOME, stream.message()).await.map_err(late)?;
    let welcome = match welcome.map_err(status_text)?.and_then(|m| m.message) {
        Some(pb::to_node::Message::Welcome(welcome)) => {
            Welcome::try_from(welcome).map_err(|e| e.to_string())?
        }
        Some(pb::to_node::Message::Refused(text)) => {
            return Err(format!("psched refuses this node: {text}"));
        }
        _ => return Err("psched has not answered the hello of this node".into()),
    };
    let hang_up = CancellationToken::new();
    let last_command = Arc::new(AtomicU64::new(0));
    let link = Link {
        sender: sender.clone(),
        hang_up: hang_up.clone(),
        last_command: Arc::clone(&last_command),
    };
    let link_up = link.clone();
    let mut counted = welcome.commits;
    let mut bounds = welcome.bounds;
    // (psched's clock is this host's if it is on this host.)
    let other_clock = welcome.boot_id != boot_id;
    let mut exchanges = Exchanges::new(monotonic_ns());
    let mut clock_told = ClockTold::default();
    if events.send(TaskEvent::LinkUp(link, welcome)).await.is_err() {
        return Ok(());
    }
    let mut silence = Silence::new(bounds.silence);
    let mut beats = beats_of(&silence);
    let mut lasting = Box::pin(sleep(LASTING));
    let outcome = loop {
        tokio::select! {
            () = &mut lasting, if !last_error.is_empty() => {
                tracing::warn!("the link to psched holds again");
                last_error.clear();
            }
            () = hang_up.cancelled() => break Err("apinit closed the link to psched".to_string()),
            _ = beats.tick() => {
                if arrivals.any() {
                    silence.heard();
                }
                if silence.is_over() {
                    let silence = format_duration(bounds.silence);
                    break Err(format!("psched was silent for {silence} (host_silence)"));
                }
                silence.beat();
                let last_command = last_command.load(Ordering::Relaxed);
                let message = Some(Said::Heartbeat(pb::Heartbeat { last_command }));
                if sender.try_send(pb::FromNode { message }).is_err() {
                    break Err("psched does not read its messages".to_string());
                }
            }
            () = sleep(until(exchanges.next_ns())), if other_clock => {
                if exchanges.asks(monotonic_ns()) {
                    let question = pb::ClockQuestion { asked_ns: monotonic_ns() };
                    link_up.send(Said::Clock(question));
                }
                let Some(Learned { reading, news }) = exchanges.reads(moment()) else { continue };
                if let Some(news) = news {
                    clock_told = news;
                    link_up.send(notes(&told, clock_told));
                }
                if events.send(TaskEvent::Clock(reading)).await.is_err() {
                    break Ok(());
                }
            }
            // An Err: apinit ends.
            Ok(()) = hello.changed() => {
                // (The store that is obeyed psched knows.)
                let hello = hello.borrow_and_update();
                let now = (hello.notes.clone(), hello.roll_out.clone());
                drop(hello);
                if now != told {
                    told = now;
                    link_up.send(notes(&told, clock_told));
                }
            }
            message = stream.message() => {
                match message {
                Ok(Some(pb::ToNode { clock: Some(answer), .. })) => {
                    let at = moment();
                    let pb::ClockAnswer { asked_ns, received_ns, told_ns } = answer;
                    let exchange = Exchange { asked_ns, received_ns, told_ns };
                    let learned = exchanges.answered(exchange, at);
                    let Some(Learned { reading, news }) = learned else { continue };
                    if let Some(news) = news {
                        clock_told = news;
                        link_up.send(notes(&told, clock_told));
                    }
                    if events.send(TaskEvent::Clock(reading)).await.is_err() {
                        break Ok(());
                    }
                }
                Ok(Some(pb::ToNode { processes: Some(question), .. })) => {
                    // (One that can't be made sense of is a later release's.)
                    let Ok(question) = question.try_into() else { continue };
                    if events.send(TaskEvent::ProcessesAsked(question)).await.is_err() {
                        break Ok(());
                    }
                }
                Ok(Some(pb::ToNode { stacks: Some(question), .. })) => {
                    let Ok(question) = question.try_into() else { continue };
                    if events.send(TaskEvent::StacksAsked(question)).await.is_err() {
                        break Ok(());
                    }
                }
                Ok(Some(pb::ToNode { stacks_withdrawn: number @ 1.., .. })) => {
                    if events.send(TaskEvent::StacksWithdrawn(number)).await.is_err() {
                        break Ok(());
                    }
                }
                Ok(Some(pb::ToNode { seq, commits, message, .. })) => {
                    // Before what has left psched after them.
                    if commits > counted {
                        counted = commits;
                        if events.send(TaskEvent::Counted(commits)).await.is_err() {
                            break Ok(());
                        }
                    }
                    let command = match message {
                        None => continue,
                        Some(pb::to_node::Message::Welcome(_)) => continue,
                        Some(pb::to_node::Message::Refused(text)) => {
                            break Err(format!("psched refuses this node: {text}"));
                        }
                        Some(message) => Command::try_from(message),
                    };
                    match command {
                        Ok(command) => {
                            if let Command::Bounds(new) = command
                                && new.silence != std::mem::replace(&mut bounds, new).silence
                            {
                                silence.allow(new.silence);
                                beats = beats_of(&silence);
                            }
                            if events.send(TaskEvent::Commanded(seq, command)).await.is_err() {
                                break Ok(());
                            }
                        }
                        Err(error) => break Err(format!("psched sent a message that can't be \
                                                         decoded: {error}")),
                    }
                }
                Ok(None) => break Ok(()),
                Err(status) => break Err(status_text(status)),
                }
            }
        }
    };
    let _ = events.send(TaskEvent::LinkDown).await;
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn waits_grow_to_a_second_and_apinits_do_not_wait_for_as_long_as_each_other() {
        let mut back_off = [0.0, 0.5, 1.0].map(|chance| (BackOff::default(), chance));
        let mut waits = || back_off.each_mut().map(|(own, chance)| own.next(*chance).as_millis());
        assert_eq!(waits(), [10, 20, 30]);
        assert_eq!(waits(), [20, 40, 60]);
        for _ in 0..3 {
            waits();
        }
        assert_eq!(waits(), [320, 640, 960]);
        for _ in 0..3 {
            assert_eq!(waits(), [500, 1_000, 1_500]);
        }
    }

    /// Of a thousand apinits that dial again at about the same time, no tenth of that time has more than its part by far.
    #[test]
    fn a_thousand_apinits_are_spread_over_the_wait() {
        let waits: Vec<u128> =
            (0..1_000).map(|_| BackOff::default().next(jitter()).as_micros()).collect();
        assert!(waits.iter().all(|wait| (10_000..=30_000).contains(wait)));
        for tenth in 0..10 {
            let from = 10_000 + tenth * 2_000;
            let here = waits.iter().filter(|wait| (from..from + 2_000).contains(*wait)).count();
            assert!((50..200).contains(&here), "{here} from {from} us");
        }
        assert!(waits.into_iter().collect::<BTreeSet<_>>().len() > 100);
    }
}
