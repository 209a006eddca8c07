//! Variables of earlier releases, and what became of them: the error for such a name says so.

/// The name of each within its domain.
const RETIRED: [(&str, &str); 6] = [
    ("aging.grant", AGED),
    ("aging.grant_share", AGED),
    ("aging.level", AGED),
    ("aging.share", AGED),
    ("level.count", "level.last says how long the longest level is"),
    ("level.top", "gangs of the highest level queue, and have floors while they wait"),
];

/// The values were measured on recorded logs (benches/policy.md), and no site has to tune them.
const AGED: &str = "aging.after says when a gang is aged, and the rest is fixed (psched.yaml(5))";

/// What became of one; none: there was none of this name.
pub(super) fn became(name: &str) -> Option<&'static str> {
    let (domain, rest) = name.split_once('.')?;
    let known = RETIRED.iter().find(|(retired, _)| *retired == rest);
    known.filter(|_| !domain.is_empty()).map(|(_, became)| *became)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::variables::Variables;

    #[test]
    fn who_names_one_is_told_what_became_of_it() {
        let said = |name| Variables::default().set(name, "1").expect_err("retired").to_string();
        assert_eq!(
            said("application.level.top"),
            "there is no variable application.level.top any more: gangs of the highest level queue, and have \
             floors while they wait; leave it out"
        );
        assert!(said("batch.aging.grant").contains("aging.after says"));
        assert!(
            said("application.level.tops")
                .starts_with("there is no variable application.level.tops;")
        );
        // None is there and not there.
        for (name, _) in RETIRED {
            assert!(
                crate::variables::TABLE.iter().all(|row| row.name != format!("application.{name}"))
            );
        }
    }
}
