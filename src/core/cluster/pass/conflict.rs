//! A DaemonSet controller that acts on a DaemonSet that agents run: two pods on a node.
//!
//! Owns the words of the condition. Agents see the pods of their nodes and tell; nobody watches all pods.

use crate::core::cluster::view::Daemon;
use crate::core::cluster::view::View;
use crate::core::owners;

/// Where pods of a controller are beside ours, and what to do, if there are any.
pub(super) fn conflict(view: &View, daemon: &Daemon) -> Option<String> {
    let told = view.nodes.iter().filter_map(|(node, entry)| {
        let told = entry.report.as_ref()?.told(daemon.key).filter(|told| told.uid == Some(daemon.uid_name))?;
        Some((node, told.stock_pod.as_ref()?))
    });
    let mut told = told.peekable();
    let (node, pod) = *told.peek()?;
    let more = match told.count() - 1 {
        0 => String::new(),
        1 => " and on one node more".to_owned(),
        more => format!(" and on {more} nodes more"),
    };
    Some(format!("pod {pod} of a DaemonSet controller is on node {node}{more}; {}", owners::FIX))
}
