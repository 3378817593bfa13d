//! Rollouts by hand: `kubectl rollout pause` does not know DaemonSets.
//!
//! Owns which annotation each command writes, and what it prints. The coordinator does the rest.

mod follow;
mod obeyed;
mod retry;

use std::cmp::Reverse;

use serde_json::Value;
use serde_json::json;

use crate::cli::CommandFailure;
use crate::cli::Exit;
use crate::clock;
use crate::core::cluster::conditions;
use crate::core::cluster::history;
use crate::core::cluster::history::RevisionFact;
use crate::core::cluster::released;
use crate::core::cluster::released::HALTED_ANNOTATION;
use crate::core::cluster::released::Halted;
use crate::core::cluster::released::Released;
use crate::core::cluster::released::RolloutStatus;
use crate::core::cluster::rollout;
use crate::core::cluster::steps;
use crate::core::cluster::steps::STEP_ANNOTATION;
use crate::core::cluster::steps::StepState;
use crate::core::json::Json;
use crate::core::model::ABORTED;
use crate::core::model::CANARY;
use crate::core::model::MODE_LABEL;
use crate::core::model::ObjectKey;
use crate::core::model::PAUSED;
use crate::core::model::PROMOTED;
use crate::core::model::STEPS;

use super::cluster;
use obeyed::Obeyed;
use obeyed::is_uncoordinated;
use obeyed::uncoordinated;
use obeyed::unheeded;
pub(super) use retry::retry;

/// Pauses the rollouts of a DaemonSet, or lets them go on; gives the lines to print.
pub(super) async fn pause(
    client: &kube::Client,
    key: &ObjectKey,
    is_paused: bool,
) -> Result<Vec<String>, CommandFailure> {
    let live = cluster::daemon_set(client, key).await?;
    if !is_paused && live["metadata"]["annotations"].get(PAUSED).is_none() {
        return Ok(vec![format!("{key}: it is not paused (no annotation {PAUSED}); nothing is changed")]);
    }
    let obeyed = Obeyed::of(&live);
    if is_paused && obeyed == Obeyed::Not {
        return Err(unheeded(key));
    }
    let value = is_paused.then_some("true");
    let patch = json!({"metadata": {"annotations": {PAUSED: value}}});
    cluster::patch(client, &cluster::daemon_set_path(key), &patch).await.map_err(cluster::failed)?;
    let said = match is_paused {
        true if obeyed == Obeyed::Unknown => format!(
            "{key}: {PAUSED}=true is written, but it has no label {MODE_LABEL} and no coordinator reports on it: only \
             agents that run it by their configuration obey"
        ),
        true => format!("{key}: paused ({PAUSED}=true); {}", follow::under_pause(&live)),
        false => format!("{key}: not paused any more ({PAUSED} is removed)"),
    };
    Ok(vec![said])
}

/// The current revision of a DaemonSet.
struct Current {
    daemon_set: Value,
    /// Its ControllerRevision.
    revision: Value,
    name: String,
    hash: String,
}

/// ControllerRevisions a page: a tenant may write each as large as the API server takes it.
const REVISIONS_PAGE: u32 = 5;

/// The path of the ControllerRevisions of a namespace.
fn revisions(key: &ObjectKey) -> String {
    format!("/apis/apps/v1/namespaces/{}/controllerrevisions", key.namespace)
}

