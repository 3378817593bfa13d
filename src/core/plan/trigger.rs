//! The trigger for which an approved replacement waits on this node: `daemonlet.dev/update`.
//!
//! Owns when that has come. It is asked for where something runs, or is to return, and not for first instances. What
//! waits for a boot is claimed before (`staged`): at the boot nothing is asked, as the API server may be away.

use crate::core::annotations::is_paused;
use crate::core::model::DaemonSet;
use crate::core::model::Source;
use crate::core::record::EndConfirmation;
use crate::core::record::Instance;
use crate::core::update_trigger::UpdateTrigger;

use super::EndObservable;
use super::Hint;
use super::PassPhase;
use super::Permission;
use super::Planner;
use super::Withheld;
use super::instance::StartFor;
use super::progress::Target;

/// The trigger for which a replacement waits that nothing else withholds.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct AwaitedTrigger {
    pub trigger: UpdateTrigger,
    /// The revision that replaces the instance.
    pub revision: String,
}

impl Planner<'_> {
    /// What the facts permit, once the triggers that approval and annotation name have come. An API server that drops
    /// what it does not know of an approval leaves the annotation.
    pub(super) fn at_its_trigger(&self, target: &Target, permission: Permission) -> Permission {
        if !Self::is_given_back(&permission) && self.is_staged(target) && self.is_before_kubelet() {
            return Permission::Claimed;
        }
        let (given, permission) = match permission {
            Permission::Standing(trigger) => (Some(trigger), Permission::Approved),
            Permission::Staged => (Some(UpdateTrigger::Boot), Permission::Approved),
            permission => (None, permission),
        };
        let has_run = !self.plan.record.instances.is_empty() || self.plan.record.last.is_some();
        if matches!(permission, Permission::Withheld(_)) || !has_run {
            return permission;
        }
        let written = UpdateTrigger::of(&target.daemon_set);
        let is_free = permission == Permission::Free;
        let open = [written, given].into_iter().flatten().find(|trigger| !self.has_come(*trigger, target, is_free));
        open.map_or(permission, |trigger| Permission::Withheld(Withheld::Until(trigger)))
    }

    /// Whether it is known that no approval for the next boot stands.
    fn is_given_back(permission: &Permission) -> bool {
        match permission {
            Permission::Withheld(Withheld::NotRead | Withheld::NotServed | Withheld::LeaseNotRead) => false,
            Permission::Free | Permission::Staged | Permission::Standing(UpdateTrigger::Boot) => false,
            Permission::Withheld(_) | Permission::Standing(_) | Permission::Approved | Permission::Claimed => true,
        }
    }

    /// Whether a trigger has come; `is_free`: no approval is needed.
    fn has_come(&self, trigger: UpdateTrigger, target: &Target, is_free: bool) -> bool {
        match trigger {
            UpdateTrigger::Drain => self.context.node.unschedulable,
            UpdateTrigger::Manual => self.is_by_hand(&target.revision),
            // A replacement that needs an approval is staged first.
            UpdateTrigger::Boot => is_free && self.is_before_kubelet(),
            UpdateTrigger::Unknown => false,
        }
    }

    /// Whether this boot has run neither a kubelet nor anything of the daemon.
    fn is_before_kubelet(&self) -> bool {
        let mut live = self.plan.record.live().peekable();
        live.peek().is_some() && live.all(|instance| self.facts.moment(instance) == PassPhase::BeforeKubelet)
    }

    /// Whether the target was staged for this boot, as far as is known: a paused or halted rollout is not.
    fn is_staged(&self, target: &Target) -> bool {
        let daemon_set = &target.daemon_set;
        self.plan.record.staged.as_ref() == Some(&target.revision)
            && matches!(UpdateTrigger::of(daemon_set), None | Some(UpdateTrigger::Boot))
            && !is_paused(daemon_set)
            && !self.is_halted(target)
    }

    /// The revision that was staged, while it is not known whether its approval stands.
    pub(super) fn staged_before(&self, daemon_set: &DaemonSet) -> Option<&str> {
        let staged = self.plan.record.staged.as_deref()?;
        let permission = self.facts.permission(daemon_set, staged);
        matches!(permission, Permission::Withheld(Withheld::NotRead | Withheld::NotServed)).then_some(staged)
    }

    /// Whether the rollout of the target is halted. The way back from a halted one is not.
    pub(super) fn is_halted(&self, target: &Target) -> bool {
        let is_back = self.plan.summary.wanted_revision.as_ref().is_some_and(|wanted| *wanted != target.revision);
        target.daemon_set.rollout.halted.is_some() && !is_back
    }

    /// Whether the target takes the place of `old` before the kubelet starts, in one pass.
    pub(super) fn is_swapped_at_boot(&self, target: &Target, old: &Instance) -> bool {
        let is_awaited = self.is_staged(target) || UpdateTrigger::of(&target.daemon_set) == Some(UpdateTrigger::Boot);
        let never_started = EndObservable::By(EndConfirmation::NeverStarted);
        is_awaited && self.is_before_kubelet() && self.facts.end_observable(old) == never_started
    }

    /// Claims an approval that waits for the next boot once the images are here, and notes on the disk that it is
    /// claimed. It is given back when the approval is read to be gone, or the rollout to be stopped.
    pub(super) fn stage(&mut self, target: &Target, withheld: Withheld) {
        let staged = self.plan.record.staged.take();
        let daemon_set = &target.daemon_set;
        if daemon_set.source != Source::Api || self.is_halted(target) {
            return;
        }
        let permission = match withheld {
            Withheld::Until(UpdateTrigger::Boot) => self.facts.permission(daemon_set, &target.revision),
            Withheld::NotRead | Withheld::NotServed | Withheld::LeaseNotRead => Permission::Withheld(withheld),
            _ => return,
        };
        match permission {
            Permission::Staged => self.plan.record.staged = Some(target.revision.clone()),
            Permission::Withheld(_) => self.plan.record.staged = staged,
            Permission::Standing(UpdateTrigger::Boot) if !self.pulls_ahead(target) => return,
            Permission::Standing(UpdateTrigger::Boot) => {}
            _ => return,
        }
        // Its objects are watched, and its images are kept.
        let before = self.plan.summary.clone();
        let prepared = self.prepare(target, StartFor::Replacement);
        self.plan.summary = before;
        let is_new = matches!(permission, Permission::Standing(_));
        self.plan.staging = match is_new {
            true => prepared.as_ref().map(|_| target.revision.clone()),
            false => self.plan.record.staged.clone(),
        };
        if let Some(Ok(rendered)) = prepared.as_ref().map(|prepared| &prepared.rendering.result) {
            self.plan.record.staged_images = rendered.pod.images.iter().map(|image| image.image.clone()).collect();
        }
    }

    /// Where nothing was decided about what is staged: it stays so, and is reported so, unless it is known that its
    /// approval does not stand. A claim that is given back to the coordinator must not be carried out at the next boot.
    pub(super) fn judge_staged(&mut self) {
        let Some(staged) = self.plan.record.staged.as_deref().filter(|_| self.plan.staging.is_none()) else { return };
        let runs = self.plan.record.live().find_map(|instance| instance.daemon_set.as_ref());
        let permission = runs.map(|runs| self.facts.permission(runs, staged));
        match permission {
            Some(
                Permission::Staged
                | Permission::Withheld(Withheld::NotRead | Withheld::NotServed | Withheld::LeaseNotRead),
            ) => self.plan.staging = self.plan.record.staged.clone(),
            _ => self.plan.record.staged = None,
        }
    }

    /// Notes what withholds the target.
    pub(super) fn note_awaited(&mut self, target: &Target, withheld: Withheld) {
        let Withheld::Until(trigger) = withheld else {
            self.plan.summary.awaits_approval = true;
            return;
        };
        self.plan.summary.awaited = Some(AwaitedTrigger { trigger, revision: target.revision.clone() });
        self.plan.summary.hints.extend(match trigger {
            UpdateTrigger::Drain => Some(Hint::Drain(self.context.node.name.clone())),
            UpdateTrigger::Manual => Some(Hint::Approve(self.plan.record.key.clone())),
            UpdateTrigger::Boot | UpdateTrigger::Unknown => None,
        });
    }
}
