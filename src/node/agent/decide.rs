//! What one pass decides, as a function of what it observes and what the agent carries from pass to pass.
//!
//! Owns the order in which a decision is made. Pure and total: no I/O, no clock, no logging. The render cache may change
//! its speed only. `plan`, `explain`, `retry`, `restart`, `teardown`, `run --once` and the running agent all call
//! [`decide`]; they differ in the state that they pass.

mod concern;
mod overridden;
mod put_off;

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::config::Config;
use crate::core::model::DaemonSet;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;
use crate::core::model::Source;
use crate::core::model::TokenRequest;
use crate::core::node;
use crate::core::pass::Plan;
use crate::core::plan::Action;
use crate::core::plan::DaemonPlan;
use crate::core::plan::State;
use crate::core::policy::Covered;
use crate::core::set_aside::SuspectTurn;
use crate::core::sources;
use crate::core::status::Problem;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::node::api::Scope;

use super::concerns::images;
use super::decision::Decision;
use super::decision::SaveInputs;
use super::gates::Gates;
use super::log::Log;
use super::objects;
use super::objects::is_override;
use super::objects::rollback;
use super::objects::tenant;
use super::observation::Observation;
use super::planning;
use super::render_cache::RenderCache;
use super::requests::Request;
use super::state::AgentState;
use super::state::Goal;

use concern::Concern;
use concern::concerns;

/// A pass is made at least this often, whatever happens.
const PERIOD: Span = Span::from_secs(60);
/// Changed inputs are saved this long after the pass that saw them. Those that change an instance, or without which an
/// instance could not be ended, are saved at once.
const SAVE_AFTER: Span = Span::from_secs(1);
/// How long the loop rests at least after a pass in which something failed, before it tries again.
const FAILED_REST: Span = Span::from_secs(1);
const FAILED_AGAIN: Span = Span::from_secs(5);
/// A manifest folder that cannot be used or watched is looked at this often.
const UNWATCHED_PERIOD: Span = Span::from_secs(5);
/// The share of passes that a simulation decides twice.
#[cfg(feature = "simulation")]
const DECIDED_TWICE: f64 = 1.0 / 16.0;

/// What follows from `observation` for an agent in `state`.
pub(super) fn decide(
    observation: &Observation,
    state: &AgentState,
    config: &Config,
    cache: &mut RenderCache,
) -> Decision {
    decide_in_order(&Concern::ALL, observation, state, config, cache)
}

/// [`decide`] for a pass of the running agent; a simulation checks it.
pub(super) fn checked_decide(
    observation: &Observation,
    state: &AgentState,
    config: &Config,
    cache: &mut RenderCache,
) -> Decision {
    let decision = decide(observation, state, config, cache);
    #[cfg(feature = "simulation")]
    is_same_in_reverse(&decision, observation, state, config, cache);
    decision
}

/// Asserts, in some passes, that another order of the concerns gives the same decision, and so does an empty cache.
#[cfg(feature = "simulation")]
fn is_same_in_reverse(
    decision: &Decision,
    observation: &Observation,
    state: &AgentState,
    config: &Config,
    cache: &mut RenderCache,
) {
    if observation.random < DECIDED_TWICE {
        let mut order = Concern::ALL;
        order.reverse();
        let mut empty = RenderCache::default();
        let cache = if observation.random < DECIDED_TWICE / 2.0 { &mut empty } else { cache };
        let other = decide_in_order(&order, observation, state, config, cache);
        other.assert_same(decision, "the order of concerns counts");
    }
}

