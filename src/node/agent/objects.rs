//! One view of the objects that daemons refer to, by the one precedence of [`crate::core::knowledge`].
//!
//! An object that is only unknown is never absent.

pub(super) mod rollback;
pub(super) mod tenant;

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::core::json::text_at;
use crate::core::knowledge::ApiAnswer;
use crate::core::knowledge::OVERRIDE_ANNOTATION;
use crate::core::knowledge::ObjectSources;
use crate::core::knowledge::Origin;
use crate::core::model::FieldError;
use crate::core::model::Kind;
use crate::core::model::Lookup;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;
use crate::core::model::ObjectSource;
use crate::core::pass::Plan;
use crate::core::plan::DaemonPlan;
use crate::core::plan::Note;
use crate::core::policy::Policy;
use crate::core::rendering::RenderResult;
use crate::node::api::Entry;
use crate::node::api::Scope;
use crate::node::api::Snapshot;

use super::observation::Observation;
use super::observed_folders::ObservedFolders;
use super::remembered_inputs::RememberedInputs;
use super::rollback_data;
use super::versioned_objects::Versioned;
use super::versioned_objects::VersionedObjects;

/// What one pass knows of them.
#[derive(Clone, Copy)]
pub(super) struct Objects<'a> {
    /// What the API server says; `None` without an API server.
    pub(super) api: Option<&'a Snapshot>,
    /// Objects from the folders.
    pub(super) folders: &'a Versioned,
    /// Objects in use as the API last had them, from the checkpoint and from earlier passes.
    pub(super) remembered: &'a Versioned,
    /// Objects that the API server last had and that are not kept.
    pub(super) unread: &'a BTreeSet<ObjectRef>,
    /// Objects that the API server last said to be gone.
    pub(super) absent: &'a BTreeSet<ObjectRef>,
    /// Those of folders that override and have given way to a newer version of the API's, with what their file was then.
    pub(super) superseded: &'a BTreeMap<ObjectRef, String>,
    /// Says which namespaces the API may speak for.
    pub(super) policy: &'a Policy,
    /// What was kept for a roll-back, for an instance that runs with it.
    pub(super) rollback_data: Option<&'a Versioned>,
    /// For an instance that runs: a deleted object is reported as deleted, with its last value.
    pub(super) live: bool,
    /// Whether it is for a daemon that runs or ran here: what it had may be newer than what a folder has.
    pub(super) has_run: bool,
    /// Whether all that an instance that runs was made with is remembered: what is not was not there.
    pub(super) had_all: bool,
    /// Whether something of its daemon runs, and what that was made with is not remembered: what is unknown may be in it.
    pub(super) is_in_doubt: bool,
    /// Whether sealed Secrets could not be opened yet, those of folders among them: none is absent.
    pub(super) is_closed: bool,
    /// Whether the folders may have objects that cannot be read now, and nothing remembers them: none is absent.
    pub(super) are_folders_unread: bool,
}

/// Which source counts; part of an object's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UsedSource {
    Source(Origin),
    Deleted,
    Absent,
    Unknown,
    Rollback,
    /// Unknown now, and not there when the instance was made.
    NotHad,
    /// Unknown now, and maybe there when the instance was made.
    InDoubt,
}

impl UsedSource {
    fn number(self) -> u64 {
        match self {
            UsedSource::Source(Origin::Api) => API,
            UsedSource::Source(Origin::Folder) => 2,
            UsedSource::Source(Origin::Remembered) => 3,
            UsedSource::Deleted => 4,
            UsedSource::Absent => 5,
            UsedSource::Unknown => 6,
            UsedSource::Rollback => 7,
            UsedSource::NotHad => 8,
            UsedSource::InDoubt => 9,
        }
    }
}

/// The number of [`Origin::Api`], and how many numbers there are.
const API: u64 = 1;
const NUMBERS: u64 = 16;

impl<'a> Objects<'a> {
    /// What the sources say in this pass.
    pub(super) fn today(observation: &'a Observation, inputs: &'a RememberedInputs, policy: &'a Policy) -> Self {
        Self {
            api: observation.snapshot(),
            folders: &observation.folders.objects,
            remembered: &inputs.objects,
            unread: &inputs.unread,
            absent: &inputs.absent,
            superseded: &inputs.superseded_objects,
            policy,
            rollback_data: None,
            live: false,
            has_run: false,
            had_all: false,
            is_in_doubt: false,
            is_closed: observation.seal.is_closed,
            are_folders_unread: false,
        }
    }

