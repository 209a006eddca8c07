//! apshepherd and its appmix.

use super::codec::{
    CString, CStrings, Data, Inner, List, Numbers, Optional, POSITIVE, Required, Same, Text,
};
use super::table::{message, variants};
use crate::apshepherd::decide::pmix::{FromMix, Job, ToMix};
use crate::apshepherd::decide::spawn::Program;
use crate::apteam::launch::PARTS_MAX;

message! {
    Job = MixJob;
    name: Text,
    width: POSITIVE,
    mapping: Text,
    firsts: Numbers,
    ranks: Numbers,
    folder: Text,
    universe: Same,
}

variants! {
    FromMix = FromMix.message: from_mix::Message;
    Serves { environment: CStrings, version: Text } = MixServes,
    Fails { missing: Same, text: Text } = MixFails,
    Connected(connected: Same),
    Finalized(finalized: Same),
    Abort { rank: Same, code: Same } = MixAbort,
    Fence { number: Same, ranks: Numbers, spawned: CStrings, data: Data } = MixFence,
    Modex { number: Same, rank: Same, spawned: Optional } = MixModex,
    Found { number: Same, status: Same, data: Data } = MixAnswer,
    Publish { number: Same, key: Data, data: Data, once: Same } = MixPublish,
    LookUp { number: Same, key: Data, wait: Same, seconds: Same } = MixLookUp,
    Unpublish { number: Same, key: Data } = MixUnpublish,
    Spawn { number: Same, rank: Same, spawner: Optional, programs: List(PARTS_MAX) } = MixSpawn,
    Prepared { number: Same, environment: CStrings, why_not: Text } = MixPrepared,
    SpawnedAbort { number: Same, code: Same } = MixSpawnedAbort,
}

message! {
    Program = SpawnProgram;
    pes: POSITIVE,
    command: CString,
    arguments: CStrings,
    environment: CStrings,
    folder: CString,
    path: CString,
}

variants! {
    ToMix = ToMix.message: to_mix::Message;
    Begin(begin: Inner),
    FenceOver { number: Same, status: Same, data: Data, last: Same } = MixFenceOver,
    ModexFound { number: Same, status: Same, data: Data } = MixAnswer,
    LookUp { number: Same, rank: Same, spawned: Optional } = MixModex,
    Answered { number: Same, key: Data, status: Same, data: Data } = MixAnswered,
    Prepare { number: Same, spawning: Required } = MixPrepare,
    Spawned { number: Same, status: Same, name: Text } = MixSpawned,
    Forget(forget: Text),
}