/// [`decide`] with the concerns asked in another order.
fn decide_in_order(
    order: &[Concern],
    observation: &Observation,
    before: &AgentState,
    config: &Config,
    cache: &mut RenderCache,
) -> Decision {
    let mut state = before.clone();
    let mut log = Log::default();
    let guard = &mut state.concerns.removal_guard;
    guard.identify_cluster(observation, &mut state.inputs.cluster_uid);
    // What another cluster shows says nothing about this node's own cluster.
    let is_former = observation.api.as_ref().is_some_and(|api| api.is_former);
    let is_foreign = match is_former {
        true => guard.has_foreign_view(),
        false => guard.is_view_foreign(state.inputs.cluster_uid.as_ref()),
    };
    let own_view = is_foreign.then(|| observation.without_api_view());
    let observation = own_view.as_ref().unwrap_or(observation);
    let adopters = state.absorb(observation, config, &mut log);
    state.note_unsaved(&before.records);
    let (mut plan, gave_up) = put_off::planned(observation, &mut state, config, cache);
    objects::note_refused(observation.snapshot(), &mut plan);
    overridden::forget_deleted(observation, &mut state, &mut plan);
    tenant::bound(observation.snapshot(), &state.policy, &mut plan);
    state.asks_runtime = plan.daemons.iter().any(|daemon| daemon.asks_runtime);
    let claims = planning::report_to_cluster(observation, &state, config, cache, &plan);
    let mut requests = Vec::new();
    let connection = state.concerns.removal_guard.identified_on(state.inputs.cluster_uid.as_ref());
    requests.extend(observation.api.as_ref().map(|_| Request::AskTokensOn { connection }));
    requests.extend(follow(observation, &mut state, &plan));
    requests.extend(read(observation, &plan));
    state.inputs.incomplete &= objects::is_unsaid(observation, &plan);
    state.inputs.history_unknown &= !state.concerns.removal_guard.has_compared(observation.snapshot(), &plan);
    let save_inputs = remember(observation, &mut state, &plan);
    requests.extend(concerns(order, observation, &mut state, config, &mut plan, &mut log));
    if let Some(status) = claims {
        state.concerns.claims.want(status, observation.now, observation.random);
    }
    requests.extend(state.concerns.claims.requests(observation, &state.node));
    requests.extend(state.concerns.node_lease.requests(observation, &state.node));
    let unlinked = state.unlinked(observation);
    if config.startup_taint && state.goal == Goal::Run {
        requests.extend(state.concerns.startup_taint.requests(observation, &plan.startup_taint, unlinked));
    }
    // A teardown takes them away while pods end.
    if config.node_conditions && state.goal != Goal::Once {
        requests.extend(state.concerns.node_conditions.requests(observation, &plan.node_conditions, unlinked));
    }
    let events = state.concerns.stock.report(&plan, &config.node_name, &mut log);
    state.set_aside.end_turn(&observation.turn);
    let to_touch = state.concerns.kubelet_resync.manifests_to_touch(observation, &plan, &state.records);
    let (cluster, has_written) = (state.inputs.cluster_uid.as_ref(), !state.written.is_empty());
    let outlook = state.concerns.outlook(observation, config, cluster, has_written);
    let due = if gave_up { observation.now } else { due(observation, &state, &plan, outlook.due) };
    Decision {
        save_inputs,
        adopters,
        gates: Gates::of(&plan, observation, before.passes == 0),
        to_touch,
        to_clear: state.to_clear(observation),
        requests,
        events,
        problems: problems(observation, &state, outlook.problems),
        log,
        due,
        plan: Arc::new(plan),
        state,
    }
}

