//! ControllerRevisions. Those of DaemonSets that are known whole, and orphans that one of these selects, are kept
//! whole; of any other only what shows its owner.
//!
//! Owns how much is kept of each, and which are to be read whole when their DaemonSet comes to be known. No label of a
//! template is kept but an orphan's, and of these no more than [`LABELS`].

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;
use serde_json::json;

use crate::core::cluster::broken::BROKEN_ANNOTATION;
use crate::core::cluster::broken::BrokenNodes;
use crate::core::cluster::history;
use crate::core::cluster::history::RevisionFact;
use crate::core::cluster::history::RevisionHolder;
use crate::core::cluster::released::HALTED_ANNOTATION;
use crate::core::cluster::released::Halted;
use crate::core::cluster::released::RELEASED_ANNOTATION;
use crate::core::cluster::released::RETRIED_ANNOTATION;
use crate::core::cluster::steps::STEP_ANNOTATION;
use crate::core::field_filter;
use crate::core::json::Json;
use crate::core::model::DaemonSet;
use crate::core::model::HASH_LABEL;
use crate::core::model::ObjectKey;
use crate::core::validate;

use super::ClusterSnapshot;
use super::WatchedDaemon;
use super::WatchedKind;
use super::objects;
use super::objects::strings;

/// No generation is as high: JSON's numbers end there.
const MOST_GENERATIONS: i64 = 1 << 53;

/// The labels of an orphan have no more bytes, as JSON; one that has more is taken over by no DaemonSet.
const LABELS: usize = 4 << 10;
/// What is read of one annotation, in bytes.
const ANNOTATION: usize = 64 << 10;

/// A ControllerRevision.
#[derive(Clone, Debug)]
pub struct KnownRevision {
    /// As decisions see it.
    pub revision: RevisionFact,
    /// UID of its controller, if it has one.
    pub controller: Option<String>,
    /// Its owners that are not its controller.
    pub other_owners: Vec<Value>,
    /// Whether the selector of its controller matches its labels.
    is_selected: bool,
    /// Its labels, if it has no controller.
    labels: BTreeMap<String, String>,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
}

/// A ControllerRevision of another owner, or an orphan that no DaemonSet selects.
#[derive(Clone, Debug)]
pub(super) struct RevisionOutline {
    version: u64,
    /// UID of its controller, if it has one.
    controller: Option<Box<str>>,
    /// The DaemonSet that its controller is by name, if it is one.
    daemon_set: Option<Box<str>>,
    /// The labels of an orphan, as JSON; none if there are too many.
    labels: Option<Box<str>>,
    /// Whether only its identity is known, because of its size: any DaemonSet may own it.
    is_of_unknown: bool,
}

impl KnownRevision {
    /// Whether the selector of `daemon`, which is its controller unless it has none, matches its labels.
    pub(in crate::core::cluster) fn is_selected_by(&self, daemon: &WatchedDaemon) -> bool {
        match &self.controller {
            Some(_) => self.is_selected,
            None => validate::selects(&daemon.daemon_set.selector, &self.labels),
        }
    }

    fn outline(&self, name: &str) -> RevisionOutline {
        RevisionOutline {
            version: objects::number(&self.resource_version),
            controller: self.controller.as_deref().map(Box::from),
            daemon_set: self.controller.is_some().then(|| Box::from(name)),
            labels: self.controller.is_none().then(|| json!(self.labels).to_string().into_boxed_str()),
            is_of_unknown: false,
        }
    }
}

impl RevisionOutline {
    fn of(object: &Value) -> Self {
        let controller = controller(object);
        let of_owner = |field: &str| controller.and_then(|owner| owner.text_at(field)).map(Box::from);
        let is_daemon_set = controller.is_some_and(|owner| owner.str_at("kind") == "DaemonSet");
        let labels = || object.at(["metadata", "labels"]).map_or_else(|| "{}".to_owned(), Value::to_string);
        Self {
            version: objects::version(object),
            controller: controller.map(|owner| Box::from(owner.str_at("uid"))),
            daemon_set: of_owner("name").filter(|_| is_daemon_set),
            labels: controller
                .is_none()
                .then(labels)
                .filter(|labels| labels.len() <= LABELS)
                .map(String::into_boxed_str),
            is_of_unknown: field_filter::is_too_large(object),
        }
    }

    /// Whether it belongs to the history of `daemon`, or may, as far as is known.
    fn is_of(&self, daemon: &WatchedDaemon) -> bool {
        match (&self.controller, &self.labels) {
            _ if self.is_of_unknown => true,
            (Some(uid), _) => **uid == *daemon.uid,
            (None, Some(labels)) => {
                let labels = serde_json::from_str(labels).unwrap_or_default();
                validate::selects(&daemon.daemon_set.selector, &labels)
            }
            (None, None) => false,
        }
    }
}

