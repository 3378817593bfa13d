//! What a plan leaves for a later pass.
//!
//! Owns which daemons wait for their turn, and until when. Must not change what is done when it comes.

use std::collections::BTreeSet;

use crate::config::Config;
use crate::core::model::ObjectKey;
use crate::core::model::Source;
use crate::core::pass::Plan;
use crate::core::plan::Action;
use crate::core::plan::DaemonPlan;
use crate::core::plan::Note;
use crate::core::rendering::RenderResult;
use crate::core::time::Timestamp;
use crate::node::agent::observation::Observation;
use crate::node::agent::planning;
use crate::node::agent::render_cache::RenderCache;
use crate::node::agent::state::AgentState;
use crate::node::agent::state::Goal;

/// The plan of a pass, without what waits for a later one; and whether a manifest that was lost at boot is given up.
pub(super) fn planned(
    observation: &Observation,
    state: &mut AgentState,
    config: &Config,
    cache: &mut RenderCache,
) -> (Plan, bool) {
    let mut plan = planning::plan(observation, state, config, cache);
    let turn = cache.turn(&written(&plan), state.rendered_last.as_ref());
    if turn.last.is_some() || plan.daemons.iter().any(is_unwritable) {
        state.rendered_last = turn.last.or(state.rendered_last.take());
        cache.make_whole(turn.chosen);
        plan = planning::plan(observation, state, config, cache);
    }
    // Before anything is put off: what waits for its turn is written then.
    let gave_up = state.concerns.manifests_lost_at_boot.give_up(&plan);
    let now = observation.now;
    put_off(&mut plan, state, |daemon| is_unwritable(daemon).then_some(now), Note::InNextPass);
    if state.goal == Goal::Run {
        put_off(&mut plan, state, |daemon| paused_until(daemon, state, now), Note::Paused);
    }
    (plan, gave_up)
}

/// Whether the remembered inputs are to be on disk before the plan is executed.
pub(super) fn changes_what_runs(daemon: &DaemonPlan) -> bool {
    daemon.actions.iter().any(ends_or_refreshes) || starts_again(daemon)
}

fn ends_or_refreshes(action: &Action) -> bool {
    matches!(action, Action::End { .. } | Action::Refresh { volumes: true, .. })
}

/// The first write of all replaces nothing, and need not wait.
fn starts_again(daemon: &DaemonPlan) -> bool {
    daemon.record.next_incarnation > 1 && daemon.actions.iter().any(|action| matches!(action, Action::Start { .. }))
}

/// Until when a daemon of a namespace that is not trusted waits: its change needs a write of the remembered inputs, and the
/// last one was a moment ago.
pub(super) fn paused_until(daemon: &DaemonPlan, state: &AgentState, now: Timestamp) -> Option<Timestamp> {
    let pause = state.inputs_on_disk.pause(now)?;
    let is_written = |action| ends_or_refreshes(action) || matches!(action, Action::Keep { .. });
    let until = match daemon.actions.iter().any(is_written) {
        true => pause.to,
        // Its instance is down: it does not wait as long.
        false if starts_again(daemon) => pause.starts_until(now)?,
        false => return None,
    };
    is_tenants(daemon, state).then_some(until)
}

/// Whether the API defines the daemon, or defined what runs of it, in a namespace that is not trusted.
fn is_tenants(daemon: &DaemonPlan, state: &AgentState) -> bool {
    match &daemon.summary.source {
        Some(source) => *source == Source::Api && state.policy.bounds(&daemon.key.namespace),
        None => daemon.record.definition().is_some_and(|definition| state.policy.confines(definition).is_some()),
    }
}

/// Daemons of whose definitions something is to be written.
fn written(plan: &Plan) -> BTreeSet<ObjectKey> {
    // What was adopted is rendered from the definition of another daemon.
    let keys = |d: &DaemonPlan| {
        let own = d.record.instances.iter().filter_map(|i| Some(i.daemon_set.as_ref()?.key.clone()));
        own.chain([d.key.clone()]).collect::<Vec<ObjectKey>>()
    };
    plan.daemons.iter().filter(|d| to_write(d).next().is_some()).flat_map(keys).collect()
}

/// Whether something is to be written that was given up after it was last written, or that had no room to be whole.
fn is_unwritable(daemon: &DaemonPlan) -> bool {
    to_write(daemon).any(|rendering| !rendering.is_whole())
}

/// What is written, or tried whether there is room for it.
fn to_write(daemon: &DaemonPlan) -> impl Iterator<Item = &RenderResult> {
    daemon.actions.iter().filter_map(|action| match action {
        Action::Start { rendering, .. } | Action::Refresh { rendering, .. } | Action::Verify { rendering, .. } => {
            Some(&**rendering)
        }
        Action::End { successor, .. } => successor.as_deref(),
        _ => None,
    })
}

/// Leaves daemons as they are that wait until a later time.
fn put_off(plan: &mut Plan, state: &AgentState, until: impl Fn(&DaemonPlan) -> Option<Timestamp>, why: Note) {
    for daemon in &mut plan.daemons {
        let Some(until) = until(daemon) else { continue };
        daemon.actions.clear();
        daemon.record = state.records.get(&daemon.key).cloned().unwrap_or_else(|| state.new_record(&daemon.key));
        daemon.wake_at = Some(until);
        daemon.summary.notes.push(why.clone());
    }
}
