//! `kubectl daemonlet retry`: a revision that was halted, aborted or failed is tried again.
//!
//! Owns which failures count no longer, and which nodes take the revision again. Must not decide when they do.

use std::collections::BTreeSet;

use serde_json::Value;
use serde_json::json;

use crate::cli::CommandFailure;
use crate::cli::Exit;
use crate::clock;
use crate::core::cluster::broken::BROKEN_ANNOTATION;
use crate::core::cluster::broken::BrokenNodes;
use crate::core::cluster::released::ALL_RETRIED;
use crate::core::cluster::released::HALTED_ANNOTATION;
use crate::core::cluster::released::Halted;
use crate::core::cluster::released::RETRIED_ANNOTATION;
use crate::core::cluster::released::RETRIED_BYTES;
use crate::core::json::Json;
use crate::core::model::ABORTED;
use crate::core::model::ObjectKey;
use crate::core::model::PROMOTED;
use crate::core::model::RETRY;

use super::Current;
use super::begins_anew;
use super::cluster;
use super::current;
use super::follow;
use super::obeyed::Obeyed;
use super::obeyed::unheeded;
use super::revisions;

/// Ends the halt or the abort of the current revision of a DaemonSet, and has the nodes on which it failed try it
/// again; gives the lines to print.
pub(in crate::cli::kubectl) async fn retry(
    client: &kube::Client,
    key: &ObjectKey,
) -> Result<Vec<String>, CommandFailure> {
    let current = current(client, key).await?;
    if Obeyed::of(&current.daemon_set) == Obeyed::Not {
        return Err(unheeded(key));
    }
    let holds_it = follow::held(&current.daemon_set, key, clock::now());
    let name = &current.name;
    let mut lines = Vec::new();
    let halted = current.halted();
    let is_aborted = current.is_aborted();
    if is_aborted {
        lines.push(format!("{key}: revision {name} was aborted; it is rolled out again{holds_it}"));
    }
    let broken = current.mark(BROKEN_ANNOTATION).map(BrokenNodes::of).unwrap_or_default();
    let reports = cluster::list(client, "/apis/daemonlet.dev/v1beta1/nodedaemons").await.map_err(cluster::failed)?;
    let failed = FailedOn::of(&current, &reports);
    // Its holds stand before its halt or abort ends, and its failures count no more before its abort does.
    let holds = begins_anew(current.annotation(PROMOTED), name);
    if (is_aborted || halted.is_some()) && holds != json!({}) {
        current.annotate(client, key, holds).await?;
    }
    if halted.is_some() || broken != BrokenNodes::default() {
        // Nodes whose agents are silent report no failure, and are named nevertheless.
        let named = halted.iter().flat_map(|halted| halted.nodes.iter());
        let named = named.chain(broken.nodes.iter().map(|broken| &broken.node)).map(String::as_str);
        // Nor are those of which only the coordinator knows that they are cut off: it names them.
        let retried: BTreeSet<&str> = failed.all().chain(named).chain([ALL_RETRIED]).collect();
        // Whom it has no room for, the coordinator names: the first one stands for all.
        let mut room = RETRIED_BYTES;
        let fits = |name: &&str| {
            room = room.saturating_sub(name.len() + 1);
            room > 0
        };
        let retried = retried.into_iter().take_while(fits).collect::<Vec<_>>().join(",");
        let annotations = json!({HALTED_ANNOTATION: null, BROKEN_ANNOTATION: null, RETRIED_ANNOTATION: retried});
        let patch = json!({"metadata": {"annotations": annotations}});
        cluster::patch(client, &format!("{}/{name}", revisions(key)), &patch).await.map_err(cluster::failed)?;
        let words = |halted: &Halted| format!("{key}: revision {name} was {halted}; the halt is ended");
        lines.extend(halted.as_ref().map(words));
    }
    // The words of a halt name its nodes.
    if halted.is_none() && !broken.nodes.is_empty() {
        let names: Vec<&str> = broken.nodes.iter().map(|broken| broken.node.as_str()).collect();
        lines.push(format!(
            "{key}: nodes that took revision {name} and were not well, or were deleted, count no longer: {}",
            names.join(", ")
        ));
    }
    let mut annotations = if is_aborted { json!({ABORTED: null}) } else { json!({}) };
    if !failed.went_back.is_empty() {
        // The version is another each time.
        let order = format!("{}/{}", current.hash, current.daemon_set.str_at(["metadata", "resourceVersion"]));
        lines.push(format!(
            "{key}: nodes that went back from revision {name} take it again, within the budget ({RETRY}={order}); it \
             failed on {}{holds_it}",
            failed.went_back.join(", ")
        ));
        annotations[RETRY] = json!(order);
    }
    if annotations != json!({}) {
        current.annotate(client, key, annotations).await?;
    }
    if !failed.still_run.is_empty() {
        let said = format!("{key}: revision {name} failed and still runs on {}", failed.still_run.join(", "));
        let hint = format!("`daemonlet retry {key}` on the node ends the wait before its next try");
        if lines.is_empty() {
            let message = format!("{said}: there is nothing that takes it again");
            return Err(CommandFailure::new(Exit::Refused, message).hint(&hint));
        }
        lines.push(format!("{said}; {hint}"));
    }
    if lines.is_empty() {
        let message = format!("{key}: the current revision is not halted, and no node reports that it failed");
        return Err(CommandFailure::new(Exit::Refused, message));
    }
    Ok(lines)
}

/// The nodes whose agents report that the current revision failed there.
#[derive(Debug, Default, PartialEq)]
pub(super) struct FailedOn<'a> {
    /// Where it does not run any more.
    pub(super) went_back: Vec<&'a str>,
    /// Where it runs.
    pub(super) still_run: Vec<&'a str>,
}

impl<'a> FailedOn<'a> {
    /// By these NodeDaemons.
    pub(super) fn of(current: &Current, reports: &'a [Value]) -> Self {
        let uid = current.daemon_set.str_at(["metadata", "uid"]);
        let is_of_it = |d: &&Value| d.str_at("uid") == uid && d.str_at(["failed", "revision"]) == current.hash;
        let runs = |i: &Value| i.str_at("revision") == current.hash && i.get("ending") != Some(&json!(true));
        let mut found = Self::default();
        for report in reports {
            let Some(daemon) = report.list_at(["status", "daemons"]).iter().find(is_of_it) else { continue };
            let still_runs = daemon.list_at("instances").iter().any(runs);
            let nodes = if still_runs { &mut found.still_run } else { &mut found.went_back };
            nodes.push(report.str_at(["metadata", "name"]));
        }
        found
    }

    fn all(&self) -> impl Iterator<Item = &'a str> {
        self.went_back.iter().chain(&self.still_run).copied()
    }
}
