//! The metrics of a pass: effects that were executed, never those that were only planned.

use std::time::Duration;

use crate::config::Config;
use crate::core::metrics::Approvals;
use crate::core::status::Problem;
use crate::node::agent::state::AgentState;
use crate::node::api::Tokens;
use crate::node::metrics::MetricsRecorder;
use crate::node::metrics::Pass;

use super::ReportInputs;
use super::Reporter;

impl Reporter {
    /// Starts serving metrics, where the configuration says where.
    pub(in crate::node::agent) fn start_metrics(&mut self, config: &Config, state: &mut AgentState) {
        let Some(listen) = config.metrics_listen.clone() else { return };
        match MetricsRecorder::serve(listen, state.started) {
            Ok(recorder) => self.metrics = Some(recorder),
            Err(error) => state.startup_problems.push(Problem {
                object: "metrics".to_owned(),
                reason: format!("cannot be served: no thread can be started: {error}"),
                hint: None,
            }),
        }
    }

    /// From now on there are metrics, where the configuration has them, for the holder of the result.
    #[cfg(feature = "simulation")]
    pub(in crate::node::agent) fn keep_metrics(
        &mut self,
        config: &Config,
        state: &AgentState,
    ) -> Option<MetricsRecorder> {
        self.metrics = config.metrics_listen.as_ref().map(|_| MetricsRecorder::unserved(state.started));
        self.metrics.clone()
    }

    /// Hands over what there is to measure after a pass. Costs nothing where metrics are not configured.
    pub(in crate::node::agent) fn measure(&self, view: &ReportInputs<'_>, tokens: &Tokens, took: Duration) {
        let Some(metrics) = &self.metrics else { return };
        let counts = view.last.outcome.counts;
        let failures = u64::try_from(view.last.outcome.failures.len()).unwrap_or(u64::MAX);
        let daemons = &view.last.plan.daemons;
        metrics.record(Pass {
            status: self.status(view),
            rules: view.state.policy.rules().clone(),
            ended: view.last.observation.now,
            took,
            changes: [counts.starts, counts.ends, counts.refreshes, failures],
            pulls: view.last.observation.pulls.open(),
            approvals: Approvals {
                approved: view.state.concerns.claims.unclaimed(),
                claimed: daemons.iter().filter(|daemon| daemon.replacing.is_some()).count(),
                withheld: daemons.iter().filter(|d| d.summary.awaits_approval).count(),
            },
            api: view.api.cloned(),
            tokens: tokens.clone(),
        });
    }

    /// Why metrics are not served, if so.
    pub(in crate::node::agent) fn metrics_problem(&self) -> Option<Problem> {
        let reason = self.metrics.as_ref()?.complaint()?;
        Some(Problem {
            object: "metrics".to_owned(),
            reason,
            hint: Some("set metrics.listen to an address or socket that is free".to_owned()),
        })
    }
}
