//! Whether an instance is available: ready for `minReadySeconds`.
//!
//! Owns the substitute for readiness where neither kubelet nor API reports it: all containers run for a while without
//! a restart. That is enough for a surge or a first good revision, but never proves a failure.

use crate::core::model::DaemonSet;
use crate::core::record::Instance;
use crate::core::time::Span;

use super::Planner;
use super::Readiness;

/// How long all containers must run without a restart, if readiness is not reported.
pub(super) const STEADY: Span = Span::from_secs(30);

/// Whether an instance is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Availability {
    /// It is not, or not for long enough, or its readiness is unknown.
    No,
    /// It runs steadily, but readiness is not reported.
    Steady,
    /// It is ready for its `minReadySeconds`.
    Ready,
}

impl Planner<'_> {
    /// Whether `instance` is available and has been ready for at least `least`; schedules another check when that time
    /// comes.
    pub(super) fn availability(&mut self, daemon_set: &DaemonSet, instance: &Instance, least: Span) -> Availability {
        let own = instance.daemon_set.as_deref().unwrap_or(daemon_set);
        let asked = least.max(Span::from_secs(own.min_ready_seconds.into()));
        let (since, wait, then) = match self.facts.readiness(instance) {
            Readiness::Ready { since } => (since, asked, Availability::Ready),
            Readiness::Steady { since } => (since, asked.max(STEADY), Availability::Steady),
            Readiness::NotReady(_) | Readiness::Unknown(_) => return Availability::No,
        };
        // A time in the future means that the clock was set back.
        let since = if since > self.context.now { instance.created } else { since };
        let at = since + wait;
        if at > self.context.now {
            self.wake(at);
            return Availability::No;
        }
        then
    }
}
