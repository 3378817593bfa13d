//! First instances: while a rollout is held, a node that never ran the daemon starts the released revision.
//!
//! Owns when that is, and when the newest starts because the released one cannot be had. Must not decide replacements of what
//! has run.

use super::Data;
use super::Hint;
use super::Note;
use super::Planner;
use super::Reason;
use super::ReleasedDefinition;
use super::State;
use super::progress::Target;
use super::progress::deadline_of;
use crate::core::annotations::int_or_percent;
use crate::core::annotations::is_paused;
use crate::core::cluster::released::Released;
use crate::core::identity::template_hash;
use crate::core::model::DaemonSet;
use crate::core::model::IntOrPercent;
use crate::core::model::Kind;
use crate::core::model::Mode;
use crate::core::model::ObjectRef;
use crate::core::model::PARTITION;
use crate::core::model::Source;
use crate::core::model::UpdateStrategy;
use crate::core::overlays;
use crate::core::record::Cause;
use crate::core::record::Instance;
use crate::core::record::KnownRelease;

/// Whether the newest revision starts on no node that does not have it.
fn is_stopped(daemon_set: &DaemonSet) -> bool {
    is_paused(daemon_set) || daemon_set.rollout.halted.is_some()
}

impl Planner<'_> {
    /// The released revision for a first instance while nodes are kept on it. `None`: it is not known yet what to
    /// start, and the summary says so.
    pub(super) fn or_released(&mut self, target: Target) -> Option<Target> {
        let is_first = self.plan.record.instances.is_empty() && self.plan.record.last.is_none();
        let Some(released) = self.kept_on(&target).filter(|_| is_first).cloned() else { return Some(target) };
        self.plan.references.insert(ObjectRef::new(
            Kind::ControllerRevision,
            &self.plan.record.key.namespace,
            &released.name,
        ));
        let daemon_set = &target.daemon_set;
        let is_stopped = is_stopped(daemon_set);
        let found = self.facts.released(daemon_set, &released);
        if let ReleasedDefinition::Known(known) = &found
            && !is_stopped
            && self.can_never_start(known)
        {
            self.plan.summary.notes.push(Note::ReleasedCannotStart(released.hash));
            return Some(target);
        }
        let is_read = !matches!(found, ReleasedDefinition::Unknown);
        let why = match found {
            ReleasedDefinition::Known(known) => {
                let elsewhere = self.placed(&known).misfit.filter(|_| self.placed(daemon_set).should_run);
                let Some(misfit) = elsewhere else {
                    self.plan.summary.wanted_revision = Some(target.revision);
                    let revision = overlays::revision(&released.hash, &known);
                    self.plan.summary.notes.push(Note::StartsReleased(released.hash));
                    return Some(Target { daemon_set: known, revision, data: Data::Current, rollback: false });
                };
                Reason::ReleasedElsewhere { revision: target.revision.clone(), released: released.hash, misfit }
            }
            ReleasedDefinition::Gone if !is_stopped => {
                self.plan.summary.notes.push(Note::ReleasedGone(released.name));
                return Some(target);
            }
            ReleasedDefinition::Gone => {
                self.add_hints([Hint::ResumeRollout]);
                Reason::ReleasedGone { revision: target.revision.clone(), name: released.name }
            }
            ReleasedDefinition::Unknown => {
                Reason::ReleasedUnread { revision: target.revision.clone(), name: released.name }
            }
        };
        self.plan.summary.state = State::Waiting;
        self.plan.summary.awaits_rollout = is_read;
        self.plan.summary.wanted_revision = Some(target.revision);
        self.add_reason(why);
        None
    }

    /// Whether `old` is a first instance of the released revision that never ran because its image could not be pulled
    /// within the progress deadline: then the newest starts in its place, unless that is halted or paused.
    pub(super) fn lacks_its_image(&mut self, target: &Target, old: &Instance) -> bool {
        let daemon_set = &target.daemon_set;
        let released = self.kept_on(target).filter(|released| released.hash == template_hash(&old.revision));
        let Some(hash) = released.map(|released| released.hash.clone()).filter(|_| !is_stopped(daemon_set)) else {
            return false;
        };
        let failure = self.facts.failure(old).filter(|failure| failure.cause == Cause::Image);
        if old.available.is_some() || failure.is_none() {
            return false;
        }
        let at = old.created.max(self.context.booted) + deadline_of(daemon_set);
        if self.context.now < at {
            self.wake(at);
            return false;
        }
        self.plan.summary.notes.push(Note::ReleasedNotPulled(hash));
        self.passes_over_released = true;
        true
    }

    /// Remembers which revision is released, as far as the DaemonSet says so.
    pub(super) fn note_released(&mut self, daemon_set: &DaemonSet) {
        let known = daemon_set.uid.clone().zip(daemon_set.rollout.released.clone());
        if let Some((uid, released)) = known {
            self.plan.record.known_release = Some(KnownRelease { uid, released });
        }
    }

    /// The released revision, as far as the DaemonSet's status says, or once said.
    fn known_released<'t>(&'t self, daemon_set: &'t DaemonSet) -> Option<&'t Released> {
        let known = self.plan.record.known_release.as_ref().filter(|known| daemon_set.uid.as_ref() == Some(&known.uid));
        daemon_set.rollout.released.as_ref().or(known.map(|known| &known.released))
    }

    /// Whether the target is wanted again before anything ran of the revision that was claimed here: it ended for that, and
    /// no other is released.
    pub(super) fn is_wanted_again(&self, target: &Target) -> bool {
        let record = &self.plan.record;
        let accepted = record.accepted.as_ref().map(|accepted| &accepted.revision);
        let ran = accepted.or(record.previous.as_ref().map(|previous| &previous.revision));
        let ended = record.ending().last().map(|instance| &instance.revision).or(ran);
        let daemon_set = &target.daemon_set;
        let rollout = &daemon_set.rollout;
        ended == Some(&target.revision)
            && self.known_released(daemon_set).is_none_or(|released| released.hash == template_hash(&target.revision))
            // Until the coordinator has looked at it, the status says that of the revision before.
            && (rollout.halted.is_none() || rollout.is_behind)
    }

    /// The released revision that first instances have in place of the target, as far as the DaemonSet's status says, or once said
    /// and the coordinator has not written again.
    fn kept_on<'t>(&'t self, target: &'t Target) -> Option<&'t Released> {
        let daemon_set = &target.daemon_set;
        let rollout = &daemon_set.rollout;
        let released = self.known_released(daemon_set).filter(|it| it.hash != template_hash(&target.revision))?;
        let is_partitioned = || {
            daemon_set
                .annotations
                .get(PARTITION)
                .and_then(|text| int_or_percent(text))
                .is_some_and(|kept| !matches!(kept, IntOrPercent::Int(0) | IntOrPercent::Percent(0)))
        };
        let is_kept = rollout.is_held
            || rollout.is_behind
            || rollout.released.is_none()
            || rollout.halted.is_some()
            || is_paused(daemon_set)
            || is_partitioned();
        let is_rolled_out = daemon_set.source == Source::Api
            && !target.rollback
            && self.plan.summary.mode == Some(Mode::Static)
            && daemon_set.update_strategy != UpdateStrategy::OnDelete
            && self.facts.is_coordinated(daemon_set);
        (is_kept && is_rolled_out).then_some(released)
    }
}
