//! What waits already is applied together, so that it is decided once what comes of all of it: a thousand nodes report
//! at once where a wide application starts or ends, and a thousand apinits call where psched has been restarted.

use super::Input;
use super::outside::Real;
use crate::psched::drive::{Came, Outside};
use tokio::sync::mpsc;

/// How much is applied together at most: a bound on how long the loop does nothing else.
const TOGETHER_MAX: usize = 64;

type Comes = Came<<Real as Outside>::Link>;

/// It can be applied together with others, or stands for itself.
fn came(input: Input) -> Result<Comes, Input> {
    match input {
        Input::Event(event) => Ok(Came::Event(*event)),
        Input::LinkOpened { link, hello, sender } => {
            Ok(Came::Link { id: link, hello, link: sender })
        }
        other => Err(other),
    }
}

/// This and what is right behind it; and the input behind that, if it is one that stands for itself.
pub(super) fn gather(
    first: Input,
    inputs: &mut mpsc::Receiver<Input>,
) -> (Vec<Comes>, Option<Input>) {
    let mut all = Vec::new();
    let mut next = Some(first);
    while let Some(input) = next {
        match came(input) {
            Ok(came) => all.push(came),
            Err(other) => return (all, Some(other)),
        }
        next = if all.len() < TOGETHER_MAX { inputs.try_recv().ok() } else { None };
    }
    (all, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::psched::decide::Event;

    #[test]
    fn what_comes_is_gathered_up_to_whatever_else_does() {
        let (sender, mut inputs) = mpsc::channel(2 * TOGETHER_MAX);
        let send = |input| assert!(sender.try_send(input).is_ok());
        let tick = || Input::Event(Box::new(Event::Tick));
        (0..2).for_each(|_| send(tick()));
        send(Input::Stop);
        (0..TOGETHER_MAX).for_each(|_| send(tick()));
        let (all, next) = gather(tick(), &mut inputs);
        assert_eq!(all.len(), 3);
        assert!(matches!(next, Some(Input::Stop)));
        let (all, next) = gather(Input::Stop, &mut inputs);
        assert!(all.is_empty() && matches!(next, Some(Input::Stop)));
        let (all, next) = gather(tick(), &mut inputs);
        assert_eq!((all.len(), next.is_none()), (TOGETHER_MAX, true));
        let (all, next) = gather(tick(), &mut inputs);
        assert_eq!((all.len(), next.is_none()), (2, true));
    }
}
