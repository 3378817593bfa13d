//! Missing objects of another revision, while an instance of the old one stays.
//!
//! Owns how that is reported: the coordinator approves no node that lacks something. An object that no source has shown yet
//! does not count as missing.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::core::cluster::node_daemons::MissingReport;
use crate::core::dry_run::FRESH;
use crate::core::identity::template_hash;
use crate::core::model::DaemonSet;
use crate::core::policy::Admission;
use crate::core::rendering::RenderResult;
use crate::core::rendering::Rendered;

use super::Planner;
use super::Reason;
use super::progress::Target;
use super::reason::describe;

impl Planner<'_> {
    /// Notes the objects that a target refers to which waits for its approval, so that it is known by then which of them
    /// exist. Its tokens are requested once it is approved. Gives the missing objects.
    pub(super) fn look_ahead(&mut self, target: &Target) -> Option<Reason> {
        for rendering in self.renderings(target) {
            self.plan.references.extend(rendered(&rendering).flat_map(|rendered| &rendered.pod.references).cloned());
        }
        let answered = self.plan.record.answer.as_ref().map(|answer| answer.at + FRESH);
        if let Some(at) = answered.filter(|at| *at > self.context.now) {
            self.wake(at);
        }
        self.note_missing(target)
    }

    /// Notes the objects that the target needs, and the missing ones if an instance stays because of them. Gives these.
    pub(super) fn note_missing(&mut self, target: &Target) -> Option<Reason> {
        let renderings = self.renderings(target);
        let all = renderings.iter().flat_map(rendered).flat_map(|rendered| &rendered.pod.absent);
        let all: BTreeSet<String> = all.map(describe).collect();
        if all.is_empty() {
            return None;
        }
        let message = all.into_iter().collect::<Vec<_>>().join(", ");
        if self.plan.record.live().next().is_some() {
            let revision = template_hash(&target.revision).to_owned();
            self.plan.summary.missing = Some(MissingReport { revision, message: message.clone() });
        }
        Some(Reason::LacksObjects(message))
    }

    /// The renderings of the target's next instance as it is written and as admission has just changed it, as far as policy
    /// allows them. What admission adds may be another object by now: only an approved node asks it again.
    fn renderings(&self, target: &Target) -> Vec<Arc<RenderResult>> {
        let written = &target.daemon_set;
        let is_fresh = self.plan.record.answer.as_ref().is_some_and(|answer| self.context.now - answer.at < FRESH);
        let admitted = Some(self.last_admitted(written)).filter(|admitted| is_fresh && !Arc::ptr_eq(admitted, written));
        let is_allowed =
            |daemon_set: &&Arc<DaemonSet>| matches!(self.facts.admission(daemon_set), Admission::Allowed(_));
        let render = |daemon_set| self.facts.rendering(daemon_set, self.plan.record.next_incarnation, target.data);
        [written].into_iter().chain(admitted).filter(is_allowed).map(render).collect()
    }
}

fn rendered(rendering: &Arc<RenderResult>) -> impl Iterator<Item = &Rendered> {
    rendering.result.iter()
}
