//! The domain's vocabulary: objects, DaemonSets, the node, and what is known of them.
//!
//! Owns plain values only. Templates stay JSON, so fields unknown to this program survive; decisions use typed views.

mod names;
mod objects;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::core::cluster::released::RolloutStatus;
use crate::core::escape;
use crate::core::overlays::ListSource;
use crate::core::overlays::Overlays;
use crate::core::policy::Resources;

pub use names::*;
pub use objects::Kind;
pub use objects::Lookup;
pub use objects::ObjectKey;
pub use objects::ObjectMap;
pub use objects::ObjectRef;
pub use objects::ObjectSource;
pub use objects::TokenRequest;
pub use objects::TokenSource;

/// Where a DaemonSet was read.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    /// A document of a file in one of the configured folders.
    File {
        /// The file.
        path: PathBuf,
    },
    /// The API server.
    Api,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::File { path } => write!(f, "{}", path.display()),
            Source::Api => f.write_str("API"),
        }
    }
}

/// How a DaemonSet is run: label `daemonlet.dev/mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// In place of the stock DaemonSet controller.
    Static,
    /// Only until the DaemonSet controller's pod can run.
    Bootstrap,
}

impl Mode {
    /// The mode that the label among `labels` asks for; `None` without the label or with an invalid value.
    pub fn of(labels: &BTreeMap<String, String>) -> Option<Self> {
        match labels.get(MODE_LABEL).map(String::as_str) {
            Some("static") => Some(Mode::Static),
            Some("bootstrap") => Some(Mode::Bootstrap),
            _ => None,
        }
    }
}

/// A number or a percentage, as in `maxUnavailable`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum IntOrPercent {
    /// An absolute number.
    Int(u32),
    /// A percentage, 0 to 100.
    Percent(u32),
}

/// `spec.updateStrategy` with upstream's defaults filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum UpdateStrategy {
    RollingUpdate {
        /// `maxUnavailable`, default 1.
        max_unavailable: IntOrPercent,
        /// `maxSurge`, default 0.
        max_surge: IntOrPercent,
    },
    /// OnDelete: a template change takes effect when the pod is deleted.
    OnDelete,
}

/// A DaemonSet as decisions see it: apps/v1, validated (`validate`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonSet {
    /// Namespace and name; a missing namespace is `default`.
    pub key: ObjectKey,
    /// `metadata.uid`, if the API has seen it.
    pub uid: Option<String>,
    /// `metadata.generation`, if the API has seen it.
    pub generation: Option<i64>,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
    /// Whether `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// `metadata.finalizers`.
    pub finalizers: Vec<String>,
    /// `spec.selector` as written.
    pub selector: Value,
    /// `spec.template` as written: `{metadata, spec}`.
    pub template: Value,
    /// `spec.updateStrategy`.
    pub update_strategy: UpdateStrategy,
    /// `spec.minReadySeconds`.
    pub min_ready_seconds: u32,
    /// Where it was read.
    pub source: Source,
    /// The template as the API server's admission changed it (`policy.admission`). It is part of the instance made
    /// from it, but not of the revision or of any identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admitted: Option<Arc<Value>>,
    /// The overlays that apply to this node, if it names any; part of no identity and of no definition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlays: Option<Arc<Overlays>>,
    /// Whether its pods have a gate, so that they start after others at a boot (`daemonlet.dev/after`). A running
    /// instance keeps what it was made with, whatever its definition says later: without a restart it cannot change.
    #[serde(default, skip_serializing_if = "StartGate::is_none")]
    pub gate: StartGate,
    /// What its status says of its rollouts; part of no identity.
    #[serde(default, skip_serializing_if = "RolloutStatus::is_empty")]
    pub rollout: RolloutStatus,
}

/// Who writes what pods are made from, as far as policy is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Author {
    /// A user of the API: `[policy]`, its bounds and admission apply.
    ApiUser,
    /// A writer of the node's folders may do anything to the node.
    NodeOwner,
}

impl Author {
    /// Of a DaemonSet from `source` with patches of `list`.
    pub fn of(source: &Source, list: ListSource) -> Self {
        match (source, list) {
            (Source::Api, _) | (_, ListSource::Api) => Self::ApiUser,
            (Source::File { .. }, ListSource::Folder) => Self::NodeOwner,
        }
    }
}

/// The gate of a pod that starts after others at a boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StartGate {
    #[default]
    None,
    /// A new pod gets one if the kubelet is known to understand it.
    Wanted,
    /// The pod was made with one.
    Has,
}

impl StartGate {
    fn is_none(&self) -> bool {
        *self == Self::None
    }
}

impl DaemonSet {
    /// Who writes what its pods are made from: a folder's DaemonSet with patches of a list in the API is its writer's.
    pub fn author(&self) -> Author {
        let patches = self.overlays.as_ref().filter(|overlays| !overlays.patches.is_empty());
        Author::of(&self.source, patches.map_or(ListSource::Folder, |overlays| overlays.list))
    }