    /// The object as it is used, if it is known.
    pub(super) fn entry(&self, reference: &ObjectRef) -> Option<&'a Entry> {
        self.find(reference).1
    }

    /// The folder's object that is passed over, if the folders have one and another source counts.
    pub(super) fn passed_over(&self, reference: &ObjectRef) -> Option<Origin> {
        let (found, _) = self.find(reference);
        match found {
            UsedSource::Source(origin) if origin != Origin::Folder && self.folders.contains_key(reference) => {
                Some(origin)
            }
            _ => None,
        }
    }

    /// Whether the folder's object counts.
    pub(super) fn is_folders(&self, reference: &ObjectRef) -> bool {
        self.find(reference).0 == UsedSource::Source(Origin::Folder)
    }

    /// Whether an API server is configured and has not listed the object yet.
    pub(super) fn is_unlisted(&self, reference: &ObjectRef) -> bool {
        self.api.is_some_and(|api| api.lists(&Scope::Object(reference.clone())) == 0)
    }

    /// The Secrets of a rendering that may be sealed.
    pub(super) fn sealed<'r>(&self, rendering: &'r RenderResult) -> impl Iterator<Item = &'r ObjectRef> {
        let rendered = rendering.result.as_ref().ok();
        let references = rendered.into_iter().flat_map(|rendered| &rendered.pod.references);
        let secrets = references.filter(|reference| reference.kind == Kind::Secret);
        secrets.filter(|secret| matches!(self.lookup(secret), Lookup::Unknown))
    }

    fn find(&self, reference: &ObjectRef) -> (UsedSource, Option<&'a Entry>) {
        let rollback_data = self.rollback_data.and_then(|rollback_data| rollback_data.get(reference));
        if self.rollback_data.is_some() && rollback_data::is_pinned(reference) {
            // An optional object that was absent then counts as absent now.
            return rollback_data.map_or((UsedSource::Absent, None), |entry| (UsedSource::Rollback, Some(entry)));
        }
        match (self.now(reference), rollback_data) {
            ((UsedSource::Absent | UsedSource::Unknown | UsedSource::NotHad, None), Some(entry)) => {
                (UsedSource::Rollback, Some(entry))
            }
            ((UsedSource::Unknown, None), None) if self.is_in_doubt => (UsedSource::InDoubt, None),
            (found, _) => found,
        }
    }

    fn now(&self, reference: &ObjectRef) -> (UsedSource, Option<&'a Entry>) {
        let folder = self.folders.get(reference);
        let remembered = self.remembered.get(reference);
        let listed = |api: &Snapshot| api.lists(&Scope::Object(reference.clone())) > 0;
        let said = self.api.map_or(ApiAnswer::NotConfigured, |api| match api.objects.get(reference) {
            Some(entry) => ApiAnswer::Present(entry),
            None if api.lacks_room(reference).is_some() => ApiAnswer::Unread,
            None if listed(api) => ApiAnswer::Gone,
            None if self.unread.contains(reference) => ApiAnswer::Unread,
            // What it last said, as what is remembered of those that are there.
            None if self.absent.contains(reference) => ApiAnswer::Gone,
            None => ApiAnswer::Nothing,
        });
        let overrides = is_override(folder) && !self.superseded.contains_key(reference);
        // The remembered object may be newer than the folder's.
        let may_be_sealed = self.is_closed && reference.kind == Kind::Secret && remembered.is_none();
        let is_trusted = api_may_speak(self.policy, reference);
        let api_may_speak = folder.is_none() || is_trusted;
        if self.has_run && may_be_sealed && api_may_speak && !overrides && matches!(said, ApiAnswer::Nothing) {
            return (UsedSource::Unknown, None);
        }
        // The folders may have it, and then the API's does not count.
        if folder.is_none() && self.are_folders_unread && !is_trusted {
            return (UsedSource::Unknown, None);
        }
        let sources = ObjectSources {
            api: said,
            remembered,
            folder,
            overrides,
            is_newer: matches!((said, remembered), (ApiAnswer::Present(api), Some(old)) if api.value != old.value),
            api_may_speak,
        };
        if let Some((origin, entry)) = sources.choose() {
            return (UsedSource::Source(origin), Some(entry));
        }
        let may_be_there = self.is_closed && reference.kind == Kind::Secret || self.are_folders_unread;
        match (said, remembered) {
            // Also what starts does with its last data while the API server is not there to say it again.
            (ApiAnswer::Gone, Some(entry)) if self.live || self.is_unlisted(reference) => {
                (UsedSource::Deleted, Some(entry))
            }
            (ApiAnswer::NotConfigured | ApiAnswer::Gone, _) if !may_be_there => (UsedSource::Absent, None),
            (ApiAnswer::Nothing, None) if self.had_all && !may_be_there => (UsedSource::NotHad, None),
            _ => (UsedSource::Unknown, None),
        }
    }
}

/// Whether the API may speak for an object that the folders have. What it says reaches the host with their daemons, which no policy
/// binds: its namespace has to be trusted. What is in no namespace is not for its users to write.
pub(super) fn api_may_speak(policy: &Policy, reference: &ObjectRef) -> bool {
    let ObjectKey { namespace, name } = &reference.key;
    match reference.kind == Kind::Namespace {
        true => policy.allows_namespace(name),
        false => policy.allows_namespace(namespace) && (namespace.is_empty() || policy.rules().trusts(namespace)),
    }
}

