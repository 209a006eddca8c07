//! Running applications that are moved: one of them, or those of a region together.
//!
//! What is planned is printed with its cost before it is done; with --dry-run that is all.

use super::nodes::{Nids, nids};
use super::{ANSWER_BOUND, Client, done};
use crate::commands::apkill::parse_apid;
use crate::commands::question::{Does, again, ask};
use crate::console::stdout::write_out;
use crate::rpc::pb;
use clap::Args;

/// One application.
#[derive(Args, Clone, Debug)]
pub struct Migrate {
    /// Number of the application, as apstat shows it
    #[arg(value_name = "APID", value_parser = parse_apid)]
    apid: u64,
    /// The nodes it is to sit on, as many as it has; without: any others of its host
    #[arg(value_name = "NIDS", value_parser = nids)]
    nids: Option<Nids>,
    /// Only show what would be done, and what it would cost
    #[arg(long)]
    dry_run: bool,
}

/// Those of a region.
#[derive(Args, Clone, Debug)]
pub struct Compact {
    /// Name of the region, as psmgr show or apstat -n -v shows it
    #[arg(value_name = "REGION")]
    region: String,
    /// Only show what would be done, and what it would cost
    #[arg(long)]
    dry_run: bool,
}

impl Migrate {
    pub(super) async fn run(self, client: &mut Client) -> Result<String, Vec<String>> {
        let nids: Vec<u32> =
            self.nids.iter().flat_map(|Nids(nids)| nids).map(|nid| nid.0).collect();
        let request = |dry_run| pb::MigrateRequest { apid: self.apid, nids: nids.clone(), dry_run };
        let plan =
            done(again(ask!(client.migrate, request(true)), Does::Read, ANSWER_BOUND)).await?;
        if self.dry_run {
            return Ok(plan);
        }
        write_out(&plan).map_err(|text| vec![text])?;
        done(again(ask!(client.migrate, request(false)), Does::Change, ANSWER_BOUND))
            .await
            .map(|told| news(told, &plan))
    }
}

impl Compact {
    pub(super) async fn run(self, client: &mut Client) -> Result<String, Vec<String>> {
        let request = |dry_run| pb::CompactRequest { region: self.region.clone(), dry_run };
        let plan =
            done(again(ask!(client.compact, request(true)), Does::Read, ANSWER_BOUND)).await?;
        if self.dry_run {
            return Ok(plan);
        }
        write_out(&plan).map_err(|text| vec![text])?;
        done(again(ask!(client.compact, request(false)), Does::Change, ANSWER_BOUND))
            .await
            .map(|told| news(told, &plan))
    }
}

/// What came of a plan, where that is not what the plan said: that there is nothing to move is said
/// once.
fn news(told: String, plan: &str) -> String {
    if told == plan { String::new() } else { told }
}
