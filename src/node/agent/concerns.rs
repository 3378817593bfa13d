//! The concerns of a node beside its daemons: each a closed value that knows what it waits for.
//!
//! A concern takes what was observed (`observe`), says what is to be asked or done over a network (`requests`), when it
//! is to be looked at again (`due`) and what is wrong (`problem`). No concern calls another.

pub(super) mod acceptance;
pub(super) mod admission;
pub(super) mod api_freshness;
pub(super) mod claims;
pub(super) mod crash_diagnosis;
pub(super) mod etcd_rollback;
pub(super) mod images;
pub(super) mod kubelet_resync;
pub(super) mod manifests_lost_at_boot;
pub(super) mod mirror_labels;
pub(super) mod mirror_owners;
pub(super) mod mirror_pod_deletions;
pub(super) mod mount_namespace;
pub(super) mod node_conditions;
pub(super) mod node_lease;
pub(super) mod preempted;
pub(super) mod removal_guard;
pub(super) mod restart_orders;
pub(super) mod startup_taint;
pub(super) mod stock_controller;
pub(super) mod stuck_sandboxes;
pub(super) mod volume_checks;

use crate::config::Config;
use crate::core::status::Problem;
use crate::core::time::Timestamp;

use super::observation::Observation;
use super::remembered_inputs::INPUTS;

/// All of them.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) struct Concerns {
    pub(super) acceptance: acceptance::Acceptance,
    pub(super) admission_dry_runs: admission::AdmissionDryRuns,
    pub(super) api_freshness: api_freshness::ApiFreshness,
    pub(super) claims: claims::Claims,
    pub(super) crash_diagnoses: crash_diagnosis::CrashDiagnoses,
    pub(super) kubelet_resync: kubelet_resync::KubeletResync,
    pub(super) manifests_lost_at_boot: manifests_lost_at_boot::ManifestsLostAtBoot,
    pub(super) mirror_labels: mirror_labels::MirrorLabels,
    pub(super) mirror_owners: mirror_owners::MirrorOwners,
    pub(super) mirror_pod_deletions: mirror_pod_deletions::MirrorPodDeletions,
    #[serde(default)]
    pub(super) mount_namespace: mount_namespace::MountNamespace,
    #[serde(default)]
    pub(super) node_conditions: node_conditions::NodeConditionWrites,
    #[serde(default)]
    pub(super) node_lease: node_lease::NodeLease,
    pub(super) preempted: preempted::Preempted,
    pub(super) removal_guard: removal_guard::RemovalGuard,
    pub(super) restart_orders: restart_orders::RestartOrders,
    #[serde(default)]
    pub(super) startup_taint: startup_taint::StartupTaintWrites,
    pub(super) stock: stock_controller::StockController,
    pub(super) stuck_sandboxes: stuck_sandboxes::StuckSandboxes,
    pub(super) volume_checks: volume_checks::VolumeChecks,
}

/// What follows from all of them.
pub(super) struct Outlook {
    /// When each is to be looked at again.
    pub(super) due: Vec<Option<Timestamp>>,
    pub(super) problems: Vec<Problem>,
}

impl Concerns {
    /// When each is to be looked at again, and what is wrong. `cluster`: the one that is remembered; `has_written`: there is
    /// volume data of this process. A concern that is added and not named here does not compile.
    pub(super) fn outlook(
        &self,
        observation: &Observation,
        config: &Config,
        cluster: Option<&String>,
        has_written: bool,
    ) -> Outlook {
        let Self {
            acceptance,
            // Their times are in the plan, which asks them.
            admission_dry_runs: _,
            claims,
            kubelet_resync,
            mirror_owners,
            mount_namespace,
            node_conditions,
            node_lease,
            removal_guard,
            restart_orders,
            startup_taint,
            volume_checks,
            // These follow what is observed, and wait for nothing.
            api_freshness: _,
            crash_diagnoses: _,
            manifests_lost_at_boot: _,
            mirror_labels: _,
            mirror_pod_deletions: _,
            preempted: _,
            stock: _,
            stuck_sandboxes: _,
        } = self;
        let inputs = config.state_dir.join(INPUTS).with_extension("json");
        let mut problems = removal_guard.problems(cluster, &inputs, observation.now);
        problems.extend(mount_namespace.problems());
        problems.extend(mirror_owners.problem());
        problems.extend(node_lease.problem().cloned());
        problems.extend(startup_taint.problem(observation, config));
        problems.extend(node_conditions.problem().filter(|_| config.node_conditions));
        let due = vec![
            acceptance.due(),
            claims.due(),
            claims.reads_again(),
            kubelet_resync.due(),
            mirror_owners.due(),
            mount_namespace.due(),
            node_conditions.due(),
            node_lease.due(),
            removal_guard.due(),
            restart_orders.due(),
            startup_taint.due(),
            volume_checks.due(has_written),
        ];
        Outlook { due, problems }
    }
}
