//! Which revision is to run here: the wanted one, or the last good one when the wanted one failed.
//!
//! Owns the judgement over revisions. Its invariants:
//! * a revision fails only once nothing of it was available within its progress deadline *and* somebody
//!   says what is wrong; what nobody can see never fails (unknown readiness is no evidence);
//! * a revision is good once an instance of it was available; data that changed under a good instance
//!   is what a roll-back returns to only when the instance lived with it for a while, so that data and
//!   template that are changed together are rolled back together;
//! * what failed is not tried again until the template (or, with `restart-on: config`, the data) is
//!   another, or somebody asks for it.

use std::sync::Arc;

use crate::core::duration;
use crate::core::model::DaemonSet;
use crate::core::model::PROGRESS_DEADLINE;
use crate::core::model::RESTART_ON;
use crate::core::model::ROLLBACK;
use crate::core::record::DataCandidate;
use crate::core::record::FailedRevision;
use crate::core::record::Good;
use crate::core::record::Instance;
use crate::core::record::Millis;

use super::Action;
use super::Data;
use super::Planner;
use super::Readiness;

/// The progress deadline of a DaemonSet that names none; upstream's of a Deployment.
const DEFAULT_DEADLINE: Millis = 10 * 60_000;
/// How long a good instance has to live with changed data before a roll-back returns to it.
const DATA_SETTLES: Millis = 30_000;
/// How soon to look again at an instance that is late while nobody says why.
const LOOK_AGAIN: Millis = 10_000;

/// What is to run here.
pub(super) struct Target {
    /// The DaemonSet to render.
    pub(super) daemon_set: Arc<DaemonSet>,
    /// Its revision.
    pub(super) revision: String,
    /// The data to render it with.
    pub(super) data: Data,
    /// Whether it is what was good, because the wanted revision failed.
    pub(super) rollback: bool,
}

