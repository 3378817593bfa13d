//! A DaemonSet controller that acts on a DaemonSet that agents run: two pods on a node.
//!
//! Owns when that is believed, and the words of the condition. Agents see the pods of their nodes and tell; nobody
//! watches all pods. What one agent tells would stop counters and history of the whole cluster, so the pod that it
//! names is looked up first: one that holds is enough, and one that does not counts for nothing.

use crate::core::cluster::view::Checked;
use crate::core::cluster::view::Claim;
use crate::core::cluster::view::Daemon;
use crate::core::cluster::view::View;
use crate::core::model::ObjectKey;
use crate::core::owners;
use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::Plan;

/// What was looked up is looked up again after this.
const AGAIN: Span = Span::from_secs(30);
/// Claims about one DaemonSet that are looked up at one time.
const AT_ONCE: usize = 8;

/// Where a pod of a controller is beside ours, and what to do, if there is one.
pub(super) fn conflict(
    view: &mut View,
    key: &ObjectKey,
    daemon: &Daemon,
    now: Timestamp,
    plan: &mut Plan,
) -> Option<String> {
    let told = view.nodes.iter().filter_map(|(node, entry)| {
        let told = entry.report.as_ref()?.told(daemon.key).filter(|told| told.uid == Some(daemon.uid_name))?;
        Some((node, told.stock_pod.as_ref()?))
    });
    let told: Vec<(String, String)> = told.map(|(node, pod)| (node.clone(), pod.to_string())).collect();
    if told.is_empty() {
        view.checked.retain(|(of, _), _| of != key);
        return None;
    }
    view.checked
        .retain(|(of, node), checked| of != key || told.iter().any(|(name, pod)| name == node && *pod == checked.pod));
    let known = |node: &str| view.checked.get(&(key.clone(), node.to_owned()));
    let held = told.iter().find(|(node, _)| known(node).is_some_and(|checked| checked.holds)).cloned();
    // Which was never looked up comes first; one that holds is all that matters.
    let mut open: Vec<(Timestamp, &(String, String))> = told
        .iter()
        .filter(|claim| held.as_ref().is_none_or(|held| *held == **claim))
        .map(|claim| (known(&claim.0).map_or(Timestamp::MIN, |checked| checked.again), claim))
        .collect();
    open.sort_by(|one, other| other.cmp(one));
    let mut asked = Vec::new();
    while let Some((again, (node, pod))) = open.pop() {
        if again > now || asked.len() == AT_ONCE {
            plan.look(again.max(now));
            break;
        }
        asked.push((node.clone(), pod.clone()));
    }
    for (node, pod) in asked {
        // The answer changes no more than `holds`: without one, the last stands until it is asked for again.
        let checked = view.checked.entry((key.clone(), node.clone())).or_insert(Checked {
            pod: pod.clone(),
            holds: false,
            again: now,
        });
        checked.again = now + AGAIN;
        plan.look(now + AGAIN);
        plan.doubted.push(Claim { key: key.clone(), uid: daemon.uid.clone(), node, pod });
    }
    let (node, pod) = held?;
    let more = match told.len() - 1 {
        0 => String::new(),
        1 => " and on one node more".to_owned(),
        more => format!(" and on {more} nodes more"),
    };
    Some(format!("pod {pod} of a DaemonSet controller is on node {node}{more}; {}", owners::FIX))
}
