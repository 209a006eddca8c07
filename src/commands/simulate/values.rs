//! The words of options whose values belong to [`crate::simulate`], which knows no command line.

use crate::simulate::Moves;
use crate::simulate::workload::{Bad, NoEstimate, Overrun};
use clap::ValueEnum;
use clap::builder::PossibleValue;

/// A value of one of them, as the command line has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word<T>(pub T);

/// The words of all values of one option.
macro_rules! words {
    ($of:ident: $($value:ident $word:literal),+) => {
        impl ValueEnum for Word<$of> {
            fn value_variants<'a>() -> &'a [Word<$of>] {
                &[$(Word($of::$value)),+]
            }

            fn to_possible_value(&self) -> Option<PossibleValue> {
                Some(PossibleValue::new(match self.0 {
                    $($of::$value => $word),+
                }))
            }
        }
    };
}

words!(Moves: All "all", Daemon "daemon");
words!(Overrun: Kill "kill", Extend "extend");
words!(Bad: Skip "skip", Refuse "refuse");
words!(NoEstimate: Drop "drop", Runtime "runtime");
