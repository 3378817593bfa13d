//! When a pass looks at the volume data on disk: nobody tells of changes in it.
//!
//! Owns the times of it. Must not look, nor read a clock.

use crate::core::time::Span;
use crate::core::time::Timestamp;

/// All data is compared with what was written this often.
const PERIOD: Span = Span::from_secs(30);

/// That of instances which the kubelet may not know yet is looked at no more often than this: its housekeeping,
/// which takes such data for an orphan's, goes round every two seconds.
const NOT_STARTED_PERIOD: Span = Span::from_secs(1);

/// What this pass looks at, and when the last ones did.
#[derive(Debug)]
pub(super) struct VolumeCheckSchedule {
    /// At the data of all instances.
    pub(super) all: bool,
    /// At the data of young ones at least.
    pub(super) not_started: bool,
    all_at: Timestamp,
    not_started_at: Timestamp,
    /// There are young ones, and this pass does not look at them.
    unseen: bool,
}

impl VolumeCheckSchedule {
    /// The first pass looks at everything.
    pub(super) fn new() -> Self {
        Self { all: true, not_started: true, all_at: Timestamp::MIN, not_started_at: Timestamp::MIN, unseen: false }
    }

    /// A pass begins at `now`. `started`: the kubelet has just started an instance, and all data is looked at once
    /// more; `any_not_started`: of others it may not know yet. A clock that was set back makes everything due.
    pub(super) fn begin(&mut self, now: Timestamp, started: bool, any_not_started: bool) {
        let is_due = |at: Timestamp, period| !(Span::ZERO..period).contains(&(now - at));
        let is_turn = is_due(self.all_at, PERIOD);
        if is_turn {
            self.all_at = now;
        }
        self.all = is_turn || started;
        self.not_started = self.all || is_due(self.not_started_at, NOT_STARTED_PERIOD);
        if self.not_started {
            self.not_started_at = now;
        }
        self.unseen = any_not_started && !self.not_started;
    }

    /// When a pass is to look again, if anything `is_written`.
    pub(super) fn next(&self, is_written: bool) -> Option<Timestamp> {
        let all = is_written.then(|| self.all_at + PERIOD);
        let not_started = self.unseen.then(|| self.not_started_at + NOT_STARTED_PERIOD);
        all.into_iter().chain(not_started).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::time::at;

    #[test]
    fn everything_has_its_turn_and_the_young_have_it_more_often() {
        let mut volume_check_schedule = VolumeCheckSchedule::new();
        volume_check_schedule.begin(at(50_000), false, true);
        assert!(volume_check_schedule.all && volume_check_schedule.not_started);
        volume_check_schedule.begin(at(50_400), false, true);
        assert!(!volume_check_schedule.all && !volume_check_schedule.not_started);
        assert_eq!(
            volume_check_schedule.next(true),
            Some(at(51_000)),
            "they are not forgotten where nothing else happens"
        );
        volume_check_schedule.begin(at(51_000), false, true);
        assert!(!volume_check_schedule.all && volume_check_schedule.not_started);
        assert_eq!((volume_check_schedule.next(true), volume_check_schedule.next(false)), (Some(at(80_000)), None));
        volume_check_schedule.begin(at(51_100), true, false);
        assert!(volume_check_schedule.all && volume_check_schedule.not_started, "one has started");
        volume_check_schedule.begin(at(51_200), false, false);
        assert_eq!(
            volume_check_schedule.next(true),
            Some(at(80_000)),
            "whoever started between has not taken the others' turn"
        );
        volume_check_schedule.begin(at(80_000), false, false);
        assert!(volume_check_schedule.all);
        volume_check_schedule.begin(at(10_000), false, true);
        assert!(volume_check_schedule.all && volume_check_schedule.not_started, "the clock was set back");
    }
}
