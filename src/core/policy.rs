//! What this node's configuration allows: modes and namespaces (`default-mode`, `selector`, `[policy]`), and what the
//! namespaces of the cluster enforce.
//!
//! Owns whether a DaemonSet of the API is ours, in which mode, and whether its pod may start ([`Admission`]). Must not
//! look at nodes or evidence.

mod admission;
mod covered;
pub mod pod_security;
pub mod room;
mod rules;
mod too_large;
mod verdicts;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::core::bounds;
use crate::core::canonical;
use crate::core::labels;
use crate::core::labels::LabelError;
use crate::core::labels::Selector;
use crate::core::model::Author;
use crate::core::model::DaemonSet;
use crate::core::model::FieldError;
use crate::core::model::Lookup;
use crate::core::model::MODE_LABEL;
use crate::core::model::Mode;
use crate::core::model::ObjectKey;
use crate::core::model::Source;
use crate::core::overlays::ListSource;
use crate::core::placement::NamespaceSelector;
use crate::core::status::LeftAloneCause;
use crate::core::validate;

pub use admission::Admission;
pub use admission::namespace_of;
pub use covered::Covered;
pub use covered::NotCovered;
pub use room::Requester;
pub use room::Resources;
pub use room::Share;
pub use rules::Grant;
pub use rules::PodRules;
pub use rules::PortRange;
pub use rules::TRUST;
pub use rules::VOLUME_TYPES;
pub use rules::below;
pub use rules::broad_images;
pub use rules::broad_paths;
pub use rules::trusting;
pub use rules::trusts;
pub use too_large::TooLarge;
pub use verdicts::Judge;
pub use verdicts::Verdicts;

/// What this node's configuration says about DaemonSets of the API.
///
/// The default is the configuration's: the label decides, in `kube-system` only.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Policy {
    /// Mode of a DaemonSet without the mode label; `None` (`labelled`): it is not ours.
    default_mode: Option<Mode>,
    /// Selects the DaemonSets to look at.
    selector: Selector,
    /// Namespaces whose DaemonSets may run here; `*` is all.
    namespaces: Vec<String>,
    /// The rules for their pods.
    rules: PodRules,
    /// The PodSecurity level of a namespace without the label.
    pod_security_default: pod_security::PodSecurityLevel,
    /// The node selector for namespaces that have none; may be empty.
    default_node_selector: String,
    /// Daemons that are released although their absence is not certain: `namespace/name`, or `namespace/*`.
    #[serde(default)]
    release: Vec<String>,
}

/// How many broken rules are reported of one DaemonSet.
const MOST_REPORTED: usize = 12;

/// Which entries of `policy.release` count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Releases {
    /// Those with the name of a DaemonSet.
    Name,
    /// Those for a whole namespace, too.
    Pattern,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            default_mode: None,
            selector: Selector::default(),
            namespaces: vec!["kube-system".to_owned()],
            rules: PodRules::default(),
            pod_security_default: pod_security::PodSecurityLevel::Privileged,
            default_node_selector: String::new(),
            release: Vec::new(),
        }
    }
}

impl Policy {
    /// The policy of the configuration keys `default-mode`, `selector` and `policy.namespaces`.
    ///
    /// # Errors
    /// `selector` is not a valid label selector.
    pub fn new(default_mode: Option<Mode>, selector: &str, namespaces: Vec<String>) -> Result<Self, LabelError> {
        Ok(Self { default_mode, selector: labels::parse(selector)?, namespaces, ..Self::default() })
    }

    /// This policy with the given rules for pods.
    pub fn with_rules(self, rules: PodRules) -> Self {
        Self { rules, ..self }
    }

    /// This policy with the defaults for namespaces: PodSecurity level and node selector.
    pub fn with_defaults(
        self,
        pod_security_default: pod_security::PodSecurityLevel,
        default_node_selector: String,
    ) -> Self {
        Self { pod_security_default, default_node_selector, ..self }
    }

    /// This policy with the daemons that it releases (`policy.release`).
    pub fn with_release(self, release: Vec<String>) -> Self {
        Self { release, ..self }
    }

    /// Whether the instance of `key` is released if its absence is not certain.
    pub fn releases(&self, key: &ObjectKey, by: Releases) -> bool {
        let is_of = |entry: &String| match entry.split_once('/') {
            Some((namespace, "*")) => by == Releases::Pattern && namespace == key.namespace,
            Some((namespace, name)) => (namespace, name) == (key.namespace.as_str(), key.name.as_str()),
            None => false,
        };
        self.release.iter().any(is_of)
    }

