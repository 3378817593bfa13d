//! Kubernetes quantities: parsing and upstream's canonical spelling (`0.1` is `100m`).
//!
//! Follows apimachinery's `resource.Quantity`. Must round only as upstream does: away from zero.

use std::fmt;
use std::str::FromStr;

use serde_json::Value;
use thiserror::Error;

const NANOS: i128 = 1_000_000_000;
const NANOS_PER_MILLI: i128 = 1_000_000;
/// The largest whole quantity in binary notation.
const MAX_BINARY: i128 = i64::MAX as i128 * NANOS;
/// From this on upstream loses thousands: it writes `1000E` as `1`.
const TOO_LARGE: i128 = 1_000_000_000_000_000_000_000 * NANOS;
const BINARY_SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const DECIMAL_SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];

/// Why a string is not a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum QuantityError {
    /// Not a number with a suffix.
    #[error("not a number with a suffix such as 100m, 1.5, 64Mi or 1e3")]
    Format,
    /// The suffix is not one of upstream's.
    #[error("unknown suffix, not one of n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei or e<number>")]
    Suffix,
    /// From 1e21 on the API server may store another number.
    #[error("too large")]
    TooLarge,
}

/// The notation a quantity was written in, which decides its canonical spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Decimal,
    Binary,
    Exponent,
}

/// An amount in billionths, and its notation.
///
/// ```
/// # use daemonlet::core::quantity::Quantity;
/// let cpu: Quantity = "0.1".parse()?;
/// assert_eq!(cpu.to_string(), "100m");
/// # Ok::<(), daemonlet::core::quantity::QuantityError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

impl Quantity {
    /// The amount rounded up (away from zero) to whole thousandths, as defaulting does with requests and limits.
    #[must_use]
    pub fn round_up_to_milli(self) -> Self {
        let nanos = div_away_from_zero(self.nanos, NANOS_PER_MILLI) * NANOS_PER_MILLI;
        Self { nanos, ..self }
    }

    /// The amount in thousandths, rounded up (upstream's `MilliValue`).
    pub fn milli_value(self) -> i128 {
        div_away_from_zero(self.nanos, NANOS_PER_MILLI)
    }

    /// The amount in whole units, rounded up (upstream's `Value`).
    pub fn value(self) -> i128 {
        div_away_from_zero(self.nanos, NANOS)
    }
}

/// The canonical spelling of a quantity in JSON, string or number; `None` if it is none.
pub fn canonical_value(value: &Value) -> Option<Value> {
    parse_json(value).map(|quantity| Value::String(quantity.to_string()))
}

/// As [`canonical_value`], rounded up to thousandths.
pub fn canonical_milli(value: &Value) -> Option<Value> {
    parse_json(value).map(|quantity| Value::String(quantity.round_up_to_milli().to_string()))
}

/// What upstream's `Quantity.String` gives for a quantity in JSON: the text as it is written where upstream takes that for
/// canonical, as it does with `01` and `+1`; `None` if it is none.
pub(crate) fn upstream_text(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => trimmed(text).to_owned(),
        other => other.to_string(),
    };
    let is_kept = split(&text).is_ok_and(|parts| parts.is_kept());
    parse_json(value).map(|quantity| if is_kept { text } else { quantity.to_string() })
}

/// A JSON quantity; null is zero, as in Go.
pub(crate) fn parse_json(value: &Value) -> Option<Quantity> {
    match value {
        Value::Null => Some(Quantity { nanos: 0, format: Format::Decimal }),
        Value::String(text) => trimmed(text).parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    }
}

/// `text` of JSON without the blanks that Go trims. Upstream's `Quantity.UnmarshalJSON` trims the text as it stands in the
/// JSON: a blank that Go's encoder escapes is a backslash there, with which no quantity begins or ends.
pub(crate) fn trimmed(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() && !c.is_ascii_control() && !matches!(c, '\u{2028}' | '\u{2029}'))
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let Parts { is_negative, whole, fraction, exponent, format } = split(text)?;
        let fraction = fraction.trim_end_matches('0');
        let digits: i128 = match format!("{whole}{fraction}").trim_start_matches('0') {
            "" => 0,
            digits => digits.parse().map_err(|_| QuantityError::TooLarge)?,
        };
        let nanos = match format {
            Format::Binary => binary(digits, exponent, fraction.len())?,
            Format::Decimal | Format::Exponent => scaled(digits, i64::from(exponent) + 9 - fraction.len() as i64)?,
        };
        if nanos >= TOO_LARGE {
            return Err(QuantityError::TooLarge);
        }
        Ok(Self { nanos: if is_negative { -nanos } else { nanos }, format })
    }
}

