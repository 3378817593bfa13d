use std::collections::BTreeMap;

use proptest::prelude::*;

use super::escape;
use super::references;

/// A port of upstream's `expansion.Expand`, rune by rune, with a look-up that notes what was asked.
fn expand(input: &str, mapping: &BTreeMap<&str, &str>, asked: &mut Vec<String>) -> String {
    let mut out = String::new();
    let mut rest = input;
    while let Some(at) = rest.find('$') {
        let after = &rest[at + 1..];
        let Some(next) = after.chars().next() else { break };
        out.push_str(&rest[..at]);
        let consumed = match next {
            '$' => {
                out.push('$');
                1
            }
            '(' => match after.find(')') {
                Some(end) => {
                    let name = &after[1..end];
                    asked.push(name.to_owned());
                    match mapping.get(name) {
                        Some(value) => out.push_str(value),
                        None => out.push_str(&format!("$({name})")),
                    }
                    end + 1
                }
                None => {
                    out.push_str("$(");
                    1
                }
            },
            other => {
                out.push('$');
                out.push(other);
                other.len_utf8()
            }
        };
        rest = &after[consumed..];
    }
    out + rest
}

#[test]
fn only_dollars_are_doubled() {
    assert_eq!(escape("plain"), "plain");
    assert_eq!(escape("$(A) $ $$"), "$$(A) $$ $$$$");
}

#[test]
fn references_are_those_that_are_expanded() {
    let cases: [(&str, &[&str]); 8] = [
        ("$(A)", &["A"]),
        ("x$(A)y$(B)", &["A", "B"]),
        ("$$(A)", &[]),
        ("$$$(A)", &["A"]),
        ("$(A", &[]),
        ("$", &[]),
        ("$()", &[""]),
        ("$($(A))", &["$(A"]),
    ];
    for (text, expected) in cases {
        assert_eq!(references(text).collect::<Vec<_>>(), expected, "{text}");
    }
}

proptest! {
    #[test]
    fn the_kubelet_gives_back_what_was_escaped(text in "[$()A-Bé\n]{0,24}|\\PC{0,24}") {
        let mapping = BTreeMap::from([("A", "expanded"), ("", "empty")]);
        prop_assert_eq!(expand(&escape(&text), &mapping, &mut Vec::new()), text);
    }

    #[test]
    fn references_agree_with_the_port(text in "[$()A-Bé]{0,24}") {
        let mut asked = Vec::new();
        expand(&text, &BTreeMap::new(), &mut asked);
        prop_assert_eq!(references(&text).collect::<Vec<_>>(), asked);
    }
}