/// Whether a folder has the object, and the node's owner gives that precedence.
pub(super) fn is_override(folder: Option<&Entry>) -> bool {
    let annotation =
        |entry: &Entry| text_at(&entry.value, &["metadata", "annotations", OVERRIDE_ANNOTATION]) == Some("true");
    folder.is_some_and(annotation)
}

/// Notes which of the `used` objects override, and have given way to a newer version of the API's. An object that the API server
/// has deleted has no newer version.
pub(super) fn note_superseded(
    observation: &Observation,
    inputs: &mut RememberedInputs,
    used: &BTreeSet<ObjectRef>,
    policy: &Policy,
) {
    let (folders, objects) = (&observation.folders, Objects::today(observation, inputs, policy));
    let is_deleted = |reference: &ObjectRef| {
        let is_absent = |api: &Snapshot| api.lookup(reference) == Lookup::Absent;
        inputs.objects.contains_key(reference) && observation.snapshot().is_some_and(is_absent)
    };
    let gave_way = |reference: &&ObjectRef| {
        is_override(folders.objects.get(*reference))
            && (objects.passed_over(reference) == Some(Origin::Api) || is_deleted(reference))
    };
    let file = |reference: &ObjectRef| Some((reference.clone(), folders.object_fingerprint(reference)?.to_owned()));
    let superseded: Vec<_> = used.iter().filter(gave_way).filter_map(file).collect();
    inputs.superseded_objects.extend(superseded);
}

/// Forgets those of them whose files have changed since then, or override no more. A file that cannot be read now is no
/// evidence.
pub(super) fn forget_superseded(folders: &ObservedFolders, superseded: &mut BTreeMap<ObjectRef, String>) {
    superseded.retain(|reference, file| match folders.object_fingerprint(reference) {
        Some(now) => now == file && is_override(folders.objects.get(reference)),
        None => folders.view.may_define_more(),
    });
}

impl ObjectSource for Objects<'_> {
    fn lookup(&self, reference: &ObjectRef) -> Lookup<'_> {
        match self.find(reference) {
            (UsedSource::Deleted, Some(entry)) => Lookup::Deleted(&entry.value),
            (_, Some(entry)) => Lookup::Present(&entry.value),
            (UsedSource::Unknown | UsedSource::NotHad | UsedSource::InDoubt, None) => Lookup::Unknown,
            (_, None) => Lookup::Absent,
        }
    }

    fn was_absent(&self, reference: &ObjectRef) -> bool {
        self.find(reference).0 == UsedSource::NotHad
    }

    fn may_have_had(&self, reference: &ObjectRef) -> bool {
        self.find(reference).0 == UsedSource::InDoubt
    }

    fn shared(&self, reference: &ObjectRef) -> Option<Arc<Value>> {
        self.entry(reference).map(|entry| Arc::clone(&entry.value))
    }
}

impl VersionedObjects for Objects<'_> {
    fn version(&self, reference: &ObjectRef) -> u64 {
        let (found, entry) = self.find(reference);
        entry.map_or(0, |e| e.version).wrapping_mul(NUMBERS).wrapping_add(found.number())
    }

    /// The store's version: it grows with every change in the API, which takes precedence over every other source. Objects of
    /// folders that override the API do not follow it.
    fn epoch(&self) -> u64 {
        // Data that was kept with a revision comes before it.
        match self.rollback_data.is_some() || !self.folders.is_empty() {
            true => 0,
            false => self.api.map_or(0, |api| api.version),
        }
    }

    fn follows_epoch(&self, version: u64) -> bool {
        version % NUMBERS == API
    }
}

/// Notes at each daemon the first of the objects that it names and that the API server does not let the agent read.
pub(super) fn note_refused(api: Option<&Snapshot>, plan: &mut Plan) {
    let refused = api.map(Snapshot::refused).unwrap_or_default();
    let of = |daemon: &DaemonPlan| {
        let (object, why) = refused.iter().find(|(object, _)| daemon.references.contains(**object))?;
        Some(Note::Field(FieldError {
            field: object.to_string(),
            reason: format!("the agent cannot read it: {why}; what runs keeps the data that it has"),
            hint: None,
        }))
    };
    if !refused.is_empty() {
        plan.daemons.iter_mut().for_each(|daemon| daemon.summary.notes.extend(of(daemon)));
    }
}

/// Whether the API server or a folder has yet to show which of the objects in use it has.
pub(super) fn is_unsaid(observation: &Observation, plan: &Plan) -> bool {
    let mut objects = plan.daemons.iter().flat_map(|daemon| &daemon.references);
    let is_unlisted = |api: &Snapshot| {
        let is_unlisted = |scope: Scope| api.lists(&scope) == 0;
        is_unlisted(Scope::DaemonSets)
            || is_unlisted(Scope::Node)
            || objects.any(|object| is_unlisted(Scope::Object(object.clone())))
    };
    let defines_more = |daemon: &DaemonPlan| observation.folders.may_define_more(daemon.summary.source.as_ref());
    observation.folders.view.is_unread()
        || plan.daemons.iter().any(defines_more)
        || observation.snapshot().is_some_and(is_unlisted)
}

#[cfg(test)]
mod tests;
