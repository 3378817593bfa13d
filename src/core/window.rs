//! When rollouts may go on: `daemonlet.dev/window`.
//!
//! Owns its syntax and which moments lie in it. A moment is judged by the clock on the wall of the window's zone: a
//! local time that a day does not have never comes, and one that it has twice counts twice.

use jiff::civil::Weekday;
use jiff::tz::TimeZone;

use crate::core::time::Timestamp;

/// Ranges that a window has at most.
const RANGES: usize = 64;
/// Minutes of a day.
const DAY: u16 = 24 * 60;

/// Ranges of local times on days of the week; a moment in one of them is in it.
#[derive(Clone, Debug)]
pub struct Window(Vec<Range>);

#[derive(Clone, Debug)]
struct Range {
    /// By [`Weekday::to_monday_zero_offset`].
    days: [bool; 7],
    /// In minutes of the day; the end is not part of it, and may lie on the next day.
    from: u16,
    to: u16,
    zone: TimeZone,
}

impl Window {
    /// Reads `Mon-Fri 02:00-04:00 Europe/Berlin; Sun`: days, local times (else the whole day), zone (else UTC).
    ///
    /// # Errors
    /// The part that is not understood.
    pub fn parse(text: &str) -> Result<Self, String> {
        let ranges = text.split(';').take(RANGES + 1).map(|range| Range::parse(range.trim()));
        let ranges = ranges.collect::<Result<Vec<_>, _>>()?;
        if ranges.len() > RANGES { Err(format!("it has more than {RANGES} ranges")) } else { Ok(Self(ranges)) }
    }

    /// Whether `at` lies in it.
    pub fn contains(&self, at: Timestamp) -> bool {
        let at = jiff::Timestamp::from_millisecond(at.as_millis()).unwrap_or_default();
        self.0.iter().any(|range| range.contains(at))
    }
}

impl Range {
    fn parse(text: &str) -> Result<Self, String> {
        let mut range = Self { days: [true; 7], from: 0, to: DAY, zone: TimeZone::UTC };
        let mut words = text.split_whitespace().peekable();
        if words.peek().is_none() {
            return Err("a range is empty".to_owned());
        }
        if let Some(days) = words.next_if(|word| word.starts_with(|c: char| c.is_ascii_uppercase()) && !is_zone(word)) {
            range.days = [false; 7];
            days.split(',').try_for_each(|part| range.add_days(part))?;
        }
        if let Some(times) = words.next_if(|word| word.starts_with(|c: char| c.is_ascii_digit())) {
            let (from, to) =
                times.split_once('-').ok_or_else(|| format!("{times} is not FROM-TO, such as 02:00-04:00"))?;
            (range.from, range.to) = (minute(from)?, minute(to)?);
            if range.from == range.to || range.from == DAY {
                return Err(format!("{times} has no minute"));
            }
        }
        if let Some(zone) = words.next() {
            let unknown = |_| format!("{zone} is no time zone that is known here, such as Europe/Berlin");
            range.zone = TimeZone::get(zone).map_err(unknown)?;
        }
        match words.next() {
            Some(word) => Err(format!("{word} is too much; a range is DAYS TIMES ZONE")),
            None => Ok(range),
        }
    }

    fn add_days(&mut self, part: &str) -> Result<(), String> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (day(first)?, day(last)?);
        let count = (last + 7 - first) % 7;
        (first..=first + count).for_each(|day| self.days[day % 7] = true);
        Ok(())
    }

    fn contains(&self, at: jiff::Timestamp) -> bool {
        let local = self.zone.to_datetime(at);
        let minute = u16::try_from(i32::from(local.hour()) * 60 + i32::from(local.minute())).unwrap_or_default();
        let today = usize::try_from(local.weekday().to_monday_zero_offset()).unwrap_or_default();
        let begins = |day: usize| self.days[day % 7];
        match self.from < self.to {
            true => begins(today) && (self.from..self.to).contains(&minute),
            // Over midnight: it belongs to the day on which it begins.
            false => begins(today) && minute >= self.from || begins(today + 6) && minute < self.to,
        }
    }
}

fn is_zone(word: &str) -> bool {
    word == "UTC" || word.contains('/')
}