async fn current(client: &kube::Client, key: &ObjectKey) -> Result<Current, CommandFailure> {
    let daemon_set = cluster::daemon_set(client, key).await?;
    let data = history::data(daemon_set.at(["spec", "template"]).unwrap_or(&Value::Null));
    let bytes = history::bytes(&data);
    let path = revisions(key);
    let mut pages = cluster::Pages::new(&path, REVISIONS_PAGE);
    let uid = daemon_set.str_at(["metadata", "uid"]);
    let is_current = |revision: &&Value| {
        let owners = revision.list_at(["metadata", "ownerReferences"]);
        owners.iter().any(|owner| owner.str_at("uid") == uid) && history::bytes(&revision["data"]) == bytes
    };
    // Of two with the same data the coordinator goes by the one with the highest number, as upstream.
    let newest = |revision: &&Value| {
        let number = revision.get("revision").and_then(Value::as_i64).unwrap_or(0);
        (number, Reverse(revision.str_at(["metadata", "name"]).to_owned()))
    };
    let mut found = None;
    while let Some(page) = pages.next(client).await.map_err(cluster::failed)? {
        found = page
            .into_iter()
            .chain(found)
            .filter(|revision| is_current(&revision))
            .max_by_key(|revision| newest(&revision));
    }
    let Some(revision) = found else {
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

    /// Writes annotations of the DaemonSet; null removes one.
    async fn annotate(&self, client: &kube::Client, key: &ObjectKey, annotations: Value) -> Result<(), CommandFailure> {
        let patch = json!({"metadata": {"annotations": annotations}});
        cluster::patch(client, &cluster::daemon_set_path(key), &patch).await.map(drop).map_err(cluster::failed)
    }

    fn status(&self) -> (&Value, i64) {
        let generation = self.daemon_set.at(["metadata", "generation"]).and_then(Value::as_i64).unwrap_or(0);
        (self.daemon_set.get("status").unwrap_or(&Value::Null), generation)
    }

    /// An annotation of its ControllerRevision.
    fn mark(&self, name: &str) -> Option<&str> {
        self.revision["metadata"]["annotations"][name].as_str()
    }

    /// Whether the coordinator has not looked at this generation yet: what it says is of an earlier one. Once there is a
    /// condition `Released`, that alone says so: a DaemonSet controller may write `observedGeneration`, too.
    fn is_ahead(&self) -> bool {
        let (status, generation) = self.status();
        let observed = status.get("observedGeneration").and_then(Value::as_i64).unwrap_or(0);
        let released = RolloutStatus::of(status, generation).released;
        released.map_or(observed, |released| released.generation) < generation
    }

    /// What the coordinator says of a DaemonSet controller that acts on it, too.
    fn conflict(&self) -> Option<&str> {
        let conditions = self.status().0.list_at("conditions");
        let found = conditions.iter().find(|c| c.str_at("type") == "Degraded" && c.str_at("reason") == "Conflict")?;
        Some(found.str_at("message"))
    }

    /// The number of its ControllerRevision.
    fn number(&self) -> i64 {
        self.revision.get("revision").and_then(Value::as_i64).unwrap_or(0)
    }

    /// Why its rollout is halted, if it is. If the annotation could not be written, only the status has that.
    fn halted(&self) -> Option<Halted> {
        self.mark(HALTED_ANNOTATION).map(Halted::of).or_else(|| Halted::of_status(self.status().0, &self.hash))
    }

    /// Whether its rollout was taken back.
    fn is_aborted(&self) -> bool {
        let is_told = || released::is_aborted(self.status().0, &self.hash);
        self.annotation(ABORTED).is_some_and(|name| name == self.name || is_told())
    }

    /// The released revision, if it is another.
    fn released(&self) -> Result<Option<Released>, ()> {
        let (status, generation) = self.status();
        match RolloutStatus::of(status, generation).released {
            Some(released) if released.hash == self.hash => Err(()),
            released => Ok(released),
        }
    }
}

/// The hold that the rollout of the current revision may be in: what its promotion says of it, and in words. An error
/// where there is none to end.
fn hold(current: &Current, key: &ObjectKey) -> Result<(String, String), CommandFailure> {
    let name = &current.name;
    let refused = |message: String| CommandFailure::new(Exit::Refused, format!("{key}: {message}"));
    if current.released().is_err() {
        return Err(refused(format!("every node that can take revision {name} has it: there is no hold to end")));
    }
    let is_aborted = current.is_aborted();
    if let Some(stopped) = is_aborted.then(|| "aborted".to_owned()).or_else(|| current.halted().map(|h| h.to_string()))
    {
        let hint = format!("`kubectl daemonlet retry {key}` begins anew, and each step holds again");
        return Err(refused(format!("revision {name} is {stopped}: there is no hold to end")).hint(&hint));
    }
    if let Some(why) = follow::unbounded(&current.daemon_set) {
        let message =
            format!("{why}: nothing is rolled out, and a hold that has not begun would be over before it does");
        return Err(refused(message).hint("correct the annotations first"));
    }
    match (current.annotation(STEPS), current.annotation(CANARY)) {
        (Some(text), _) => {
            let number = current.number();
            let state = StepState::of(current.mark(STEP_ANNOTATION), number).unwrap_or(StepState::first(number, text));
            let is_known = |steps: &Vec<_>| steps::parse(&state.of).as_ref() == Some(steps);
            let steps = steps::parse(text).filter(is_known).unwrap_or_default();
            let Some(step) = steps.get(state.step.saturating_sub(1)) else {
                let message = format!("the coordinator does not go by these steps yet ({STEPS}: {text:?})");
                return Err(refused(message).hint("`kubectl daemonlet` says why, if it holds"));
            };
            let size = step.size();
            if state.step == steps.len() {
                let message = format!("step {} ({size}) is the last one: there is no hold to end", state.step);
                let hint = format!("if nodes are left, write a larger step behind it ({STEPS})");
                return Err(refused(message).hint(&hint));
            }
            Ok((format!("{}/{size}", state.step), format!("step {} ({size})", state.step)))
        }
        (None, Some(_)) if current.is_ahead() => {
            if let Some(conflict) = current.conflict() {
                let message = "while another controller acts on it, it is not known whether the coordinator has looked at the newest generation";
                return Err(refused(format!("{message}: {conflict}")).hint("delete the pods of that controller first"));
            }
            let message = "the coordinator has not looked at the newest generation yet".to_owned();
            Err(refused(message).hint("try again; `kubectl daemonlet` says who coordinates"))
        }
        // A promotion ends the wait for canary nodes, and there are none.
        (None, Some(_)) if conditions::lacks_canary(current.status().0.list_at("conditions")) => {
            Err(refused(rollout::NO_CANARY.to_owned()).hint("label a node, or correct the annotation"))
        }
        (None, Some(_)) => Ok(("canary".to_owned(), "the canary phase".to_owned())),
        (None, None) => Err(refused(format!("it has neither steps nor canary nodes ({STEPS}, {CANARY})"))),
    }
}

/// Ends the hold of the step, or of the canary phase, that the rollout of a DaemonSet is in; gives the lines to print.
pub(super) async fn promote(client: &kube::Client, key: &ObjectKey) -> Result<Vec<String>, CommandFailure> {
    let current = current(client, key).await?;
    if Obeyed::of(&current.daemon_set) != Obeyed::Coordinated {
        return Err(unheeded(key));
    }
    if is_uncoordinated(&current.daemon_set) {
        return Err(uncoordinated(key, "promote"));
    }
    let (step, held) = hold(&current, key)?;
    let value = format!("{}/{}/{step}", current.name, current.number());
    current.annotate(client, key, json!({PROMOTED: value})).await?;
    let follow = follow::when(&current.daemon_set, key, clock::now());
    Ok(vec![format!(
        "{key}: {held} of revision {} holds no longer ({PROMOTED}={value}); {follow}; the next revision holds again",
        current.name
    )])
}

/// What is written for a rollout of the `revision` that is to begin anew: what was `promoted` of it is void, or its
/// holds would be over before they begin.
fn begins_anew(promoted: Option<&str>, revision: &str) -> Value {
    let is_of_it = promoted.and_then(|text| text.split_once('/')).is_some_and(|(name, _)| name == revision);
    if is_of_it { json!({PROMOTED: null}) } else { json!({}) }
}

/// What nodes do whose rollout is aborted.
fn way_back(daemon_set: &Value, released: Option<&Released>, key: &ObjectKey) -> String {
    let (is_paused, is_on_delete) = (follow::is_paused(daemon_set), follow::is_on_delete(daemon_set));
    match released {
        None => "no revision was released before: nodes keep what they have".to_owned(),
        Some(_) if is_on_delete => "the update strategy is OnDelete: nodes keep what they have".to_owned(),
        Some(released) if is_paused => format!(
            "it is paused: nodes keep what they have until `kubectl daemonlet resume {key}`, and go back to {} then",
            released.name
        ),
        Some(released) => {
            let when = follow::trigger(daemon_set);
            let name = &released.name;
            format!(
                "nodes that have it go back to {name} (where that does not select the node, the daemon ends), within the same budget{when}"
            )
        }
    }
}

/// Takes the rollout of a DaemonSet back; gives the lines to print.
pub(super) async fn abort(client: &kube::Client, key: &ObjectKey) -> Result<Vec<String>, CommandFailure> {
    let current = current(client, key).await?;
    if Obeyed::of(&current.daemon_set) != Obeyed::Coordinated {
        return Err(unheeded(key));
    }
    if is_uncoordinated(&current.daemon_set) {
        return Err(uncoordinated(key, "abort"));
    }
    let name = &current.name;
    let Ok(released) = current.released() else {
        let message = format!("{key}: every node that can take revision {name} has it: there is no rollout to abort");
        return Err(CommandFailure::new(Exit::Refused, message).hint("`kubectl rollout undo` returns to an older one"));
    };
    let mut annotations = begins_anew(current.annotation(PROMOTED), name);
    annotations[ABORTED] = json!(name);
    current.annotate(client, key, annotations).await?;
    let back = way_back(&current.daemon_set, released.as_ref(), key);
    Ok(vec![format!(
        "{key}: the rollout of revision {name} is aborted ({ABORTED}={name}); {back}; spec.template stays; change it, or \
         `kubectl daemonlet retry {key}`"
    )])
}

#[cfg(test)]
mod tests;