    /// What the rules for pods have against `daemon_set` of the API, if anything; each with what would allow it.
    pub fn forbids(&self, daemon_set: &DaemonSet) -> Option<Vec<FieldError>> {
        some(&self.violations(daemon_set))
    }

    /// What `daemon_set` of the API does against the rules: that which exceeds the bounds, else at most [`MOST_REPORTED`] of the
    /// others.
    fn violations(&self, daemon_set: &DaemonSet) -> Vec<FieldError> {
        let mut violations = self.every_violation(daemon_set);
        let more = violations.len().saturating_sub(MOST_REPORTED);
        violations.truncate(MOST_REPORTED);
        violations = violations.into_iter().map(FieldError::shortened).collect();
        violations.extend((more > 0).then(|| FieldError {
            field: "spec.template".to_owned(),
            reason: format!("breaks {more} more rules of [policy]"),
            hint: Some("`daemonlet policy test -f FILE` names each".to_owned()),
        }));
        violations
    }

    /// What exceeds the bounds, else each of the other violations.
    fn every_violation(&self, daemon_set: &DaemonSet) -> Vec<FieldError> {
        let bound = bounds::of(&daemon_set.key.namespace, daemon_set.author(), &self.rules);
        let over = bound.exceeded_by(daemon_set.pod_template());
        if over.is_empty() { self.rules.violations(daemon_set) } else { over }
    }

    pub fn rules(&self) -> &PodRules {
        &self.rules
    }

    /// The granted prefixes of host paths below which the pods of `daemon_set` are kept; `None`: it is trusted, or of
    /// the node's owner.
    pub fn confines(&self, daemon_set: &DaemonSet) -> Option<&[String]> {
        self.rules.confines(&daemon_set.key.namespace).filter(|_| daemon_set.author() == Author::ApiUser)
    }

    /// Whether what an annotation of `daemon_set` asks of the whole node counts: its definition is of the node's owner
    /// or of a trusted namespace, whatever the origin of its overlays.
    pub fn trusts_annotations(&self, daemon_set: &DaemonSet) -> bool {
        let author = Author::of(&daemon_set.source, ListSource::Folder);
        author == Author::NodeOwner || self.rules.trusts(&daemon_set.key.namespace)
    }

    /// The cluster's node selector for namespaces that have none; may be empty.
    pub fn default_node_selector(&self) -> &str {
        &self.default_node_selector
    }

    /// The node selector of the namespace of `daemon_set`; `namespace` is what is known of it.
    pub fn node_selector(&self, daemon_set: &DaemonSet, namespace: Lookup<'_>) -> Option<NamespaceSelector> {
        NamespaceSelector::of(&daemon_set.key.namespace, namespace, &self.default_node_selector)
    }

    /// Whether `daemon_set` of the API runs here. `folder` is the folder's definition of the same name, whose mode it
    /// inherits.
    pub fn covers(&self, daemon_set: &DaemonSet, folder: Option<&Arc<DaemonSet>>) -> Covered {
        let inherited = folder.map(|folder| folder.mode_label().unwrap_or(Mode::Static));
        self.covers_labels(&daemon_set.key.namespace, &daemon_set.labels, inherited)
    }

    /// The same of a DaemonSet of which no more is known. `inherited`: the mode of the folder's definition of the same
    /// name.
    pub fn covers_labels(
        &self,
        namespace: &str,
        labels: &BTreeMap<String, String>,
        inherited: Option<Mode>,
    ) -> Covered {
        let cause = match self.mode_of(namespace, labels, inherited) {
            Ok(mode) => return Covered::Yes(mode),
            Err(cause) => cause,
        };
        Covered::No(match cause {
            LeftAloneCause::UnknownMode => mistyped(labels),
            LeftAloneCause::ModeLabelled => NotCovered::ModeLabelled,
            LeftAloneCause::Selector => NotCovered::Selector(self.selector.clone()),
            LeftAloneCause::Namespace => {
                NotCovered::Namespace { namespace: namespace.to_owned(), namespaces: self.namespaces.clone() }
            }
        })
    }

