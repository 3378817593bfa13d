//! What an agent leaves on its Node when it ends: the taint, if the machine shuts down, and nothing after a teardown.
//!
//! Owns the two requests that are made outside passes.

use std::time::Duration;

use crate::config::Config;
use crate::core::node_conditions::POLICY;
use crate::core::node_conditions::PREFIX;
use crate::core::status::Problem;
use crate::core::time::Timestamp;
use crate::node::api::ApiFailure;
use crate::node::api::FailureKind;
use crate::node::api::NodeWriteResult;
use crate::node::api::TaintChange;
use crate::node::notify::Notifier;
use crate::node::seal;

use super::concerns::node_conditions;
use super::concerns::startup_taint;
use super::last_pass::LastPass;
use super::requests::Reply;
use super::requests::Request;
use super::requests::Requests;
use super::state::AgentState;

/// How long the API server is waited for while the machine shuts down.
const SHUTDOWN: Duration = Duration::from_secs(3);

/// Reports to systemd that the agent stops. If the machine shuts down, sets the taint, so that no workload comes before the
/// daemons at the next boot.
pub(super) async fn stop(state: &AgentState, last: &LastPass, requests: &Requests, notifier: &Notifier) {
    notifier.stopping();
    let has_no_daemons = last.plan.startup_taint.daemons.is_empty();
    if has_no_daemons || state.unlinked(&last.observation).is_some() || !seal::is_shutting_down() {
        return;
    }
    match change_taint(TaintChange::Set, state, requests, SHUTDOWN).await {
        NodeWriteResult::Done => tracing::info!("the machine shuts down: the Node has the taint of its next boot"),
        result => {
            let Problem { reason, hint, .. } = startup_taint::problem(TaintChange::Set, &result);
            tracing::warn!(hint, "the machine shuts down: {reason}; the agent sets the taint after the next boot");
        }
    }
}

/// Takes the taint and the conditions off the Node. If that fails, gives what a person has to do.
pub(super) async fn clear_node(
    config: &Config,
    state: &AgentState,
    last: &LastPass,
    requests: &Requests,
) -> Vec<Problem> {
    if config.kubeconfig.is_none() {
        return Vec::new();
    }
    let taint = match config.startup_taint {
        true => remove_taint(config, state, requests).await,
        false => state.concerns.startup_taint.problem(&last.observation, config),
    };
    let conditions = match config.node_conditions {
        true => remove_conditions(config, state, requests, last.observation.now).await,
        false => None,
    };
    taint.into_iter().chain(conditions).collect()
}

async fn remove_conditions(config: &Config, state: &AgentState, requests: &Requests, at: Timestamp) -> Option<Problem> {
    let request = Request::NodeConditions { node_uid: state.node.uid.clone(), changes: None, at };
    let result = match tokio::time::timeout(config.once_timeout, requests.last(request)).await {
        Ok(Some(Reply::NodeConditions(result))) => result,
        _ => no_answer(config.once_timeout),
    };
    let hint =
        format!("run `daemonlet teardown` again when the API server answers, or delete Node {}", config.node_name);
    let left = result != NodeWriteResult::Done;
    left.then(|| Problem {
        object: node_conditions::OBJECT.to_owned(),
        reason: format!("the Node keeps conditions of {}*: {}", PREFIX, result.reason(POLICY)),
        hint: Some(hint),
    })
}

async fn remove_taint(config: &Config, state: &AgentState, requests: &Requests) -> Option<Problem> {
    let result = change_taint(TaintChange::Remove, state, requests, config.once_timeout).await;
    let hint = Some(startup_taint::by_hand(&config.node_name));
    (result != NodeWriteResult::Done).then(|| Problem { hint, ..startup_taint::problem(TaintChange::Remove, &result) })
}

async fn change_taint(
    change: TaintChange,
    state: &AgentState,
    requests: &Requests,
    bound: Duration,
) -> NodeWriteResult {
    let request = Request::StartupTaint { node_uid: state.node.uid.clone(), change };
    match tokio::time::timeout(bound, requests.last(request)).await {
        Ok(Some(Reply::StartupTaint { result, .. })) => result,
        _ => no_answer(bound),
    }
}

fn no_answer(bound: Duration) -> NodeWriteResult {
    let message = format!("no answer within {} s", bound.as_secs());
    NodeWriteResult::Failed(ApiFailure::new(FailureKind::Timeout, message))
}
