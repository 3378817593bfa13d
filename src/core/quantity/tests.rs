//! Spellings as `resource.ParseQuantity(x).String()` gives them, Kubernetes 1.36.

use serde_json::json;

use super::*;

#[test]
fn canonical_spellings() {
    let table = include_str!("table.txt");
    let mut rows = 0;
    for row in table.lines().filter(|row| !row.starts_with('#')) {
        let (written, canonical) = row.split_once(' ').expect("two columns");
        let got = written.parse::<Quantity>().map(|q| q.to_string());
        match canonical {
            "error" => assert!(got.is_err(), "{written} parsed as {got:?}"),
            _ => assert_eq!(got.as_deref(), Ok(canonical), "{written}"),
        }
        rows += 1;
    }
    assert!(rows > 100, "{rows} rows");
}

#[test]
fn canonical_is_a_fixed_point() {
    for row in include_str!("table.txt").lines().filter(|row| !row.starts_with('#') && !row.ends_with("error")) {
        let (_, canonical) = row.split_once(' ').expect("two columns");
        assert_eq!(canonical.parse::<Quantity>().expect(canonical).to_string(), canonical);
    }
}

#[test]
fn json_strings_numbers_and_null() {
    let table = [
        (json!("0.5"), Some("500m")),
        (json!(" 1Gi "), Some("1Gi")),
        (json!("\u{a0}1Gi\u{2003}"), Some("1Gi")),
        (json!("1Gi\n"), None),
        (json!("1Gi\t"), None),
        (json!("\r1Gi"), None),
        (json!("1Gi\u{b}"), None),
        (json!("1Gi\u{2028}"), None),
        (json!("\u{2029}1Gi"), None),
        (json!(0.5), Some("500m")),
        (json!(2), Some("2")),
        (json!(2.0), Some("2")),
        (json!(100_000_000_000_i64), Some("100G")),
        (json!(null), Some("0")),
        (json!(true), None),
        (json!("x"), None),
    ];
    for (value, expected) in table {
        assert_eq!(canonical_value(&value), expected.map(Value::from), "{value}");
    }
}

#[test]
fn resources_are_rounded_up_to_thousandths() {
    let table = [
        ("100u", "1m"),
        ("1n", "1m"),
        ("1500u", "2m"),
        ("-1n", "-1m"),
        ("1", "1"),
        ("0.1Ki", "102400m"),
        ("1.0001", "1001m"),
    ];
    for (written, rounded) in table {
        assert_eq!(canonical_milli(&json!(written)), Some(json!(rounded)), "{written}");
    }
}

#[test]
fn upstream_keeps_the_text_that_it_takes_for_canonical() {
    let table = [
        (json!("01"), "01"),
        (json!(" +1.k "), "+1.k"),
        (json!("1e0"), "1e0"),
        (json!("0.001"), "1m"),
        (json!("+1000m"), "1"),
        (json!("1.0"), "1"),
        (json!("-01.5Ki"), "-1536"),
        (json!("01Ti"), "01Ti"),
        (json!("01Pi"), "1Pi"),
        (json!("01024Ki"), "1Mi"),
        (json!("0999999999999999999"), "0999999999999999999"),
        (json!("01000000000000000001"), "1000000000000000001"),
        (json!(1.5), "1500m"),
        (json!(null), "0"),
    ];
    for (value, expected) in table {
        assert_eq!(upstream_text(&value).as_deref(), Some(expected), "{value}");
    }
    assert_eq!(upstream_text(&json!("x")), None);
}
