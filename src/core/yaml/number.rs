//! Numbers as Go reads and prints them: `strconv.ParseInt` with base 0, `encoding/json` and `FormatFloat`.

use serde_json::Number;
use serde_json::Value;

/// An integer in any spelling that `strconv.ParseInt(text, 0, 64)` or `ParseUint` takes; no underscores.
pub(super) fn parse_int(text: &str) -> Option<Number> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'+' => (Some(false), &text[1..]),
        b'-' => (Some(true), &text[1..]),
        _ => (None, text),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    let magnitude = magnitude(digits, radix)?;
    match sign {
        Some(true) => negative(magnitude),
        // ParseUint, which is tried second, takes no sign.
        Some(false) => i64::try_from(magnitude).ok().map(Number::from),
        None => Some(magnitude.into()),
    }
}

/// What go-yaml tries last: digits after `0b` or `-0b` with a sign of their own, such as `0b-1`.
pub(super) fn parse_signed_binary(text: &str) -> Option<Number> {
    let (digits, flip) = match text.strip_prefix("-0b") {
        Some(digits) => (digits, true),
        None => (text.strip_prefix("0b")?, false),
    };
    if flip {
        return negative(magnitude(digits, 2)?);
    }
    match digits.strip_prefix('-') {
        Some(digits) => negative(magnitude(digits, 2)?),
        None => i64::try_from(magnitude(digits.strip_prefix('+')?, 2)?).ok().map(Number::from),
    }
}

fn magnitude(digits: &str, radix: u32) -> Option<u64> {
    // from_str_radix takes a sign, which has no place here.
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return None;
    }
    u64::from_str_radix(digits, radix).ok()
}

fn negative(magnitude: u64) -> Option<Number> {
    0i64.checked_sub_unsigned(magnitude).map(Number::from)
}

/// A float of go-yaml's shape, `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`, that is finite.
pub(super) fn parse_float(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], Some(&unsigned[at + 1..])),
        None => (unsigned, None),
    };
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let mantissa_good = match mantissa.split_once('.') {
        Some(("", fraction)) => !fraction.is_empty() && digits(fraction),
        Some((whole, fraction)) => digits(whole) && digits(fraction),
        None => !mantissa.is_empty() && digits(mantissa),
    };
    let exponent_good = exponent.is_none_or(|exponent| {
        let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !exponent.is_empty() && digits(exponent)
    });
    if !mantissa_good || !exponent_good {
        return None;
    }
    // Out of range is an error there, and leaves a string.
    text.parse().ok().filter(|value: &f64| value.is_finite())
}

/// A float that begins with a point, for which Go's own rule about underscores holds: one at a time, between digits.
pub(super) fn parse_pointed(text: &str) -> Option<f64> {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let between_digits = |at: usize| at > 0 && digit(at - 1) && digit(at + 1);
    let good = bytes.iter().enumerate().all(|(at, byte)| *byte != b'_' || between_digits(at));
    good.then(|| parse_float(&text.replace('_', ""))).flatten()
}

/// A float as it comes back from JSON that Go wrote: one without a fraction is an integer. `None` for NaN and infinities.
pub(super) fn from_float(value: f64) -> Option<Value> {
    // encoding/json prints no exponent below 1e21, but the shortest digits and then zeros, as Rust does;
    // the reader then finds an integer where it has one that large.
    if value.fract() == 0.0 && value.abs() < 1e20 && !(value == 0.0 && value.is_sign_negative()) {
        let digits = value.to_string();
        if let Some(number) =
            digits.parse::<i64>().ok().map(Value::from).or_else(|| digits.parse::<u64>().ok().map(Value::from))
        {
            return Some(number);
        }
    }
    Number::from_f64(value).map(Value::Number)
}

/// A float as a key: `strconv.FormatFloat(value, 'g', -1, 32)` with YAML's names for the rest.
pub(super) fn float_key(value: f64) -> String {
    let value = value as f32;
    if value.is_nan() {
        return ".nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { ".inf" } else { "-.inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let Ok(exponent) = exponent.parse::<i32>() else { return scientific };
    if (-4..6).contains(&exponent) {
        return format!("{value}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}