    /// The mode in which a DaemonSet of the API runs here. `inherited`: as in [`Self::covers_labels`].
    ///
    /// # Errors
    /// The first cause why the configuration does not select it.
    pub fn mode_of(
        &self,
        namespace: &str,
        labels: &BTreeMap<String, String>,
        inherited: Option<Mode>,
    ) -> Result<Mode, LeftAloneCause> {
        let mode = match Mode::of(labels) {
            None if labels.contains_key(MODE_LABEL) => return Err(LeftAloneCause::UnknownMode),
            mode => mode.or(inherited).or(self.default_mode).ok_or(LeftAloneCause::ModeLabelled)?,
        };
        if !self.allows_namespace(namespace) {
            return Err(LeftAloneCause::Namespace);
        }
        match inherited.is_some() || self.selector.matches(labels) {
            true => Ok(mode),
            false => Err(LeftAloneCause::Selector),
        }
    }

    /// Whether the configured selector leaves out `daemon_set`: the API server is not asked for it.
    pub fn hides(&self, daemon_set: &DaemonSet) -> bool {
        !self.selector.matches(&daemon_set.labels)
    }

    /// What to do so that this node runs the DaemonSet `key` of the API, which it does not for `cause`.
    pub fn selecting(&self, key: &ObjectKey, cause: LeftAloneCause) -> String {
        let ObjectKey { namespace, name } = key;
        let label = format!("kubectl -n {namespace} label --overwrite daemonset {name} {MODE_LABEL}=static");
        let mut steps = match cause {
            LeftAloneCause::ModeLabelled => vec![format!("to run it here: {label}")],
            LeftAloneCause::UnknownMode => vec![respelt(key)],
            LeftAloneCause::Selector => vec![format!("to run it here: label it as selector {} wants", self.selector)],
            LeftAloneCause::Namespace => Vec::new(),
        };
        if !self.allows_namespace(namespace) {
            let begin = if steps.is_empty() { "to run it here: " } else { "" };
            steps.push(format!("{begin}add {namespace:?} to policy.namespaces in this node's configuration"));
        }
        steps.join("; and ")
    }

    /// Whether DaemonSets of the API in `namespace` may run here.
    pub fn allows_namespace(&self, namespace: &str) -> bool {
        self.namespaces.iter().any(|allowed| allowed == "*" || allowed == namespace)
    }
}

/// Errors, if there are any.
fn some(errors: &[FieldError]) -> Option<Vec<FieldError>> {
    (!errors.is_empty()).then(|| errors.to_vec())
}

/// A DaemonSet as this program may run it: valid for the API server, and with a mode label that it knows. An unknown
/// value does not count as an absent label: what runs would end by a typing error.
///
/// # Errors
/// Every field that is refused.
pub fn checked(value: &Value, source: Source) -> Result<DaemonSet, Vec<FieldError>> {
    let daemon_set = validate::daemon_set(value, source)?;
    match is_mistyped(&daemon_set.labels) {
        false => Ok(daemon_set),
        true => Err(vec![FieldError {
            field: format!("metadata.labels[{MODE_LABEL}]"),
            reason: format!("{:?} is neither static nor bootstrap", daemon_set.labels[MODE_LABEL]),
            hint: Some(match daemon_set.source {
                Source::File { .. } => "write one of the two, or leave the label out: then it is static".to_owned(),
                Source::Api => "write one of the two, or remove the label".to_owned(),
            }),
        }]),
    }
}

/// Whether the mode label has an unknown value.
pub fn is_mistyped(labels: &BTreeMap<String, String>) -> bool {
    labels.get(MODE_LABEL).is_some_and(|value| is_no_mode(value))
}

/// Whether this value of the mode label is unknown.
pub fn is_no_mode(value: &str) -> bool {
    !matches!(value, "static" | "bootstrap")
}

/// What is wrong with a mode label that has an unknown value.
pub fn mistyped(labels: &BTreeMap<String, String>) -> NotCovered {
    NotCovered::UnknownMode(labels.get(MODE_LABEL).cloned().unwrap_or_default())
}

/// What to do about the mode label of the DaemonSet `key`, which has an unknown value.
pub fn respelt(ObjectKey { namespace, name }: &ObjectKey) -> String {
    format!(
        "the modes are static and bootstrap: kubectl -n {namespace} label --overwrite daemonset {name} {MODE_LABEL}=static"
    )
}

pub(crate) fn same_template(one: &DaemonSet, other: &DaemonSet) -> bool {
    one.template == other.template || canonical::template(&one.template) == canonical::template(&other.template)
}

#[cfg(test)]
mod tests;
