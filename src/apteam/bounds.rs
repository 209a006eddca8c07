//! Bounds that psched's variables set and that hold on other hosts.
//!
//! Those of an application go with its placement to each apinit, and with its launch to each
//! apshepherd: whoever keeps something of it anywhere keeps no more than it was started with. Those
//! of a host go to its apinit when psched welcomes it, and again when they change. Whoever has not
//! been told obeys the defaults.

use crate::variables::Variables;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What may be kept of one application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// Bytes of output on each host that are sent and not yet written out by the front end. When
    /// there are as many, its PEs are not read and wait.
    pub output: u64,
    /// Bytes of stdin on their way to PE 0.
    pub stdin: u64,
    /// Bytes of keys and values in PMI's space, as
    /// [`PmiEntry::cost`](super::protocol::peers::PmiEntry::cost) has them.
    pub pmi: u64,
}

impl From<&Variables> for Bounds {
    fn from(variables: &Variables) -> Bounds {
        Bounds {
            output: variables.output_max(),
            stdin: variables.stdin_max(),
            pmi: variables.pmi_max(),
        }
    }
}

/// Bytes that may wait for another host of an application beside the ends of barriers: a launch, the hosts to which it
/// leads on, signals and acknowledgements for each of these.
const TO_PEER: u64 = 64 << 20;

/// The least window of a host's output, in bytes.
const OUTPUT_LEAST: u64 = 64 << 10;
/// So many hosts of an application have a whole window each, at least.
const WHOLE_WINDOWS: u32 = 32;

impl Bounds {
    /// Bytes that may wait at a host for another one to which it has a stream: the ends of two barriers, and the rest.
    /// A host that does not read has no more of its head's memory.
    pub fn to_peer(&self) -> u64 {
        self.pmi.saturating_mul(2).saturating_add(TO_PEER)
    }

    /// Those of each of so many hosts. What is under way from all of them together is no more than from as many as
    /// their head speaks with, with a whole window each: more would have to be kept where it comes together.
    #[must_use]
    pub fn among(self, hosts: u32, fan_out: u32) -> Bounds {
        let (hosts, whole) = (u64::from(hosts), u64::from(whole_windows(fan_out)));
        if hosts <= whole {
            return self;
        }
        let share = self.output.saturating_mul(whole) / hosts;
        Bounds { output: share.max(OUTPUT_LEAST.min(self.output)), ..self }
    }
}

/// How many hosts of an application have a whole window each, where its head speaks with so many (0: with all).
pub fn whole_windows(fan_out: u32) -> u32 {
    fan_out.max(WHOLE_WINDOWS)
}

impl Default for Bounds {
    fn default() -> Bounds {
        (&Variables::default()).into()
    }
}

/// What an apinit may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostBounds {
    /// Connections to its socket, and streams of front ends.
    pub connections: u64,
    /// The same of one user who is neither root nor apinit's own.
    pub connections_user: u64,
    /// Applications.
    pub applications: u64,
    /// Launches of one user that wait for their placement.
    pub launches_user: u64,
    /// Bytes of memory of all launches that wait for their placement.
    pub launch_bytes: u64,
    /// Bytes of memory of one user's launches that wait.
    pub launch_bytes_user: u64,
    /// Bytes of copies of programs.
    pub programs: u64,
    /// Bytes of copies of one user's programs.
    pub programs_user: u64,
    /// How long a frozen gang's last process is waited for before the next gang is let run.
    pub freeze_wait: Duration,
    /// How long a gang is idle before it gives its processors away; zero: it does not.
    pub idle_after: Duration,
    /// How long the connection of an apinit and psched may be silent, in either direction; zero: without a bound,
    /// as with a psched of a release before, which does not answer heartbeats.
    pub silence: Duration,
}

/// The longest time between two heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// How often an apinit says that it is there, where it may be silent for so long (zero: without a bound), and how many
/// heartbeats without an answer are silence.
///
/// ```
/// # use psched_pure::apteam::bounds::heartbeat;
/// # use std::time::Duration;
/// let every = |silence| {
///     let (every, most) = heartbeat(Duration::from_secs(silence));
///     (every.as_secs(), most)
/// };
/// assert_eq!([6, 15, 16, 3_600].map(every), [(2, 3), (5, 3), (5, 4), (5, 720)]);
/// assert_eq!(every(0), (5, u32::MAX));
/// ```
pub fn heartbeat(silence: Duration) -> (Duration, u32) {
    if silence.is_zero() {
        return (HEARTBEAT, u32::MAX);
    }
    let every = HEARTBEAT.min(silence / 3).max(Duration::from_millis(1));
    let most = silence.as_millis().div_ceil(every.as_millis().max(1));
    (every, u32::try_from(most).unwrap_or(u32::MAX))
}

/// Of so many connections at once, those that are kept for root and the daemon's own user: nodes
/// and administrators get through whatever users do.
pub fn reserved(connections: u64) -> u64 {
    (connections / 4).min(64)
}

impl From<&Variables> for HostBounds {
    fn from(variables: &Variables) -> HostBounds {
        HostBounds {
            connections: variables.connections_max(),
            connections_user: variables.connections_user_max(),
            applications: variables.applications_max(),
            launches_user: variables.launches_user_max(),
            launch_bytes: variables.launch_memory_max(),
            launch_bytes_user: variables.launch_memory_user_max(),
            programs: variables.program_memory_max(),
            programs_user: variables.program_memory_user_max(),
            freeze_wait: variables.freeze_wait(),
            idle_after: variables.application_idle_after(),
            silence: variables.host_silence(),
        }
    }
}

impl Default for HostBounds {
    fn default() -> HostBounds {
        (&Variables::default()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_hosts_share_the_room_of_a_few() {
        let all = Bounds { output: 2 << 20, stdin: 5, pmi: 7 };
        let window = |hosts| all.among(hosts, 32).output;
        assert_eq!([1, 32, 64, 1_000].map(window), [2 << 20, 2 << 20, 1 << 20, 67_108]);
        assert_eq!(window(1_000_000), OUTPUT_LEAST);
        assert_eq!(all.among(1_000, 32), Bounds { output: 67_108, ..all });
        // With a small fan-out, or none, they are no smaller.
        assert_eq!([all.among(32, 2), all.among(64, 0)], [all, all.among(64, 32)]);
        // A smaller one stays as it is.
        let little = Bounds { output: 1_000, ..all };
        assert_eq!(little.among(1_000, 32), little);
    }
}
