//! What a daemon says of a request that it did not take, or could not pass on: whether psched may
//! have it.
//!
//! A program on that host is connected, with its apinit, and hears of a psched that can't be reached only in an
//! answer. Whether it may ask again, it can't know from the text: psched may have done already what it was asked.

use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};

/// In the answer: `no`, `maybe`.
const HEADER: &str = "psched-sent";

/// Whether psched may have got a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Certainly not.
    No,
    /// The connection broke after it had begun to be sent.
    Maybe,
}

/// The answer to a request that was not taken, not passed on, or not answered.
pub fn unavailable(text: String, sent: Sent) -> Status {
    let word = match sent {
        Sent::No => "no",
        Sent::Maybe => "maybe",
    };
    let mut metadata = MetadataMap::new();
    metadata.insert(HEADER, MetadataValue::from_static(word));
    Status::with_metadata(Code::Unavailable, text, metadata)
}

/// Whether psched may have got the request to which this is the answer; `None`: that is not said.
pub fn sent(status: &Status) -> Option<Sent> {
    let word = status.metadata().get(HEADER).filter(|_| status.code() == Code::Unavailable)?;
    match word.as_bytes() {
        b"no" => Some(Sent::No),
        b"maybe" => Some(Sent::Maybe),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_whether_psched_has_the_request() {
        for what in [Sent::No, Sent::Maybe] {
            let status = unavailable("psched is away".into(), what);
            // As it goes over the wire.
            let answer = status.into_http::<tonic::body::Body>();
            let read = Status::from_header_map(answer.headers()).expect("a status");
            assert_eq!((sent(&read), read.message()), (Some(what), "psched is away"));
        }
        assert_eq!(sent(&Status::unavailable("psched's own word")), None);
        let mut other = unavailable("x".into(), Sent::No);
        other.metadata_mut().insert(HEADER, MetadataValue::from_static("yes"));
        assert_eq!(sent(&other), None);
    }
}
