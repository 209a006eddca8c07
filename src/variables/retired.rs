//! Variables of earlier releases, and values of some, and what became of them: the error for such a name or
//! value says so.

/// The name of each within its domain.
const RETIRED: [(&str, &str); 7] = [
    ("aging.grant", AGED),
    ("aging.grant_share", AGED),
    ("aging.level", AGED),
    ("aging.share", AGED),
    ("level.count", "level.last says how long the longest level is"),
    ("level.top", "gangs of the highest level queue, and have floors while they wait"),
    (
        "order",
        "all go by least attained service, and round-robin is gone (application.floor gives those who wait \
         their part)",
    ),
];

/// Words that a variable of the table could have.
const WORDS: [(&str, &str, &str); 1] = [(
    "application.allocator",
    "sum-of-squares",
    "it did as best-fit does under least attained service, which is the only order now",
)];

/// The values were measured on recorded logs (benches/policy.md), and no site has to tune them.
const AGED: &str = "aging.after says when a gang is aged, and the rest is fixed (psched.yaml(5))";

/// What became of one; none: there was none of this name.
pub(super) fn became(name: &str) -> Option<&'static str> {
    let (domain, rest) = name.split_once('.')?;
    let known = RETIRED.iter().find(|(retired, _)| *retired == rest);
    known.filter(|_| !domain.is_empty()).map(|(_, became)| *became)
}

/// What became of a word that a variable could have; none: it never could.
pub(super) fn became_of_value(name: &str, word: &str) -> Option<&'static str> {
    let known = WORDS.iter().find(|(of, retired, _)| (*of, *retired) == (name, word));
    known.map(|(.., became)| *became)
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
        for name in ["application.order", "quick.order"] {
            assert_eq!(
                said(name),
                format!(
                    "there is no variable {name} any more: all go by least attained service, and round-robin is \
                     gone (application.floor gives those who wait their part); leave it out"
                )
            );
        }
        // None is there and not there.
        for (name, _) in RETIRED {
            assert!(
                crate::variables::TABLE.iter().all(|row| row.name != format!("application.{name}"))
            );
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
                    "{name} can't be sum-of-squares any more: it did as best-fit does under least attained \
                     service, which is the only order now; give a word, best-fit, first-fit, wide-from-one-end"
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
