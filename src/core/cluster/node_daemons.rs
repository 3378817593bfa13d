//! The resource `nodedaemons.daemonlet.dev/v1beta1`: one object a node, named as the node.
//!
//! Owns its schema. The coordinator writes `spec`, the agent `status`; neither writes the other's.

use serde::Deserialize;
use serde::Deserializer;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::core::identity;
use crate::core::json::Json;
use crate::core::model::Mode;
use crate::core::status::RefusedCount;
use crate::core::status::State;
use crate::core::update_trigger::UpdateTrigger;

mod claim_write;
mod patch;

pub use claim_write::ClaimWrite;
pub use patch::Precondition;
pub use patch::StatusPatch;

/// The API group.
pub const GROUP: &str = "daemonlet.dev";
pub const VERSION: &str = "v1beta1";
pub const KIND: &str = "NodeDaemons";
/// The resource's name in URLs.
pub const PLURAL: &str = "nodedaemons";
/// The CustomResourceDefinition, as it is shipped.
pub const CRD: &str = include_str!("../../../packaging/k8s/nodedaemons.yaml");

/// How many daemons a status has at most: the schema refuses more, and so with all that follows.
pub const DAEMONS: usize = 1024;
/// How many instances one daemon has.
pub const INSTANCES: usize = 16;
/// How many reasons [`Status::refused`] has.
pub const REASONS: usize = 128;
/// How many characters a text has that says why. An agent bounds each in bytes, and adds what it leaves out.
pub const WORDS: usize = 2048;

/// What the coordinator allows on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    /// Replacements that may be made, without those that only a later version understands.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "known_items")]
    pub approvals: Vec<Approval>,
}

/// That a node may replace its instance of a daemon by one of a revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// The DaemonSet's namespace.
    pub namespace: String,
    /// The DaemonSet's name.
    pub name: String,
    /// The DaemonSet's UID: another object of that name is another daemon.
    pub uid: String,
    /// The hash of the revision that may run.
    pub revision: String,
    /// The digest of the overlays that it may run with; empty: with none.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub overlays: String,
    /// When it was given (RFC 3339).
    pub approved_at: String,
    /// Who gave it. `None` if the coordinator or the resource is of an earlier version.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lease: Option<LeaseTerm>,
    /// What the node waits for before it claims it. `None`: for nothing, and it is claimed soon or withdrawn.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub when: Option<UpdateTrigger>,
}

impl Approval {
    /// What may run, as instances have it ([`identity::patched_revision`]).
    pub fn pair(&self) -> String {
        identity::patched_revision(&self.revision, &self.overlays)
    }
}

/// The coordinator's Lease as one holder has it: another UID or number of transitions is another holder.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaseTerm {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// Its `leaseTransitions`.
    pub transitions: i64,
}

impl LeaseTerm {
    /// That of a Lease as the API server shows it, but for what its metadata says.
    pub fn new(namespace: &str, name: &str, uid: &str, spec: &Value) -> Self {
        let transitions = spec.get("leaseTransitions").and_then(Value::as_i64).unwrap_or(0);
        Self { namespace: namespace.to_owned(), name: name.to_owned(), uid: uid.to_owned(), transitions }
    }

    /// Whether a Lease of this UID and `spec` is held in this term. One that was given back has no holder, though its
    /// number of transitions is the same.
    pub fn is_held(&self, uid: &str, spec: &Value) -> bool {
        let is_given_back = spec.str_at("holderIdentity").is_empty();
        !is_given_back && Self::new(&self.namespace, &self.name, uid, spec) == *self
    }
}

/// What an agent says of its node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    pub agent_version: String,
    /// Ready daemons of all, such as `5/6`.
    pub ready: String,
    /// The worst state of any daemon, with its reason; empty when all is well.
    pub worst: String,
    pub daemons: Vec<DaemonReport>,
    /// How many daemons are refused, by the field or rule that refuses them: not each of them is among the daemons.
    pub refused: Vec<RefusedCount>,
}

