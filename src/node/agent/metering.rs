//! What a pass leaves for metrics.
//!
//! Owns the counting of what was done. Costs nothing where nobody asked for metrics.

use std::time::Duration;

use crate::core::metrics::Approvals;
use crate::core::plan::Action;
use crate::core::status::Problem;
use crate::node::metrics::Pass;
use crate::node::metrics::Recorder;

use super::Agent;
use super::coordination::NOT_APPROVED;
use super::now;

impl Agent {
    /// Starts serving metrics, where the configuration says where.
    pub(super) fn start_metrics(&mut self) {
        let Some(listen) = self.config.metrics_listen.clone() else { return };
        match Recorder::serve(listen, self.started) {
            Ok(recorder) => self.metrics = Some(recorder),
            Err(error) => self.startup_problems.push(Problem {
                object: "metrics".to_owned(),
                reason: format!("cannot be served: no thread can be started: {error}"),
                hint: None,
            }),
        }
    }

    /// Hands over what there is to measure after a pass.
    pub(super) fn measure(&self, took: Duration) {
        let Some(metrics) = &self.metrics else { return };
        let failed = |key| self.failures.contains_key(key);
        let done = self.plan.daemons.iter().filter(|daemon| !failed(&daemon.key)).flat_map(|daemon| &daemon.actions);
        let mut changes = [0; 4];
        for action in done {
            match action {
                Action::Start { .. } => changes[0] += 1,
                Action::End { .. } => changes[1] += 1,
                Action::Refresh { .. } => changes[2] += 1,
                Action::Finish { .. } | Action::Keep { .. } | Action::Confirm { .. } => {}
            }
        }
        changes[3] = u64::try_from(self.failures.len()).unwrap_or(u64::MAX);
        metrics.record(Pass {
            status: self.status(),
            ended: now(),
            took,
            changes,
            pulls: self.puller.open_since().count(),
            approvals: Approvals {
                approved: self.coordination.unclaimed(),
                claimed: self.plan.daemons.iter().filter(|daemon| daemon.replacing.is_some()).count(),
                withheld: self.plan.daemons.iter().filter(|d| d.summary.reason.contains(NOT_APPROVED)).count(),
            },
            api: self.api.clone(),
            tokens: self.tokens.clone(),
        });
    }

    /// Why metrics are not served, if so.
    pub(super) fn metrics_problem(&self) -> Option<Problem> {
        let reason = self.metrics.as_ref()?.complaint()?;
        Some(Problem {
            object: "metrics".to_owned(),
            reason,
            hint: Some("set metrics.listen to an address or socket that is free".to_owned()),
        })
    }
}