/// A text that may be a quantity, taken apart.
struct Parts<'a> {
    is_negative: bool,
    /// Without leading zeros.
    whole: &'a str,
    fraction: &'a str,
    exponent: i32,
    format: Format,
}

impl Parts<'_> {
    /// Whether upstream's `ParseQuantity` takes the text for canonical.
    fn is_kept(&self) -> bool {
        let whole = if self.whole.is_empty() { "0" } else { self.whole };
        let digits = format!("{whole}{}", self.fraction);
        let scale = i64::from(self.exponent) - self.fraction.len() as i64;
        match self.format {
            Format::Binary => {
                let is_short = whole.len() as i32 + self.exponent * 3 / 10 <= 14;
                is_short && self.fraction.is_empty() && digits.parse::<i64>().is_ok_and(|number| number % 8 != 0)
            }
            Format::Decimal | Format::Exponent => {
                let is_short = digits.len() <= 18 && scale >= -9;
                is_short && scale % 3 == 0 && !digits.ends_with("000") && !digits.starts_with('0')
            }
        }
    }
}

fn split(text: &str) -> Result<Parts<'_>, QuantityError> {
    let (is_negative, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        Some(_) => (false, text),
        None => return Err(QuantityError::Format),
    };
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') {
        return Err(QuantityError::Format);
    }
    let (exponent, format) = suffix_of(suffix)?;
    Ok(Parts { is_negative, whole: whole.trim_start_matches('0'), fraction, exponent, format })
}

/// The exponent (of 2 or 10) and notation that a suffix stands for.
fn suffix_of(suffix: &str) -> Result<(i32, Format), QuantityError> {
    if let Some(at) = DECIMAL_SUFFIXES.iter().position(|s| *s == suffix) {
        return Ok((at as i32 * 3 - 9, Format::Decimal));
    }
    if let Some(at) = BINARY_SUFFIXES.iter().position(|s| *s == suffix) {
        return Ok((at as i32 * 10, Format::Binary));
    }
    let exponent = suffix.strip_prefix(['e', 'E']).ok_or(QuantityError::Suffix)?;
    Ok((exponent.parse().map_err(|_| QuantityError::Suffix)?, Format::Exponent))
}

fn binary(digits: i128, exponent: i32, places: usize) -> Result<i128, QuantityError> {
    let product = (1_i128 << exponent).checked_mul(NANOS).and_then(|unit| digits.checked_mul(unit));
    match (product, 10_i128.checked_pow(places as u32)) {
        (Some(product), Some(divisor)) => Ok(div_away_from_zero(product, divisor).min(MAX_BINARY)),
        (None, _) if places == 0 => Ok(MAX_BINARY),
        _ => Err(QuantityError::TooLarge),
    }
}

/// `digits` times ten to the power of `exponent`; what is smaller than one becomes one.
fn scaled(digits: i128, exponent: i64) -> Result<i128, QuantityError> {
    let power = u32::try_from(exponent.unsigned_abs()).ok().and_then(|e| 10_i128.checked_pow(e));
    match power {
        Some(power) if exponent >= 0 => digits.checked_mul(power).ok_or(QuantityError::TooLarge),
        Some(power) => Ok(div_away_from_zero(digits, power)),
        None if digits == 0 => Ok(0),
        None if exponent < 0 => Ok(1),
        None => Err(QuantityError::TooLarge),
    }
}

fn div_away_from_zero(number: i128, divisor: i128) -> i128 {
    let quotient = number / divisor;
    if number % divisor == 0 { quotient } else { quotient + number.signum() }
}

impl fmt::Display for Quantity {
    /// Upstream's canonical form: no fraction, the largest fitting suffix, no precision lost.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let whole = self.nanos / NANOS;
        // Below 1024 a binary suffix would hide or lose digits.
        if self.format == Format::Binary && self.nanos % NANOS == 0 && whole.abs() >= 1024 {
            let (number, times) = without_factors(whole, 1024, BINARY_SUFFIXES.len() - 1);
            return write!(f, "{number}{}", BINARY_SUFFIXES[times]);
        }
        let (number, times) = without_factors(self.nanos, 1000, usize::MAX);
        match (self.format, times as i64 * 3 - 9) {
            (_, 0) => write!(f, "{number}"),
            (Format::Exponent, exponent) => write!(f, "{number}e{exponent}"),
            _ => match DECIMAL_SUFFIXES.get(times) {
                Some(suffix) => write!(f, "{number}{suffix}"),
                None => write!(f, "{number}e{}", times as i64 * 3 - 9),
            },
        }
    }
}

fn without_factors(mut number: i128, factor: i128, most: usize) -> (i128, usize) {
    let mut times = 0;
    while times < most && number % factor == 0 {
        number /= factor;
        times += 1;
    }
    (number, times)
}

#[cfg(test)]
mod tests;
