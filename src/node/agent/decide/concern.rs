//! The concerns that are asked for requests once there is a plan.
//!
//! Owns the list of them. Must not make any depend on what another has answered.

use crate::config::Config;
use crate::core::pass::Plan;
use crate::node::agent::concerns::images;
use crate::node::agent::concerns::removal_guard::QuestionInputs;
use crate::node::agent::log::Log;
use crate::node::agent::objects::Objects;
use crate::node::agent::observation::Observation;
use crate::node::agent::requests::Request;
use crate::node::agent::state::AgentState;

/// A concern that is asked for requests once there is a plan. None depends on what another has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Concern {
    Images,
    RemovalGuard,
    StockController,
    AdmissionDryRuns,
    CrashDiagnoses,
    Acceptance,
    RestartOrders,
    MirrorLabels,
    MirrorOwners,
    MirrorPodDeletions,
    StuckSandboxes,
    KubeletResync,
    Preempted,
}

impl Concern {
    pub(super) const ALL: [Self; 13] = [
        Self::Images,
        Self::RemovalGuard,
        Self::StockController,
        Self::AdmissionDryRuns,
        Self::CrashDiagnoses,
        Self::Acceptance,
        Self::RestartOrders,
        Self::MirrorLabels,
        Self::MirrorOwners,
        Self::MirrorPodDeletions,
        Self::StuckSandboxes,
        Self::KubeletResync,
        Self::Preempted,
    ];
}

/// The requests of every concern but claims, which are reported first.
pub(super) fn concerns(
    order: &[Concern],
    observation: &Observation,
    state: &mut AgentState,
    config: &Config,
    plan: &mut Plan,
    log: &mut Log,
) -> Vec<Request> {
    let (node, unlinked) = (&config.node_name, state.unlinked(observation));
    let AgentState { concerns, records, definitions, inputs, policy, node: view, .. } = state;
    let objects = Objects::today(observation, inputs, policy);
    let known = QuestionInputs {
        records,
        definitions,
        cluster: inputs.cluster_uid.as_ref(),
        removals_delay: config.removals_delay.into(),
    };
    let mut requests = Vec::new();
    for concern in order {
        match concern {
            Concern::Images => requests.extend(images::requests(observation, plan, &objects, node)),
            Concern::RemovalGuard => {
                requests.extend(concerns.removal_guard.requests(observation, plan, &known, log));
            }
            Concern::StockController => requests.extend(concerns.stock.requests(plan, definitions)),
            Concern::AdmissionDryRuns => {
                requests.extend(concerns.admission_dry_runs.requests(observation, plan, node, unlinked));
            }
            Concern::CrashDiagnoses => requests.extend(concerns.crash_diagnoses.requests()),
            Concern::Acceptance => requests.extend(concerns.acceptance.requests()),
            Concern::RestartOrders => requests.extend(concerns.restart_orders.requests(observation)),
            Concern::MirrorLabels => requests.extend(concerns.mirror_labels.requests(observation, records, node)),
            Concern::MirrorOwners => {
                requests.extend(concerns.mirror_owners.requests(observation, plan, definitions, view));
            }
            Concern::MirrorPodDeletions => {
                requests.extend(concerns.mirror_pod_deletions.requests(observation, plan, node));
            }
            Concern::StuckSandboxes => {
                requests.extend(concerns.stuck_sandboxes.requests(observation, plan, records, state.started, log));
            }
            Concern::KubeletResync => requests.extend(concerns.kubelet_resync.requests(observation, records, log)),
            Concern::Preempted => concerns.preempted.observe(observation, records, log),
        }
    }
    requests
}
