//! Metrics and health of the coordinator.
//!
//! Owns the facts of the last pass, for the thread that serves them. The loop never waits for a reader.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;
use std::time::Instant;

use crate::config::Listen;
use crate::core::metrics;
use crate::core::metrics::CoordinatorFacts;
use crate::node::api::certificate_end;
use crate::node::metrics::Health;
use crate::node::metrics::process;
use crate::node::metrics::server;

/// There is a pass at least every 30 s; one that takes this long hangs.
const HANGS_AFTER: Duration = Duration::from_secs(180);

/// The data between passes; clones share it.
#[derive(Clone)]
pub(super) struct HealthRecorder {
    since: Instant,
    kubeconfig: PathBuf,
    last: Arc<Mutex<Option<(CoordinatorFacts, Instant)>>>,
}

impl HealthRecorder {
    /// Serves at `listen` for as long as the process lives; `kubeconfig`: the coordinator's.
    pub(super) fn serve(listen: Listen, kubeconfig: PathBuf) -> std::io::Result<Self> {
        let recorder = Self { since: Instant::now(), kubeconfig, last: Arc::default() };
        server::start(listen, Arc::new(recorder.clone()))?;
        Ok(recorder)
    }

    /// Takes the facts after a pass.
    pub(super) fn record(&self, facts: CoordinatorFacts) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((facts, Instant::now()));
    }

    fn last(&self) -> Option<(CoordinatorFacts, Instant)> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl server::Exposed for HealthRecorder {
    fn exposition(&self) -> Option<String> {
        self.last().map(|(facts, _)| {
            // It may have been replaced since the start.
            let certificate_end = certificate_end(&self.kubeconfig);
            metrics::coordinator(&CoordinatorFacts { certificate_end, ..facts }, process::fact())
        })
    }

    fn health(&self) -> Health {
        let last = self.last();
        let age = last.as_ref().map_or(self.since, |(_, at)| *at).elapsed();
        let seconds = age.as_secs();
        let words = match &last {
            Some((CoordinatorFacts { leads_since: Some(since), .. }, _)) => {
                format!("holds the Lease since {since}; the last pass ended {seconds} s ago")
            }
            Some(_) => format!("does not hold the Lease; the last pass ended {seconds} s ago"),
            None => format!("no pass has ended yet, {seconds} s after the start"),
        };
        Health { works: last.is_some() && age <= HANGS_AFTER, words }
    }

    fn complain(&self, complaint: Option<String>) {
        if let Some(complaint) = complaint {
            tracing::warn!("metrics of the coordinator: {complaint}");
        }
    }
}
