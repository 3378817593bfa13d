//! From what is known to a plan: the words of the sources, and the facts of one pass.
//!
//! Owns no knowledge of its own. Must not change anything but caches.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::core::model::ObjectKey;
use crate::core::pass;
use crate::core::pass::PassContext;
use crate::core::pass::Plan;
use crate::core::pass::Subject;
use crate::core::plan::Action;
use crate::core::plan::DaemonPlan;
use crate::core::record::DaemonRecord;
use crate::core::sources;
use crate::core::sources::ApiState;
use crate::core::sources::Desired;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::node::api::Scope;
use crate::node::api::Snapshot;
use crate::node::manifests::Scan;

use super::Agent;
use super::coordination;
use super::drain;
use super::facts;
use super::facts::ObservedState;
use super::failing::FailureEvidence;
use super::images::ImageFacts;
use super::manifests_lost_at_boot::ManifestsLostAtBoot;
use super::now;
use super::objects::Objects;
use super::orphans;
use super::pass::is_copy;
use super::render_cache::Inputs;
use super::stock;

impl Agent {
    /// Plans from what is known. Changes nothing but caches.
    pub(super) fn plan(
        &mut self,
        records: &BTreeMap<ObjectKey, DaemonRecord>,
        scan: &Scan,
        api: Option<&Snapshot>,
    ) -> Plan {
        self.render_cache.begin();
        let at = now();
        let objects = self.objects(api);
        let words = self.words(records, api, &objects, at);
        let unknown = words.iter().filter(|(key, ..)| !records.contains_key(*key));
        let empty: BTreeMap<&ObjectKey, DaemonRecord> =
            unknown.map(|(key, ..)| (*key, self.disk.new_record(key))).collect();
        let subjects: Vec<Subject<'_>> = words
            .into_iter()
            .filter_map(|(key, desired, unlisted)| {
                let record = records.get(key).or_else(|| empty.get(key))?;
                Some(Subject { desired, record, unlisted })
            })
            .collect();
        let tokens = self.tokens.snapshot();
        let manifests = digests(records, scan, &self.manifests_lost_at_boot);
        let (options, options_version) = self.options.get();
        let instances = facts::by_uid(records);
        let unlinked = self.unlinked();
        let unrelated_pods = stock::unrelated_pods(api);
        let facts = ObservedState {
            render_cache: &self.render_cache,
            policy: &self.policy,
            objects,
            inputs: Inputs { objects: &objects, tokens: &tokens, options, options_version },
            rollback_data: &self.remembered_inputs.rollback_data,
            is_closed: self.sealing.is_closed(),
            manifests: &manifests,
            volumes: &self.disk.volumes,
            written: &self.disk.written,
            volume_check_schedule: &self.volume_check_schedule,
            offline: self.offline,
            records,
            instances: &instances,
            runtime: &self.runtime,
            api,
            api_answers: self.api_answers(api),
            unrelated_pods: &unrelated_pods,
            failure_evidence: FailureEvidence {
                api: self.api_freshness.is_current(at).then_some(api).flatten(),
                runtime: &self.runtime,
                crash_diagnoses: &self.crash_diagnoses,
                node: &self.config.node_name,
                booted: at - uptime(),
            },
            subjects: &subjects,
            kubelet_resync: &self.kubelet_resync,
            acceptance: &self.acceptance,
            mirror_pod_deletions: &self.mirror_pod_deletions,
            images: ImageFacts {
                puller: &self.puller,
                require_prepull: self.config.require_prepull,
                go_on: self.config.replace_unpulled || self.config.exact_rollouts,
                offline: self.offline,
                api_answers: self.api_answers(api),
                now: at,
            },
            asks_admission: self.config.dry_run_admission,
            admission_dry_runs: &self.admission_dry_runs,
            unlinked: unlinked.as_deref(),
            coordination: &self.coordination,
            coordinated: self.remembered_inputs.coordinated,
            node: &self.config.node_name,
            now: at,
        };
        let context = PassContext {
            now: at,
            node: &self.node,
            update_jitter: self.config.update_jitter.into(),
            max_removals: self.history.bound(api, self.config.max_removals),
            second_list: self.has_second_list(api),
            boot: &self.boot,
            booted: at - uptime(),
        };
        let plan = pass::plan(&subjects, &context, &facts);
        let node = &self.config.node_name;
        let status = self.coordination_listed(api);
        let status = status.then(|| coordination::status(&plan, &facts, node, self.coordination.live()));
        if let Some(status) = status {
            self.tell_cluster(status);
        }
        plan
    }

