//! The state that the passes share: the input, and what they find.
//!
//! Owns look-ups: each is recorded as a reference, and absent objects as missing.

use std::collections::BTreeSet;

use serde_json::Value;
use sha2::Digest;
use sha2::Sha256;

use crate::core::model::FieldError;
use crate::core::model::Kind;
use crate::core::model::Lookup;
use crate::core::model::ObjectRef;
use crate::core::model::Source;
use crate::core::model::TokenRequest;
use crate::core::render::Missing;
use crate::core::render::RenderInput;
use crate::core::volume::VolumeData;

/// The ConfigMap with the cluster's CA in every namespace.
pub(super) const ROOT_CA: &str = "kube-root-ca.crt";

/// The state of one rendering.
pub(super) struct RenderContext<'a> {
    pub(super) input: RenderInput<'a>,
    pub(super) references: BTreeSet<ObjectRef>,
    pub(super) tokens: BTreeSet<TokenRequest>,
    pub(super) waiting_for: BTreeSet<Missing>,
    pub(super) notes: Vec<FieldError>,
    pub(super) errors: Vec<FieldError>,
    pub(super) volumes: Vec<VolumeData>,
    data: Sha256,
}

impl<'a> RenderContext<'a> {
    pub(super) fn new(input: RenderInput<'a>) -> Self {
        Self {
            input,
            references: BTreeSet::new(),
            tokens: BTreeSet::new(),
            waiting_for: BTreeSet::new(),
            notes: Vec::new(),
            errors: Vec::new(),
            volumes: Vec::new(),
            data: Sha256::new(),
        }
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
    /// An unknown optional object is waited for if the DaemonSet comes from the API, as the kubelet does. A daemon
    /// from a folder must not wait for an API that may not exist.
    pub(super) fn data_object(&mut self, kind: Kind, name: &str, optional: bool) -> Option<&'a Value> {
        match self.look_up_raw(ObjectRef::new(kind, self.namespace(), name)) {
            Lookup::Present(object) => return Some(object),
            Lookup::Deleted(object) if !optional => {
                let field = format!("{kind} {}/{name}", self.namespace());
                self.note(field, "it was deleted; its last data stays in use", "");
                return Some(object);
            }
            Lookup::Absent | Lookup::Deleted(_) if optional => {}
            Lookup::Unknown if optional && self.is_from_folder() => {}
            Lookup::Absent | Lookup::Deleted(_) | Lookup::Unknown => self.miss(kind.as_str(), name, ""),
        }
        self.record(kind, name, "", None);
        None
    }

    /// Records that something in the daemon's namespace is missing.
    pub(super) fn miss(&mut self, kind: &str, name: &str, key: &str) {
        let namespace = self.namespace();
        self.miss_in(kind, namespace, name, key);
    }

    /// As [`Self::miss`], in another namespace (empty for cluster-scoped things).
    pub(super) fn miss_in(&mut self, kind: &str, namespace: &str, name: &str, key: &str) {
        self.waiting_for.insert(Missing {
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            key: key.to_owned(),
        });
    }

    /// Refuses `field`.
    pub(super) fn refuse(&mut self, field: impl Into<String>, reason: impl Into<String>, hint: &str) {
        let hint = Some(hint.to_owned()).filter(|hint| !hint.is_empty());
        self.errors.push(FieldError { field: field.into(), reason: reason.into(), hint });
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

    /// The data version: 16 hex digits over everything recorded.
    pub(super) fn data_version(&self) -> String {
        self.data.clone().finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}
