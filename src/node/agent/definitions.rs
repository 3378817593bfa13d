//! What folders and API define, as the words that planning takes.
//!
//! Owns the last definition that each pass saw and the confirmations that removals need. Must not decide:
//! `crate::core::sources` does.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::core::model::DaemonSet;
use crate::core::model::ObjectKey;
use crate::core::policy::Covered;
use crate::core::policy::Policy;
use crate::core::record::DaemonRecord;
use crate::core::sources::ApiState;
use crate::core::sources::Confirmation;
use crate::core::sources::FolderState;
use crate::core::sources::KnownDefinition;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::node::api::Converted;
use crate::node::api::GetResult;
use crate::node::api::Presence;
use crate::node::api::Snapshot;
use crate::node::api::convert;

/// How long a GET that failed, or that contradicted the watch, is taken for an answer.
const ASK_AGAIN: Span = Span::from_secs(5);

/// The API's DaemonSets.
#[derive(Default)]
pub(super) struct ApiDefinitions {
    converted: BTreeMap<ObjectKey, (u64, Converted)>,
    confirmations: BTreeMap<ObjectKey, Asked>,
}

/// An answer to a GET, and what it was an answer about.
struct Asked {
    about: u64,
    at: Timestamp,
    /// `None` while the GET is under way.
    answer: Option<Confirmation>,
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
        // An absence that was confirmed says nothing of the next one, once the object has been back.
        let Self { converted, confirmations } = self;
        confirmations.retain(|key, asked| asked.about == subject(converted, key));
    }

    /// The DaemonSets that are ours by label or policy, and those that cannot be read.
    pub(super) fn ours(&self, policy: &Policy) -> impl Iterator<Item = &ObjectKey> {
        let ours = |converted: &Converted| match converted {
            Ok(daemon_set) => matches!(policy.covers(daemon_set, None), Covered::Yes(_)),
            Err(_) => false,
        };
        self.converted.iter().filter(move |(_, (_, c))| ours(c)).map(|(key, _)| key)
    }

    /// The definition of `key`, if the API has a usable one.
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Arc<DaemonSet>> {
        self.converted.get(key).and_then(|(_, c)| c.as_ref().ok())
    }

    /// Why what the API has of `key` cannot be used, if it cannot.
    pub(super) fn refused(&self, key: &ObjectKey) -> Option<&str> {
        self.converted.get(key).and_then(|(_, c)| c.as_ref().err()).map(String::as_str)
    }

    fn api_state(&self, key: &ObjectKey, api: &Snapshot) -> ApiState<'_> {
        match (self.converted.get(key), api.presence(key)) {
            (Some((_, Ok(daemon_set))), _) => ApiState::Present(daemon_set),
            (Some((_, Err(reason))), _) => ApiState::Invalid { reason },
            (None, Presence::Deleted { orphan: true, .. }) => ApiState::Orphaned,
            (None, Presence::Deleted { .. }) => ApiState::Absent { by_event: true },
            (None, Presence::ListedAbsent { .. }) => ApiState::Absent { by_event: false },
            (None, Presence::Unknown | Presence::Present(_)) => ApiState::Unknown,
        }
    }

    /// What is known of `key`; `api` is `None` without an API.
    pub(super) fn known<'a>(
        &'a self,
        key: &ObjectKey,
        api: Option<&Snapshot>,
        folder: FolderState<'a>,
        remembered: Option<&'a Arc<DaemonSet>>,
        now: Timestamp,
    ) -> KnownDefinition<'a> {
        let api_state = api.map_or(ApiState::None, |api| self.api_state(key, api));
        let confirmation = match self.confirmations.get(key) {
            Some(asked) if asked.about == subject(&self.converted, key) => asked.api_state(now),
            _ => Confirmation::Unasked,
        };
        KnownDefinition { folder, api: api_state, remembered, confirmation }
    }

    /// Whether a GET is to be sent; then it counts as sent.
    pub(super) fn ask(&mut self, key: &ObjectKey, now: Timestamp) -> Option<u64> {
        let about = subject(&self.converted, key);
        let fresh = self.confirmations.get(key).is_some_and(|asked| {
            asked.about == about && (asked.answer.is_none() || asked.api_state(now) != Confirmation::Unasked)
        });
        if fresh {
            return None;
        }
        self.confirmations.insert(key.clone(), Asked { about, at: now, answer: None });
        Some(about)
    }

    /// The answer to a GET has come. One to a question that nobody has any more is dropped.
    pub(super) fn answered(&mut self, key: &ObjectKey, about: u64, answer: Confirmation, now: Timestamp) {
        if let Some(asked) = self.confirmations.get_mut(key).filter(|asked| asked.about == about) {
            *asked = Asked { about, at: now, answer: Some(answer) };
        }
    }

    /// When a GET is due again, for the earliest of those that gave no lasting answer.
    pub(super) fn ask_again_at(&self) -> Option<Timestamp> {
        let passing = |asked: &&Asked| matches!(asked.answer, Some(Confirmation::Failed(_) | Confirmation::StillThere));
        self.confirmations.values().filter(passing).map(|asked| asked.at + ASK_AGAIN).min()
    }

    /// Drops answers about daemons that nobody asks about any more, and about what has changed since.
    pub(super) fn forget_answers(&mut self, keep: impl Fn(&ObjectKey) -> bool) {
        let converted = &self.converted;
        let current = |key: &ObjectKey| converted.get(key).map_or(0, |(version, _)| *version);
        self.confirmations.retain(|key, asked| keep(key) && asked.about == current(key));
    }
}

impl Asked {
    fn api_state(&self, now: Timestamp) -> Confirmation {
        match &self.answer {
            Some(Confirmation::Failed(_) | Confirmation::StillThere) if now - self.at >= ASK_AGAIN => {
                Confirmation::Unasked
            }
            Some(answer) => answer.clone(),
            None => Confirmation::Unasked,
        }
    }
}

/// What a GET is about: the version that is not covered, or 0 for an absence.
fn subject(converted: &BTreeMap<ObjectKey, (u64, Converted)>, key: &ObjectKey) -> u64 {
    converted.get(key).map_or(0, |(version, _)| *version)
}

/// What a GET's answer says of the daemon that `record` remembers. What cannot be read is there.
pub(super) fn confirm(live: GetResult, record: &DaemonRecord, policy: &Policy) -> Confirmation {
    let value = match live {
        GetResult::NotFound => return Confirmation::Gone,
        GetResult::Error(failure) => return Confirmation::Failed(failure.to_string()),
        GetResult::Object(value) => value,
    };
    let uid = value.pointer("/metadata/uid").and_then(serde_json::Value::as_str);
    if record.api_uid.is_some() && uid != record.api_uid.as_deref() {
        return Confirmation::Gone;
    }
    match convert(&value) {
        Ok(daemon_set) => match policy.covers(&daemon_set, None) {
            Covered::Yes(_) => Confirmation::StillThere,
            Covered::No(_) => Confirmation::NotCovered,
        },
        Err(_) => Confirmation::StillThere,
    }
}

#[cfg(test)]
mod tests;
