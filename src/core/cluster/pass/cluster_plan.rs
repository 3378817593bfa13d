//! What a pass found: what is to be written and looked up, and what the next pass has to know.
//!
//! Must not decide: the pass does.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;

use crate::core::cluster::broken::Suspects;
use crate::core::cluster::events::Trouble;
use crate::core::cluster::history;
use crate::core::cluster::liveness::MirrorPodLookup;
use crate::core::cluster::node_daemons::Spec;
use crate::core::cluster::released::KnownHalt;
use crate::core::cluster::snapshot::StockPodClaim;
use crate::core::cluster::state::CoordinatorState;
use crate::core::model::ObjectKey;
use crate::core::time::Timestamp;

use super::delays::NodeDelay;
use super::lacking::Lacking;

/// One thing to write.
#[derive(Clone, Debug, PartialEq)]
pub enum ObjectWrite {
    /// A ControllerRevision.
    Revision {
        /// Its DaemonSet.
        key: ObjectKey,
        /// The change.
        write: history::RevisionWrite,
    },
    /// The status of a DaemonSet.
    Status {
        /// The DaemonSet.
        key: ObjectKey,
        /// Fields of the status, as a merge patch.
        status: Value,
        /// On how many nodes it should run.
        nodes: usize,
        /// A rollout has ended, or is stopped: it does not wait for its turn.
        at_once: bool,
    },
    /// What a node may replace.
    Approvals {
        node: String,
        /// All of its approvals.
        spec: Spec,
    },
    /// The approval of a certificate request.
    Certificate { name: String, node: String },
}

/// A DaemonSet without a mode that agents say they run in place of the DaemonSet controller, on too few nodes to be
/// believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FewAgents {
    /// The DaemonSet.
    pub key: ObjectKey,
    /// One of their nodes.
    pub node: String,
    /// On how many of the nodes where it should run they say so.
    pub run: usize,
    /// On how many nodes it should run.
    pub should: usize,
}

/// Nodes whose agents did not claim an approval in time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PassedOver {
    /// The revision that was approved, the wanted one or one to go back to.
    pub revision: String,
    /// When that was last found of each.
    pub nodes: BTreeMap<String, Timestamp>,
}

/// What a pass found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterPlan {
    /// What is to be written, in order.
    pub writes: Vec<ObjectWrite>,
    /// Pods that agents report and that are to be looked up.
    pub lookups: Vec<StockPodClaim>,
    /// Mirror pods of nodes whose agents are dead: they say whether what runs there is ready.
    pub mirrors: Vec<MirrorPodLookup>,
    /// When to look again though nothing happens.
    pub look_again: Option<Timestamp>,
    /// Approvals that are withdrawn because no agent claimed them in time: DaemonSet and node.
    pub unclaimed: Vec<(ObjectKey, String)>,
    /// Nodes whose agents did not claim an approval in time, by DaemonSet: others come first.
    pub passed_over: BTreeMap<ObjectKey, PassedOver>,
    /// Nodes that should run a DaemonSet and whose agents' reports leave it out, and since when, by DaemonSet.
    pub unmentioned: BTreeMap<ObjectKey, BTreeMap<String, Timestamp>>,
    /// Nodes on which an older revision than the wanted one is not available, and since when, by DaemonSet.
    pub older_unavailable: BTreeMap<ObjectKey, BTreeMap<String, Timestamp>>,
    /// Since when what has begun on nodes, or is to start, is not ready, and since when they claim, by DaemonSet.
    pub delays: BTreeMap<ObjectKey, BTreeMap<String, NodeDelay>>,
    /// Current revisions that are halted: a halt that is not written yet is the same in each pass.
    pub halts: BTreeMap<ObjectKey, KnownHalt>,
    /// Nodes whose approvals the API server refuses, though others come before them in this pass.
    pub refused: BTreeSet<String>,
    /// DaemonSets that were decided in this term, with their UIDs: this coordinator has written their status itself.
    pub decided: BTreeMap<ObjectKey, String>,
    /// Nodes that have taken current revisions and are not well, or are lost since the last pass.
    pub(in crate::core::cluster) broken: BTreeMap<ObjectKey, Suspects>,
    /// DaemonSets whose history is not read yet, since when.
    pub unread: BTreeMap<ObjectKey, Timestamp>,
    /// DaemonSets whose current ControllerRevision the DaemonSet controller is to write, since when.
    pub awaited: BTreeMap<ObjectKey, Timestamp>,
    /// Nodes that cannot go back because they lack an object, by DaemonSet.
    pub lacking: BTreeMap<ObjectKey, Lacking>,
    /// DaemonSets without a mode that too few agents run in place of the DaemonSet controller.
    pub few: Vec<FewAgents>,
    /// What goes wrong with current revisions, each with the number of nodes.
    pub troubles: BTreeMap<Trouble, usize>,
    /// The approvals that are to stand on each node where they change.
    pub(super) specs: BTreeMap<String, Spec>,
}

impl ClusterPlan {
    /// Makes sure that there is another pass at that time.
    pub(super) fn look(&mut self, at: impl IntoIterator<Item = Timestamp>) {
        self.look_again = self.look_again.into_iter().chain(at).min();
    }

    /// Keeps what was remembered of a DaemonSet of which nothing is decided.
    pub(super) fn carry_over(&mut self, state: &CoordinatorState, key: &ObjectKey) {
        fn carry<T: Clone>(from: &BTreeMap<ObjectKey, T>, key: &ObjectKey, to: &mut BTreeMap<ObjectKey, T>) {
            to.extend(from.get(key).map(|known| (key.clone(), known.clone())));
        }
        carry(&state.passed_over, key, &mut self.passed_over);
        carry(&state.unmentioned, key, &mut self.unmentioned);
        carry(&state.older_unavailable, key, &mut self.older_unavailable);
        carry(&state.delays, key, &mut self.delays);
        carry(&state.halts, key, &mut self.halts);
        carry(&state.decided, key, &mut self.decided);
        carry(&state.broken, key, &mut self.broken);
        carry(&state.lacking, key, &mut self.lacking);
    }
}
