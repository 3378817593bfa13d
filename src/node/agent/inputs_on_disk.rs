//! What is known of the remembered inputs on disk, and how often they are written.
//!
//! Owns the pause after a large write. Must not decide what is remembered.

use crate::core::time::Span;
use crate::core::time::Timestamp;

/// The remembered inputs are one file: what changes one object of them writes all. So tenants that change something all
/// the time would have the disk write all the time. After a write, theirs waits as long as the write takes at this rate.
const BYTES_PER_SECOND: u64 = 1 << 20;
/// A shorter pause is none.
const SHORTEST: Span = Span::from_secs(1);
/// The longest pause: a kubelet refreshes volumes as often.
const LONGEST: Span = Span::from_secs(60);

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
    /// What is there.
    pub(super) saved: u64,
    /// What would be there if it named this boot; known at the start only.
    pub(super) saved_but_for_boot: Option<u64>,
    /// When what has changed is to be written.
    pub(super) due: Option<Timestamp>,
    /// The pause after the last write, from and to.
    #[serde(default)]
    pub(super) pause: Option<(Timestamp, Timestamp)>,
}

impl InputsOnDisk {
    /// After a write at `now`.
    pub(super) fn written(mark: SavedInputsMark, now: Timestamp) -> Self {
        let millis = mark.bytes.saturating_mul(1000) / BYTES_PER_SECOND;
        let pause = Span::from_millis(i64::try_from(millis).unwrap_or(i64::MAX)).min(LONGEST);
        let pause = (pause >= SHORTEST).then(|| (now, now + pause));
        Self { saved: mark.fingerprint, saved_but_for_boot: None, due: None, pause }
    }

    /// When what has changed is to be written: `span` after the change, and not within the pause.
    pub(super) fn due_after(&mut self, span: Span, now: Timestamp) -> Timestamp {
        let due = self.paused_until(now).unwrap_or(now).max(now + span);
        *self.due.get_or_insert(due)
    }

    /// The end of the pause that `now` lies in. A clock that was set back is in none.
    pub(super) fn paused_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.pause.filter(|(from, to)| (*from..*to).contains(&now)).map(|(_, to)| to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_large_write_there_is_a_pause_by_its_size_and_a_clock_that_is_set_back_ends_it() {
        let at = Timestamp::from_millis;
        let written = |bytes| InputsOnDisk::written(SavedInputsMark { fingerprint: 1, bytes }, at(10_000));
        assert_eq!(written(1 << 19).paused_until(at(10_000)), None);
        let large = written(8 << 20);
        assert_eq!(large.paused_until(at(10_000)), Some(at(18_000)));
        assert_eq!(large.paused_until(at(17_999)), Some(at(18_000)));
        assert_eq!((large.paused_until(at(18_000)), large.paused_until(at(9_999))), (None, None));
        assert_eq!(written(u64::MAX).paused_until(at(10_000)), Some(at(70_000)));
    }
}
