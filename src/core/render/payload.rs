//! The files that ConfigMaps, Secrets and tokens become inside a volume, with the kubelet's modes.
//!
//! Follows `MakePayload` of upstream's configmap and secret volumes and `collectData` of projected ones.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::core::json::Json;
use crate::core::model::Kind;
use crate::core::model::ObjectKey;
use crate::core::model::TokenRequest;
use crate::core::render::containers::ByFolder;
use crate::core::render::containers::below;
use crate::core::render::containers::clean_path;
use crate::core::render::context::RenderContext;
use crate::core::volume::FileData;
use crate::core::volume::VolumeFile;
use crate::core::volume::unwritable;

/// Upstream's default mode of configMap, secret, projected and downwardAPI volumes.
const DEFAULT_MODE: u32 = 0o644;
/// The lifetime of a projected token that requests none, in seconds.
const DEFAULT_EXPIRATION: i64 = 3600;
/// The shortest lifetime that the API grants, in seconds.
const MIN_EXPIRATION: i64 = 600;

/// The files of a volume by clean path.
pub(super) type VolumeFiles = BTreeMap<String, VolumeFile>;

/// What the pod as a whole determines about the files of its volumes.
#[derive(Clone, Copy)]
pub(super) struct FileOwnership {
    /// The pod's `fsGroup`.
    pub(super) fs_group: Option<u32>,
    /// The one user of all containers.
    pub(super) fs_user: Option<u32>,
}

impl FileOwnership {
    /// `mode` after upstream's `SetVolumeOwnership` on a read-only volume.
    fn widened(self, mode: u32) -> u32 {
        if self.fs_group.is_some() { mode | 0o440 } else { mode }
    }

    /// A file with `mode` from the volume's source.
    pub(super) fn file(self, data: FileData, mode: u32) -> VolumeFile {
        VolumeFile { data, mode: self.widened(mode), uid: None }
    }

    /// A token: readable only by its user once user or group of the pod are known.
    fn token(self, data: FileData, default_mode: u32) -> VolumeFile {
        let known = self.fs_user.is_some() || self.fs_group.is_some();
        VolumeFile { data, mode: self.widened(if known { 0o600 } else { default_mode }), uid: self.fs_user }
    }
}

/// `mode` or `defaultMode` of `value`.
pub(super) fn mode(value: &Value, name: &str) -> Option<u32> {
    value.get(name).and_then(Value::as_u64).map(|mode| (mode & 0o777) as u32)
}

/// `defaultMode` of a volume source.
pub(super) fn default_mode(source: &Value) -> u32 {
    mode(source, "defaultMode").unwrap_or(DEFAULT_MODE)
}

/// The value of `key` in a ConfigMap or Secret as bytes; `None` if it is absent or not decodable.
pub(super) fn value<'a>(kind: Kind, object: &'a Value, key: &str) -> Option<Cow<'a, [u8]>> {
    let text = |member: &str| object.get(member).and_then(|data| data.get(key)).and_then(Value::as_str);
    let (plain, encoded) = members(kind);
    match text(plain) {
        Some(text) => Some(Cow::Borrowed(text.as_bytes())),
        None => decode(text(encoded)?).map(Cow::Owned),
    }
}

/// As [`value`], of the object that `shared` gives, if it does.
pub(super) fn file_data(
    kind: Kind,
    object: &Value,
    key: &str,
    shared: impl FnOnce() -> Option<Arc<Value>>,
) -> Option<FileData> {
    Some(match value(kind, object, key)? {
        Cow::Owned(decoded) => decoded.into(),
        Cow::Borrowed(text) => match shared() {
            Some(shared) => FileData::of_object(shared, members(kind).0, key),
            None => text.into(),
        },
    })
}

/// Where a ConfigMap or Secret has texts, and where values in base64.
fn members(kind: Kind) -> (&'static str, &'static str) {
    match kind {
        Kind::Secret => ("stringData", "data"),
        _ => ("data", "binaryData"),
    }
}

/// The keys of a ConfigMap (`binary`: those of `binaryData` too) or Secret, sorted.
pub(super) fn keys(kind: Kind, object: &Value, binary: bool) -> Vec<&str> {
    let members: &[&str] = match kind {
        Kind::Secret => &["data", "stringData"],
        _ if binary => &["data", "binaryData"],
        _ => &["data"],
    };
    let mut keys: Vec<&str> = members
        .iter()
        .filter_map(|member| object.get(member).and_then(Value::as_object))
        .flat_map(|data| data.keys().map(String::as_str))
        .collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Base64 as Go decodes `[]byte`: line breaks are skipped.
fn decode(text: &str) -> Option<Vec<u8>> {
    if text.contains(['\n', '\r']) {
        STANDARD.decode(text.replace(['\n', '\r'], "")).ok()
    } else {
        STANDARD.decode(text).ok()
    }
}

/// Gathers the files of one volume.
pub(super) struct Payload<'c, 'a> {
    /// Records missing and refused things.
    pub(super) ctx: &'c mut RenderContext<'a>,
    /// The files so far; a later source overwrites an equal path.
    pub(super) files: VolumeFiles,
    /// Those of them that are tokens.
    pub(super) tokens: BTreeSet<String>,
    /// Whether a source of it is a token.
    pub(super) has_token: bool,
    /// The volume's `defaultMode`.
    pub(super) mode: u32,
    pub(super) owner: FileOwnership,
}

/// An object that exists, and the reference to it.
#[derive(Clone, Copy)]
struct Referenced<'a> {
    kind: Kind,
    name: &'a str,
    object: &'a Value,
}

