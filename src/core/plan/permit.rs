//! Whether an instance of a changed template may replace the current one now.
//!
//! Owns what a coordinator's approval means on the node. If the cluster has approvals, DaemonSets of the API change
//! only by an approval that the agent has claimed. A first instance never waits for one, but has the released revision
//! while nodes are kept on that. An instance that ended for another reason returns at its own revision. Restarts for changed data need no approval: they change no revision, so only
//! `update-jitter` spreads them.

use std::sync::Arc;

use crate::core::annotations::is_paused;
use crate::core::duration;
use crate::core::identity::template_hash;
use crate::core::model::DaemonSet;
use crate::core::model::Kind;
use crate::core::model::Mode;
use crate::core::model::ObjectRef;
use crate::core::model::PRE_PULL;
use crate::core::model::Source;
use crate::core::model::UpdateStrategy;
use crate::core::overlays;
use crate::core::policy::Admission;
use crate::core::record::EndConfirmation;
use crate::core::record::Instance;
use crate::core::record::LastRun;
use crate::core::record::PendingUpdate;
use crate::core::sources::is_made_by_override;
use crate::core::sources::is_override;
use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::Data;
use super::EndObservable;
use super::Images;
use super::Permission;
use super::Planner;
use super::Reason;
use super::Reasons;
use super::ReleasedDefinition;
use super::State;
use super::Withheld;
use super::instance::StartFor;
use super::jitter::jitter;
use super::overlays::are_missing;
use super::overlays::is_same_template;
use super::progress::Target;

/// See [`PRE_PULL`].
const PULLS_WITHIN: Span = Span::from_secs(600);

