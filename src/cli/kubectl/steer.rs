//! Rollouts by hand: what `kubectl rollout pause` does not know of DaemonSets.
//!
//! Owns which annotation each command writes, and what it says of it. The coordinator does the rest.

use std::collections::BTreeSet;

use serde_json::Value;
use serde_json::json;

use crate::cli::CommandFailure;
use crate::cli::Exit;
use crate::core::cluster::broken::BROKEN_ANNOTATION;
use crate::core::cluster::broken::BrokenNodes;
use crate::core::cluster::history;
use crate::core::cluster::history::RevisionFact;
use crate::core::cluster::released::HALTED_ANNOTATION;
use crate::core::cluster::released::Halted;
use crate::core::cluster::released::RETRIED_ANNOTATION;
use crate::core::cluster::released::Released;
use crate::core::cluster::released::RolloutStatus;
use crate::core::cluster::steps;
use crate::core::cluster::steps::STEP_ANNOTATION;
use crate::core::cluster::steps::StepState;
use crate::core::json::Json;
use crate::core::model::ABORTED;
use crate::core::model::CANARY;
use crate::core::model::ObjectKey;
use crate::core::model::PAUSED;
use crate::core::model::PROMOTED;
use crate::core::model::RETRY;
use crate::core::model::STEPS;

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

/// The current revision of a DaemonSet.
struct Current {
    daemon_set: Value,
    /// Its ControllerRevision.
    revision: Value,
    name: String,
    hash: String,
}

/// The path of the ControllerRevisions of a namespace.
fn revisions(key: &ObjectKey) -> String {
    format!("/apis/apps/v1/namespaces/{}/controllerrevisions", key.namespace)
}

async fn current(client: &kube::Client, key: &ObjectKey) -> Result<Current, CommandFailure> {
    let daemon_set = cluster::get(client, &daemon_set(key)).await.map_err(cluster::failed)?;
    let data = history::data(daemon_set.at(["spec", "template"]).unwrap_or(&Value::Null));
    let bytes = history::bytes(&data);
    let found = cluster::get(client, &revisions(key)).await.map_err(cluster::failed)?;
    let uid = daemon_set.str_at(["metadata", "uid"]);
    let is_current = |revision: &&Value| {
        let owners = revision.list_at(["metadata", "ownerReferences"]);
        owners.iter().any(|owner| owner.str_at("uid") == uid) && history::bytes(&revision["data"]) == bytes
    };
    let Some(revision) = found.list_at("items").iter().find(is_current).cloned() else {
        let message = format!("{key}: the current template has no ControllerRevision yet");
        return Err(CommandFailure::new(Exit::Refused, message).hint("`kubectl daemonlet` says who coordinates"));
    };
    let name = revision.str_at(["metadata", "name"]).to_owned();
    Ok(Current { daemon_set, revision, name, hash: RevisionFact::hash_of(&data) })
}

impl Current {
    fn annotation(&self, name: &str) -> Option<&str> {
        self.daemon_set["metadata"]["annotations"][name].as_str()
    }

    /// Writes an annotation of the DaemonSet; `None` removes it.
    async fn annotate(
        &self,
        client: &kube::Client,
        key: &ObjectKey,
        name: &str,
        value: Option<&str>,
    ) -> Result<(), CommandFailure> {
        let patch = json!({"metadata": {"annotations": {name: value}}});
        cluster::patch(client, &daemon_set(key), &patch).await.map(drop).map_err(cluster::failed)
    }

    /// The released revision, if it is another.
    fn released(&self) -> Result<Option<Released>, ()> {
        let generation = self.daemon_set.at(["metadata", "generation"]).and_then(Value::as_i64).unwrap_or(0);
        let status = self.daemon_set.get("status").unwrap_or(&Value::Null);
        match RolloutStatus::of(status, generation).released {
            Some(released) if released.hash == self.hash => Err(()),
            released => Ok(released),
        }
    }
}

/// Ends the hold of the step, or of the canary phase, that the rollout of a DaemonSet is in; gives what is to be said.
pub(super) async fn promote(client: &kube::Client, key: &ObjectKey) -> Result<String, CommandFailure> {
    let current = current(client, key).await?;
    let number = current.revision.get("revision").and_then(Value::as_i64).unwrap_or(0);
    let annotation = current.revision["metadata"]["annotations"][STEP_ANNOTATION].as_str();
    let (step, held) = match (current.annotation(STEPS), current.annotation(CANARY)) {
        (Some(text), _) => {
            let state = StepState::of(annotation, number).unwrap_or(StepState::first(number, text));
            let steps = steps::parse(text).filter(|_| state.of == text).unwrap_or_default();
            let Some(step) = steps.get(state.step.saturating_sub(1)) else {
                let message = format!("{key}: the coordinator does not go by these steps yet ({STEPS}: {text:?})");
                return Err(
                    CommandFailure::new(Exit::Refused, message).hint("`kubectl daemonlet` says why, if it holds")
                );
            };
            let size = step.size();
            (format!("{}/{size}", state.step), format!("step {} ({size})", state.step))
        }
        (None, Some(_)) => ("canary".to_owned(), "the canary phase".to_owned()),
        (None, None) => {
            let message = format!("{key}: it has neither steps nor canary nodes ({STEPS}, {CANARY})");
            return Err(CommandFailure::new(Exit::Refused, message));
        }
    };
    let value = format!("{}/{number}/{step}", current.name);
    current.annotate(client, key, PROMOTED, Some(&value)).await?;
    Ok(format!(
        "{key}: {held} of revision {} holds no longer ({PROMOTED}={value}); nodes follow once those that have it are \
         available; the next revision holds again\n",
        current.name
    ))
}

