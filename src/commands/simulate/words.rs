//! The words of options whose values belong to [`crate::simulate`], which knows no command line.

use crate::simulate::Moves;
use crate::simulate::workload::{NoEstimate, Overrun};
use clap::ValueEnum;
use clap::builder::PossibleValue;

impl ValueEnum for Moves {
    fn value_variants<'a>() -> &'a [Moves] {
        &[Moves::All, Moves::Daemon]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(match self {
            Moves::All => "all",
            Moves::Daemon => "daemon",
        }))
    }
}

impl ValueEnum for Overrun {
    fn value_variants<'a>() -> &'a [Overrun] {
        &[Overrun::Kill, Overrun::Extend]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(match self {
            Overrun::Kill => "kill",
            Overrun::Extend => "extend",
        }))
    }
}

impl ValueEnum for NoEstimate {
    fn value_variants<'a>() -> &'a [NoEstimate] {
        &[NoEstimate::Drop, NoEstimate::Runtime]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(match self {
            NoEstimate::Drop => "drop",
            NoEstimate::Runtime => "runtime",
        }))
    }
}
