//! A DaemonSet as an agent reads it.

use std::cell::RefCell;
use std::collections::BTreeMap;

use daemonlet::core::cluster::history;
use daemonlet::core::cluster::released::RolloutStatus;
use daemonlet::core::json::Json;
use daemonlet::core::model::FIRST_INSTALL;
use daemonlet::core::model::MODE_LABEL;
use daemonlet::core::model::PAUSED;
use serde_json::Value;

thread_local! {
    /// The hash of each template, by its image.
    static HASHES: RefCell<BTreeMap<String, String>> = const { RefCell::new(BTreeMap::new()) };
}

/// What an agent reads of a DaemonSet.
pub(super) struct Definition {
    pub(super) uid: String,
    pub(super) template: Value,
    pub(super) hash: String,
    pub(super) is_bad: bool,
    pub(super) generation: i64,
    pub(super) status: RolloutStatus,
    has_first_install: bool,
    pub(super) is_paused: bool,
    pub(super) is_ours: bool,
    /// Whether a new instance starts beside the old one.
    pub(super) surges: bool,
}

impl Definition {
    pub(super) fn of(daemon: &Value) -> Self {
        let template = daemon["spec"]["template"].clone();
        let (hash, is_bad) = definition(&template);
        let generation = daemon.at(["metadata", "generation"]).and_then(Value::as_i64).unwrap_or(0);
        let annotations = &daemon["metadata"]["annotations"];
        Self {
            uid: daemon.str_at(["metadata", "uid"]).to_owned(),
            template,
            hash,
            is_bad,
            generation,
            status: status(daemon, generation),
            has_first_install: annotations.get(FIRST_INSTALL).is_some(),
            is_paused: annotations[PAUSED] == "true",
            surges: daemon["spec"]["updateStrategy"]["rollingUpdate"]["maxSurge"] != 0,
            is_ours: daemon["metadata"]["labels"][MODE_LABEL] == "static",
        }
    }

    /// Whether first instances start only with the coordinator's approval.
    pub(super) fn needs_approval(&self) -> bool {
        self.has_first_install && self.status.released.is_none()
    }
}

/// What the status of a DaemonSet says of its rollouts.
pub(super) fn status(daemon: &Value, generation: i64) -> RolloutStatus {
    RolloutStatus::of(daemon.get("status").unwrap_or(&Value::Null), generation)
}

/// The template that a DaemonSet or a ControllerRevision has, and whether its pods never get ready.
pub(super) fn definition(template: &Value) -> (String, bool) {
    let image = template["spec"]["containers"][0]["image"].as_str().unwrap_or_default();
    // Nothing else of it differs, and hashes take most of a life.
    let hash = || history::RevisionFact::hash_of(&history::data(template));
    let hash = HASHES.with_borrow_mut(|known| known.entry(image.to_owned()).or_insert_with(hash).clone());
    (hash, image.starts_with("bad"))
}

/// Whether a definition is refused: then nothing of it counts.
pub(super) fn is_refused(daemon: &Value) -> bool {
    let mode = daemon["metadata"]["labels"].get(MODE_LABEL).and_then(Value::as_str);
    let selected = &daemon["spec"]["selector"]["matchLabels"];
    mode.is_some_and(|mode| !["static", "bootstrap"].contains(&mode))
        || *selected != daemon["spec"]["template"]["metadata"]["labels"]
}

/// Whether first instances start only with the coordinator's approval.
pub(crate) fn needs_approval(daemon: &Value) -> bool {
    Definition::of(daemon).needs_approval()
}

/// The hash of a template.
pub(crate) fn hash_of(template: &Value) -> String {
    definition(template).0
}