/// Takes the rollout of a DaemonSet back; gives what is to be said.
pub(super) async fn abort(client: &kube::Client, key: &ObjectKey) -> Result<String, CommandFailure> {
    let current = current(client, key).await?;
    let name = &current.name;
    let Ok(released) = current.released() else {
        let message = format!("{key}: every node that can take revision {name} has it: there is no rollout to abort");
        return Err(CommandFailure::new(Exit::Refused, message).hint("`kubectl rollout undo` returns to an older one"));
    };
    current.annotate(client, key, ABORTED, Some(name)).await?;
    let back = match released {
        Some(released) => format!("nodes that have it go back to {}, within the same budget", released.name),
        None => "no revision was released before: nodes keep what they have".to_owned(),
    };
    Ok(format!(
        "{key}: the rollout of revision {name} is aborted ({ABORTED}={name}); {back}; spec.template stays; change it, or \
         `kubectl daemonlet retry {key}`\n"
    ))
}

/// Ends the halt or the abort of the current revision of a DaemonSet, and has the nodes on which it failed try it
/// again; gives what is to be said.
pub(super) async fn retry(client: &kube::Client, key: &ObjectKey) -> Result<String, CommandFailure> {
    let current = current(client, key).await?;
    let name = &current.name;
    let mut text = String::new();
    if current.annotation(ABORTED) == Some(name) {
        current.annotate(client, key, ABORTED, None).await?;
        text.push_str(&format!("{key}: revision {name} was aborted; it is rolled out again\n"));
    }
    let mark = |name: &str| current.revision["metadata"]["annotations"][name].as_str();
    let halted = mark(HALTED_ANNOTATION).map(Halted::of);
    let broken = mark(BROKEN_ANNOTATION).map(BrokenNodes::of).unwrap_or_default();
    let reports = cluster::list(client, "/apis/daemonlet.dev/v1beta1/nodedaemons").await.map_err(cluster::failed)?;
    let uid = current.daemon_set.str_at(["metadata", "uid"]);
    let failed = |report: &&Value| {
        let daemons = report.list_at(["status", "daemons"]);
        daemons.iter().any(|d| d.str_at("uid") == uid && d.str_at(["failed", "revision"]) == current.hash)
    };
    let nodes: Vec<&str> = reports.iter().filter(failed).map(|report| report.str_at(["metadata", "name"])).collect();
    if halted.is_some() || broken != BrokenNodes::default() {
        // Nodes that are not heard report no failure, and are named all the same.
        let named = halted.iter().flat_map(|halted| halted.nodes.iter());
        let named = named.chain(broken.nodes.iter().map(|broken| &broken.node)).map(String::as_str);
        let retried: BTreeSet<&str> = nodes.iter().copied().chain(named).collect();
        let retried = (!retried.is_empty()).then(|| Vec::from_iter(retried).join(","));
        let annotations = json!({HALTED_ANNOTATION: null, BROKEN_ANNOTATION: null, RETRIED_ANNOTATION: retried});
        let patch = json!({"metadata": {"annotations": annotations}});
        cluster::patch(client, &format!("{}/{name}", revisions(key)), &patch).await.map_err(cluster::failed)?;
        let words = |halted: &Halted| format!("{key}: revision {name} was {}; the halt is ended\n", halted.words());
        text.push_str(&halted.as_ref().map(words).unwrap_or_default());
    }
    // The words of a halt name its nodes.
    if halted.is_none() && !broken.nodes.is_empty() {
        let names: Vec<&str> = broken.nodes.iter().map(|broken| broken.node.as_str()).collect();
        text.push_str(&format!(
            "{key}: nodes that took revision {name} and were not well, or were deleted, count no longer: {}\n",
            names.join(", ")
        ));
    }
    if !nodes.is_empty() {
        // The version is another each time.
        let order = format!("{}/{}", current.hash, current.daemon_set.str_at(["metadata", "resourceVersion"]));
        current.annotate(client, key, RETRY, Some(&order)).await?;
        text.push_str(&format!(
            "{key}: nodes that went back from revision {name} take it again, within the budget ({RETRY}={order}); it \
             failed on {}\n",
            nodes.join(", ")
        ));
    }
    if text.is_empty() {
        let message = format!("{key}: the current revision is not halted, and no node reports that it failed");
        return Err(CommandFailure::new(Exit::Refused, message));
    }
    Ok(text)
}
