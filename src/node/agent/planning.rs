//! From what is known to a plan: what the sources want of each daemon, and the facts of one pass.
//!
//! Owns no knowledge of its own.

mod ignored;
mod mirror_pods;

use crate::core::sources::Unproven;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::config::Config;
use crate::core::bounds;
use crate::core::cluster::node_daemons::Status;
use crate::core::identity::template_hash;
use crate::core::model::DaemonSet;
use crate::core::model::Mode;
use crate::core::model::NodeView;
use crate::core::model::ObjectKey;
use crate::core::model::Source;
use crate::core::node;
use crate::core::node_conditions;
use crate::core::overlays;
use crate::core::pass;
use crate::core::pass::PassContext;
use crate::core::pass::Plan;
use crate::core::pass::Subject;
use crate::core::placement;
use crate::core::plan::Facts;
use crate::core::plan::Note;
use crate::core::policy::Judge;
use crate::core::policy::Releases;
use crate::core::record::DaemonRecord;
use crate::core::record::Instance;
use crate::core::record::RestartCause;
use crate::core::sources;
use crate::core::sources::ApiState;
use crate::core::sources::Desired;
use crate::core::sources::DesiredReason;
use crate::core::sources::FolderState;
use crate::core::sources::KnownDefinition;
use crate::core::sources::RefusedVersion;
use crate::core::startup_taint;
use crate::core::startup_taint::ApiServer;
use crate::core::startup_taint::Switch;
use crate::node::api::Scope;

use super::concerns::claims;
use super::concerns::stock_controller;
use super::evidence::room::NodeRoom;
use super::objects::Objects;
use super::objects::is_override;
use super::observation::Observation;
use super::observed_state;
use super::observed_state::LOST;
use super::observed_state::ObservedState;
use super::observed_state::doubt;
use super::orphans;
use super::render_cache::RenderCache;
use super::render_cache::RenderCacheInputs;
use super::state::AgentState;
use super::state::Goal;

/// The plan of one pass. Changes nothing but the cache's speed.
pub(super) fn plan(observation: &Observation, state: &AgentState, config: &Config, cache: &mut RenderCache) -> Plan {
    // A single pass has no later pass in which to write.
    cache.begin(if state.goal == Goal::Once { usize::MAX } else { bounds::RENDERED });
    cache.verdicts.begin(&state.policy);
    with_facts(observation, state, config, cache, |subjects, facts| {
        let api = observation.snapshot();
        let guard = &state.concerns.removal_guard;
        let context = PassContext {
            now: observation.now,
            node: &state.node,
            update_jitter: config.update_jitter.into(),
            max_removals: guard.etcd_rollback.max_removals(api, config.max_removals, state.inputs.history_unknown),
            second_list: guard.has_second_list(api),
            boot: &observation.boot.id,
            booted: observation.boot.at,
            is_only: state.goal == Goal::Once,
        };
        let mut plan = pass::plan(subjects, &context, facts);
        if state.goal == Goal::Run {
            let rules = startup_taint::TaintRules {
                now: observation.now,
                boot: &observation.boot.id,
                unread_until: observation.now + (startup_taint::TIMEOUT - observation.steady),
                is_trusted: &|daemon_set| state.policy.trusts_annotations(daemon_set),
                may_be_trusted: &|key| {
                    let is_of_file = observation.folders.get(key).is_some() || state.inputs.origins.contains_key(key);
                    is_of_file || state.policy.rules().trusts(&key.namespace)
                },
                belongs: &|daemon_set| {
                    let selector = facts.namespace_selector(daemon_set);
                    placement::belongs(&state.node, daemon_set, selector.as_ref())
                },
                switch: if config.startup_taint { Switch::On } else { Switch::Off },
                api_server: match facts.unlinked {
                    None if observation.api_answers() => ApiServer::Answers,
                    _ => ApiServer::Silent,
                },
            };
            plan.startup_taint = startup_taint::decide(subjects, &mut plan.daemons, &rules);
            let switch = if config.node_conditions { Switch::On } else { Switch::Off };
            plan.node_conditions =
                node_conditions::decide(subjects, &mut plan.daemons, rules.boot, rules.is_trusted, switch);
        }
        refer_to_lists(observation, state, &mut plan);
        note_lacks(observation, &config.node_name, &mut plan);
        mirror_pods::note(facts, &mut plan);
        note_vanished(observation, &mut plan);
        note_passed_over(observation, state, facts, &mut plan);
        ignored::note(&observation.folders, &mut plan);
        plan
    })
}

