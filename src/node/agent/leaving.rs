//! What an agent leaves on its Node when it ends: the taint, if the machine shuts down, and nothing after a teardown.
//!
//! Owns the two requests that no pass makes and no pass waits for.

use std::time::Duration;

use crate::core::status::Problem;
use crate::node::api::ApiFailure;
use crate::node::api::FailureKind;
use crate::node::api::TaintChange;
use crate::node::api::TaintResult;
use crate::node::seal;

use super::Agent;
use super::concerns::startup_taint;
use super::requests::Reply;
use super::requests::Request;

/// How long the API server is waited for while the machine shuts down.
const SHUTDOWN: Duration = Duration::from_secs(3);

impl Agent {
    /// If the machine shuts down, no workload comes to it before its daemons at its next boot.
    pub(super) async fn taint_at_shutdown(&self) {
        let has_no_daemons = self.last.plan.startup_taint.daemons.is_empty();
        if has_no_daemons || self.state.unlinked(&self.last.observation).is_some() || !seal::is_shutting_down() {
            return;
        }
        match self.change_taint(TaintChange::Set, SHUTDOWN).await {
            TaintResult::Done => tracing::info!("the machine shuts down: the Node has the taint of its next boot"),
            result => {
                let Problem { reason, hint, .. } = startup_taint::problem(TaintChange::Set, &result);
                tracing::warn!(hint, "the machine shuts down: {reason} at the next boot");
            }
        }
    }

    /// Takes the taint off the Node. Gives what a person has to do, if that fails.
    pub(super) async fn remove_taint(&self) -> Option<Problem> {
        if !self.config.startup_taint || self.inputs.api().is_none() {
            return None;
        }
        let result = self.change_taint(TaintChange::Remove, self.config.once_timeout).await;
        let hint = Some(startup_taint::by_hand(&self.config.node_name));
        (result != TaintResult::Done).then(|| Problem { hint, ..startup_taint::problem(TaintChange::Remove, &result) })
    }

    async fn change_taint(&self, change: TaintChange, bound: Duration) -> TaintResult {
        let request = Request::StartupTaint { node_uid: self.state.node.uid.clone(), change };
        match tokio::time::timeout(bound, self.requests.last(request)).await {
            Ok(Some(Reply::StartupTaint { result, .. })) => result,
            _ => {
                let message = format!("no answer within {} s", bound.as_secs());
                TaintResult::Failed(ApiFailure::new(FailureKind::Timeout, message))
            }
        }
    }
}
