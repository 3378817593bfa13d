//! Whether any process acts on annotations that steer a DaemonSet's rollouts.
//!
//! Owns the refusals where neither coordinator nor agent does. Must not write anything.

use serde_json::Value;

use crate::cli::CommandFailure;
use crate::cli::Exit;
use crate::core::cluster::conditions;
use crate::core::json::Json;
use crate::core::model::COORDINATION;
use crate::core::model::MODE_LABEL;
use crate::core::model::ObjectKey;

/// Which processes act on annotations that steer a DaemonSet's rollouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Obeyed {
    /// The coordinator.
    Coordinated,
    /// Agents that run it by their configuration, if there are any: it has no mode label, and no coordinator reports on it.
    Unknown,
    /// No agent: its label gives it to the DaemonSet controller.
    Not,
}

impl Obeyed {
    pub(super) fn of(daemon_set: &Value) -> Self {
        let mode = daemon_set.at(["metadata", "labels", MODE_LABEL]).and_then(Value::as_str);
        let conditions = daemon_set.list_at(["status", "conditions"]);
        match mode {
            Some("static") => Self::Coordinated,
            Some(_) => Self::Not,
            None if conditions::without_ours(conditions).len() < conditions.len() => Self::Coordinated,
            None => Self::Unknown,
        }
    }
}

/// The refusal to steer a rollout that is not coordinated.
pub(super) fn uncoordinated(key: &ObjectKey, what: &str) -> CommandFailure {
    let message = format!("{key}: each node follows by itself ({COORDINATION}: none): there is nothing to {what}");
    CommandFailure::new(Exit::Refused, message).hint("change the template, or remove the annotation first")
}

pub(super) fn is_uncoordinated(daemon_set: &Value) -> bool {
    daemon_set["metadata"]["annotations"][COORDINATION].as_str() == Some("none")
}

/// The refusal of an annotation on which neither coordinator nor agent would act.
pub(super) fn unheeded(key: &ObjectKey) -> CommandFailure {
    let message = format!(
        "{key}: it is not coordinated ({MODE_LABEL} is not \"static\"): neither a coordinator nor an agent would act on it"
    );
    let hint = format!("`kubectl rollout -n {} undo ds/{}` is for the DaemonSet controller", key.namespace, key.name);
    CommandFailure::new(Exit::Refused, message).hint(&hint)
}