/// What this node publishes to the cluster, if it publishes anything.
pub(super) fn report_to_cluster(
    observation: &Observation,
    state: &AgentState,
    config: &Config,
    cache: &RenderCache,
    plan: &Plan,
) -> Option<Status> {
    let is_read = observation.snapshot().is_some_and(|api| api.lists(&Scope::NodeDaemons) > 0);
    let live = state.concerns.claims.live();
    let rules = state.policy.rules();
    let is_trusted = |key: &ObjectKey| rules.trusts(&key.namespace) || observation.folders.get(key).is_some();
    let report = |_: &[Subject<'_>], facts: &ObservedState<'_>| {
        let failed = |key: &ObjectKey| {
            let why = state.failed.get(key)?;
            Some((state.records.get(key)?, why))
        };
        claims::status(plan, facts, &config.node_name, live, (&is_trusted, &failed))
    };
    is_read.then(|| with_facts(observation, state, config, cache, report))
}

/// Calls `f` with what is planned for and what is known.
fn with_facts<T>(
    observation: &Observation,
    state: &AgentState,
    config: &Config,
    cache: &RenderCache,
    f: impl FnOnce(&[Subject<'_>], &ObservedState<'_>) -> T,
) -> T {
    let objects = Objects::today(observation, &state.inputs, &state.policy);
    let desired = desired(observation, state, config, &objects, cache);
    let unknown = desired.iter().filter(|(key, ..)| !state.records.contains_key(*key));
    let empty: BTreeMap<&ObjectKey, DaemonRecord> = unknown.map(|(key, ..)| (*key, state.new_record(key))).collect();
    let subjects: Vec<Subject<'_>> = desired
        .into_iter()
        .filter_map(|(key, desired, unlisted)| {
            let record = state.records.get(key).or_else(|| empty.get(key))?;
            Some(Subject { desired, record, unlisted })
        })
        .collect();
    let manifests = digests(observation, state);
    let (options, options_version) = state.options.get();
    let instances = observed_state::by_uid(&state.records);
    let unrelated_pods = stock_controller::unrelated_pods(observation.snapshot());
    let facts = ObservedState {
        observation,
        state,
        config,
        render_cache: cache,
        objects,
        inputs: RenderCacheInputs { objects: &objects, tokens: &observation.tokens.held, options, options_version },
        manifests: &manifests,
        subjects: &subjects,
        instances: &instances,
        unrelated_pods: &unrelated_pods,
        unlinked: state.unlinked(observation),
        tenants: Default::default(),
    };
    f(&subjects, &facts)
}

/// What the sources together want of every daemon that they or the records know, and whether the only evidence is its
/// absence from a list.
fn desired<'a>(
    observation: &'a Observation,
    state: &'a AgentState,
    config: &Config,
    objects: &Objects<'_>,
    cache: &RenderCache,
) -> Vec<(&'a ObjectKey, Desired, bool)> {
    if state.goal == Goal::Teardown {
        return state.records.keys().map(|key| (key, torn_down(), false)).collect();
    }
    let api = observation.snapshot();
    let mut keys: BTreeSet<&ObjectKey> = state.records.keys().collect();
    keys.extend(observation.folders.keys());
    keys.extend(state.inputs.daemon_sets.keys());
    if api.is_some() {
        keys.extend(state.definitions.ours(&state.policy));
    }
    let empty = DaemonRecord::new(ObjectKey::new("", ""), 0);
    // Without an API server the node has the labels that its configuration gives it, and gets no others.
    let has_its_labels = config.kubeconfig.is_none() || node::has_its_labels(&state.node, state.inputs.node_since);
    let of_node = (&state.node.labels, has_its_labels);
    let of = |key: &'a ObjectKey| {
        let record = state.records.get(key).unwrap_or(&empty);
        let mut of_api = api.map_or(ApiState::None, |api| state.definitions.api_state(key, api));
        if let (ApiState::Absent { .. }, Some(api)) = (&of_api, api) {
            of_api = orphans::unless_orphaned(of_api, record, api, &config.node_name);
        }
        if of_api == ApiState::Unread && !observation.is_linked() {
            of_api = ApiState::Unknown;
        }
        let held_back = |daemon_set: Option<&Arc<DaemonSet>>| state.held_back(observation, daemon_set?);
        let api_held_back = held_back(of_api.daemon_set());
        if let Some(why) = &api_held_back {
            of_api = ApiState::Invalid(RefusedVersion::HeldBack(why.clone()));
        }
        let about = state.definitions.version(key);
        let folder = observation.folders.state(key, &state.inputs.origins, record);
        let folder = match folder {
            // It does not start anew before that has been forgotten.
            FolderState::Present { .. } if is_let_go(observation, state, record) => {
                FolderState::Unsure { reason: Unproven::FileNotFound }
            }
            folder => folder,
        };
        let objects_of_it = Objects { live: record.live().next().is_some(), ..*objects };
        let last = record.definition().and_then(|last| last.overlays.as_deref());
        let overlaid = |daemon_set| cache.overlaid(daemon_set, of_node, (&objects_of_it, &state.policy), last);
        let (in_folder, in_api, remembered) = (
            folder.daemon_set().map(overlaid),
            of_api.daemon_set().map(overlaid),
            state.inputs.daemon_sets.get(key).filter(|d| held_back(Some(d)).is_none()).map(overlaid),
        );
        let known = KnownDefinition {
            folder: folder.with(in_folder.as_ref()),
            api: of_api.with(in_api.as_ref()),
            remembered: remembered.as_ref(),
            confirmation: state.concerns.removal_guard.confirmation(key, about, observation.now),
            has_file: state.inputs.origins.contains_key(key),
            is_superseded: observation.folders.is_superseded(key, &state.inputs.superseded),
            is_changing: observation.steady < doubt::READ_WITHIN && observation.folders.view.is_restless(key),
        };
        let desired = sources::resolve(&known, record, Judge::new(&state.policy, &cache.verdicts), objects);
        let (mode, why) = match &desired {
            Desired::Wanted { daemon_set, mode, .. } | Desired::Held { daemon_set, mode, .. } => {
                (*mode, held_back(Some(daemon_set)))
            }
            Desired::Unsure { .. } => (Mode::Static, api_held_back.clone()),
            _ => (Mode::Static, None),
        };
        let desired = why.map_or(desired, |reason| Desired::SetAside { mode, reason });
        let desired = if has_its_labels { desired } else { unless_of_other_labels(desired, record, &state.node) };
        let is_unlisted = known.is_unlisted(record) && !matches!(desired, Desired::Held { .. });
        (key, desired, is_unlisted)
    };
    keys.into_iter().map(of).collect()
}

