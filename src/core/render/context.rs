//! The state that the passes share: the input, and what they find.
//!
//! Owns look-ups: each is recorded as a reference, and absent objects as missing.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;
use sha2::Digest;
use sha2::Sha256;

use crate::core::bounds;
use crate::core::bounds::Bound;
use crate::core::model::FieldError;
use crate::core::model::Kind;
use crate::core::model::Lookup;
use crate::core::model::ObjectRef;
use crate::core::model::Source;
use crate::core::model::TokenRequest;
use crate::core::render::Missing;
use crate::core::render::Part;
use crate::core::render::RenderInput;
use crate::core::render::part::Obstacles;
use crate::core::render::payload;
use crate::core::volume::FileData;
use crate::core::volume::VolumeData;

/// What a file or variable counts beside its name and content, in bytes.
const PER_ENTRY: usize = 128;
/// What the files of volumes with tokens may hold however large the other data are, in bytes.
const WITH_TOKENS: usize = 1 << 20;
/// The ConfigMap with the cluster's CA in every namespace.
pub(super) const ROOT_CA: &str = "kube-root-ca.crt";

/// The bytes of a value; `None`: it is absent or not decodable.
type SharedValue = Option<FileData>;

/// A key of a ConfigMap or Secret in the daemon's namespace.
pub(super) struct DataKey<'k> {
    pub(super) kind: Kind,
    pub(super) object: &'k str,
    pub(super) key: &'k str,
}

/// The state of one rendering.
pub(super) struct RenderContext<'a> {
    pub(super) input: RenderInput<'a>,
    pub(super) references: BTreeSet<ObjectRef>,
    pub(super) tokens: BTreeSet<TokenRequest>,
    pub(super) waiting_for: BTreeSet<Missing>,
    /// What of that is known not to exist.
    pub(super) absent: BTreeSet<Missing>,
    pub(super) notes: Vec<FieldError>,
    pub(super) errors: Vec<FieldError>,
    pub(super) volumes: Vec<VolumeData>,
    /// The parts that something missing or refused holds back.
    pub(super) obstacles: Obstacles,
    data: Sha256,
    /// The values of ConfigMaps and Secrets in files: each is copied once, however many files have it.
    values: BTreeMap<(Kind, String, String), SharedValue>,
    /// How much more its files and variables may hold, in bytes.
    left: usize,
    /// How much of that its variables may hold.
    left_to_variables: usize,
    /// How much of [`WITH_TOKENS`] is left.
    left_with_tokens: usize,
    /// Whether the pod has a gate (`start_gate`).
    pub(super) has_gate: bool,
    /// Whether the pod has a field that the kubelet's version decides on, which is not known yet.
    pub(super) guesses_kubelet: bool,
}

impl<'a> RenderContext<'a> {
    pub(super) fn new(input: RenderInput<'a>) -> Self {
        let bound = bound(input);
        Self {
            input,
            references: BTreeSet::new(),
            tokens: BTreeSet::new(),
            waiting_for: BTreeSet::new(),
            absent: BTreeSet::new(),
            notes: Vec::new(),
            errors: Vec::new(),
            volumes: Vec::new(),
            obstacles: Obstacles::default(),
            data: Sha256::new(),
            values: BTreeMap::new(),
            left: bound.data,
            left_to_variables: bound.environment,
            left_with_tokens: WITH_TOKENS,
            has_gate: false,
            guesses_kubelet: false,
        }
    }

    /// From here on `part` is rendered: a missing or refused object holds it back.
    pub(super) fn begin(&mut self, part: Part) {
        self.obstacles.part = part;
    }