impl Planner<'_> {
    pub(super) fn permission(&self, target: &Target) -> Permission {
        // The DaemonSet controller does the rollouts of a `bootstrap` daemon; ours need no approval.
        let permission = match target.daemon_set.source {
            _ if target.rollback || self.plan.summary.mode == Some(Mode::Bootstrap) => return Permission::Free,
            Source::Api => self.facts.permission(&target.daemon_set, &target.revision),
            Source::File { .. } => Permission::Free,
        };
        match permission {
            Permission::Claimed => Permission::Claimed,
            _ if is_paused(&target.daemon_set) => Permission::Withheld(Withheld::Paused),
            // An earlier approval may stand because no coordinator ran to withdraw it.
            permission if permission != Permission::Free && self.is_halted(target) => {
                Permission::Withheld(Withheld::Halted)
            }
            permission => self.at_its_trigger(target, permission),
        }
    }

    /// Remembers which revision ran here, if it is not the wanted one.
    pub(super) fn note_previous(&mut self, daemon_set: &DaemonSet, desired: &str) {
        if daemon_set.source != Source::Api {
            // A folder's daemon never returns to the API's definition.
            self.plan.record.previous = None;
            return;
        }
        let old = self.plan.record.live().filter(|i| !is_same_template(&i.revision, desired) && !i.orphaned).last();
        let Some((old, template)) = old.and_then(|old| Some((old, old.daemon_set.as_ref()?))) else { return };
        if self.plan.record.previous.as_ref().is_none_or(|p| p.revision != old.revision) {
            self.plan.record.previous =
                Some(LastRun { revision: old.revision.clone(), daemon_set: Arc::clone(template), claimed: false });
        }
    }

    /// The revision to return to, if the cluster withdraws the rollout. What was approved before the newest definition
    /// was looked at is no way back from it.
    pub(super) fn taken_back(&mut self, daemon_set: &Arc<DaemonSet>, desired: &str) -> Option<Target> {
        if daemon_set.rollout.is_behind {
            return None;
        }
        let approved = self.facts.approved(daemon_set).or_else(|| self.staged_before(daemon_set).map(str::to_owned));
        // A revision that differs by its overlays alone is no revision to return to.
        let approved = approved.filter(|approved| !is_same_template(approved, desired))?;
        let approved = template_hash(&approved);
        // The released one has the annotations and the strategy of today.
        let released = daemon_set.rollout.released.clone().filter(|released| released.hash == approved);
        let known = released.and_then(|released| {
            let key = &self.plan.record.key;
            self.plan.references.insert(ObjectRef::new(Kind::ControllerRevision, &key.namespace, &released.name));
            match self.facts.released(daemon_set, &released) {
                ReleasedDefinition::Known(known) => Some(known),
                ReleasedDefinition::Unknown | ReleasedDefinition::Gone => None,
            }
        });
        let ran = || {
            let previous = self.plan.record.previous.as_ref().filter(|p| template_hash(&p.revision) == approved)?;
            Some(overlays::as_in(&previous.daemon_set, daemon_set))
        };
        let daemon_set = known.or_else(ran)?;
        let revision = overlays::revision(approved, &daemon_set);
        let target = Target { daemon_set, revision, data: Data::Current, rollback: false };
        self.plan.summary.wanted_revision = Some(desired.to_owned());
        Some(target)
    }

    /// Whether the way back leads to a released revision that is not for this node: then nothing is to run here until the
    /// rollout is open to nodes that join.
    fn is_elsewhere(&self, back: &Target) -> bool {
        let released = back.daemon_set.rollout.released.as_ref();
        released.is_some_and(|released| released.hash == template_hash(&back.revision))
            && !self.belongs(&back.daemon_set)
    }

    /// Whether such a way back has been gone: what ended here before does not return.
    pub(super) fn has_left(&mut self, back: &Target) -> bool {
        let has_left = self.plan.record.instances.is_empty() && self.is_elsewhere(back);
        if has_left {
            (self.plan.record.last, self.plan.record.returns) = (None, false);
        }
        has_left
    }

    /// Where such a way back is to be gone: ends the instance once its approval is claimed. Gives whether that was all.
    pub(super) fn leaves(&mut self, back: &Target) -> bool {
        if self.plan.record.instances.is_empty() || !self.is_elsewhere(back) {
            return false;
        }
        let Some(misfit) = self.placed(&back.daemon_set).misfit else { return false };
        let why = |waits| Reason::WayBackElsewhere { revision: back.revision.clone(), misfit, waits };
        let permission = self.permission(back);
        if matches!(permission, Permission::Approved | Permission::Claimed) {
            self.plan.replacing = Some(back.revision.clone());
        }
        match permission {
            _ if self.plan.record.live().next().is_none() => {
                (self.plan.record.last, self.plan.record.returns) = (None, false);
                self.end_returns();
                self.show_ended(why(Reasons::default()));
            }
            Permission::Claimed => self.unplaced(why(Reasons::default())),
            Permission::Withheld(withheld) => {
                self.stage(back, withheld);
                self.note_awaited(back, withheld);
                self.keep(State::Unknown, [why([Reason::Withheld(withheld)].into())]);
            }
            _ => self.keep(State::Unknown, [why([Reason::BeingClaimed].into())]),
        }
        true
    }

    /// Why the target may not replace `old` yet, if so; its images are pulled meanwhile. `beside`: it starts while
    /// `old` runs.
    pub(super) fn not_permitted(&mut self, target: &Target, old: &Instance, beside: bool) -> Option<Reasons> {
        let permission = match old.revision == target.revision {
            true => Permission::Free,
            false => self.permission(target),
        };
        match permission {
            Permission::Free if self.is_by_hand(&target.revision) => None,
            Permission::Free => self.not_yet(target, old).map(|why| [why].into()),
            Permission::Claimed => {
                self.plan.replacing = Some(target.revision.clone());
                None
            }
            Permission::Withheld(_) if self.lacks_its_image(target, old) => None,
            Permission::Withheld(withheld) => {
                self.stage(target, withheld);
                let mut waits = self.withheld(target, withheld)?;
                waits.extend(self.plan.record.staged.is_some().then_some(Reason::ImagesHere));
                Some(waits)
            }
            // The answer of the facts, which is one of the others by now.
            Permission::Standing(_) | Permission::Staged => None,
            // A rendering that could not start is not claimed.
            Permission::Approved => {
                let before = self.plan.summary.clone();
                // Its pulls go on although the approval is withdrawn.
                let since = Timestamp::default();
                self.plan.record.pending_update = Some(PendingUpdate { revision: target.revision.clone(), since });
                if self.in_the_way(target, old, beside).is_some()
                    || self.prepare(target, StartFor::Replacement).is_none()
                {
                    // The replacement itself hits the same obstacle and reports it.
                    self.plan.summary = before;
                    return None;
                }
                match self.facts.end_observable(old) {
                    EndObservable::No(_) if !beside => return None,
                    EndObservable::AskRuntime if !beside => self.ask_runtime(self.context.now),
                    _ => self.plan.replacing = Some(target.revision.clone()),
                }
                Some([Reason::BeingClaimed].into())
            }
        }
    }

    /// Why the target waits for its approval, which is withheld: its images are pulled meanwhile. `None`: no approval
    /// would help; the start meets the refusal and reports it.
    pub(super) fn withheld(&mut self, target: &Target, withheld: Withheld) -> Option<Reasons> {
        let incarnation = self.plan.record.next_incarnation;
        if are_missing(&target.daemon_set)
            || matches!(self.facts.admission(&target.daemon_set), Admission::Refused(_))
            || self.facts.rendering(&target.daemon_set, incarnation, target.data).result.is_err()
        {
            return None;
        }
        self.note_awaited(target, withheld);
        self.add_hints(withheld.hint());
        let is_open = matches!(
            withheld,
            Withheld::NotApproved | Withheld::OlderResource | Withheld::NotRead | Withheld::Until(_)
        );
        if !is_open || target.daemon_set.rollout.halted.is_some() || !self.pulls_ahead(target) {
            return Some([Reason::Withheld(withheld)].into());
        }
        let daemon_set = self.last_admitted(&target.daemon_set);
        let rendering = self.facts.rendering(daemon_set, incarnation, target.data);
        let images = self.facts.images(&rendering, true);
        self.plan.pull = rendering.result.is_ok().then_some(rendering);
        let lacks = self.look_ahead(target);
        let pull_failed = match images {
            Images::Failed(failed) => Some(failed),
            Images::Present | Images::Pulling(_) | Images::Handed(_) => None,
        };
        self.plan.summary.pull_failed.clone_from(&pull_failed);
        let pull_failed = pull_failed.map(Reason::Images);
        Some(Reasons::from([Some(Reason::Withheld(withheld)), lacks, pull_failed].into_iter().flatten()))
    }

    /// Whether the images of a revision that waits for its approval are pulled: each node begins at a moment of its own
    /// within the window, so that a registry is not asked by all at once.
    pub(super) fn pulls_ahead(&mut self, target: &Target) -> bool {
        let window = target.daemon_set.annotations.get(PRE_PULL).and_then(|text| duration::parse(text));
        let now = self.context.now;
        let since = match &self.plan.record.pending_update {
            Some(pending) if pending.revision == target.revision => pending.since,
            _ => {
                self.plan.record.pending_update = Some(PendingUpdate { revision: target.revision.clone(), since: now });
                now
            }
        };
        let at = since + jitter(&self.context.node.name, &target.revision, window.unwrap_or(PULLS_WITHIN));
        if now < at {
            self.wake(at);
        }
        now >= at
    }

    /// Asks the container runtime before the next decision, which is due `at`.
    pub(super) fn ask_runtime(&mut self, at: Timestamp) {
        self.plan.asks_runtime = true;
        self.wake(at);
    }

    /// Whether an administrator asked on this node to try the revision now.
    pub(super) fn is_by_hand(&self, revision: &str) -> bool {
        self.plan.record.by_hand.as_deref() == Some(revision)
    }

    /// While the claimed replacement is under way, the claim is reported.
    pub(super) fn note_claim(&mut self, target: &Target) {
        if self.permission(target) == Permission::Claimed {
            self.plan.replacing = Some(target.revision.clone());
        }
    }

    /// Whether an instance that ended here does not return with the target. With `OnDelete` it does, unless that is paused or halted.
    fn is_withheld(&self, target: &Target) -> bool {
        match self.permission(target) {
            Permission::Withheld(Withheld::Paused | Withheld::Halted) => true,
            Permission::Withheld(_) | Permission::Approved => {
                target.daemon_set.update_strategy != UpdateStrategy::OnDelete
            }
            _ => false,
        }
    }

    /// The revision with which an instance is restarted if the target is not permitted: its own.
    pub(super) fn restart_target(&self, target: &Target, old: &Instance) -> Option<Target> {
        if old.revision == target.revision || !self.is_withheld(target) {
            return None;
        }
        let data = if old.pinned { Data::Rollback } else { Data::Current };
        let daemon_set = old.daemon_set.clone()?;
        Some(Target { daemon_set, revision: old.revision.clone(), data, rollback: false })
    }

    /// What last ran here, if nothing runs and the target is not permitted.
    pub(super) fn or_last(&mut self, target: Target) -> Target {
        let Some(last) = self.plan.record.last.clone() else { return target };
        if self.plan.record.live().next().is_some() || last.revision == target.revision || !self.is_withheld(&target) {
            return target;
        }
        if last.claimed && self.is_wanted_again(&target) {
            // It returns as what ended for another reason does.
            let (revision, daemon_set) = (target.revision.clone(), Arc::clone(&target.daemon_set));
            self.plan.record.last = Some(LastRun { revision, daemon_set, claimed: false });
            return target;
        }
        // A claimed revision that cannot start any more because another template came keeps no other from starting.
        if last.claimed && self.can_never_start(&last.daemon_set) {
            self.plan.record.last = None;
            return target;
        }
        self.plan.summary.wanted_revision = Some(target.revision);
        Target { daemon_set: last.daemon_set, revision: last.revision, data: Data::Current, rollback: false }
    }

    /// Whether an instance of `daemon_set` would be refused, or needs objects that are known not to exist.
    pub(super) fn can_never_start(&self, daemon_set: &Arc<DaemonSet>) -> bool {
        if matches!(self.facts.admission(daemon_set), Admission::Refused(_)) {
            return true;
        }
        match &self.facts.rendering(daemon_set, self.plan.record.next_incarnation, Data::Current).result {
            Ok(rendered) => !rendered.pod.can_start() && rendered.pod.held.iter().all(|held| !held.unconfirmed),
            Err(_) => true,
        }
    }

    /// Notes the revision that a claimed replacement starts: it goes on although approvals are lost meanwhile. So does one of a released
    /// revision that cannot be had: what follows is no first instance. So does one in place of a file's override, which ends no
    /// sooner for an agent that has yet to read that.
    pub(super) fn note_replacement(&mut self, target: &Target) {
        let claimed = self.passes_over_released || self.permission(target) == Permission::Claimed;
        if claimed || is_made_by_override(&self.plan.record) && !is_override(&target.daemon_set) {
            let (revision, daemon_set) = (target.revision.clone(), Arc::clone(&target.daemon_set));
            self.plan.record.last = Some(LastRun { revision, daemon_set, claimed });
        }
    }

    /// Ends an instance that will return, at its own revision if no other is permitted.
    pub(super) fn end_for_restart(&mut self, instance: &Instance, reason: Reason, confirmed_by: EndConfirmation) {
        if let Some(daemon_set) = instance.daemon_set.clone() {
            self.plan.record.last = Some(LastRun { revision: instance.revision.clone(), daemon_set, claimed: false });
        }
        self.end_as(&instance.uid, reason, true, confirmed_by);
    }
}
