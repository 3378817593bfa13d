//! A DaemonSet as the overview keeps it.
//!
//! Owns what is kept of it. Must not look at nodes.

use serde_json::Value;
use serde_json::json;

use crate::core::annotations::OURS;
use crate::core::bounds::VALUE;
use crate::core::bounds::object_weight;
use crate::core::cluster::history;
use crate::core::cluster::history::RevisionFact;
use crate::core::cluster::released::RolloutStatus;
use crate::core::json::Json;
use crate::core::model::DaemonSet;
use crate::core::model::Source;
use crate::core::placement;
use crate::core::validate;

/// A DaemonSet of the API.
#[derive(Clone, Debug)]
pub struct Daemon {
    /// As placement sees it: the rest of its template is left out.
    pub daemon_set: DaemonSet,
    /// The hash that agents give its template.
    pub revision: String,
    /// What its status says of its rollouts.
    pub rollout: RolloutStatus,
    /// The conditions of its status.
    pub conditions: Vec<Value>,
}

impl Daemon {
    /// What it takes in memory, in bytes.
    pub(super) fn weight(&self) -> usize {
        let texts = self.daemon_set.annotations.iter().chain(&self.daemon_set.labels);
        let texts: usize = texts.map(|(name, text)| name.len() + text.len() + VALUE).sum();
        let conditions: usize = self.conditions.iter().map(object_weight).sum();
        texts + conditions + object_weight(&self.daemon_set.template)
    }

    /// From the object; none: it is not understood. Of its template no more is kept than what placement reads.
    pub(super) fn of(mut value: Value) -> Option<Self> {
        let object = value.as_object_mut()?;
        let status = object.remove("status").unwrap_or_default();
        // Items of a list carry neither.
        object.insert("apiVersion".to_owned(), json!("apps/v1"));
        object.insert("kind".to_owned(), json!("DaemonSet"));
        let template = value.at(["spec", "template"])?;
        let revision = RevisionFact::hash_of(&history::data(template));
        let mut daemon_set = validate::daemon_set(&value, Source::Api).ok()?;
        daemon_set.template = placement::part_read(&daemon_set.template);
        daemon_set.selector = Value::Null;
        daemon_set.annotations.retain(|name, _| name.starts_with(OURS));
        let rollout = RolloutStatus::of(&status, daemon_set.generation.unwrap_or(0));
        let conditions = status.list_at("conditions").to_vec();
        Some(Self { daemon_set, revision, rollout, conditions })
    }

    /// The condition of this type, if it is so.
    pub(super) fn condition(&self, kind: &str, is_so: fn(&Value) -> bool) -> Option<&Value> {
        self.conditions.iter().find(|c| c.str_at("type") == kind).filter(|c| is_so(c))
    }
}