fn day(name: &str) -> Result<usize, String> {
    const DAYS: [(&str, Weekday); 7] = [
        ("Mon", Weekday::Monday),
        ("Tue", Weekday::Tuesday),
        ("Wed", Weekday::Wednesday),
        ("Thu", Weekday::Thursday),
        ("Fri", Weekday::Friday),
        ("Sat", Weekday::Saturday),
        ("Sun", Weekday::Sunday),
    ];
    let found = DAYS.iter().find(|(known, _)| *known == name);
    let misfit = || if name.is_empty() { "a day is missing".to_owned() } else { format!("{name} is no day") };
    let day = found.ok_or_else(|| format!("{}; write Mon, Tue, Wed, Thu, Fri, Sat or Sun", misfit()))?;
    Ok(usize::try_from(day.1.to_monday_zero_offset()).unwrap_or_default())
}

/// `HH:MM` in minutes of the day.
fn minute(text: &str) -> Result<u16, String> {
    let wrong = || format!("{text} is no time of a day, such as 02:00");
    let (hours, minutes) = text.split_once(':').ok_or_else(wrong)?;
    let number = |text: &str| {
        let is_number = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse::<u16>().ok()).flatten().ok_or_else(wrong)
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let minute = hours * 60 + minutes;
    if minutes < 60 && minute <= DAY { Ok(minute) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_in(window: &str, moments: &[(&str, bool)]) {
        let window = Window::parse(window).unwrap();
        for (moment, wanted) in moments {
            assert_eq!(window.contains(moment.parse().unwrap()), *wanted, "{moment}");
        }
    }

    #[test]
    fn days_and_times_of_a_zone() {
        is_in(
            "Mon-Fri 02:00-04:00 Europe/Berlin; Sun",
            &[
                // Monday, 23 November 2026, one hour ahead of UTC.
                ("2026-11-23T00:59:59Z", false),
                ("2026-11-23T01:00:00Z", true),
                ("2026-11-23T02:59:59Z", true),
                ("2026-11-23T03:00:00Z", false),
                ("2026-11-28T01:30:00Z", false),
                ("2026-11-29T00:00:00Z", true),
                ("2026-11-29T23:59:59Z", true),
            ],
        );
        is_in(
            "Sat-Mon,Wed 10:00-11:00",
            &[
                ("2026-11-22T10:30:00Z", true),
                ("2026-11-23T10:30:00Z", true),
                ("2026-11-24T10:30:00Z", false),
                ("2026-11-25T10:30:00Z", true),
            ],
        );
        is_in("22:00-24:00 UTC", &[("2026-11-24T23:59:59Z", true), ("2026-11-25T00:00:00Z", false)]);
    }

    #[test]
    fn a_range_over_midnight_belongs_to_the_day_on_which_it_begins() {
        is_in(
            "Fri 22:00-02:00",
            &[
                ("2026-11-27T21:59:00Z", false),
                ("2026-11-27T22:00:00Z", true),
                ("2026-11-28T01:59:00Z", true),
                ("2026-11-28T02:00:00Z", false),
                ("2026-11-28T22:00:00Z", false),
                ("2026-11-27T01:00:00Z", false),
            ],
        );
    }

    #[test]
    fn a_local_time_that_a_day_does_not_have_never_comes_and_one_that_it_has_twice_counts_twice() {
        // 29 March 2026: 02:00 becomes 03:00 in Berlin. 25 October: 03:00 becomes 02:00.
        let night = "02:15-02:45 Europe/Berlin";
        for minute in 0..24 * 60 {
            let at = Timestamp::from_secs(1_774_742_400 + minute * 60);
            assert!(!Window::parse(night).unwrap().contains(at), "{at}");
        }
        is_in(
            night,
            &[("2026-10-25T00:30:00Z", true), ("2026-10-25T01:00:00Z", false), ("2026-10-25T01:30:00Z", true)],
        );
    }

    #[test]
    fn what_is_not_understood_is_said() {
        for (text, why) in [
            ("", "a range is empty"),
            ("Sun; ", "a range is empty"),
            ("Son", "Son is no day"),
            ("Mon-", "a day is missing"),
            ("2-4", "2 is no time of a day"),
            ("02:00", "02:00 is not FROM-TO"),
            ("02:60-03:00", "02:60 is no time"),
            ("24:01-03:00", "24:01 is no time"),
            ("02:00-02:00", "has no minute"),
            ("02:00-03:00 Europe/Nowhere", "Europe/Nowhere is no time zone"),
            ("Sun 02:00-03:00 UTC x", "x is too much"),
        ] {
            let error = Window::parse(text).unwrap_err();
            assert!(error.contains(why), "{text:?}: {error}");
        }
    }
}