impl Planner<'_> {
    /// Looks at what runs, and remembers what is good and what failed.
    pub(super) fn judge(&mut self, daemon_set: &Arc<DaemonSet>, desired: &str) {
        self.forgive(daemon_set, desired);
        let mut live: Vec<Instance> = self.record.live().filter(|i| !i.orphaned).cloned().collect();
        live.sort_by_key(|i| i.incarnation);
        let mut newest_available = None;
        for instance in &live {
            if !self.is_available(daemon_set, instance) {
                continue;
            }
            let now = self.context.now;
            if let Some(known) = self.record.instances.iter_mut().find(|i| i.uid == instance.uid) {
                known.available.get_or_insert(now);
            }
            newest_available = Some(instance);
        }
        if let Some(instance) = newest_available.filter(|i| !i.pinned) {
            if self.record.failed.as_ref().is_some_and(|f| f.revision == instance.revision && f.data_version.is_none())
            {
                self.record.failed = None;
            }
            self.remember_good(daemon_set, instance);
        }
        if let Some(newest) = live.last() {
            self.watch_deadline(daemon_set, newest, desired);
        }
        self.summary.failed.clone_from(&self.record.failed);
    }

    /// What failed is tried again when it is not what failed any more.
    fn forgive(&mut self, daemon_set: &Arc<DaemonSet>, desired: &str) {
        let Some(failed) = &self.record.failed else { return };
        let other_data =
            || failed.data_version.is_some() && failed.data_version != self.data_version(daemon_set, Data::Current);
        if failed.revision != desired || other_data() {
            self.record.failed = None;
        }
    }

    /// The version of the data that a new instance would get; `None` if it cannot be rendered.
    fn data_version(&self, daemon_set: &Arc<DaemonSet>, data: Data) -> Option<String> {
        let outcome = self.facts.outcome(daemon_set, self.record.next_incarnation, data);
        outcome.result.as_ref().ok().map(|rendered| rendered.pod.data_version.clone())
    }

    fn remember_good(&mut self, daemon_set: &DaemonSet, instance: &Instance) {
        let Some(own) = &instance.daemon_set else { return };
        let outcome = self.facts.outcome(own, instance.incarnation, Data::Current);
        let Ok(rendered) = &outcome.result else { return };
        if !rendered.pod.waiting_for.is_empty() {
            return;
        }
        let version = &rendered.pod.data_version;
        let now = self.context.now;
        let keeps = rolls_back(daemon_set);
        let good = self.record.good.as_mut().filter(|good| good.revision == instance.revision);
        let changed = match good {
            None => true,
            Some(good) if good.data_version == *version => {
                good.candidate = None;
                keeps && !good.kept
            }
            Some(good) => {
                let since = match &good.candidate {
                    Some(candidate) if candidate.data_version == *version => candidate.since,
                    _ => {
                        good.candidate = Some(DataCandidate { data_version: version.clone(), since: now });
                        now
                    }
                };
                if now < since + DATA_SETTLES {
                    self.wake(since + DATA_SETTLES);
                }
                now >= since + DATA_SETTLES
            }
        };
        if changed {
            self.record.good = Some(Good {
                revision: instance.revision.clone(),
                data_version: version.clone(),
                kept: keeps,
                candidate: None,
                daemon_set: None,
            });
            if keeps {
                self.actions.push(Action::Keep { outcome: Arc::clone(&outcome) });
            }
        }
    }

    /// Decides whether the newest instance of the wanted revision had its time.
    fn watch_deadline(&mut self, daemon_set: &Arc<DaemonSet>, instance: &Instance, desired: &str) {
        let known = self.record.instance(&instance.uid);
        let judged = known.is_none_or(|i| i.available.is_some()) || self.record.failed.is_some();
        if judged || instance.pinned || instance.revision != desired {
            return;
        }
        // The time that the node was off does not count.
        let at = instance.created.max(self.context.booted).saturating_add(self.deadline(daemon_set));
        if self.context.now < at {
            return self.wake(at);
        }
        if matches!(self.facts.readiness(instance), Readiness::Ready { .. }) {
            return;
        }
        let failure = self.facts.failure(instance);
        match failure.filter(|f| f.cause.blames_revision()) {
            Some(failure) => {
                let data_version =
                    restarts_on_data(daemon_set).then(|| self.data_version(daemon_set, Data::Current)).flatten();
                let revision = desired.to_owned();
                self.record.failed = Some(FailedRevision { revision, data_version, failure, at: self.context.now });
            }
            None => self.wake(self.context.now + LOOK_AGAIN),
        }
    }

    /// The progress deadline, in milliseconds; one that cannot be read is noted, and is the default.
    fn deadline(&mut self, daemon_set: &DaemonSet) -> Millis {
        let Some(text) = daemon_set.annotations.get(PROGRESS_DEADLINE) else { return DEFAULT_DEADLINE };
        duration::parse(text).filter(|d| *d > 0).unwrap_or_else(|| {
            let note = format!("annotation {PROGRESS_DEADLINE} is not a Go duration above 0: `{text}`; 10m is used");
            if !self.summary.notes.contains(&note) {
                self.summary.notes.push(note);
            }
            DEFAULT_DEADLINE
        })
    }

    /// What is to run: the wanted revision, or the good one if that failed and a roll-back is asked for.
    pub(super) fn target(&mut self, daemon_set: &Arc<DaemonSet>, desired: &str) -> Target {
        let wanted = Target {
            daemon_set: Arc::clone(daemon_set),
            revision: desired.to_owned(),
            data: Data::Current,
            rollback: false,
        };
        let Some(failed) = self.record.failed.clone() else { return wanted };
        let what = format!("{}: {}", failed.failure.cause.as_str(), failed.failure.message);
        if !rolls_back(daemon_set) {
            self.add_reason(&format!("revision {desired} did not become available in time ({what})"));
            return wanted;
        }
        let other = |good: &Good| {
            good.revision != desired || failed.data_version.as_ref().is_some_and(|v| *v != good.data_version)
        };
        let good = self.record.good.as_ref().filter(|good| other(good));
        let of = |good: &Good| {
            let carried = self.record.instances.iter().find(|i| i.revision == good.revision);
            good.daemon_set.clone().or_else(|| carried.and_then(|i| i.daemon_set.clone()))
        };
        let Some((good, good_set)) = good.and_then(|good| Some((good.clone(), of(good)?))) else {
            self.add_reason(&format!(
                "revision {desired} did not become available in time ({what}), and no revision has been good here"
            ));
            return wanted;
        };
        self.summary.wanted_revision = Some(desired.to_owned());
        self.add_reason(&format!(
            "revision {desired} did not become available in time ({what}): back to {} until the template changes \
             or somebody says `daemonlet retry`",
            good.revision
        ));
        let data = if good.kept { Data::Kept } else { Data::Current };
        Target { daemon_set: good_set, revision: good.revision, data, rollback: true }
    }

    /// Ready for its `minReadySeconds`; looks again when that is over.
    fn is_available(&mut self, daemon_set: &DaemonSet, instance: &Instance) -> bool {
        let own = instance.daemon_set.as_deref().unwrap_or(daemon_set);
        let seconds = own.min_ready_seconds;
        let Readiness::Ready { since } = self.facts.readiness(instance) else { return false };
        let at = since + Millis::from(seconds) * 1_000;
        if at > self.context.now {
            self.wake(at);
        }
        at <= self.context.now
    }
}

/// Whether the DaemonSet asks for a roll-back.
pub(super) fn rolls_back(daemon_set: &DaemonSet) -> bool {
    daemon_set.annotations.get(ROLLBACK).is_some_and(|v| v == "auto")
}

/// Whether changed data gives a new instance.
pub(super) fn restarts_on_data(daemon_set: &DaemonSet) -> bool {
    daemon_set.annotations.get(RESTART_ON).is_some_and(|v| v == "config")
}
