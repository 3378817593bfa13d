//! Upstream's cases: TestSelectorParse, TestSelectorMatches, TestRequirementConstructor, label names.

use super::*;

fn labels(text: &str) -> BTreeMap<String, String> {
    text.split(',').filter_map(|l| l.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

#[test]
fn selectors_parse() {
    let table = [
        ("", ""),
        (" ", ""),
        ("x=a,y=b,z=c", "x=a,y=b,z=c"),
        ("z=c,x=a", "x=a,z=c"),
        ("x!=a,y=b", "x!=a,y=b"),
        ("x=", "x="),
        ("x= ", "x="),
        ("x=,z= ", "x=,z="),
        ("x= ,z= ", "x=,z="),
        ("x==a", "x=a"),
        ("!x", "!x"),
        ("! x", "!x"),
        ("x>1,z<5", "x>1,z<5"),
        ("a=b,c in (d,e),!f", "a=b,c in (d,e),!f"),
        ("x in (c, a ,b)", "x in (a,b,c)"),
        ("x notin (a)", "x!=a"),
        ("x in ()", "x="),
        ("x in (a,,b)", "x in (,a,b)"),
        ("x in (in,notin)", "x in (in,notin)"),
        ("in=notin", "in=notin"),
        ("example.com/a.b_c-d", "example.com/a.b_c-d"),
    ];
    for (text, expected) in table {
        assert_eq!(parse(text).map(|s| s.to_string()), Ok(expected.to_owned()), "{text}");
    }
    let bad = [
        "x=a||y=b",
        "x==a==b",
        "!x=a",
        "x<a",
        "x>",
        "x in",
        "x in a",
        "x in (a",
        "x in (a b)",
        "x in (a=b)",
        "=a",
        ",",
        "x,",
        "x=a,,y=b",
        "x a",
        "x=a b",
        "!",
        "!!x",
        "(x)",
        "x=a)",
        "a b=c",
        "a/b/c=d",
        "-x=a",
        "x=-a",
        "x!",
        "x=!a",
    ];
    for text in bad {
        assert!(parse(text).is_err(), "{text}");
    }
}

#[test]
fn errors_say_what_was_expected() {
    let table = [
        ("x in a", "found \"a\", expected '('"),
        ("x=a,", "ends too early: expected a label key or '!'"),
        ("x y", "found \"y\", expected one of =, ==, !=, >, <, in, notin"),
        ("a b=c,-x", "found \"b\", expected one of =, ==, !=, >, <, in, notin"),
        ("-x", "\"-x\" is no valid label key"),
        ("x=-", "x: \"-\" is no valid label value"),
        ("x>y", "x: operator Gt needs exactly one whole number"),
    ];
    for (text, expected) in table {
        assert_eq!(parse(text).expect_err(text).to_string(), expected, "{text}");
    }
}

#[test]
fn selectors_match() {
    let table = [
        ("", "x=y", true),
        ("x=y", "x=y", true),
        ("x=y,z=w", "x=y,z=w", true),
        ("x!=y,z!=w", "x=z,z=a", true),
        ("notin=in", "notin=in", true),
        ("x", "x=z", true),
        ("!x", "y=z", true),
        ("x>1", "x=2", true),
        ("x<1", "x=0", true),
        ("x=z", "", false),
        ("x=y", "x=z", false),
        ("x=y,z=w", "x=w,z=w", false),
        ("x!=y,z!=w", "x=z,z=w", false),
        ("x", "y=z", false),
        ("!x", "x=z", false),
        ("x>1", "x=0", false),
        ("x<1", "x=2", false),
        ("x=", "x=", true),
        ("x=", "", false),
        ("x!=a", "", true),
        ("x in (a,b)", "x=b", true),
        ("x notin (a,b)", "x=b", false),
        ("x notin (a,b)", "", true),
        ("foo=bar,baz=blah", "foo=bar,baz=blah", true),
        ("foo=bar,foobar=bar,baz=blah", "foo=bar,baz=blah", false),
    ];
    for (selector, has, expected) in table {
        assert_eq!(parse(selector).expect(selector).matches(&labels(has)), expected, "{selector:?} on {has:?}");
    }
}

#[test]
fn requirements_are_valid_by_construction() {
    use Operator::*;
    let long = "a".repeat(64);
    let table: [(&str, Operator, &[&str], bool); 19] = [
        ("x1", In, &[], false),
        ("x2", NotIn, &[], false),
        ("x3", In, &["foo"], true),
        ("x4", NotIn, &["foo"], true),
        ("x6", Exists, &[], true),
        ("x7", DoesNotExist, &[], true),
        ("x8", Exists, &["foo"], false),
        ("x9", In, &["bar"], true),
        ("x11", Gt, &["1"], true),
        ("x12", Lt, &["6"], true),
        ("x13", Gt, &[], false),
        ("x14", Gt, &["bar"], false),
        ("x15", Lt, &["bar"], false),
        ("x16", Gt, &["1", "2"], false),
        ("x17", In, &[""], true),
        ("x18", In, &["a b"], false),
        ("x19", In, &[&long], false),
        (&long, Exists, &[], false),
        ("Upper.Case/x", Exists, &[], false),
    ];
    for (key, operator, values, valid) in table {
        let values = values.iter().map(|&v| v.to_owned()).collect();
        assert_eq!(Requirement::new(key, operator, values).is_ok(), valid, "{key} {operator:?}");
    }
}