fn controller(object: &Value) -> Option<&Value> {
    object.list_at(["metadata", "ownerReferences"]).iter().find(|owner| owner.flag_at("controller"))
}

impl ClusterSnapshot {
    /// Takes a revision, whole or its metadata alone. Of the latter it is read whole if it is of a DaemonSet that is
    /// known.
    pub(super) fn put_revision(&mut self, object: &Value) {
        if object.get("data").is_some() {
            return self.put_whole_revision(object);
        }
        let key = objects::key(object);
        let is_known = self.revisions.get(&key).is_some_and(|known| {
            let of = |field: &str| object.str_at(["metadata", field]);
            (known.uid.as_str(), known.resource_version.as_str()) == (of("uid"), of("resourceVersion"))
        });
        if is_known {
            return;
        }
        self.remove_revision(&key);
        let outline = RevisionOutline::of(object);
        if self.daemons_in(&key.namespace).any(|daemon| outline.is_of(daemon)) {
            self.unread.insert((WatchedKind::Revisions, key.clone()));
        }
        self.revision_outlines.insert(key, outline);
    }

    fn put_whole_revision(&mut self, object: &Value) {
        let key = objects::key(object);
        self.remove_revision(&key);
        let outline = RevisionOutline::of(object);
        let of =
            self.daemons_in(&key.namespace).find(|daemon| outline.is_of(daemon)).map(|daemon| whole(object, daemon));
        match of {
            Some(known) => drop(self.revisions.insert(key, known)),
            None => drop(self.revision_outlines.insert(key, outline)),
        }
    }

    /// Takes the answer to a GET, unless a later state of the revision has been seen.
    pub(super) fn take_read_revision(&mut self, object: &Value) {
        let known = self.revision_outlines.get(&objects::key(object));
        if known.is_some_and(|known| objects::version(object) >= known.version) {
            self.put_whole_revision(object);
        }
    }

    pub(super) fn remove_revision(&mut self, key: &ObjectKey) {
        self.revisions.remove(key);
        self.revision_outlines.remove(key);
        self.unread.remove(&(WatchedKind::Revisions, key.clone()));
    }

    /// Takes a DaemonSet whose definition was `before`. If it was not known, or selected others, its revisions are read.
    pub(super) fn insert_daemon(&mut self, key: ObjectKey, daemon: WatchedDaemon, before: Option<&DaemonSet>) {
        let is_known = before.is_some_and(|before| {
            before.uid.as_ref() == Some(&daemon.uid) && before.selector == daemon.daemon_set.selector
        });
        self.take_out(&key);
        self.taken.add(&key.namespace, daemon.weight);
        self.daemons.insert(key.clone(), daemon);
        if is_known {
            return;
        }
        self.let_revisions_go(&key);
        let Some(daemon) = self.daemons.get(&key) else { return };
        let its = in_namespace(&self.revision_outlines, &key.namespace).filter(|(_, outline)| outline.is_of(daemon));
        self.unread.extend(its.map(|(of, _)| (WatchedKind::Revisions, of.clone())));
    }

    /// Whether the DaemonSet was known whole.
    pub(super) fn remove_daemon(&mut self, key: &ObjectKey) -> bool {
        let was_known = self.take_out(key).is_some();
        if was_known {
            self.let_revisions_go(key);
            self.let_in(&key.namespace);
            self.use_room();
        }
        was_known
    }

    /// Keeps only outlines of the revisions that were of a DaemonSet, and reads none of them any more.
    fn let_revisions_go(&mut self, of: &ObjectKey) {
        let is_its = |known: &KnownRevision| match &known.controller {
            Some(uid) => !self.daemons_in(&of.namespace).any(|other| other.daemon_set.key != *of && other.uid == *uid),
            None => !self.daemons_in(&of.namespace).any(|daemon| known.is_selected_by(daemon)),
        };
        let its: Vec<ObjectKey> = in_namespace(&self.revisions, &of.namespace)
            .filter(|(_, known)| is_its(known))
            .map(|(key, _)| key.clone())
            .collect();
        for key in its {
            if let Some(known) = self.revisions.remove(&key) {
                self.revision_outlines.insert(key, known.outline(&of.name));
            }
        }
        let unread: Vec<_> = self.unread_revisions(&of.namespace).map(|(key, _)| key.clone()).collect();
        for key in unread {
            let outline = self.revision_outlines.get(&key);
            let is_wanted = self.daemons_in(&of.namespace).any(|daemon| outline.is_some_and(|o| o.is_of(daemon)));
            if !is_wanted {
                self.unread.remove(&(WatchedKind::Revisions, key));
            }
        }
    }

