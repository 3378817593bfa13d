//! Points in time and the spans between them, both in milliseconds.
//!
//! Owns their arithmetic, which saturates, and the one RFC 3339 form that is read and written. Reads no
//! clock: the time is an argument.

use std::fmt;
use std::ops::Add;
use std::ops::AddAssign;
use std::ops::Div;
use std::ops::Mul;
use std::ops::Sub;
use std::ops::SubAssign;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use serde::Serialize;

/// Milliseconds since the epoch; printed and parsed as RFC 3339, printed in whole seconds, UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

/// Milliseconds between two timestamps; negative when the later one comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Span(i64);

impl Timestamp {
    /// Long ago.
    pub const MIN: Self = Self(i64::MIN);
    /// Never.
    pub const MAX: Self = Self(i64::MAX);

    /// From milliseconds since the epoch.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// From seconds since the epoch.
    pub const fn from_secs(seconds: i64) -> Self {
        // Whole seconds stay whole: what is written in seconds is read as it was.
        const MOST: i64 = i64::MAX / 1_000;
        let seconds = if seconds > MOST { MOST } else { seconds };
        Self(seconds.saturating_mul(1_000))
    }

    /// From nanoseconds since the epoch.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos.div_euclid(1_000_000))
    }

    /// Milliseconds since the epoch.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Seconds since the epoch with their fraction, for metrics.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1_000.0
    }

    /// Whole seconds since the epoch, rounded down.
    pub const fn as_secs(self) -> i64 {
        self.0.div_euclid(1_000)
    }

    /// What is read of it once it is written.
    pub const fn in_whole_seconds(self) -> Self {
        Self::from_secs(self.as_secs())
    }
}

/// The wait of a back-off: `first`, doubled so many `times`, at most `most`.
pub fn doubled<T: Copy + Ord + Add<Output = T>>(first: T, times: u32, most: T) -> T {
    let mut wait = first.min(most);
    for _ in 0..times {
        if wait == most {
            break;
        }
        wait = (wait + wait).min(most);
    }
    wait
}

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// For ever.
    pub const MAX: Self = Self(i64::MAX);

    /// From milliseconds.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1_000))
    }

    pub const fn from_mins(minutes: i64) -> Self {
        Self::from_secs(minutes.saturating_mul(60))
    }

    /// Milliseconds.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Whole seconds, rounded towards zero.
    pub const fn as_secs(self) -> i64 {
        self.0 / 1_000
    }

    /// Whole seconds, rounded up: how long to wait, for people.
    pub const fn as_secs_ceil(self) -> i64 {
        -(-self.0).div_euclid(1_000)
    }

    /// Times a random factor.
    pub fn mul_f64(self, factor: f64) -> Self {
        Self((self.0 as f64 * factor) as i64)
    }

    /// Without its sign.
    pub const fn abs(self) -> Self {
        Self(self.0.saturating_abs())
    }

    /// For a timer: nothing below zero.
    pub fn to_duration(self) -> Duration {
        Duration::from_millis(u64::try_from(self.0).unwrap_or(0))
    }
}

impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        Self(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&jiff::Timestamp::from_second(self.as_secs()).unwrap_or_default(), f)
    }
}

impl FromStr for Timestamp {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, jiff::Error> {
        text.parse().map(|time: jiff::Timestamp| Self(time.as_millisecond()))
    }
}

impl Sub for Timestamp {
    type Output = Span;

