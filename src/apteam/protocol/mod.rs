//! What the processes say to one another about applications, as plain data.
//!
//! Four conversations: psched with each apinit ([`node`], about turns [`turns`]), a front end with the apinit of PE 0
//! ([`attach`]), that apinit with the others ([`peers`]), and apinit with its apshepherds ([`shepherd`]). One question goes
//! through two of them ([`processes`]), what hosts ask each other
//! about their PEs likewise ([`letters`]), and copies of programs go through three ([`programs`]).
//! `rpc` turns them into protobuf; the pure rooms know only this.

pub mod attach;
pub mod letters;
pub mod node;
pub mod notice;
pub mod peers;
pub mod processes;
pub mod programs;
pub mod shepherd;
pub mod stacks;
pub mod turns;
