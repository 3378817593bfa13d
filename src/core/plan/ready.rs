//! Whether an instance is available: ready for as long as its DaemonSet asks for.
//!
//! Owns what stands in for readiness where nobody tells it: containers that all run for a while without
//! a restart. That is enough to go on (a surge, the first good revision), and never a failure.

use crate::core::model::DaemonSet;
use crate::core::record::Instance;
use crate::core::time::Span;

use super::Planner;
use super::Readiness;

/// How long all containers have to run without a restart where nobody tells readiness, at least.
pub(super) const STEADY: Span = Span::from_secs(30);

/// Whether an instance serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Availability {
    /// It does not, or not for long enough, or nobody can say anything.
    No,
    /// It runs steadily, and nobody tells whether it is ready.
    Steady,
    /// It is ready for its `minReadySeconds`.
    Ready,
}

impl Planner<'_> {
    /// Whether `instance` is available, ready for at least `least`; looks again when its time
    /// comes.
    pub(super) fn availability(&mut self, daemon_set: &DaemonSet, instance: &Instance, least: Span) -> Availability {
        let own = instance.daemon_set.as_deref().unwrap_or(daemon_set);
        let asked = least.max(Span::from_secs(own.min_ready_seconds.into()));
        let (since, wait, then) = match self.facts.readiness(instance) {
            Readiness::Ready { since } => (since, asked, Availability::Ready),
            Readiness::Steady { since } => (since, asked.max(STEADY), Availability::Steady),
            Readiness::NotReady(_) | Readiness::Unknown(_) => return Availability::No,
        };
        // A time in the future is one of a clock that was set back since.
        let since = if since > self.context.now { instance.created } else { since };
        let at = since + wait;
        if at > self.context.now {
            self.wake(at);
            return Availability::No;
        }
        then
    }
}
