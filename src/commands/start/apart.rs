//! The instance's processors: not those of another psched, where there are others.
//!
//! What others take is found where everybody says it ([`claims`]). This instance says it too, before it starts
//! anything, and looks once more: two that begin at once see each other, and the later one chooses anew. Where
//! not all processors are taken the daemons are allowed those only; nodes of a psched.yaml that names processors
//! are as it says.

use super::{Plan, StartArgs, StartError, layout, plan, topology::Topology};
use crate::os::claims::{self, Choice, Claim, Other, Says};

/// How often it is looked whether somebody has begun at the same time.
const LOOKS_MAX: usize = 3;

/// What the instance is to be, and where.
pub(super) struct Apart {
    pub(super) plan: Plan,
    /// The processors that the daemons may use, where these are not all.
    pub(super) cpus: Option<Vec<u32>>,
    /// That they are taken, for as long as this lives.
    pub(super) claim: Option<Claim>,
    /// What is to be said of others.
    pub(super) warnings: Vec<String>,
}

/// The plan on processors that nobody else takes, where there are any.
pub(super) fn planned(args: &StartArgs, topology: &Topology) -> Result<Apart, StartError> {
    let all = topology.cpus();
    let whole = plan(args, topology)?;
    let Some(folder) = claims::folder() else {
        return Ok(Apart { plan: whole, cpus: None, claim: None, warnings: Vec::new() });
    };
    let sized = args.nodes.is_some() || args.processors.is_some() || args.config.is_some();
    let wanted = sized.then(|| layout::processors(&whole.machine) as usize);
    let fixed = args.config.is_some() && whole.machine.nodes.values().any(|n| !n.cpus.is_empty());
    let uid = rustix::process::geteuid().as_raw();
    let choose = |others: &[Other]| match fixed {
        true => {
            let bound: Vec<u32> = layout::bound(&whole.machine, &all).into_iter().collect();
            Choice { cpus: all.clone(), warnings: claims::shared(&bound, others) }
        }
        false => claims::spare(&all, others, uid, wanted),
    };
    let says = |choice: &Choice| -> Result<(Plan, Says), StartError> {
        let plan = plan(args, &topology.only(&choice.cpus))?;
        let cpus = layout::bound(&plan.machine, &choice.cpus);
        Ok((plan, Says { name: "psched start".into(), cpus, ..Says::default() }))
    };
    let mut others = claims::others(&folder);
    let mut choice = choose(&others);
    let (mut plan, mut say) = says(&choice)?;
    // (Without a place to say it nobody else can know; it works all the same.)
    let claim = Claim::new(&folder, &say).ok();
    for _ in 0..LOOKS_MAX {
        let Some(claim) = &claim else { break };
        let mut new = claim.before(claims::others(&folder));
        new.retain(|other| !others.contains(other));
        if new.is_empty() {
            break;
        }
        others.extend(new);
        choice = choose(&others);
        (plan, say) = says(&choice)?;
        let _ = claim.say(&say);
    }
    let cpus = (choice.cpus != all).then_some(choice.cpus);
    Ok(Apart { plan, cpus, claim, warnings: choice.warnings })
}
