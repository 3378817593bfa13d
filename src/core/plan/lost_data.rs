//! Manifests whose data is not on this node: the disk that it was on is another one, or it was taken at a shutdown.
//!
//! Owns that the kubelet starts none of them without its data. Must not decide what data a pod needs.

use std::collections::BTreeSet;

use crate::core::record::EndConfirmation;
use crate::core::record::Instance;

use super::Action;
use super::Data;
use super::EndObservable;
use super::Planner;
use super::Reason;
use super::State;

impl Planner<'_> {
    /// Ends instances that the kubelet, which does not run yet, would start without their data, unless this pass can write it.
    /// As at a first start it is held until nothing is missing; then it starts under a new UID.
    pub(super) fn end_without_data(&mut self) {
        if self.facts.unreadable_manifests().is_some() {
            return;
        }
        let unwritable = self.facts.unwritable_volumes();
        let is_written = |i: &Instance, empty| unwritable.is_none() && self.writes_data(&i.uid, empty);
        let is_left = |i: &Instance| self.facts.empty_volumes(i).is_some_and(|empty| !is_written(i, empty));
        let lacks = |i: &&Instance| is_left(i) && !self.needs_none(i);
        let lacking: Vec<Instance> = self.plan.record.live().filter(lacks).cloned().collect();
        let reason = unwritable.map_or(Reason::DataUnknown, |why| Reason::DataUnwritable(why.clone()));
        for instance in lacking {
            self.plan.actions.retain(|action| !is_of(action, &instance.uid));
            let confirmed_by = match self.facts.end_observable(&instance) {
                EndObservable::By(confirmed_by) => confirmed_by,
                EndObservable::AskRuntime | EndObservable::No(_) => EndConfirmation::Reported,
            };
            self.end_for_restart(&instance, reason.clone(), confirmed_by);
            self.show_as(&instance, State::Waiting, [Reason::ReturnsWithData { lost: Box::new(reason.clone()) }]);
        }
    }

    /// Whether the data of all `volumes` of `uid` is written.
    fn writes_data(&self, uid: &str, volumes: &BTreeSet<String>) -> bool {
        self.plan.actions.iter().any(|action| match action {
            Action::Refresh { rendering, volumes: true, kept, .. } | Action::Verify { rendering, kept } => {
                rendering.identity.uid == uid && kept.is_disjoint(volumes)
            }
            _ => false,
        })
    }

    /// Whether the instance, as far as its definition is known, has no data.
    fn needs_none(&self, instance: &Instance) -> bool {
        instance.daemon_set.as_ref().is_some_and(|daemon_set| {
            let rendering = self.facts.rendering(daemon_set, instance.incarnation, Data::Current);
            let is_its_own = rendering.identity.uid == instance.uid && rendering.result.is_ok();
            is_its_own && rendering.volumes().is_empty() && rendering.held().is_empty()
        })
    }
}

/// Whether an action keeps the instance `uid` as it is.
fn is_of(action: &Action, uid: &str) -> bool {
    match action {
        Action::Refresh { rendering, .. } | Action::Verify { rendering, .. } => rendering.identity.uid == uid,
        Action::CloseGate { uid: gate, .. } | Action::OpenGate { uid: gate, .. } => gate == uid,
        _ => false,
    }
}
