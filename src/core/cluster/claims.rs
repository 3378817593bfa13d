//! A DaemonSet controller that acts on a DaemonSet that agents run: two pods on a node.
//!
//! Owns when that is believed, and the text of the condition. Agents see the pods of their nodes and report them; the
//! coordinator does not watch pods. One agent's report would stop counters and history of the whole cluster, so the pod
//! that it names is looked up first: one confirmed pod is enough, and one that is not confirmed counts for nothing.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::core::json::Json;
use crate::core::model::ObjectKey;
use crate::core::owners;
use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::snapshot::ClusterSnapshot;
use super::snapshot::ReportedDaemon;
use super::snapshot::StockPodClaim;
use super::snapshot::WatchedDaemon;

/// What was looked up is looked up again after this.
const AGAIN: Span = Span::from_secs(30);
/// Claims about one DaemonSet that are looked up at one time.
const AT_ONCE: usize = 8;

/// What the coordinator itself has seen of the pods that agents report, by DaemonSet and node.
#[derive(Clone, Debug, Default)]
pub struct CheckedClaims(BTreeMap<(ObjectKey, String), Checked>);

#[derive(Clone, Debug)]
struct Checked {
    /// The pod that was looked up.
    pod: String,
    /// Whether it was as claimed.
    holds: bool,
    /// When it is looked up again.
    again: Timestamp,
}

/// What is believed about one DaemonSet.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ClaimVerdict {
    /// Where a pod of a controller is beside ours, and what to do, if there is one.
    pub(super) conflict: Option<String>,
    /// What is to be looked up now.
    pub(super) lookups: Vec<StockPodClaim>,
    /// When to look again.
    pub(super) look_again: Option<Timestamp>,
}

impl CheckedClaims {
    /// A request for the pod was sent. Until it is answered, the last answer stands.
    pub(super) fn asked(&mut self, claim: StockPodClaim, now: Timestamp) {
        let new = Checked { pod: claim.pod.clone(), holds: false, again: now };
        let checked = self.0.entry((claim.key, claim.node)).or_insert_with(|| new.clone());
        if checked.pod != claim.pod {
            *checked = new;
        }
        checked.again = now + AGAIN;
    }

    /// Takes the API server's answer.
    pub(super) fn answered(&mut self, claim: StockPodClaim, pod: Option<&Value>) {
        let holds = pod.is_some_and(|pod| {
            pod.str_at(["metadata", "name"]) == claim.pod
                && pod.str_at(["metadata", "namespace"]) == claim.key.namespace
                && pod.str_at(["spec", "nodeName"]) == claim.node
                && owners::is_stock_pod(pod, &claim.key.name, Some(&claim.uid))
        });
        let known = self.0.get_mut(&(claim.key, claim.node)).filter(|known| known.pod == claim.pod);
        known.into_iter().for_each(|known| known.holds = holds);
    }

    /// Forgets what no agent claims any more.
    pub(super) fn retain(&mut self, view: &ClusterSnapshot) {
        self.0.retain(|(key, node), checked| {
            let claimed =
                view.daemons.get(key).zip(view.report(node)).and_then(|(daemon, report)| report.stock_pod(daemon));
            claimed == Some(checked.pod.as_str())
        });
    }

    /// What is to be believed of the agents' claims about one DaemonSet. `reported`: what the agent of each node
    /// reports of it.
    pub(super) fn judge<'a>(
        &self,
        reported: impl Iterator<Item = (&'a str, &'a ReportedDaemon)>,
        daemon: &WatchedDaemon,
        now: Timestamp,
    ) -> ClaimVerdict {
        let mut verdict = ClaimVerdict::default();
        let key = &daemon.daemon_set.key;
        let claimed = reported.filter_map(|(node, reported)| {
            let pod = reported.stock_pod_of(daemon)?;
            Some((node, pod, self.0.get(&(key.clone(), node.to_owned())).filter(|known| known.pod == pod)))
        });
        let claimed: Vec<_> = claimed.collect();
        let held = claimed.iter().find(|(_, _, known)| known.is_some_and(|known| known.holds));
        // Pods that were never looked up come first. If one claim holds, no other is looked up.
        let open = claimed.iter().filter(|(node, _, _)| held.is_none_or(|(held, _, _)| held == node));
        let mut open: Vec<_> =
            open.map(|(node, pod, known)| (known.map_or(Timestamp::MIN, |known| known.again), *node, *pod)).collect();
        open.sort();
        for (again, node, pod) in open {
            if again > now || verdict.lookups.len() == AT_ONCE {
                verdict.look_again = Some(again.max(now));
                break;
            }
            let (node, pod) = (node.to_owned(), pod.to_owned());
            verdict.lookups.push(StockPodClaim { key: key.clone(), uid: daemon.uid.clone(), node, pod });
        }
        if !verdict.lookups.is_empty() {
            verdict.look_again = Some(verdict.look_again.map_or(now + AGAIN, |at| at.min(now + AGAIN)));
        }
        verdict.conflict = held.map(|(node, pod, _)| {
            let more = match claimed.len() - 1 {
                0 => String::new(),
                1 => " and on one node more".to_owned(),
                more => format!(" and on {more} nodes more"),
            };
            format!("pod {pod} of a DaemonSet controller is on node {node}{more}; hint: {}", owners::FIX)
        });
        verdict
    }
}
