//! When a pass looks at the volume data on disk: nobody tells of changes in it.
//!
//! Owns the times of it. Must not look, nor read a clock.

use crate::core::record::Millis;

/// All data is compared with what was written this often.
const PERIOD: Millis = 30_000;

/// That of instances which the kubelet may not know yet is looked at no more often than this: its housekeeping,
/// which takes such data for an orphan's, goes round every two seconds.
const YOUNG_PERIOD: Millis = 1_000;

/// What this pass looks at, and when the last ones did.
#[derive(Debug)]
pub(super) struct Looks {
    /// At the data of all instances.
    pub(super) all: bool,
    /// At the data of young ones at least.
    pub(super) young: bool,
    all_at: Millis,
    young_at: Millis,
    /// There are young ones, and this pass does not look at them.
    unseen: bool,
}

impl Looks {
    /// The first pass looks at everything.
    pub(super) fn new() -> Self {
        Self { all: true, young: true, all_at: Millis::MIN, young_at: Millis::MIN, unseen: false }
    }

    /// A pass begins at `now`. `started`: the kubelet has just started an instance, and all data is looked at once
    /// more; `are_young`: of others it may not know yet. A clock that was set back makes everything due.
    pub(super) fn begin(&mut self, now: Millis, started: bool, are_young: bool) {
        let is_due = |at: Millis, period| !(0..period).contains(&now.saturating_sub(at));
        let is_turn = is_due(self.all_at, PERIOD);
        if is_turn {
            self.all_at = now;
        }
        self.all = is_turn || started;
        self.young = self.all || is_due(self.young_at, YOUNG_PERIOD);
        if self.young {
            self.young_at = now;
        }
        self.unseen = are_young && !self.young;
    }

    /// When a pass is to look again, if anything `is_written`.
    pub(super) fn next(&self, is_written: bool) -> Option<Millis> {
        let all = is_written.then(|| self.all_at.saturating_add(PERIOD));
        let young = self.unseen.then(|| self.young_at.saturating_add(YOUNG_PERIOD));
        all.into_iter().chain(young).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_has_its_turn_and_the_young_have_it_more_often() {
        let mut looks = Looks::new();
        looks.begin(50_000, false, true);
        assert!(looks.all && looks.young);
        looks.begin(50_400, false, true);
        assert!(!looks.all && !looks.young);
        assert_eq!(looks.next(true), Some(51_000), "they are not forgotten where nothing else happens");
        looks.begin(51_000, false, true);
        assert!(!looks.all && looks.young);
        assert_eq!((looks.next(true), looks.next(false)), (Some(80_000), None));
        looks.begin(51_100, true, false);
        assert!(looks.all && looks.young, "one has started");
        looks.begin(51_200, false, false);
        assert_eq!(looks.next(true), Some(80_000), "whoever started between has not taken the others' turn");
        looks.begin(80_000, false, false);
        assert!(looks.all);
        looks.begin(10_000, false, true);
        assert!(looks.all && looks.young, "the clock was set back");
    }
}
