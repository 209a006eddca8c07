//! What hosts of an application say to one another about its PEs.

use super::Field;
use super::codec::{CStrings, Data, Inner, Numbers, Optional, POSITIVE, Same, Text, Via};
use super::table::{message, variants};
use crate::apteam::protocol::letters::{Letter, LetterText, SpawnedPe, Spawning};
use crate::rpc::pb;

message! {
    Letter = Letter;
    to: Same,
    from: Same,
    number: Same,
    text: Via(
        |text: LetterText| Some(text.into()),
        |field: Field, text| field.variant::<pb::letter::Text>(text)?.try_into(),
    ),
}

message! {
    SpawnedPe = SpawnedPe;
    space: Text,
    rank: Same,
}

message! {
    Spawning = Spawning;
    space: Text,
    width: POSITIVE,
    firsts: Numbers,
    parent: Same,
    spawner: Optional,
}

variants! {
    LetterText = letter::Text, in Letter.text;
    Modex { spawned: Optional } = Modex,
    Fence { ranks: Numbers, spawned: CStrings, turn: Same, here: Numbers, data: Data } = PartialFence,
    Publish { name: Data, port: Data } = Publish,
    LookUp(look_up: Data),
    Unpublish(unpublish: Data),
    PublishData { key: Data, data: Data, once: Same } = PublishData,
    LookUpData { key: Data, wait: Same } = LookUpData,
    UnpublishData(unpublish_data: Data),
    Spawning(spawning: Inner),
    SpawnedEnded(spawned_ended: Text),
    Answer { status: Same, data: Data } = LetterAnswer,
}