    /// Whether a new pod of it may start beside the old one (upstream's `AllowsSurge`).
    pub fn allows_surge(&self) -> bool {
        match self.update_strategy {
            UpdateStrategy::RollingUpdate { max_surge, .. } => {
                !matches!(max_surge, IntOrPercent::Int(0) | IntOrPercent::Percent(0))
            }
            UpdateStrategy::OnDelete => false,
        }
    }

    /// What its pods are made from: the patched template, or the one that admission returned.
    pub fn pod_template(&self) -> &Value {
        self.admitted.as_deref().unwrap_or_else(|| self.patched_template())
    }

    /// The template with the overlays that apply to this node.
    pub fn patched_template(&self) -> &Value {
        self.overlays.as_ref().and_then(|overlays| overlays.template.as_ref()).unwrap_or(&self.template)
    }

    /// The same DaemonSet with `admitted` in place of what it has.
    pub fn with_admitted(self: &Arc<Self>, admitted: Option<&Arc<Value>>) -> Arc<Self> {
        if self.admitted.as_ref() == admitted {
            return Arc::clone(self);
        }
        Arc::new(Self { admitted: admitted.cloned(), ..Self::clone(self) })
    }

    /// The same DaemonSet with another gate.
    pub fn with_gate(self: &Arc<Self>, gate: StartGate) -> Arc<Self> {
        match self.gate == gate {
            true => Arc::clone(self),
            false => Arc::new(Self { gate, ..Self::clone(self) }),
        }
    }

    /// Whether `other` has the same definition, regardless of what admission and overlays changed in either.
    pub fn defines_the_same(&self, other: &Self) -> bool {
        let Self {
            key,
            uid,
            generation,
            labels,
            annotations,
            deleting,
            finalizers,
            selector,
            template,
            update_strategy,
            min_ready_seconds,
            source,
            admitted: _,
            overlays: _,
            gate: _,
            rollout: _,
        } = self;
        *key == other.key
            && *uid == other.uid
            && *generation == other.generation
            && *labels == other.labels
            && *annotations == other.annotations
            && *deleting == other.deleting
            && *finalizers == other.finalizers
            && *selector == other.selector
            && *template == other.template
            && *update_strategy == other.update_strategy
            && *min_ready_seconds == other.min_ready_seconds
            && *source == other.source
    }

    /// The mode that its label asks for; `None` without the label or with an invalid value.
    pub fn mode_label(&self) -> Option<Mode> {
        Mode::of(&self.labels)
    }
}

/// A taint of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Taint {
    pub key: String,
    /// The value; empty if none.
    #[serde(default)]
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// The node as decisions see it: the parts that can change.
#[derive(Clone, Debug, Default, PartialEq, Hash, Serialize, Deserialize)]
pub struct NodeView {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`, once registered.
    pub uid: Option<String>,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `spec.taints`.
    pub taints: Vec<Taint>,
    /// `status.nodeInfo.kubeletVersion`, such as `v1.36.2`, if known.
    pub kubelet_version: Option<String>,
    /// Cpu and memory of `status.allocatable`, once the kubelet has written it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocatable: Option<Resources>,
    /// `spec.unschedulable`: it is cordoned or drained.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unschedulable: bool,
    /// Whether this is the API's Node; `false`: what the configuration and the kubelet's defaults say.
    pub registered: bool,
}

/// The longest text of a [`FieldError::shortened`], in bytes.
const QUOTED: usize = 1024;

/// An invalid object: which field, why, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FieldError {
    /// The field as a path, such as `spec.template.spec.restartPolicy`.
    pub field: String,
    /// What is wrong, in lower case without a full stop.
    pub reason: String,
    /// What to do about it, if there is something to do.
    pub hint: Option<String>,
}

impl FieldError {
    /// The same with bounded texts: they quote what is wrong.
    pub fn shortened(self) -> Self {
        let short = |text: String| match escape::short(&text, QUOTED) {
            Cow::Owned(short) => short,
            Cow::Borrowed(_) => text,
        };
        Self { field: short(self.field), reason: short(self.reason), hint: self.hint.map(short) }
    }

    /// Field, reason and hint on one line.
    pub fn with_hint(&self) -> String {
        match &self.hint {
            Some(hint) => format!("{self} (hint: {hint})"),
            None => self.to_string(),
        }
    }
}

/// What is wrong with all of `errors`, in one line and without hints.
pub fn joined(errors: &[FieldError]) -> String {
    errors.iter().map(FieldError::to_string).collect::<Vec<_>>().join("; ")
}

/// The same, each with its hint.
pub fn joined_with_hints(errors: &[FieldError]) -> String {
    errors.iter().map(FieldError::with_hint).collect::<Vec<_>>().join("; ")
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.reason)
    }
}
