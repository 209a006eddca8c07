//! Events that wait already are applied together, so that it is decided once what comes of all of them:
//! a thousand nodes report at once where a wide application starts or ends.

use super::Input;
use crate::psched::decide::Event;
use tokio::sync::mpsc;

/// How many are applied together at most: a bound on how long the loop does nothing else.
const TOGETHER_MAX: usize = 64;

/// This event and those right behind it; and the input behind those, if that is another one.
pub(super) fn gather(
    first: Event,
    inputs: &mut mpsc::Receiver<Input>,
) -> (Vec<Event>, Option<Input>) {
    let mut events = vec![first];
    while events.len() < TOGETHER_MAX
        && let Ok(input) = inputs.try_recv()
    {
        match input {
            Input::Event(event) => events.push(*event),
            other => return (events, Some(other)),
        }
    }
    (events, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_gathered_up_to_whatever_else_comes() {
        let (sender, mut inputs) = mpsc::channel(2 * TOGETHER_MAX);
        let send = |input| assert!(sender.try_send(input).is_ok());
        let tick = || Input::Event(Box::new(Event::Tick));
        (0..2).for_each(|_| send(tick()));
        send(Input::Stop);
        (0..TOGETHER_MAX).for_each(|_| send(tick()));
        let (events, next) = gather(Event::Tick, &mut inputs);
        assert_eq!(events.len(), 3);
        assert!(matches!(next, Some(Input::Stop)));
        let (events, next) = gather(Event::Tick, &mut inputs);
        assert_eq!((events.len(), next.is_none()), (TOGETHER_MAX, true));
        let (events, next) = gather(Event::Tick, &mut inputs);
        assert_eq!((events.len(), next.is_none()), (2, true));
    }
}