impl<'a> Payload<'_, 'a> {
    /// Adds the files of the ConfigMap or Secret `name`, as `source` at `field` requests.
    pub(super) fn object(&mut self, kind: Kind, name: &str, source: &Value, field: &str) {
        let optional = source.flag_at("optional");
        let Some(object) = self.ctx.data_object(kind, name, optional) else { return };
        let found = Referenced { kind, name, object };
        let items = source.list_at("items");
        if items.is_empty() {
            for key in keys(kind, object, true) {
                self.key(found, key, key, self.mode, false, field);
            }
        }
        for (index, item) in items.iter().enumerate() {
            let key = item.str_at("key");
            let path = item.str_at("path");
            let mode = mode(item, "mode").unwrap_or(self.mode);
            self.key(found, key, path, mode, optional, &format!("{field}.items[{index}].path"));
        }
    }

    fn key(&mut self, found: Referenced<'_>, key: &str, path: &str, mode: u32, optional: bool, field: &str) {
        let data = self.ctx.shared(found.kind, found.name, key, found.object);
        self.ctx.record(found.kind, found.name, key, data.as_deref());
        match data {
            Some(data) => {
                let file = self.owner.file(data, mode);
                self.insert(path, file, field);
            }
            None if optional => {}
            None => self.ctx.lack(self.ctx.namespace(), found.kind, found.name, key),
        }
    }

    /// Adds the token that the projected `source` requests.
    pub(super) fn token(&mut self, account: &str, source: &Value, field: &str) {
        let asked = source.get("expirationSeconds").and_then(Value::as_i64).unwrap_or(DEFAULT_EXPIRATION);
        let request = TokenRequest {
            service_account: ObjectKey::new(self.ctx.namespace(), account),
            audience: source.str_at("audience").to_owned(),
            expiration_seconds: asked.max(MIN_EXPIRATION),
        };
        self.ctx.require_account(account);
        match self.ctx.input.tokens.token(&request) {
            Some(token) => {
                let file = self.owner.token(token.as_bytes().into(), self.mode);
                let path = source.str_at("path");
                self.insert(path, file, &format!("{field}.path"));
                self.tokens.extend(volume_path(path));
            }
            None => self.ctx.miss("ServiceAccountToken", account, &request.audience),
        }
        self.ctx.tokens.insert(request);
    }

    /// Adds `file` at `path`, which `field` requests.
    pub(super) fn insert(&mut self, path: &str, file: VolumeFile, field: &str) {
        match volume_path(path) {
            Ok(path) => {
                let bytes = path.len() + file.data.len();
                let is_within = match self.has_token {
                    true => self.ctx.spend_with_token(bytes, field),
                    false => self.ctx.spend(bytes, field),
                };
                if is_within {
                    self.files.insert(path, file);
                }
            }
            Err(reason) => self.ctx.refuse(field, reason, "the kubelet cannot write such a file; choose another path"),
        }
    }

    /// The files, after checking that none of them lies where another needs a folder.
    pub(super) fn finish(self, field: &str) -> (VolumeFiles, BTreeSet<String>) {
        let Self { ctx, files, tokens, .. } = self;
        let sorted: BTreeSet<_> = files.keys().map(ByFolder).collect();
        let mut above: Vec<&str> = Vec::new();
        for ByFolder(path) in sorted {
            while above.pop_if(|parent| below(path, parent).is_none()).is_some() {}
            if let Some(parent) = above.last() {
                let reason = format!("the path {path:?} needs the folder {parent:?}, which is a file");
                ctx.refuse(field, reason, "choose paths that do not lie inside each other");
            }
            above.push(path);
        }
        (files, tokens)
    }
}

/// The cleaned `path`, if the kubelet's AtomicWriter accepts it as it is written and cleaned.
fn volume_path(path: &str) -> Result<String, String> {
    if path.split('/').any(|part| part == "..") {
        return Err(format!("the path {path:?} contains or starts with `..`"));
    }
    match clean_path(path) {
        clean if clean == "." => Err(format!("the path {path:?} names no file")),
        clean => match unwritable(&clean) {
            Some(why) => Err(format!("the path {path:?} {why}")),
            None => Ok(clean),
        },
    }
}