/// Watches and asks for exactly what the daemons name; not for what is beyond the bounds of their namespaces.
fn follow(observation: &Observation, state: &mut AgentState, plan: &Plan) -> Option<Request> {
    let api = observation.snapshot()?;
    // Else nothing but data is planned, and nothing is known to be needed no more.
    let is_planned = observation.manifests.current().is_some();
    let mut objects: BTreeSet<ObjectRef> = plan.daemons.iter().flat_map(|d| d.references.iter().cloned()).collect();
    let tokens: BTreeSet<TokenRequest> = plan.daemons.iter().flat_map(|d| d.tokens.iter().cloned()).collect();
    let mut ours: BTreeMap<ObjectKey, Arc<DaemonSet>> = BTreeMap::new();
    // A DaemonSet that is not confirmed to be gone is not forgotten, even if nothing of it runs now.
    let unconfirmed: BTreeSet<&ObjectKey> = plan.daemons.iter().filter(|d| is_in_doubt(d)).map(|d| &d.key).collect();
    // A definition that is not selected, or refused, does not replace the remembered one.
    let is_selected = |d: &&DaemonPlan| {
        d.summary.source == Some(Source::Api) && d.summary.mode.is_some() && d.summary.state != State::Held
    };
    let selected: BTreeSet<&ObjectKey> = plan.daemons.iter().filter(is_selected).map(|d| &d.key).collect();
    let overrides: BTreeMap<&ObjectKey, &str> = observation.folders.overrides().collect();
    state.inputs.superseded.retain(|key, file| !observation.folders.is_another(key, file));
    for (key, file) in &overrides {
        let (known, shown) = (state.inputs.daemon_sets.get(*key), state.definitions.get(key));
        if selected.contains(key) && known.zip(shown).is_some_and(|(known, shown)| !shown.defines_the_same(known)) {
            state.inputs.superseded.insert((*key).clone(), (*file).to_owned());
        }
    }
    // A definition that a folder overrides stays as remembered: otherwise every version in the API would become that one.
    // So does one that runs by such a file that shows nothing now.
    let is_unread = |d: &&DaemonPlan| {
        sources::is_made_by_override(&d.record) && observation.folders.is_unsure(&d.record, &state.inputs.origins)
    };
    let unread = plan.daemons.iter().filter(is_unread).map(|d| &d.key);
    let frozen: BTreeSet<&ObjectKey> =
        overrides.into_keys().chain(unread).filter(|key| !state.inputs.superseded.contains_key(*key)).collect();
    let is_first = |key: &&ObjectKey| {
        !state.inputs.daemon_sets.contains_key(*key) && state.policy.allows_namespace(&key.namespace)
    };
    let followed = selected.into_iter().filter(|key| !frozen.contains(key));
    for key in followed.chain(frozen.iter().copied().filter(is_first)) {
        if let Some(daemon_set) = state.definitions.get(key) {
            ours.insert(key.clone(), Arc::clone(daemon_set));
        }
    }
    let runs: BTreeSet<&ObjectKey> =
        plan.daemons.iter().filter(|d| d.record.live().next().is_some()).map(|d| &d.key).collect();
    let unlisted = api.lists(&Scope::DaemonSets) == 0;
    if unlisted || !unconfirmed.is_empty() || !is_planned {
        tenant::extend(&mut objects, &state.inputs, &state.policy);
    }
    let folders = &observation.folders.objects;
    let is_overridden = |reference: &ObjectRef| is_override(folders.get(reference));
    objects::note_superseded(observation, &mut state.inputs, &objects, &state.policy);
    let definitions = &state.definitions;
    let is_kept = |key: &ObjectKey| {
        unlisted
            || !is_planned
            || runs.contains(key)
            || frozen.contains(key)
            || unconfirmed.contains(key)
            || definitions.refused(key).is_some()
    };
    // What the API may not speak for would count again without the file.
    let mut used = objects.clone();
    used.retain(|object| !folders.contains_key(object) || objects::api_may_speak(&state.policy, object));
    state.inputs.follow(api, &ours, &used, is_kept, folders, is_overridden);
    tenant::forget(&mut state.inputs, api, &objects, &state.policy);
    if !unlisted {
        tenant::forget_definitions(&mut state.inputs.daemon_sets, &state.policy, (definitions, &state.records));
    }
    is_planned.then_some(Request::Follow { objects, tokens })
}

/// Asks for what the API defines of daemons that only an outline is known of, and of those that there is room for now.
fn read(observation: &Observation, plan: &Plan) -> Option<Request> {
    let api = observation.snapshot()?;
    let keys = plan.daemons.iter().map(|daemon| &daemon.key).chain(api.to_read());
    let unread: BTreeSet<ObjectKey> = keys.filter(|key| api.is_unread(key)).cloned().collect();
    (!unread.is_empty()).then_some(Request::ReadDaemonSets(unread))
}

/// Whether the API may define a daemon, though neither that nor anything that runs says what it refers to, or it is
/// still to be confirmed that the API does not. One that ends for good is not in doubt.
fn is_in_doubt(daemon: &DaemonPlan) -> bool {
    let record = &daemon.record;
    let is_unknown = record.instances.is_empty() && daemon.summary.state == State::Unknown;
    daemon.actions.iter().any(|action| matches!(action, Action::Confirm { .. }))
        || record.api_uid.is_some() && daemon.summary.source.is_none() && (record.runs() || is_unknown)
}

