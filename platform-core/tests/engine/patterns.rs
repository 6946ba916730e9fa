//! Claim patterns beside the dialect that they are in: `re2.txt` is what Go's regexp says, made by `re2.go`.

use platform_core::pattern::Pattern;
use serde_json::Value;

const TABLE: &str = include_str!("../re2.txt");

/// Patterns that RE2 takes and this server does not: our choice, told when they are written, so that none of them ever
/// decides otherwise than it reads.
const NOT_TAKEN: &[&str] = &[];

#[test]
fn patterns_match_the_whole_values_that_re2_matches_and_no_others() {
    let (mut pairs, mut wrong) = (0, Vec::new());
    for line in TABLE.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let pattern = row["pattern"].as_str().unwrap();
        let compiled = Pattern::compile(pattern);
        let texts = |name: &str| row[name].as_array().cloned();
        let (Some(matches), Some(others)) = (texts("matches"), texts("others")) else {
            if compiled.is_ok() {
                wrong.push(format!("{pattern:?} is taken"));
            }
            pairs += 1;
            continue;
        };
        let Ok(compiled) = compiled else {
            if !NOT_TAKEN.contains(&pattern) {
                wrong.push(format!("{pattern:?} is not taken"));
            }
            continue;
        };
        for (values, expected) in [(matches, true), (others, false)] {
            for value in values {
                pairs += 1;
                let value = value.as_str().unwrap();
                if compiled.is_match(value) != expected {
                    wrong.push(format!("{pattern:?} and {value:?}: {expected} was expected"));
                }
            }
        }
    }
    assert!(pairs >= 200, "{pairs}");
    assert!(wrong.is_empty(), "{} of {pairs}:\n{}", wrong.len(), wrong.join("\n"));
}