/// What is wanted of every daemon while the node is torn down.
fn torn_down() -> Desired {
    Desired::Gone { reason: DesiredReason::TornDown, by_list: false, ignore_file: None }
}

/// `desired`, unless what runs may have been made with overlays for labels that are not known of `node`.
fn unless_of_other_labels(desired: Desired, record: &DaemonRecord, node: &NodeView) -> Desired {
    match &desired {
        Desired::Wanted { daemon_set, .. }
            if daemon_set.overlays.is_some() && sources::differs_from_unknown(daemon_set, record) =>
        {
            let reason = if node.registered { DesiredReason::LabelsIncomplete } else { DesiredReason::LabelsUnread };
            Desired::Unsure { reason }
        }
        _ => desired,
    }
}

/// Lets daemons that wait for labels refer to their lists of overlays: by its list, what runs may be as it is wanted.
fn refer_to_lists(observation: &Observation, state: &AgentState, plan: &mut Plan) {
    for daemon in plan.daemons.iter_mut().filter(|daemon| daemon.summary.awaits_labels()) {
        let definitions = [observation.folders.get(&daemon.key), state.definitions.get(&daemon.key)];
        daemon.references.extend(definitions.into_iter().flatten().filter_map(|d| overlays::config_map(d)));
    }
}

/// Says what the node has too little of for instances that the kubelet did not accept, and which pods hold it.
fn note_lacks(observation: &Observation, node: &str, plan: &mut Plan) {
    let mut room = None;
    for daemon in &mut plan.daemons {
        let is_rejected = |i: &&Instance| {
            i.restart.as_ref().is_some_and(|order| matches!(order.cause, RestartCause::NotAccepted { .. }))
        };
        let Some(instance) = daemon.record.live().find(is_rejected) else { continue };
        let Some(room) = room.get_or_insert_with(|| NodeRoom::of(observation, node)) else { return };
        let lacks = room.lacks(&daemon.key, instance);
        daemon.summary.notes.extend(lacks.into_iter().map(Note::Lacks));
    }
}

