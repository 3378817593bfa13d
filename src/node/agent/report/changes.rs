//! What a plan would change, in words.

use crate::core::manifest;
use crate::core::pass::Plan;
use crate::core::plan::Action;
use crate::core::plan::DaemonPlan;
use crate::core::replies::HeldDaemon;
use crate::core::replies::PlannedChange;
use crate::core::status::State;

/// The daemons that do not run as they should and for which a plan has nothing to do, and all that are
/// refused or lack something for their data; `looked`: whether anybody has looked how they are.
pub(super) fn held(plan: &Plan, looked: bool) -> Vec<HeldDaemon> {
    let is_held = |d: &&DaemonPlan| match d.summary.state {
        _ if !d.summary.stale.is_empty() => true,
        State::Refused => true,
        State::Failing | State::Waiting => d.actions.is_empty(),
        State::Unknown => d.actions.is_empty() && looked,
        _ => false,
    };
    plan.daemons.iter().filter(is_held).map(hold).collect()
}

fn hold(daemon: &DaemonPlan) -> HeldDaemon {
    HeldDaemon {
        namespace: daemon.key.namespace.clone(),
        name: daemon.key.name.clone(),
        state: daemon.summary.state,
        reason: daemon.summary.reason.clone(),
        stale_volumes: daemon.summary.stale.clone(),
        hint: Some(daemon.summary.hints.join("; ")).filter(|hint| !hint.is_empty()),
    }
}

/// What a plan would change, in the order in which it would be done.
pub(in crate::node::agent) fn changes(plan: &Plan) -> Vec<PlannedChange> {
    plan.daemons.iter().flat_map(of).collect()
}

/// What a plan would change for one daemon.
pub(in crate::node::agent) fn of(daemon: &DaemonPlan) -> impl Iterator<Item = PlannedChange> + '_ {
    let change = move |action: &Action| {
        let (what, reason) = match action {
            Action::Verify { .. } => return None,
            Action::End { pod, reason, .. } => {
                let file = manifest::file_name(&daemon.key.namespace, pod);
                (format!("remove manifest {file}"), reason.clone())
            }
            Action::Finish { pod, .. } => {
                (format!("forget instance {pod}"), "it has ended and nothing of it runs any more".to_owned())
            }
            Action::Start { rendering, reason } => {
                let file = manifest::file_name(&daemon.key.namespace, &rendering.identity.pod_name);
                (format!("write manifest {file}"), reason.clone())
            }
            Action::Refresh { rendering, volumes, manifest, .. } => {
                let what = match (volumes, manifest) {
                    (true, true) => "its data and manifest on disk are out of date",
                    (true, false) => "its data on disk is out of date",
                    _ => "its manifest on disk is out of date",
                };
                (format!("update {} in place", rendering.identity.pod_name), what.to_owned())
            }
            Action::Keep { rendering } => (
                format!("keep the data of {} for a roll-back", rendering.identity.pod_name),
                "its revision is good".to_owned(),
            ),
            Action::Confirm { reason } => ("ask the API server".to_owned(), reason.clone()),
        };
        Some(PlannedChange {
            namespace: daemon.key.namespace.clone(),
            name: daemon.key.name.clone(),
            action: what,
            reason,
        })
    };
    daemon.actions.iter().filter_map(change)
}
