//! Whether a daemon belongs on this node: upstream's `NodeShouldRunDaemonPod`.
//!
//! Owns the two results and the judgement of every rule, which `explain` prints. Must not look at the node's
//! conditions, resources or ports: as upstream, those are left to the scheduler.

mod affinity;
mod namespace;
mod taints;

use std::fmt;

use serde::Serialize;
use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use crate::core::json::Json;
use crate::core::model::DaemonSet;
use crate::core::model::NodeView;
use crate::core::model::STATIC_GATE;
use crate::core::model::Taint;

pub use affinity::ExpressionCheck;
pub use affinity::LabelCheck;
pub use affinity::TermCheck;
pub use namespace::NamespaceCheck;
pub use namespace::NamespaceSelector;
pub use taints::TaintCheck;
pub use taints::automatic_tolerations;
pub use taints::tells_readiness;
pub use taints::tolerates_starting;

/// Upstream's two results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// A pod should be started here.
    pub should_run: bool,
    /// A pod that runs here may stay.
    pub should_continue_running: bool,
    /// The first rule that fails; `None` if `should_run`.
    pub misfit: Option<Misfit>,
}

/// The rule by which a node is not for a DaemonSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misfit {
    NodeName {
        wanted: String,
        node: String,
    },
    NodeSelector(LabelCheck),
    /// None of the terms matches.
    NodeAffinity(Vec<TermCheck>),
    Taint(TaintCheck),
    NamespaceSelector(NamespaceCheck),
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeName { wanted, node } => write!(f, "spec.nodeName is {wanted}, this is {node}"),
            Self::NodeSelector(check) => write!(f, "nodeSelector {check}"),
            Self::NodeAffinity(terms) => match &terms[..] {
                [] => f.write_str("required node affinity has no terms, so it matches no node"),
                [term] => write!(f, "required node affinity: {}", term.why_not()),
                terms => write!(f, "required node affinity: none of its {} terms matches", terms.len()),
            },
            Self::Taint(taint) => write!(f, "taint {taint} is not tolerated"),
            Self::NamespaceSelector(check) => write!(f, "node selector of the namespace {check}"),
        }
    }
}

/// Every placement rule with its result on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Judgement {
    /// `spec.nodeName` of the template, if it has one.
    pub node_name: Option<NodeNameCheck>,
    /// Each entry of `spec.nodeSelector`.
    pub node_selector: Vec<LabelCheck>,
    /// Each term of the required node affinity; `None`: there is none.
    pub node_affinity: Option<Vec<TermCheck>>,
    /// The node selector of the namespace; `None`: there is none.
    pub namespace_selector: Option<NamespaceCheck>,
    pub taints: Vec<TaintCheck>,
}

/// The template's `spec.nodeName` compared with the node's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeNameCheck {
    /// What the template names.
    pub wanted: String,
    pub matches: bool,
}

/// Upstream's `NodeShouldRunDaemonPod(node, ds)` (`pkg/controller/daemon/daemon_controller.go`), except that the key
/// [`STATIC_GATE`] is ignored and that the namespace's node selector applies, as in OpenShift's controller.
pub fn should_run(node: &NodeView, daemon_set: &DaemonSet, namespace: Option<&NamespaceSelector>) -> Placement {
    judge(node, daemon_set, namespace).placement(node)
}

/// Whether a pod is to run here as soon as the node is well: the taints aside by which Kubernetes says that it is not.
pub fn belongs(node: &NodeView, daemon_set: &DaemonSet, namespace: Option<&NamespaceSelector>) -> bool {
    let is_lasting = |taint: &&Taint| !taints::tells_condition(taint);
    let well = NodeView { taints: node.taints.iter().filter(is_lasting).cloned().collect(), ..node.clone() };
    should_run(&well, daemon_set, namespace).should_run
}

/// Of a pod template what placement reads.
pub fn part_read(template: &Value) -> Value {
    let spec = template.get("spec").unwrap_or(&Value::Null);
    let of = |field: &str| Some((field.to_owned(), spec.get(field)?.clone()));
    let mut part: Map<String, Value> =
        ["nodeName", "nodeSelector", "tolerations", "hostNetwork"].into_iter().filter_map(of).collect();
    if let Some(required) = spec.at(affinity::REQUIRED) {
        let [affinity, node_affinity, rule] = affinity::REQUIRED;
        part.insert(affinity.to_owned(), json!({node_affinity: {rule: required}}));
    }
    json!({"spec": part})
}

/// Judges every rule, also those after the first that fails.
pub fn judge(node: &NodeView, daemon_set: &DaemonSet, namespace: Option<&NamespaceSelector>) -> Judgement {
    let null = Value::Null;
    let spec = daemon_set.template.get("spec").unwrap_or(&null);
    let wanted = spec.text_at("nodeName");
    let own = spec.get("tolerations").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let host_network = spec.flag_at("hostNetwork");
    Judgement {
        node_name: wanted.map(|name| NodeNameCheck { wanted: name.to_owned(), matches: name == node.name }),
        node_selector: affinity::node_selector(spec, node),
        node_affinity: affinity::required_terms(spec, node),
        namespace_selector: namespace.map(|selector| selector.check(node)),
        taints: taints::check(&node.taints, own, host_network),
    }
}

impl Judgement {
    /// The two results, with the first failing rule.
    pub fn placement(&self, node: &NodeView) -> Placement {
        let misfit = self.misfit(node);
        let should_continue_running = match &misfit {
            None => true,
            Some(Misfit::Taint(_)) => !self.taints.iter().any(TaintCheck::evicts),
            // An invalid selector starts nothing and ends nothing.
            Some(Misfit::NamespaceSelector(check)) => check.invalid.is_some(),
            Some(Misfit::NodeName { .. } | Misfit::NodeSelector(_) | Misfit::NodeAffinity(_)) => false,
        };
        Placement { should_run: misfit.is_none(), should_continue_running, misfit }
    }

    /// The first rule that fails; that of the namespace is checked last.
    fn misfit(&self, node: &NodeView) -> Option<Misfit> {
        if let Some(NodeNameCheck { wanted, matches: false }) = &self.node_name {
            return Some(Misfit::NodeName { wanted: wanted.clone(), node: node.name.clone() });
        }
        if let Some(check) = self.node_selector.iter().find(|check| !check.matches) {
            return Some(Misfit::NodeSelector(check.clone()));
        }
        if let Some(terms) = self.node_affinity.as_ref().filter(|terms| !terms.iter().any(|term| term.matches)) {
            return Some(Misfit::NodeAffinity(terms.clone()));
        }
        if let Some(taint) = self.taints.iter().find(|taint| taint.repels()) {
            return Some(Misfit::Taint(taint.clone()));
        }
        let check = self.namespace_selector.as_ref().filter(|check| !check.matches)?;
        Some(Misfit::NamespaceSelector(check.clone()))
    }
}

impl fmt::Display for NodeNameCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.wanted, if self.matches { "this node" } else { "another node" })
    }
}

/// Whether a node selector key is daemonlet's own and irrelevant to placement.
fn is_gate(key: &str) -> bool {
    key == STATIC_GATE
}

#[cfg(test)]
mod tests;