/// Names the files that do not exist now and still count.
fn note_vanished(observation: &Observation, plan: &mut Plan) {
    for daemon in &mut plan.daemons {
        let Some(file) = observation.folders.view.file_of(&daemon.key).filter(|file| file.has_vanished()) else {
            continue;
        };
        daemon.summary.notes.push(Note::FileVanished(file.path.clone()));
        if daemon.summary.source.as_ref().is_some_and(|source| *source != Source::Api)
            && daemon.record.live().next().is_some()
        {
            daemon.summary.let_go(&daemon.key);
        }
    }
}

/// Whether a daemon was released of which a file that is not there has the definition.
fn is_let_go(observation: &Observation, state: &AgentState, record: &DaemonRecord) -> bool {
    let file = observation.folders.view.file_of(&record.key);
    let is_released = record.released || state.policy.releases(&record.key, Releases::Name);
    is_released && file.is_some_and(|file| file.has_vanished())
}

/// Names the files that are passed over because another source counts.
fn note_passed_over(observation: &Observation, state: &AgentState, facts: &ObservedState<'_>, plan: &mut Plan) {
    let folders = &observation.folders;
    for daemon in plan.daemons.iter_mut().filter(|d| d.summary.source == Some(Source::Api)) {
        let Some(file) = folders.get(&daemon.key) else { continue };
        let runs = daemon.record.live().filter_map(|instance| instance.daemon_set.as_ref()).last();
        let used = state.definitions.get(&daemon.key).or_else(|| state.inputs.daemon_sets.get(&daemon.key)).or(runs);
        let hash = |daemon_set| template_hash(&facts.revision(daemon_set)).to_owned();
        if used.is_some_and(|used| hash(used) != hash(file)) {
            let overrides = sources::is_override(file);
            daemon.summary.notes.push(Note::FilePassedOver { file: file.source.clone(), overrides });
        }
    }
    if folders.objects.is_empty() {
        return;
    }
    let objects = Objects::today(observation, &state.inputs, &state.policy);
    for daemon in &mut plan.daemons {
        for reference in &daemon.references {
            let Some(used) = objects.passed_over(reference) else { continue };
            let file = folders.file_of(reference).unwrap_or_default();
            let overrides = is_override(folders.objects.get(reference));
            let object = reference.clone();
            daemon.summary.notes.push(Note::ObjectPassedOver { object, file, used, overrides });
        }
    }
}

/// The manifests in the folder by pod UID. One that cannot be read is there, and not as it should be:
/// it never counts as gone; nor does one that was lost with the disk and not removed, or whose pod a foreign file has.
fn digests<'a>(observation: &'a Observation, state: &'a AgentState) -> BTreeMap<&'a str, &'a str> {
    let lost = state.concerns.manifests_lost_at_boot.uids();
    let mut digests: BTreeMap<&str, &str> = lost.map(|uid| (uid, LOST)).collect();
    let Some(scan) = observation.manifests.current() else { return digests };
    digests.extend(scan.foreign.keys().map(|uid| (uid.as_str(), "foreign")));
    if !scan.unreadable.is_empty() {
        for record in state.records.values() {
            let unreadable = record.instances.iter().filter(|i| scan.is_unreadable(&record.key.namespace, &i.pod_name));
            digests.extend(unreadable.map(|i| (i.uid.as_str(), "unreadable")));
        }
    }
    digests.extend(scan.ours.values().map(|m| (m.uid.as_str(), m.sha256.as_str())));
    // Of two with one UID, what lies under the name that we gave is ours to keep.
    let named = scan.ours.values().filter(|m| !m.is_copy());
    digests.extend(named.map(|m| (m.uid.as_str(), m.sha256.as_str())));
    digests
}

#[cfg(test)]
mod tests;
