//! The container runtime's pods, else the kubelet's: asked when they matter, and waited for only a while.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::core::knowledge::Absence;
use crate::core::knowledge::Knowledge;
use crate::core::local_failure::LocalFailure;
use crate::core::record::Instance;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::node::agent::concerns::stock_controller;
use crate::node::agent::evidence;
use crate::node::agent::runtime_pods::RuntimePod;
use crate::node::agent::state::AgentState;
use crate::node::api::Snapshot;
use crate::node::cri::Cri;
use crate::node::kubelet::Kubelet;

use super::pod_status_source::PodListTask;
use super::pod_status_source::PodStatusSource;

/// The runtime is asked for readiness no more often than this while the API server does not answer.
const PERIOD: Span = Span::from_secs(5);
/// How long a pass waits for the runtime's answer, and for one that is overdue; later passes take it.
const PATIENCE: Duration = Duration::from_millis(500);
const OVERDUE: Duration = Duration::from_millis(20);
/// How long the first pass of a boot waits for the runtime's answer about images.
const AT_BOOT: Duration = Duration::from_millis(200);

/// What the runtime has, and as of when: nothing of it is older.
#[derive(Clone, Debug, Default)]
pub(super) struct RuntimePods {
    pub(super) pods: Knowledge<Arc<Vec<RuntimePod>>>,
    pub(super) as_of: Timestamp,
}

/// Asks, and keeps the last answer.
pub(super) struct RuntimeReader {
    source: Option<PodStatusSource>,
    last: RuntimePods,
    read_at: Timestamp,
    /// A question that is still out, and when it was asked.
    asked: Option<(Timestamp, PodListTask)>,
}

impl RuntimeReader {
    pub(super) fn new(cri: Option<Arc<Cri>>, kubelet: Option<Arc<Kubelet>>) -> Self {
        let source = match (cri, kubelet) {
            (Some(cri), kubelet) => Some(PodStatusSource::Runtime(cri, kubelet)),
            (None, Some(kubelet)) => Some(PodStatusSource::Kubelet(kubelet)),
            (None, None) => None,
        };
        Self { source, last: RuntimePods::default(), read_at: Timestamp::MIN, asked: None }
    }

    /// Whether the last answer is not older than the period; a clock that was set back makes it old.
    pub(super) fn is_fresh(&self, now: Timestamp) -> bool {
        (Span::ZERO..PERIOD).contains(&(now - self.read_at))
    }

    /// Whether it could not be asked lately, and should be asked again.
    pub(super) fn is_to_be_tried(&self, now: Timestamp) -> bool {
        matches!(self.last.pods, Knowledge::Unreadable(_)) && !self.is_fresh(now)
    }

    /// What the runtime has, and the images of staged revisions that it reports as missing.
    pub(super) async fn look(
        &mut self,
        state: &AgentState,
        asks: bool,
        now: Timestamp,
    ) -> (RuntimePods, BTreeSet<String>) {
        let source = self.source.clone();
        tokio::join!(self.read(state, asks, now), missing_images(source.as_ref(), state))
    }

    /// What the runtime has. A runtime that hangs delays only work that needs it.
    async fn read(&mut self, state: &AgentState, asks: bool, now: Timestamp) -> RuntimePods {
        let Some(source) = &self.source else {
            return RuntimePods { pods: Knowledge::Absent(Absence::NotConfigured), as_of: now };
        };
        if state.passes == 0 {
            // The first pass is from disk alone: at boot the runtime may hang, and the kubelet waits.
            return RuntimePods::default();
        }
        if !asks {
            return self.last.clone();
        }
        let (asked_at, mut asked, patience) = match self.asked.take() {
            Some((asked_at, asked)) => (asked_at, asked, OVERDUE),
            None => (now, source.ask(), PATIENCE),
        };
        self.read_at = now;
        let as_of = asked_at - source.lag();
        let pods = match tokio::time::timeout(patience, &mut asked).await {
            Ok(Ok(Ok(pods))) => Knowledge::Current(Arc::new(pods)),
            Ok(Ok(Err(why))) => Knowledge::Unreadable(why),
            Ok(Err(error)) => Knowledge::Unreadable(LocalFailure::RuntimeNotAsked(error.to_string())),
            Err(_) => {
                self.asked = Some((asked_at, asked));
                Knowledge::Unreadable(LocalFailure::RuntimeOverdue)
            }
        };
        self.last = RuntimePods { pods, as_of };
        self.last.clone()
    }
}

/// The images of staged revisions that the runtime reports as missing, in the first pass of a boot. It may not be there
/// yet, and is waited for only a moment: the kubelet waits for this pass.
async fn missing_images(source: Option<&PodStatusSource>, state: &AgentState) -> BTreeSet<String> {
    let cri = match source {
        Some(PodStatusSource::Runtime(cri, _)) if state.concerns.manifests_lost_at_boot.asks() => cri,
        _ => return BTreeSet::new(),
    };
    let staged = state.records.values().filter(|record| record.staged.is_some());
    let images: BTreeSet<&String> = staged.flat_map(|record| &record.staged_images).collect();
    let asked = images.into_iter().map(|image| async move { (image, cri.image(image).await) });
    let answers = tokio::time::timeout(AT_BOOT, futures::future::join_all(asked)).await.unwrap_or_default();
    let missing = answers.into_iter().filter(|(_, answer)| matches!(answer, Ok(None)));
    missing.map(|(image, _)| image.clone()).collect()
}

/// Whether the runtime's pods matter to the coming pass: something ends or is to be replaced, or the API
/// server does not tell readiness. `is_fresh`: they have been asked for just now.
pub(super) fn matter(
    state: &AgentState,
    api: Option<&Snapshot>,
    now: Timestamp,
    boot: &str,
    node: &str,
    is_fresh: bool,
) -> bool {
    let records = || state.records.values();
    if records().any(|r| r.ending().next().is_some()) || state.concerns.kubelet_resync.asks_runtime(now) {
        return true;
    }
    let runs = || records().any(|r| r.live().next().is_some());
    let is_unclear = !state.concerns.api_freshness.is_current(now)
        && (runs() || stock_controller::hand_over_is_open(&state.records, boot));
    if state.asks_runtime {
        return true;
    }
    let matters = is_unclear || api.is_some_and(|api| lacks_mirror_pods(state, api, now, node));
    matters && (!is_fresh || state.passes == 1)
}

/// Whether an instance has no mirror pod though the API answers and the kubelet had time for it, or one that says nothing.
fn lacks_mirror_pods(state: &AgentState, api: &Snapshot, now: Timestamp, node: &str) -> bool {
    state.records.values().any(|record| {
        let late = |i: &&Instance| now - i.created >= evidence::MIRROR_LATE;
        let lacks = |i: &Instance| evidence::reporting_mirror(api, &record.key.namespace, i, node).is_none();
        record.live().filter(late).any(lacks)
    })
}
