//! Why psched takes no connection of the apinit that offers a node.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Why it is not heard.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Unheard {
    /// The certificate of this host was revoked: no apinit of it is heard before it has another.
    Revoked(String),
    /// What the apinit says of itself does not fit, in a sentence.
    Unfit(String),
}

impl fmt::Display for Unheard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unheard::Revoked(host) => write!(f, "the certificate of {host} was revoked"),
            Unheard::Unfit(why) => f.write_str(why),
        }
    }
}
