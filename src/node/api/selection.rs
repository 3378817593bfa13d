//! Which DaemonSets are read whole; of the others no more than that they exist ([`crate::core::outline`]).
//!
//! Owns the rule, the names beside it, and of which namespaces what is kept is bounded. Must not know what is stored.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;

use crate::core::model::MODE_LABEL;
use crate::core::model::ObjectKey;
use crate::core::outline::DaemonSetMetadata;
use crate::core::outline::OutlineStatus;
use crate::core::outline::ReadDepth;
use crate::core::policy::Covered;
use crate::core::policy::Policy;
use crate::core::policy::is_mistyped;
use crate::core::policy::trusts;

/// What is selected without being named.
#[derive(Debug, Default)]
enum SelectionRule {
    /// Everything.
    #[default]
    All,
    /// What may run on this node.
    Policy(Arc<Policy>),
    /// What its label gives to the agents of the cluster: a mode that a coordinator acts on, or a misspelt one. Within
    /// bounds, unless its namespace is one of these.
    Label(Vec<String>),
}

/// The DaemonSets that are read whole; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    rule: Arc<SelectionRule>,
    named: Arc<Mutex<BTreeSet<ObjectKey>>>,
    /// Running DaemonSets come before others where the store is bounded.
    runs: Arc<BTreeSet<ObjectKey>>,
}

impl Selection {
    /// What `policy` takes, and what is `named`, of which some `runs`.
    pub(super) fn of_policy(policy: Arc<Policy>, named: BTreeSet<ObjectKey>, runs: BTreeSet<ObjectKey>) -> Self {
        Self { rule: Arc::new(SelectionRule::Policy(policy)), named: Arc::new(Mutex::new(named)), runs: Arc::new(runs) }
    }

    /// What the label `daemonlet.dev/mode` gives to the agents in place of the DaemonSet controller; without bounds in the
    /// namespaces that are `trusted`.
    pub fn of_label(trusted: Vec<String>) -> Self {
        Self { rule: Arc::new(SelectionRule::Label(trusted)), named: Arc::default(), runs: Arc::default() }
    }

    fn named<T>(&self, f: impl FnOnce(&mut BTreeSet<ObjectKey>) -> T) -> T {
        f(&mut self.named.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on `key` is read whole, whatever its labels are.
    pub fn add(&self, key: &ObjectKey) {
        self.named(|named| {
            if !named.contains(key) {
                named.insert(key.clone());
            }
        });
    }

    /// Only those of the names that `is_kept` are read whole any more.
    pub fn retain(&self, is_kept: impl FnMut(&ObjectKey) -> bool) {
        self.named(|named| named.retain(is_kept));
    }

    /// The policy, if it bounds what is kept of the DaemonSets of `namespace`.
    pub(super) fn bounds(&self, namespace: &str) -> Option<&Policy> {
        match &*self.rule {
            SelectionRule::Policy(policy) => Some(&**policy).filter(|policy| policy.bounds(namespace)),
            SelectionRule::All | SelectionRule::Label(_) => None,
        }
    }

    /// Whether something of `key` ran when this began.
    pub(super) fn ran(&self, key: &ObjectKey) -> bool {
        self.runs.contains(key)
    }

    /// How much of a DaemonSet is read.
    pub(super) fn reading(&self, metadata: &DaemonSetMetadata) -> ReadDepth {
        match (self.takes(metadata), self.is_bounded(&metadata.namespace)) {
            (false, _) => ReadDepth::Outline,
            (true, true) => ReadDepth::Bounded,
            (true, false) => ReadDepth::Whole,
        }
    }

    /// Whether what is read of the objects of `namespace` is bounded.
    pub(super) fn is_bounded(&self, namespace: &str) -> bool {
        match &*self.rule {
            SelectionRule::All => false,
            SelectionRule::Policy(policy) => policy.bounds(namespace),
            SelectionRule::Label(trusted) => !trusts(trusted, namespace),
        }
    }

    fn takes(&self, metadata: &DaemonSetMetadata) -> bool {
        let is_selected = match &*self.rule {
            SelectionRule::All => true,
            SelectionRule::Policy(policy) => {
                let (namespace, labels) = (&metadata.namespace, &metadata.labels);
                // A misspelt mode was meant for the agents: its author is to be told that.
                matches!(policy.covers_labels(namespace, labels, None), Covered::Yes(_))
                    || is_mistyped(labels) && policy.allows_namespace(namespace)
            }
            SelectionRule::Label(_) => metadata.labels.get(MODE_LABEL).is_some_and(|mode| mode != "bootstrap"),
        };
        is_selected || self.named(|named| named.contains(&ObjectKey::new(&metadata.namespace, &metadata.name)))
    }

    /// How much of the status of the others is read: a coordinator takes its conditions from what is let go.
    pub(super) fn status(&self) -> OutlineStatus {
        match &*self.rule {
            SelectionRule::All | SelectionRule::Policy(_) => OutlineStatus::Dropped,
            SelectionRule::Label(_) => OutlineStatus::Kept,
        }
    }

    /// How much is read of a DaemonSet that is requested by its name: never its outline.
    pub(super) fn reading_of_one(&self, metadata: &DaemonSetMetadata) -> ReadDepth {
        match (self.reading(metadata), self.is_bounded(&metadata.namespace)) {
            (ReadDepth::Outline, true) => ReadDepth::Bounded,
            (ReadDepth::Outline, false) => ReadDepth::Whole,
            (reading, _) => reading,
        }
    }

    /// Whether everything is read whole.
    pub(super) fn takes_all(&self) -> bool {
        matches!(&*self.rule, SelectionRule::All)
    }
}
