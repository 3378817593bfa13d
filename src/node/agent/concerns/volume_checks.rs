//! When the volume data on disk is checked: the agent gets no notice of changes in it.

use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::super::observation::VolumeCheckScope;

/// How often all data is compared with what was written.
const PERIOD: Span = Span::from_secs(30);
/// That of instances which the kubelet may not know yet is looked at no more often than this: its housekeeping,
/// which takes such data for an orphan's, goes round every two seconds.
const NOT_STARTED_PERIOD: Span = Span::from_secs(1);

/// How far the kubelet is with the instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Instances {
    /// It has started all of them.
    Started,
    /// It may not know some of them yet.
    NotStarted,
    /// It has just started one.
    JustStarted,
}

/// When the last checks were.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(in super::super) struct VolumeChecks {
    all_at: Option<Timestamp>,
    not_started_at: Option<Timestamp>,
    /// The kubelet has just started an instance, or `daemonlet plan` asks: all data is checked once more.
    at_once: bool,
    /// There are instances that the kubelet may not know yet.
    not_started: bool,
}

impl VolumeChecks {
    /// What a pass at `now` is to look at. A clock that was set back makes everything due.
    pub(in super::super) fn look(&self, now: Timestamp) -> VolumeCheckScope {
        let is_due = |at: Option<Timestamp>, period| at.is_none_or(|at| !(Span::ZERO..period).contains(&(now - at)));
        match () {
            () if self.at_once || is_due(self.all_at, PERIOD) => VolumeCheckScope::All,
            () if is_due(self.not_started_at, NOT_STARTED_PERIOD) => VolumeCheckScope::NotStarted,
            () => VolumeCheckScope::None,
        }
    }

    /// The next pass looks at everything.
    pub(in super::super) fn ask_for_all(&mut self) {
        self.at_once = true;
    }

    /// A pass at `now` has looked.
    pub(in super::super) fn observe(&mut self, look: VolumeCheckScope, now: Timestamp, instances: Instances) {
        if look == VolumeCheckScope::All {
            // Whoever started in between has not taken the others' turn.
            let is_turn = self.all_at.is_none_or(|at| !(Span::ZERO..PERIOD).contains(&(now - at)));
            self.all_at = if is_turn { Some(now) } else { self.all_at };
            self.at_once = false;
        }
        if look >= VolumeCheckScope::NotStarted {
            self.not_started_at = Some(now);
        }
        self.at_once |= instances == Instances::JustStarted;
        self.not_started = instances == Instances::NotStarted;
    }

    /// When a pass is to look again, if anything `is_written`.
    pub(in super::super) fn due(&self, is_written: bool) -> Option<Timestamp> {
        if self.at_once {
            return Some(Timestamp::MIN);
        }
        let all = self.all_at.filter(|_| is_written).map(|at| at + PERIOD);
        let not_started = self.not_started_at.filter(|_| self.not_started).map(|at| at + NOT_STARTED_PERIOD);
        all.into_iter().chain(not_started).min()
    }
}

#[cfg(test)]
mod tests {
    use crate::core::time::at;

    use super::*;

    #[test]
    fn who_asks_has_everything_looked_at() {
        let mut checks = VolumeChecks::default();
        checks.observe(VolumeCheckScope::All, at(0), Instances::Started);
        assert_eq!(checks.look(at(10)), VolumeCheckScope::None);
        checks.ask_for_all();
        assert_eq!(checks.look(at(10)), VolumeCheckScope::All);
        checks.observe(VolumeCheckScope::All, at(10), Instances::Started);
        assert_eq!(checks.look(at(20)), VolumeCheckScope::None);
    }

    #[test]
    fn everything_has_its_turn_and_what_has_not_started_has_it_more_often() {
        let mut checks = VolumeChecks::default();
        let pass = |checks: &mut VolumeChecks, now, instances| {
            let look = checks.look(at(now));
            checks.observe(look, at(now), instances);
            look
        };
        assert_eq!(pass(&mut checks, 50_000, Instances::NotStarted), VolumeCheckScope::All);
        assert_eq!(pass(&mut checks, 50_400, Instances::NotStarted), VolumeCheckScope::None);
        assert_eq!(checks.due(true), Some(at(51_000)), "they are not forgotten where nothing else happens");
        assert_eq!(pass(&mut checks, 51_000, Instances::Started), VolumeCheckScope::NotStarted);
        assert_eq!((checks.due(true), checks.due(false)), (Some(at(80_000)), None));
        assert_eq!(pass(&mut checks, 51_100, Instances::JustStarted), VolumeCheckScope::None);
        assert_eq!(checks.due(false), Some(Timestamp::MIN), "one has started");
        assert_eq!(pass(&mut checks, 51_110, Instances::Started), VolumeCheckScope::All);
        assert_eq!(checks.due(true), Some(at(80_000)), "it has not taken the others' turn");
        assert_eq!(pass(&mut checks, 80_000, Instances::Started), VolumeCheckScope::All);
        assert_eq!(pass(&mut checks, 10_000, Instances::NotStarted), VolumeCheckScope::All, "the clock was set back");
    }
}