    /// The DaemonSets whose revisions are to be read before anything is decided about them.
    pub(in crate::core::cluster) fn with_unread_revisions(&self) -> BTreeSet<&ObjectKey> {
        let revisions = self.unread.iter().filter(|(kind, _)| *kind == WatchedKind::Revisions);
        let outlines = revisions.filter_map(|(_, key)| Some((key, self.revision_outlines.get(key)?)));
        // A tenant may have very many, so one of each owner is examined.
        let mut seen = BTreeSet::new();
        let of = outlines.filter(|(key, outline)| match &outline.controller {
            Some(uid) => seen.insert((&*key.namespace, &**uid)),
            None => true,
        });
        of.flat_map(|(key, outline)| self.daemons_in(&key.namespace).filter(move |daemon| outline.is_of(daemon)))
            .map(|daemon| &daemon.daemon_set.key)
            .collect()
    }

    /// The names of other owners' revisions in its namespace that begin as those of its own do.
    pub(in crate::core::cluster) fn others_revisions<'a>(
        &'a self,
        of: &'a ObjectKey,
    ) -> impl Iterator<Item = (&'a str, RevisionHolder)> {
        let prefix = history::prefix(&of.name);
        let from = ObjectKey::new(&of.namespace, prefix);
        let is_like = move |key: &ObjectKey| key.namespace == of.namespace && key.name.starts_with(prefix);
        self.revision_outlines.range(from..).take_while(move |(key, _)| is_like(key)).map(|(key, outline)| {
            let is_former = outline.daemon_set.as_deref() == Some(&of.name);
            (key.name.as_str(), if is_former { RevisionHolder::Former } else { RevisionHolder::Other })
        })
    }

    pub(super) fn daemons_in(&self, namespace: &str) -> impl Iterator<Item = &WatchedDaemon> {
        in_namespace(&self.daemons, namespace).map(|(_, daemon)| daemon)
    }

    fn unread_revisions<'a>(
        &'a self,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a ObjectKey, &'a RevisionOutline)> {
        self.unread_in(WatchedKind::Revisions, namespace)
            .filter_map(|(_, key)| Some((key, self.revision_outlines.get(key)?)))
    }
}

pub(super) fn in_namespace<'a, T>(
    all: &'a BTreeMap<ObjectKey, T>,
    namespace: &str,
) -> impl Iterator<Item = (&'a ObjectKey, &'a T)> {
    let from = ObjectKey::new(namespace, "");
    all.range(from..).take_while(move |(key, _)| key.namespace == namespace)
}

/// A revision of `daemon`, or an orphan that it selects.
fn whole(object: &Value, daemon: &WatchedDaemon) -> KnownRevision {
    let data = &object["data"];
    let owners = object.list_at(["metadata", "ownerReferences"]);
    let controller = controller(object).map(|owner| owner.str_at("uid").to_owned());
    let labels = strings(object, "labels");
    let annotation = |name: &str| object.at(["metadata", "annotations", name])?.as_str().map(beginning);
    let mark = annotation(RELEASED_ANNOTATION).and_then(|mark| mark.split_once('/'));
    let released = |is_its: bool| {
        let (_, generation) = mark.filter(|(uid, _)| (*uid == daemon.uid) == is_its)?;
        generation.parse().ok().filter(|number| (0..MOST_GENERATIONS).contains(number))
    };
    let revision = RevisionFact {
        name: object.str_at(["metadata", "name"]).to_owned(),
        number: object.get("revision").and_then(Value::as_i64).unwrap_or(0),
        hash: RevisionFact::hash_of(data),
        data: history::digest(data),
        label: labels.get(HASH_LABEL).cloned(),
        owned: controller.is_some(),
        created: objects::time(object.str_at(["metadata", "creationTimestamp"])),
        halted: annotation(HALTED_ANNOTATION).map(Halted::of),
        step: annotation(STEP_ANNOTATION).map(str::to_owned),
        released: released(true),
        released_before: released(false),
        broken: annotation(BROKEN_ANNOTATION).map(BrokenNodes::of).unwrap_or_default(),
        retried: annotation(RETRIED_ANNOTATION).into_iter().flat_map(|t| t.split(',')).map(str::to_owned).collect(),
    };
    KnownRevision {
        revision,
        is_selected: validate::selects(&daemon.daemon_set.selector, &labels),
        labels: if controller.is_none() { labels } else { BTreeMap::new() },
        controller,
        other_owners: owners.iter().filter(|owner| !owner.flag_at("controller")).cloned().collect(),
        uid: object.str_at(["metadata", "uid"]).to_owned(),
        resource_version: object.str_at(["metadata", "resourceVersion"]).to_owned(),
    }
}

/// As much of an annotation as is read.
fn beginning(text: &str) -> &str {
    let end = (0..=text.len().min(ANNOTATION)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    text.get(..end).unwrap_or_default()
}