    /// The namespace of the daemon.
    pub(super) fn namespace(&self) -> &'a str {
        &self.input.daemon_set.key.namespace
    }

    /// Whether the DaemonSet was read from a folder.
    pub(super) fn is_from_folder(&self) -> bool {
        matches!(self.input.daemon_set.source, Source::File { .. })
    }

    /// What is known of an object in the daemon's namespace; records the reference. A deleted object counts with its
    /// last content.
    pub(super) fn look_up(&mut self, kind: Kind, name: &str) -> Lookup<'a> {
        self.look_up_in(kind, self.namespace(), name)
    }

    /// As [`Self::look_up`], in another namespace.
    pub(super) fn look_up_in(&mut self, kind: Kind, namespace: &str, name: &str) -> Lookup<'a> {
        let reference = ObjectRef::new(kind, namespace, name);
        match self.look_up_raw(reference) {
            Lookup::Deleted(object) => Lookup::Present(object),
            other => other,
        }
    }

    fn look_up_raw(&mut self, reference: ObjectRef) -> Lookup<'a> {
        let lookup = self.input.objects.lookup(&reference);
        self.references.insert(reference);
        lookup
    }

    /// A required ConfigMap or Secret; `None` if it is missing, or optional and absent.
    ///
    /// An unknown optional object is waited for if the DaemonSet comes from the API, as the kubelet does, unless what runs
    /// was made without it. A daemon from a folder must not wait for an API that may not exist; but what runs, and may have
    /// been made with it, keeps it.
    pub(super) fn data_object(&mut self, kind: Kind, name: &str, optional: bool) -> Option<&'a Value> {
        match self.look_up_raw(ObjectRef::new(kind, self.namespace(), name)) {
            Lookup::Present(object) => return Some(object),
            Lookup::Deleted(object) if !optional => {
                let field = format!("{kind} {}/{name}", self.namespace());
                self.note(field, "it was deleted; its last data stays in use", "");
                return Some(object);
            }
            Lookup::Absent | Lookup::Deleted(_) if optional => {}
            Lookup::Unknown if optional && self.may_be_without(kind, name) => {}
            Lookup::Absent | Lookup::Deleted(_) => self.lack(self.namespace(), kind, name, ""),
            Lookup::Unknown => {
                let missing = self.missing(kind.as_str(), self.namespace(), name, "");
                self.obstacles.miss_unconfirmed(missing.clone(), optional);
                self.waiting_for.insert(missing);
            }
        }
        self.record(kind, name, "", None);
        None
    }

    /// Requires the ServiceAccount `name` of a token: once the API server says that it is gone, its tokens are invalid. What
    /// runs keeps its own.
    pub(super) fn require_account(&mut self, name: &str) {
        match self.look_up_raw(ObjectRef::new(Kind::ServiceAccount, self.namespace(), name)) {
            Lookup::Deleted(_) => {
                let field = format!("{} {}/{name}", Kind::ServiceAccount, self.namespace());
                self.note(field, "it was deleted: its tokens are invalid", "");
            }
            Lookup::Absent if self.input.options.has_api => self.lack(self.namespace(), Kind::ServiceAccount, name, ""),
            Lookup::Present(_) | Lookup::Absent | Lookup::Unknown => {}
        }
    }

    /// Whether an optional object of which nothing is known counts as absent.
    fn may_be_without(&self, kind: Kind, name: &str) -> bool {
        let (objects, reference) = (self.input.objects, ObjectRef::new(kind, self.namespace(), name));
        objects.was_absent(&reference) || self.is_from_folder() && !objects.may_have_had(&reference)
    }

    /// Records that something in the daemon's namespace is missing.
    pub(super) fn miss(&mut self, kind: &str, name: &str, key: &str) {
        let namespace = self.namespace();
        self.miss_in(kind, namespace, name, key);
    }

    /// As [`Self::miss`], in another namespace (empty for cluster-scoped things).
    pub(super) fn miss_in(&mut self, kind: &str, namespace: &str, name: &str, key: &str) {
        let missing = self.missing(kind, namespace, name, key);
        self.obstacles.miss(missing.clone());
        self.waiting_for.insert(missing);
    }

    /// Records that an object, or a key in one, is missing and known not to exist.
    pub(super) fn lack(&mut self, namespace: &str, kind: Kind, name: &str, key: &str) {
        self.miss_in(kind.as_str(), namespace, name, key);
        self.absent.insert(self.missing(kind.as_str(), namespace, name, key));
    }

    /// Records that something is not known yet.
    pub(super) fn not_known(&mut self, missing: Missing) {
        self.obstacles.miss_unconfirmed(missing.clone(), false);
        self.waiting_for.insert(missing);
    }

    pub(super) fn missing(&self, kind: &str, namespace: &str, name: &str, key: &str) -> Missing {
        let [kind, namespace, name, key] = [kind, namespace, name, key].map(str::to_owned);
        Missing { kind, namespace, name, key }
    }

    /// Refuses `field`.
    pub(super) fn refuse(&mut self, field: impl Into<String>, reason: impl Into<String>, hint: &str) {
        let hint = Some(hint.to_owned()).filter(|hint| !hint.is_empty());
        let error = FieldError { field: field.into(), reason: reason.into(), hint };
        self.obstacles.refuse(error.clone());
        self.errors.push(error);
    }

    /// Notes what was left out or changed in `field`.
    pub(super) fn note(&mut self, field: impl Into<String>, reason: impl Into<String>, hint: &str) {
        let hint = Some(hint.to_owned()).filter(|hint| !hint.is_empty());
        self.notes.push(FieldError { field: field.into(), reason: reason.into(), hint });
    }

    /// Adds a used value to the data version, except the cluster's CA, which is not the daemon's configuration.
    pub(super) fn record(&mut self, kind: Kind, name: &str, key: &str, value: Option<&[u8]>) {
        if name == ROOT_CA {
            return;
        }
        for part in [kind.as_str().as_bytes(), name.as_bytes(), key.as_bytes(), value.unwrap_or_default()] {
            self.data.update((part.len() as u64).to_le_bytes());
            self.data.update(part);
        }
        self.data.update([u8::from(value.is_some())]);
    }

    /// The value of `key` in `object`, the ConfigMap or Secret `name`.
    pub(super) fn shared(&mut self, kind: Kind, name: &str, key: &str, object: &Value) -> SharedValue {
        let (namespace, objects) = (self.namespace(), self.input.objects);
        let shared = || objects.shared(&ObjectRef::new(kind, namespace, name));
        let value = self.values.entry((kind, name.to_owned(), key.to_owned()));
        value.or_insert_with(|| payload::file_data(kind, object, key, shared)).clone()
    }

    /// As [`Self::spend`] for a file of a volume with a token: data of other volumes hold no token back.
    pub(super) fn spend_with_token(&mut self, bytes: usize, field: &str) -> bool {
        if let Some(left) = self.left_with_tokens.checked_sub(bytes + PER_ENTRY) {
            self.left_with_tokens = left;
            return true;
        }
        self.spend(bytes, field)
    }

    /// Whether the pod may hold a further file or variable of `bytes`, which `field` requests; refused if not.
    pub(super) fn spend(&mut self, bytes: usize, field: &str) -> bool {
        if let Some(left) = self.left.checked_sub(bytes + PER_ENTRY) {
            self.left = left;
            return true;
        }
        self.left = 0;
        if !self.obstacles.is_refused() {
            let bound = bound(self.input);
            let reason = format!("the files and variables of the pod have more than {} bytes together", bound.data);
            self.refuse(field, reason, &bound.hint());
        }
        false
    }

    /// As [`Self::spend`] for a variable of which `field` requests `bytes` from a key of a ConfigMap or Secret.
    pub(super) fn spend_on_variable(&mut self, bytes: usize, field: &str, from: &DataKey<'_>) -> bool {
        if let Some(left) = self.left_to_variables.checked_sub(bytes + PER_ENTRY) {
            self.left_to_variables = left;
            return self.spend(bytes, field);
        }
        self.left_to_variables = 0;
        if !self.obstacles.is_refused() {
            let bound = bound(self.input);
            let DataKey { kind, object, key } = from;
            let reason = format!(
                "with the key {key:?} of {kind} {}/{object} the variables that the pod has from ConfigMaps and Secrets \
                 have more than {} bytes together",
                self.namespace(),
                bound.environment
            );
            self.refuse(field, reason, &format!("mount it as a volume, {}", bound.hint()));
        }
        false
    }

    /// Whether a further variable may have anything; refused as by [`Self::spend_on_variable`] if not. Then its value need
    /// not be read.
    pub(super) fn has_room_for_variable(&mut self, field: &str, from: &DataKey<'_>) -> bool {
        self.left_to_variables >= PER_ENTRY || self.spend_on_variable(0, field, from)
    }

    /// The data version: 16 hex digits over everything recorded.
    pub(super) fn data_version(&self) -> String {
        self.data.clone().finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The bounds of the DaemonSet.
pub(super) fn bound(input: RenderInput<'_>) -> &'static Bound {
    bounds::of(&input.daemon_set.key.namespace, input.daemon_set.author(), &input.options.rules)
}