    /// What is known of the objects that daemons refer to.
    pub(super) fn objects<'a>(&'a self, api: Option<&'a Snapshot>) -> Objects<'a> {
        Objects {
            api,
            folders: self.folders.objects(),
            remembered: &self.remembered_inputs.objects,
            rollback_data: None,
            live: false,
        }
    }

    /// Whether anybody reads what is said of this node.
    fn coordination_listed(&self, api: Option<&Snapshot>) -> bool {
        api.is_some_and(|api| api.lists(&Scope::NodeDaemons) > 0)
    }

    /// What the sources say of every daemon that they or the records know, and whether it is a list's
    /// silence alone.
    fn words<'a>(
        &'a self,
        records: &'a BTreeMap<ObjectKey, DaemonRecord>,
        api: Option<&Snapshot>,
        objects: &Objects<'_>,
        at: Timestamp,
    ) -> Vec<(&'a ObjectKey, Desired, bool)> {
        if self.draining {
            return records.keys().map(|key| (key, drain::desired(), false)).collect();
        }
        let mut keys: BTreeSet<&ObjectKey> = records.keys().collect();
        keys.extend(self.folders.keys());
        keys.extend(self.remembered_inputs.daemon_sets.keys());
        if api.is_some() {
            keys.extend(self.definitions.ours(&self.policy));
        }
        let empty = DaemonRecord::new(ObjectKey::new("", ""), 0);
        let desired = |key: &'a ObjectKey| {
            let record = records.get(key).unwrap_or(&empty);
            let folder = self.folders.state(key, &self.remembered_inputs.origins, record);
            let mut known = self.definitions.known(key, api, folder, self.remembered_inputs.daemon_sets.get(key), at);
            if let (ApiState::Absent { .. }, Some(api)) = (&known.api, api) {
                known.api = orphans::unless_orphaned(known.api, record, api, &self.config.node_name);
            }
            let desired = sources::resolve(&known, record, &self.policy, objects);
            (key, desired, known.is_unlisted(record))
        };
        keys.into_iter().map(desired).collect()
    }
}

/// How long the node has been up; for ever if the kernel does not say.
pub(super) fn uptime() -> Span {
    let clock = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME);
    clock.map_or(Span::from_millis(u32::MAX.into()), |t| std::time::Duration::from(t).into())
}

/// Daemons whose plan writes what was given up after it was last written: a file was changed or lost.
pub(super) fn unwritable(plan: &Plan) -> BTreeSet<ObjectKey> {
    let needs = |action: &Action| match action {
        Action::Start { rendering, .. } | Action::Refresh { rendering, .. } => !rendering.is_whole(),
        _ => false,
    };
    // What was adopted is rendered from the definition of another daemon.
    let keys = |d: &DaemonPlan| {
        let own = d.record.instances.iter().filter_map(|i| Some(i.daemon_set.as_ref()?.key.clone()));
        own.chain([d.key.clone()]).collect::<Vec<ObjectKey>>()
    };
    plan.daemons.iter().filter(|d| d.actions.iter().any(needs)).flat_map(keys).collect()
}

/// The manifests in the folder by pod UID. One that cannot be read is there, and not as it should be:
/// it is never taken for gone; nor is one that the disk has lost and nobody removed.
fn digests<'a>(
    records: &'a BTreeMap<ObjectKey, DaemonRecord>,
    scan: &'a Scan,
    manifests_lost_at_boot: &'a ManifestsLostAtBoot,
) -> BTreeMap<&'a str, &'a str> {
    let mut digests: BTreeMap<&str, &str> =
        manifests_lost_at_boot.uids().map(|uid| (uid, "lost with the disk")).collect();
    if !scan.unreadable.is_empty() {
        for record in records.values() {
            let file = |pod: &str| crate::core::manifest::file_name(&record.key.namespace, pod);
            let unreadable = record.instances.iter().filter(|i| scan.unreadable.contains_key(&file(&i.pod_name)));
            digests.extend(unreadable.map(|i| (i.uid.as_str(), "unreadable")));
        }
    }
    digests.extend(scan.ours.values().map(|m| (m.uid.as_str(), m.sha256.as_str())));
    // Of two with one UID, what lies under the name that we gave is ours to keep.
    let named = scan.ours.values().filter(|m| !is_copy(m));
    digests.extend(named.map(|m| (m.uid.as_str(), m.sha256.as_str())));
    digests
}
