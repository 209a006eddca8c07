//! Variables of earlier releases, and values of some, and what became of them: the error for such a name or
//! value says so.

/// Variables of the machine.
const RETIRED: [(&str, &str); 1] = [(
    "passed_over_max",
    "application.longest_wait says how long a posting may wait before nodes are kept for it",
)];

/// Variables of domains: the name within the domain.
const RETIRED_IN_DOMAINS: [(&str, &str); 7] = [
    ("aging.grant", AGED),
    ("aging.grant_share", AGED),
    ("aging.level", AGED),
    ("aging.share", AGED),
    ("level.count", "level.last says how long the longest level is"),
    ("level.top", "gangs of the highest level queue, and have floors while they wait"),
    (
        "order",
        "gangs go by least attained service, and round-robin is gone (application.floor gives waiting gangs \
         their part)",
    ),
];

/// Words that a variable of the table could have.
const WORDS: [(&str, &str, &str); 1] = [(
    "application.allocator",
    "sum-of-squares",
    "it works like best-fit under least attained service, which is the only order now",
)];

/// The values were measured on recorded logs (benches/policy.md), and no site has to tune them.
const AGED: &str = "aging.after says when a gang is aged, and the rest is fixed (psched.yaml(5))";

/// What became of one; none: there was none of this name.
pub(super) fn became(name: &str) -> Option<&'static str> {
    let (retired, name): (&[_], _) = match name.split_once('.') {
        None => (&RETIRED, name),
        Some(("", _)) => return None,
        Some((_, rest)) => (&RETIRED_IN_DOMAINS, rest),
    };
    retired.iter().find(|(known, _)| *known == name).map(|(_, became)| *became)
}

/// What became of a word that a variable could have; none: it never could.
pub(super) fn became_of_value(name: &str, word: &str) -> Option<&'static str> {
    let known = WORDS.iter().find(|(of, retired, _)| (*of, *retired) == (name, word));
    known.map(|(.., became)| *became)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::variables::Allocator;
    use crate::variables::Variables;

    #[test]
    fn who_names_one_is_told_what_became_of_it() {
        let said = |name| Variables::default().set(name, "1").expect_err("retired").to_string();
        assert_eq!(
            said("application.level.top"),
            "variable application.level.top was removed: gangs of the highest level queue, and \
             have floors while they wait; leave it out"
        );
        assert!(said("batch.aging.grant").contains("aging.after says"));
        assert!(
            said("application.level.tops")
                .starts_with("there is no variable application.level.tops;")
        );
        for name in ["application.order", "quick.order"] {
            assert_eq!(
                said(name),
                format!(
                    "variable {name} was removed: gangs go by least attained service, and \
                     round-robin is gone (application.floor gives waiting gangs their part); \
                     leave it out"
                )
            );
        }
        // None is there and not there.
        let in_domains = RETIRED_IN_DOMAINS.map(|(name, _)| format!("application.{name}"));
        for name in RETIRED.map(|(name, _)| name.to_owned()).into_iter().chain(in_domains) {
            assert!(crate::variables::TABLE.iter().all(|row| row.name != name), "{name}");
        }
    }

    #[test]
    fn a_name_without_a_domain_is_told_too() {
        let said = |name| Variables::default().set(name, "1").expect_err("retired").to_string();
        assert_eq!(
            said("passed_over_max"),
            "variable passed_over_max was removed: application.longest_wait says how long a \
             posting may wait before nodes are kept for it; leave it out"
        );
        // No domain had it, and a name that each domain had is not one of the machine's.
        for name in ["application.passed_over_max", ".passed_over_max", "level.top", ".order"] {
            assert!(!said(name).contains("any more"), "{}", said(name));
        }
    }

    #[test]
    fn who_gives_a_word_that_is_gone_is_told_what_became_of_it() {
        let mut variables = Variables::default();
        variables.set_domains(["quick"]);
        for name in ["application.allocator", "quick.allocator"] {
            let said = variables.set(name, "sum-of-squares").expect_err("gone").to_string();
            assert_eq!(
                said,
                format!(
                    "{name} can no longer be sum-of-squares: it works like best-fit under \
                     least attained service, which is the only order now; give a word, {}",
                    Allocator::ALL.map(|(_, name)| name).join(", ")
                )
            );
        }
        // None is gone and there, nor of a variable that is not.
        for (name, word, _) in WORDS {
            let row = crate::variables::TABLE.iter().find(|row| row.name == name).expect("a row");
            assert_eq!(row.kind.parse(word), None);
        }
    }
}