    fn sub(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Span> for Timestamp {
    type Output = Self;

    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Sub<Span> for Timestamp {
    type Output = Self;

    fn sub(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

impl AddAssign<Span> for Timestamp {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl SubAssign<Span> for Timestamp {
    fn sub_assign(&mut self, span: Span) {
        *self = *self - span;
    }
}

impl Add for Span {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Span {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Mul<i64> for Span {
    type Output = Self;

    fn mul(self, times: i64) -> Self {
        Self(self.0.saturating_mul(times))
    }
}

impl Div<i64> for Span {
    type Output = Self;

    fn div(self, parts: i64) -> Self {
        Self(self.0.checked_div(parts).unwrap_or(i64::MAX))
    }
}

/// For `serde(with)`: a timestamp that is kept in seconds.
pub mod seconds {
    use serde::Deserialize;
    use serde::Deserializer;
    use serde::Serializer;

    use super::Timestamp;

    /// Whole seconds since the epoch.
    ///
    /// # Errors
    /// The serializer's.
    pub fn serialize<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(time.as_secs())
    }

    /// From whole seconds since the epoch.
    ///
    /// # Errors
    /// No integer.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
        i64::deserialize(deserializer).map(Timestamp::from_secs)
    }
}

/// For `serde(with)`: a timestamp in RFC 3339, or none: an empty text, and any other that is no time.
pub mod rfc3339 {
    use serde::Deserialize;
    use serde::Deserializer;
    use serde::Serializer;

    use super::Timestamp;

    /// The text.
    ///
    /// # Errors
    /// The serializer's.
    pub fn serialize<S: Serializer>(time: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => serializer.collect_str(time),
            None => serializer.serialize_str(""),
        }
    }

    /// From the text.
    ///
    /// # Errors
    /// No text.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
        String::deserialize(deserializer).map(|text| text.parse().ok())
    }
}

/// A timestamp of a test.
#[cfg(test)]
pub(crate) const fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// A span of a test.
#[cfg(test)]
pub(crate) const fn ms(millis: i64) -> Span {
    Span::from_millis(millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(at(5_000) - at(2_000), ms(3_000));
        assert_eq!(at(2_000) - at(5_000), ms(-3_000));
        assert_eq!(at(1) + Span::MAX, Timestamp::MAX);
        assert_eq!(Timestamp::MIN - ms(1), Timestamp::MIN);
        assert_eq!(Timestamp::MAX - Timestamp::MIN, Span::MAX);
        assert_eq!((Span::MAX * 2, Span::from_secs(i64::MAX)), (Span::MAX, Span::MAX));
        assert_eq!((ms(-7).abs(), ms(7_000) / 2), (ms(7), ms(3_500)));
    }

    #[test]
    fn seconds_are_rounded_as_they_say() {
        assert_eq!((at(1_999).as_secs(), at(-1).as_secs()), (1, -1));
        assert_eq!((ms(1_999).as_secs(), ms(-1_999).as_secs()), (1, -1));
        let ceil = [ms(0), ms(1), ms(1_000), ms(1_001), ms(-1_500)].map(Span::as_secs_ceil);
        assert_eq!(ceil, [0, 1, 1, 2, -1]);
    }

    #[test]
    fn durations_are_clamped() {
        assert_eq!(Span::from(Duration::MAX), Span::MAX);
        assert_eq!(Span::from(Duration::from_millis(1_500)), ms(1_500));
        assert_eq!((ms(1_500).to_duration(), ms(-1).to_duration()), (Duration::from_millis(1_500), Duration::ZERO));
    }

    #[test]
    fn text_is_rfc_3339_in_whole_seconds() {
        let time: Timestamp = "2026-11-21T16:00:00.999+01:00".parse().unwrap();
        assert_eq!(time, at(1_795_273_200_999));
        assert_eq!(time.to_string(), "2026-11-21T15:00:00Z");
        assert_eq!(at(-1).to_string(), "1969-12-31T23:59:59Z");
        assert_eq!(Timestamp::MAX.to_string(), "1970-01-01T00:00:00Z", "no year 292 million");
        assert!("tomorrow".parse::<Timestamp>().is_err());
    }

    #[test]
    fn json_is_rfc_3339_where_it_is_to_be_read() {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct Dated(#[serde(with = "rfc3339")] Option<Timestamp>);
        let read = |text| serde_json::from_str::<Dated>(text).unwrap().0;
        for (time, text) in [(Some(at(5_000)), r#""1970-01-01T00:00:05Z""#), (None, r#""""#)] {
            assert_eq!((serde_json::to_string(&Dated(time)).unwrap().as_str(), read(text)), (text, time));
        }
        assert_eq!(read(r#""tomorrow""#), None);
        assert_eq!(at(5_999).in_whole_seconds(), at(5_000));
    }

    #[test]
    fn json_is_a_number() {
        assert_eq!(serde_json::to_string(&(at(5), ms(-5))).unwrap(), "[5,-5]");
        assert_eq!(serde_json::from_str::<(Timestamp, Span)>("[5,-5]").unwrap(), (at(5), ms(-5)));
    }
}