/// One daemon on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonReport {
    /// The DaemonSet's namespace.
    pub namespace: String,
    /// The DaemonSet's name.
    pub name: String,
    /// The DaemonSet's UID, if the API has shown it.
    pub uid: String,
    /// Its mode on this node; `None` also for what only another version knows.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "known")]
    pub mode: Option<Mode>,
    /// What the daemon is doing; `None` also for what only another version knows.
    #[serde(deserialize_with = "known")]
    pub phase: Option<State>,
    /// Why, in one line.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Its instances, oldest first; those that end are among them until nothing of them runs.
    pub instances: Vec<InstanceReport>,
    /// The digest of the overlays that apply to the node, whatever runs; empty if none does.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub overlays: String,
    /// The revision that it is being replaced by, followed by a dot and the digest of its overlays if it has any: the
    /// claim of an approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replacing: Option<String>,
    /// The revision that replaces it at the next boot, with its images on the node: the claim of an approval that waits
    /// for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub staged: Option<String>,
    /// The revision that failed on this node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailedReport>,
    /// Why an image of the wanted revision cannot be pulled, while the old instance stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_failed: Option<String>,
    /// Whether nothing of it starts here before its rollout has come further.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub awaits_rollout: bool,
    /// What another revision that is to run needs and what does not exist, while the old instance stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<MissingReport>,
    /// A pod of a DaemonSet controller that is here beside a `static` instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stock_pod: Option<String>,
    /// The hash of the revision that ran here before, and that the node can return to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
    /// What starts again after a restart, or once the node has a place for it, while nothing runs. It is written as
    /// `replacing` is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub returning: Option<String>,
}

/// A value that only another version has is none: the rest of the object counts.
fn known<'de, D: Deserializer<'de>, T: DeserializeOwned>(reader: D) -> Result<Option<T>, D::Error> {
    Ok(T::deserialize(Value::deserialize(reader)?).ok())
}

/// The items that this version understands.
fn known_items<'de, D: Deserializer<'de>, T: DeserializeOwned>(reader: D) -> Result<Vec<T>, D::Error> {
    let items = Vec::<Value>::deserialize(reader)?;
    Ok(items.into_iter().filter_map(|item| T::deserialize(item).ok()).collect())
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InstanceReport {
    /// The pod's name, with the node's: the mirror pod's.
    pub pod: String,
    /// The hash of its revision.
    pub revision: String,
    /// The digest of the overlays that it was made with; empty if there was none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub overlays: String,
    /// When its manifest was first written (RFC 3339).
    pub created: String,
    /// Since when it is ready (RFC 3339), if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_since: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ending: bool,
}

/// Why a revision failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FailedReport {
    /// The hash of the revision.
    pub revision: String,
    /// The kind of cause.
    pub cause: String,
    /// The message of the component that reports it.
    pub message: String,
}

/// What a revision lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MissingReport {
    /// The hash of the revision.
    pub revision: String,
    /// The objects, and keys in them, that it needs and that do not exist.
    pub message: String,
}

impl InstanceReport {
    /// What it is current by ([`identity::patched_revision`]).
    pub fn pair(&self) -> String {
        identity::patched_revision(&self.revision, &self.overlays)
    }
}

impl DaemonReport {
    /// Whether both are about the same name.
    pub fn is_of(&self, other: &Self) -> bool {
        self.namespace == other.namespace && self.name == other.name
    }

    /// The revision whose approval it claims: for now, or for the next boot.
    pub fn claim(&self) -> Option<&str> {
        self.replacing.as_deref().or(self.staged.as_deref())
    }
}

impl Status {
    /// Whether the claim of `approval` is in it.
    pub fn holds(&self, approval: &Approval) -> bool {
        let pair = approval.pair();
        let of_it = |d: &&DaemonReport| d.namespace == approval.namespace && d.name == approval.name;
        self.daemons.iter().filter(of_it).any(|d| d.claim() == Some(&*pair))
    }

    pub fn daemon(&self, namespace: &str, name: &str, uid: &str) -> Option<&DaemonReport> {
        self.daemons.iter().find(|d| d.namespace == namespace && d.name == name && (d.uid.is_empty() || d.uid == uid))
    }

    /// Whether this claims an approval that `live` does not.
    pub fn claims(&self, live: &Status) -> bool {
        self.daemons.iter().filter(|d| d.claim().is_some()).any(|d| {
            let before = live.daemons.iter().find(|l| l.namespace == d.namespace && l.name == d.name);
            before.and_then(DaemonReport::claim) != d.claim()
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;
