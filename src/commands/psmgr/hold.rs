//! Applications that are held, and released.

use super::{ANSWER_BOUND, Client, done};
use crate::commands::apkill::parse_apid;
use crate::commands::question::{Does, again, ask};
use crate::rpc::pb;
use clap::Args;

/// Applications.
#[derive(Args, Clone, Debug)]
pub struct Apids {
    /// Numbers of applications, as apstat shows them
    #[arg(value_name = "APID", required = true, value_parser = parse_apid)]
    apids: Vec<u64>,
}

impl Apids {
    pub(super) async fn run(self, client: &mut Client, hold: bool) -> Result<String, Vec<String>> {
        done(again(
            ask!(client.hold, pb::HoldRequest { apids: self.apids, hold }),
            Does::Change,
            ANSWER_BOUND,
        ))
        .await
    }
}
