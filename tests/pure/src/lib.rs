//! The pure rooms, and nothing else of the house. They stand at the root under their own names, so
//! that what they say to each other (`crate::machine::Nid`) means the same here. A room that looks
//! into one that is not pure does not compile.

#[path = "../../../src/agent/mod.rs"]
pub mod agent;
#[path = "../../../src/apteam/mod.rs"]
pub mod apteam;
#[path = "../../../src/checkpoint/mod.rs"]
pub mod checkpoint;
#[path = "../../../src/config/mod.rs"]
pub mod config;
#[path = "../../../src/front/mod.rs"]
pub mod front;
#[path = "../../../src/gang/mod.rs"]
pub mod gang;
#[path = "../../../src/machine/mod.rs"]
pub mod machine;
#[path = "../../../src/occupancy/mod.rs"]
pub mod occupancy;
#[path = "../../../src/placement/mod.rs"]
pub mod placement;
#[path = "../../../src/scheduler/mod.rs"]
pub mod scheduler;
#[path = "../../../src/shepherd/mod.rs"]
pub mod shepherd;
#[path = "../../../src/simulate/mod.rs"]
pub mod simulate;
#[path = "../../../src/torture/mod.rs"]
pub mod torture;
#[path = "../../../src/variables/mod.rs"]
pub mod variables;