/// What is remembered for the next start, and when it is to be on disk.
///
/// Inputs are written before they change an instance or its data: otherwise an agent that crashes and finds no API server
/// would go back to the old definition, or start again what had ended. The file that a first instance comes from is
/// written as early: an agent that dies and forgot the file would keep the instance when the file goes.
fn remember(observation: &Observation, state: &mut AgentState, plan: &Plan) -> SaveInputs {
    let kept = rollback::keep(observation, &mut state.inputs, &state.policy, plan);
    let starting = || plan.daemons.iter().filter(|daemon| starts(daemon)).map(|daemon| &daemon.key);
    let folders = &observation.folders;
    let is_new_origin = folders.note_origins(&mut state.inputs.origins, starting());
    // This holds for an instance that could not be started, too: the next try is no news.
    let has_mode = |daemon_set: &DaemonSet| matches!(state.policy.covers(daemon_set, None), Covered::Yes(_));
    folders.follow_origins(&mut state.inputs.origins, state.records.values(), starting(), has_mode);
    let used = plan.daemons.iter().flat_map(|daemon| &daemon.references).collect();
    let runs = state.records.values().filter(|record| record.runs_or_returns()).map(|record| &record.key);
    state.inputs.files.follow(folders, &runs.chain(starting()).collect(), &used);
    let on_disk = &mut state.inputs_on_disk;
    let fingerprint = state.inputs.fingerprint(observation.tokens.fingerprint);
    if fingerprint == on_disk.saved {
        on_disk.due = None;
        return SaveInputs::No;
    }
    if kept || is_new_origin || plan.daemons.iter().any(put_off::changes_what_runs) {
        let is_boot_alone = !kept && on_disk.saved_but_for_boot == Some(fingerprint);
        if is_boot_alone {
            on_disk.due.get_or_insert(observation.now + SAVE_AFTER);
            on_disk.saved_but_for_boot = None;
            return SaveInputs::BootBefore;
        }
        return SaveInputs::Before;
    }
    match on_disk.due_after(SAVE_AFTER, observation.now) <= observation.now {
        true => SaveInputs::After,
        false => SaveInputs::No,
    }
}

/// Whether an instance is to start.
fn starts(daemon: &DaemonPlan) -> bool {
    daemon.actions.iter().any(|action| matches!(action, Action::Start { .. }))
}

/// What is wrong beside single daemons.
fn problems(observation: &Observation, state: &AgentState, of_concerns: Vec<Problem>) -> Vec<Problem> {
    let mut problems = [state.startup_problems.as_slice(), &state.unusable_configuration].concat();
    problems.extend(observation.problems.iter().cloned());
    problems.extend(observation.snapshot().into_iter().flat_map(tenant::unread_daemon_sets));
    problems.extend(of_concerns);
    problems
}

/// When to look again after a pass in which something failed: an effect that fails at once must not be tried in a tight loop.
pub(super) fn after_failure(due: Timestamp, now: Timestamp) -> Timestamp {
    due.clamp(now + FAILED_REST, now + FAILED_AGAIN)
}

/// When to look again if nothing happens.
fn due(observation: &Observation, state: &AgentState, plan: &Plan, concerns: Vec<Option<Timestamp>>) -> Timestamp {
    let now = observation.now;
    let is_usable = observation.manifests.current().is_some();
    let own = [
        plan.wake_at(),
        state.inputs_on_disk.due,
        node::labels_due(state.inputs.node_since, now),
        state.clear_at(observation),
        observation.folders.again_at,
        images::due(observation),
        (!is_usable || !observation.manifests_watched).then(|| now + UNWATCHED_PERIOD),
        // The first pass is from disk alone, before anything is watched.
        (state.passes == 0).then_some(now),
        // Others wait for their turn.
        (observation.turn != SuspectTurn::None).then_some(now),
    ];
    let next = own.into_iter().chain(concerns).flatten().fold(now + PERIOD, Timestamp::min);
    if is_usable { next } else { after_failure(next, now) }
}

#[cfg(test)]
pub(super) mod tests;
