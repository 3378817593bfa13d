//! Durations as Go writes them, which is how annotations name them.
//!
//! Owns the syntax of `time.ParseDuration`; must not know what a duration is for.

use crate::core::time::Span;

/// A Go duration such as `10m`, `1h30m` or `1.5s`; `None` for what Go refuses, for a
/// negative one and for one that does not fit.
pub fn parse(text: &str) -> Option<Span> {
    let text = text.strip_prefix('+').unwrap_or(text);
    if text == "0" {
        return Some(Span::ZERO);
    }
    let (mut rest, mut nanos) = (text, 0.0_f64);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number = &rest[..digits];
        if !number.bytes().any(|b| b.is_ascii_digit()) || number.matches('.').count() > 1 {
            return None;
        }
        rest = &rest[digits..];
        let end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        nanos += number.parse::<f64>().ok()? * unit(&rest[..end])?;
        rest = &rest[end..];
    }
    // Go holds nanoseconds in 63 bits.
    (nanos < 9.2e18).then_some(Span::from_millis((nanos / 1e6) as i64))
}

/// Nanoseconds of a unit.
fn unit(name: &str) -> Option<f64> {
    Some(match name {
        "ns" => 1.0,
        "us" | "µs" | "μs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        "h" => 3600e9,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, millis) in [
            ("10m", Some(600_000)),
            ("1h30m", Some(5_400_000)),
            ("1.5s", Some(1_500)),
            (".5s", Some(500)),
            ("250ms", Some(250)),
            ("0", Some(0)),
            ("+3s", Some(3_000)),
            ("999µs", Some(0)),
            ("", None),
            ("10", None),
            ("m", None),
            ("-5m", None),
            ("1.2.3s", None),
            ("10 m", None),
            ("1d", None),
            (".s", None),
            ("9999999h", None),
        ] {
            assert_eq!(parse(text), millis.map(Span::from_millis), "{text}");
        }
    }
}
