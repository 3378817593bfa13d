//! Nodes on which a revision is not well, so that they go on counting when their Nodes are deleted or the daemon is taken
//! away from them.
//!
//! Owns how they are kept: on the ControllerRevision, where they outlive Node, report and coordinator, and in the memory of
//! the coordinator. Must not judge which nodes these are.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::Serialize;

use crate::core::time::Timestamp;
use crate::core::time::rfc3339;

/// Annotation of a ControllerRevision: nodes that have taken it and are not well. One whose Node is gone is
/// lost, as is one that may not run the daemon any more: they count as nodes on which the revision failed.
pub const BROKEN_ANNOTATION: &str = "daemonlet.dev/broken";

/// Nodes that the annotation names at most.
const NAMES: usize = 32;

/// What the annotation says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BrokenNodes {
    /// The first of them.
    pub nodes: Vec<BrokenNode>,
    /// How many more are lost.
    #[serde(skip_serializing_if = "is_zero")]
    pub more: usize,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokenNode {
    pub node: String,
    /// `metadata.uid` of its Node.
    pub uid: String,
    /// When it was noted.
    #[serde(with = "rfc3339")]
    pub time: Option<Timestamp>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl BrokenNodes {
    /// From the annotation; what cannot be read says nothing, and is written anew.
    pub fn of(annotation: &str) -> Self {
        serde_json::from_str(annotation).unwrap_or_default()
    }

    /// For the annotation; `None`: it is not written.
    pub fn annotation(&self) -> Option<String> {
        (*self != Self::default()).then(|| serde_json::to_string(self).unwrap_or_default())
    }

    /// Whether the Node of this UID is named.
    pub fn has(&self, uid: &str) -> bool {
        self.nodes.iter().any(|node| node.uid == uid)
    }

    /// Names one more, if there is room.
    pub(super) fn note(&mut self, uid: &str, node: &str, now: Timestamp) -> bool {
        let has_room = self.nodes.len() < NAMES;
        if has_room {
            let time = Some(now.in_whole_seconds());
            self.nodes.push(BrokenNode { node: node.to_owned(), uid: uid.to_owned(), time });
        }
        has_room
    }
}

/// What a coordinator remembers of the nodes that have taken a revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Suspects {
    /// The hash of the revision.
    pub(super) revision: String,
    /// Those that are not well or are about to be removed, by the UID of their Nodes.
    pub(super) nodes: BTreeMap<String, Suspect>,
    /// What the ControllerRevision said when it last existed.
    pub(super) noted: BrokenNodes,
    /// The UID of that ControllerRevision.
    pub(super) noted_on: String,
}

impl Suspects {
    /// Whether there is nothing to remember.
    fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.noted == BrokenNodes::default()
    }

    /// The same, if there is anything to remember.
    pub(super) fn some(self) -> Option<Self> {
        (!self.is_empty()).then_some(self)
    }
}

/// A node that has taken a revision and may be broken by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Suspect {
    pub(super) node: String,
    /// Since when it is not well, as far as this process has seen, if it is not.
    pub(super) since: Option<Timestamp>,
    /// Whether it was ready when a taint said that it is to be removed.
    pub(super) is_leaving: bool,
    /// What it counts as.
    pub(super) verdict: NodeVerdict,
}

/// What a node counts as for the revision that it has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeVerdict {
    /// Its loss says nothing of the revision.
    Innocent,
    /// It counts as lost if it is deleted or the daemon is taken away from it.
    Broken,
    /// It is lost, and that is not written yet.
    Lost,
}
