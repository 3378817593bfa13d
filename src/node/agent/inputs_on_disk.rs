//! What is known of the remembered inputs on disk, and how often they are written.
//!
//! Owns the pause after a large write. Must not decide what is remembered.

use crate::core::time::Span;
use crate::core::time::Timestamp;

/// The remembered inputs are one file: a change of one object writes all of it. So tenants that change objects all the
/// time would make the disk write all the time. After a write, the next one for tenants waits as long as this rate gives.
const BYTES_PER_SECOND: u64 = 1 << 20;
/// A shorter pause is none.
const SHORTEST: Span = Span::from_secs(1);
/// The longest pause, whatever is written within it: a kubelet refreshes volumes as often.
const LONGEST: Span = Span::from_secs(60);
/// The longest pause for an instance that is to start again.
const DOWN: Span = Span::from_secs(5);

/// A write of the remembered inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct SavedInputsMark {
    /// What was written.
    pub(super) fingerprint: u64,
    pub(super) bytes: u64,
}

/// What is known of the remembered inputs on disk, by fingerprint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct InputsOnDisk {
    pub(super) saved: u64,
    /// What would be there if it named this boot; known at the start only.
    pub(super) saved_but_for_boot: Option<u64>,
    /// When what has changed is to be written.
    pub(super) due: Option<Timestamp>,
    /// The pause after the last write.
    #[serde(default)]
    pub(super) pause: Option<Pause>,
}

/// A pause after a large write. A write within it prolongs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct Pause {
    /// When it began.
    pub(super) since: Timestamp,
    /// The last write.
    pub(super) last: Timestamp,
    pub(super) to: Timestamp,
}

impl Pause {
    /// Until when an instance waits that is to start again.
    pub(super) fn starts_until(&self, now: Timestamp) -> Option<Timestamp> {
        Some(self.to.min(self.last + DOWN)).filter(|until| now < *until)
    }
}

impl InputsOnDisk {
    /// After a write at `now`.
    pub(super) fn written(self, mark: SavedInputsMark, now: Timestamp) -> Self {
        let millis = mark.bytes.saturating_mul(1000) / BYTES_PER_SECOND;
        let span = Span::from_millis(i64::try_from(millis).unwrap_or(i64::MAX)).min(LONGEST);
        let since = self.pause(now).map_or(now, |pause| pause.since);
        let pause = Pause { since, last: now, to: (now + span).min(since + LONGEST) };
        let pause = if span >= SHORTEST { Some(pause) } else { self.pause(now) };
        Self { saved: mark.fingerprint, saved_but_for_boot: None, due: None, pause }
    }

    /// When what has changed is to be written: `span` after the change, and not within the pause.
    pub(super) fn due_after(&mut self, span: Span, now: Timestamp) -> Timestamp {
        let due = self.pause(now).map_or(now, |pause| pause.to).max(now + span);
        *self.due.get_or_insert(due)
    }

    /// The pause that `now` lies in. A clock that was set back is in none.
    pub(super) fn pause(&self, now: Timestamp) -> Option<Pause> {
        self.pause.filter(|pause| (pause.last..pause.to).contains(&now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn written(before: InputsOnDisk, bytes: u64, millis: i64) -> InputsOnDisk {
        before.written(SavedInputsMark { fingerprint: 1, bytes }, at(millis))
    }

    fn to(on_disk: &InputsOnDisk, millis: i64) -> Option<Timestamp> {
        on_disk.pause(at(millis)).map(|pause| pause.to)
    }

    #[test]
    fn after_a_large_write_there_is_a_pause_by_its_size_and_a_clock_that_is_set_back_ends_it() {
        assert_eq!(to(&written(InputsOnDisk::default(), MIB / 2, 10_000), 10_000), None);
        let large = written(InputsOnDisk::default(), 8 * MIB, 10_000);
        assert_eq!(to(&large, 10_000), Some(at(18_000)));
        assert_eq!(to(&large, 17_999), Some(at(18_000)));
        assert_eq!((to(&large, 18_000), to(&large, 9_999)), (None, None));
        assert_eq!(to(&written(InputsOnDisk::default(), u64::MAX, 10_000), 10_000), Some(at(70_000)));
        let pause = large.pause(at(10_000)).expect("a pause");
        assert_eq!((pause.starts_until(at(10_000)), pause.starts_until(at(15_000))), (Some(at(15_000)), None));
    }

    #[test]
    fn writes_within_a_pause_prolong_it_to_a_minute_at_most() {
        let mut on_disk = written(InputsOnDisk::default(), 30 * MIB, 0);
        for second in 1..60 {
            on_disk = written(on_disk, 30 * MIB, second * 1000);
        }
        assert_eq!((to(&on_disk, 59_000), to(&on_disk, 60_000)), (Some(at(60_000)), None));
        assert_eq!(to(&written(on_disk, 30 * MIB, 60_000), 60_000), Some(at(90_000)), "another begins");
        let small = written(written(InputsOnDisk::default(), 8 * MIB, 0), 1, 1000);
        assert_eq!(to(&small, 2000), Some(at(8000)), "a small one ends none");
    }
}
