//! What folders and API define, in the form that planning takes.
//!
//! Owns the last definition that each pass saw and the confirmations that removals need. Must not decide:
//! `crate::core::sources` does.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::core::model::DaemonSet;
use crate::core::model::ObjectKey;
use crate::core::policy::Covered;
use crate::core::policy::Policy;
use crate::core::sources::ApiState;
use crate::core::sources::RefusedVersion;
use crate::node::api::Converted;
use crate::node::api::Presence;
use crate::node::api::Snapshot;
use crate::node::api::Unusable;

use super::records::Records;

/// The daemons of which something runs.
pub(super) fn running(records: &Records) -> BTreeSet<ObjectKey> {
    records.values().filter(|record| record.runs()).map(|record| record.key.clone()).collect()
}

/// The API's DaemonSets.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) struct ApiDefinitions {
    converted: BTreeMap<ObjectKey, (u64, Converted)>,
}

impl ApiDefinitions {
    /// Follows the API's view.
    pub(super) fn update(&mut self, api: &Snapshot) {
        self.converted.retain(|key, _| api.daemon_sets.contains_key(key));
        for (key, entry) in &api.daemon_sets {
            if self.converted.get(key).is_none_or(|(version, _)| *version != entry.version) {
                let known = self.converted.remove(key).map(|(_, known)| known);
                // What is known by its address (renderings) stays known while the definition is the same.
                let known = known.filter(|known| *known == entry.converted);
                let converted = known.unwrap_or_else(|| entry.converted.clone());
                self.converted.insert(key.clone(), (entry.version, converted));
            }
        }
    }

    /// The DaemonSets that are ours by label or policy, also those that are too large; not those that are invalid.
    pub(super) fn ours(&self, policy: &Policy) -> impl Iterator<Item = &ObjectKey> {
        let ours = |converted: &Converted| match converted {
            Ok(daemon_set) => matches!(policy.covers(daemon_set, None), Covered::Yes(_)),
            Err(Unusable::TooLarge(too_large)) => matches!(too_large.covered, Covered::Yes(_)),
            Err(Unusable::Invalid(_)) => false,
        };
        self.converted.iter().filter(move |(_, (_, c))| ours(c)).map(|(key, _)| key)
    }

    /// The definition of `key`, if the API has a usable one.
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Arc<DaemonSet>> {
        self.converted.get(key).and_then(|(_, c)| c.as_ref().ok())
    }

    /// Why what the API has of `key` cannot be used, if it cannot.
    pub(super) fn refused(&self, key: &ObjectKey) -> Option<&Unusable> {
        self.converted.get(key).and_then(|(_, c)| c.as_ref().err())
    }

    pub(super) fn api_state(&self, key: &ObjectKey, api: &Snapshot) -> ApiState<'_> {
        match (self.converted.get(key), api.presence(key)) {
            (Some((_, Ok(daemon_set))), _) => ApiState::Present(daemon_set),
            (Some((_, Err(Unusable::Invalid(errors)))), _) => ApiState::Invalid(match api.is_mistyped(key) {
                true => RefusedVersion::Mistyped(errors.clone()),
                false => RefusedVersion::Invalid(errors.clone()),
            }),
            (Some((_, Err(Unusable::TooLarge(too_large)))), _) => ApiState::TooLarge(too_large),
            (None, Presence::Deleted { orphan: true, .. }) => ApiState::Orphaned,
            (None, Presence::Deleted { .. }) => ApiState::Absent { by_event: true },
            (None, Presence::ListedAbsent { .. }) => ApiState::Absent { by_event: false },
            (None, Presence::NotSelected) => ApiState::Unread,
            (None, Presence::Unknown | Presence::Present(_)) => ApiState::Unknown,
        }
    }

    /// What a GET is about: the version that is not covered, or 0 for an absence.
    pub(super) fn version(&self, key: &ObjectKey) -> u64 {
        self.converted.get(key).map_or(0, |(version, _)| *version)
    }
}
