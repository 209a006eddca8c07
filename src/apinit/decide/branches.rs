//! How the hosts of an application are reached: which of them are spoken to, and which through others.
//!
//! A head that spoke with a thousand hosts would open a thousand streams, and send what is for everybody a thousand
//! times. So it speaks with a few of them (variable `fan_out`), and each leads on to an equal part of the others, in the
//! same way. The hosts stay in order: those of a branch follow each other, and are told by a few numbers.
//!
//! ```
//! use psched_pure::apinit::decide::branches;
//! let tree = branches(vec![1, 2, 3, 4, 5, 6, 7], 3);
//! assert_eq!(tree, [(1, vec![2, 3]), (4, vec![5]), (6, vec![7])]);
//! assert_eq!(branches(vec![1, 2], 3), [(1, vec![]), (2, vec![])]);
//! ```

/// The hosts that are spoken to, at most `fan_out` (and at least one), each with those to which it leads.
pub fn branches<T>(hosts: Vec<T>, fan_out: usize) -> Vec<(T, Vec<T>)> {
    let count = fan_out.clamp(1, hosts.len().max(1));
    let (least, more) = (hosts.len() / count, hosts.len() % count);
    let mut hosts = hosts.into_iter();
    let sizes = (0..count).map(|branch| least + usize::from(branch < more));
    let mut all = Vec::with_capacity(count);
    for size in sizes {
        let Some(first) = hosts.next() else { break };
        all.push((first, hosts.by_ref().take(size - 1).collect()));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// How many steps there are to the farthest host.
    fn depth(hosts: Vec<u32>, fan_out: usize) -> u32 {
        let beyond = branches(hosts, fan_out).into_iter().map(|(_, beyond)| beyond);
        beyond.map(|beyond| 1 + depth(beyond, fan_out)).max().unwrap_or(0)
    }

    #[test]
    fn a_thousand_hosts_are_two_steps_away() {
        let hosts = |count: u32| (1..=count).collect::<Vec<u32>>();
        assert_eq!(depth(hosts(32), 32), 1);
        assert_eq!(depth(hosts(999), 32), 2);
        assert_eq!(depth(hosts(10_000), 32), 3);
        assert_eq!(depth(hosts(6), 2), 2);
    }

    proptest! {
        #[test]
        fn each_is_reached_once_and_in_order(count in 0u32..300, fan_out in 0usize..40) {
            let hosts: Vec<u32> = (0..count).collect();
            let tree = branches(hosts.clone(), fan_out);
            prop_assert!(tree.len() <= fan_out.max(1));
            let sizes = tree.iter().map(|(_, beyond)| beyond.len());
            let (least, most) = (sizes.clone().min(), sizes.max());
            prop_assert!(most.unwrap_or(0) - least.unwrap_or(0) <= 1);
            let all: Vec<u32> =
                tree.into_iter().flat_map(|(first, beyond)| std::iter::once(first).chain(beyond)).collect();
            prop_assert_eq!(all, hosts);
        }
    }
}
