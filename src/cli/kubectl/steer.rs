//! Rollouts by hand: what `kubectl rollout pause` does not know of DaemonSets.
//!
//! Owns which annotation each command writes, and what it says of it. The coordinator does the rest.

use serde_json::Value;
use serde_json::json;

use crate::cli::CommandFailure;
use crate::cli::Exit;
use crate::core::cluster::history;
use crate::core::cluster::history::RevisionFact;
use crate::core::cluster::released::HALTED_ANNOTATION;
use crate::core::cluster::released::Halted;
use crate::core::cluster::released::RETRIED_ANNOTATION;
use crate::core::json::Json;
use crate::core::model::ObjectKey;
use crate::core::model::PAUSED;

use super::cluster;

fn daemon_set(key: &ObjectKey) -> String {
    format!("/apis/apps/v1/namespaces/{}/daemonsets/{}", key.namespace, key.name)
}

/// Pauses the rollouts of a DaemonSet, or lets them go on; gives what is to be said.
pub(super) async fn pause(client: &kube::Client, key: &ObjectKey, is_paused: bool) -> Result<String, CommandFailure> {
    let value = is_paused.then_some("true");
    let patch = json!({"metadata": {"annotations": {PAUSED: value}}});
    cluster::patch(client, &daemon_set(key), &patch).await.map_err(cluster::failed)?;
    Ok(match is_paused {
        true => format!(
            "{key}: paused ({PAUSED}=true); nodes that have claimed their approval finish, nodes that join start with \
             the released revision\n"
        ),
        false => format!("{key}: not paused any more ({PAUSED} is removed)\n"),
    })
}

/// Ends the halt of the current revision of a DaemonSet; gives what is to be said.
pub(super) async fn retry(client: &kube::Client, key: &ObjectKey) -> Result<String, CommandFailure> {
    let found = cluster::get(client, &daemon_set(key)).await.map_err(cluster::failed)?;
    let data = history::bytes(&history::data(found.at(["spec", "template"]).unwrap_or(&Value::Null)));
    let path = format!("/apis/apps/v1/namespaces/{}/controllerrevisions", key.namespace);
    let revisions = cluster::get(client, &path).await.map_err(cluster::failed)?;
    let uid = found.str_at(["metadata", "uid"]);
    let is_current = |revision: &&Value| {
        let owners = revision.list_at(["metadata", "ownerReferences"]);
        owners.iter().any(|owner| owner.str_at("uid") == uid) && history::bytes(&revision["data"]) == data
    };
    let halted = revisions.list_at("items").iter().filter(is_current).find_map(|revision| {
        let annotation = revision["metadata"]["annotations"][HALTED_ANNOTATION].as_str()?;
        Some((revision.str_at(["metadata", "name"]).to_owned(), Halted::of(annotation)))
    });
    let Some((name, halted)) = halted else {
        return Err(CommandFailure::new(Exit::Refused, format!("{key}: the current revision is not halted")));
    };
    let reports = cluster::list(client, "/apis/daemonlet.dev/v1alpha1/nodedaemons").await.map_err(cluster::failed)?;
    let hash = RevisionFact::hash_of(&history::data(found.at(["spec", "template"]).unwrap_or(&Value::Null)));
    let failed = |report: &&Value| {
        let daemons = report.list_at(["status", "daemons"]);
        daemons.iter().any(|d| d.str_at("uid") == uid && d.str_at(["failed", "revision"]) == hash)
    };
    let nodes: Vec<&str> = reports.iter().filter(failed).map(|report| report.str_at(["metadata", "name"])).collect();
    let retried = (!nodes.is_empty()).then(|| nodes.join(","));
    let patch = json!({"metadata": {"annotations": {HALTED_ANNOTATION: null, RETRIED_ANNOTATION: retried}}});
    cluster::patch(client, &format!("{path}/{name}"), &patch).await.map_err(cluster::failed)?;
    let mut text = format!("{key}: revision {name} was {}; the halt is ended\n", halted.words());
    if !nodes.is_empty() {
        let nodes = nodes.join(", ");
        text.push_str(&format!(
            "a node on which it failed tries it again once `daemonlet retry {key}` was run there: {nodes}\n"
        ));
    }
    Ok(text)
}
