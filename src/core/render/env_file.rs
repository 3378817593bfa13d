//! Values of Secrets in a container's environment: one file per container, read by the kubelet.
//!
//! Owns what upstream's parser (`pkg/kubelet/util/env`) can read, and the keys: that of a variable depends on the template
//! alone, so another variable that comes or goes never gives it another value. A value never appears in a message.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;
use serde_json::json;
use sha2::Digest;
use sha2::Sha256;

use crate::core::json::Json;
use crate::core::render::Missing;
use crate::core::render::Part;
use crate::core::render::containers::clean_path;
use crate::core::render::context::RenderContext;
use crate::core::render::env;
use crate::core::render::json;
use crate::core::render::json::Object;
use crate::core::volume::VolumeData;
use crate::core::volume::VolumeFile;

/// Where the container mounts the file, with a number appended if the path is used; the kubelet requires that the
/// volume is mounted.
const MOUNT_PATH: &str = "/.daemonlet-env";
/// The file's name in its volume.
const FILE: &str = "env";
/// The first kubelet that resolves `fileKeyRef` by default.
pub(super) const SINCE: (u32, u32) = (1, 35);
const OTHER_KUBELET: &str = "use a kubelet of 1.35 or later, mount the Secret as a volume, or set inline-secret-env = true in \
                             [policy] (render: --inline-secret-env): the value then shows in the pod";
const OTHER_VALUE: &str = "change the value, or set inline-secret-env = true in [policy] (render: --inline-secret-env): the value then shows in the pod";
/// The longest key that names what is missing, in bytes.
const MAX_KEY: usize = 250;
/// The longest line that the kubelet's parser reads (Go's `bufio.Scanner`), in bytes without the break.
const MAX_LINE: usize = 64 * 1024 - 1;

/// Where a value comes from, for messages.
pub(super) struct SecretKey {
    /// The field that refers to it.
    pub(super) field: String,
    /// Its place in the container's `env`; `None`: it is from `envFrom`.
    pub(super) index: Option<usize>,
    pub(super) secret: String,
    pub(super) key: String,
}

/// The file of one container.
pub(super) struct EnvFile {
    volume: String,
    content: String,
    /// Whether a variable refers to it.
    is_used: bool,
    /// Where in the container's `env` each name is that has a Secret's value.
    own: BTreeMap<String, Vec<usize>>,
}

impl EnvFile {
    /// The part that lacks what is missing for this file's container. An init container holds the whole pod.
    pub(super) fn part(&self, ctx: &RenderContext<'_>, container: &Object, list: &str) -> Part {
        let knows_files = ctx.input.options.kubelet_version.is_some_and(|version| version >= SINCE);
        Part::Environment {
            container: container.str_at("name").to_owned(),
            volume: self.volume.clone(),
            waits_alone: knows_files && list == "containers",
        }
    }

    /// An empty file for `container`, in a volume whose name is not among `volumes`.
    pub(super) fn new(container: &Object, volumes: &BTreeSet<String>) -> Self {
        let volume = volume_name(container.str_at("name"), volumes);
        let mut own: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (index, variable) in container.list_at("env").iter().enumerate() {
            if variable.at(["valueFrom", "secretKeyRef"]).is_some() {
                own.entry(variable.str_at("name").to_owned()).or_default().push(index);
            }
        }
        Self { volume, content: String::new(), is_used: false, own }
    }

    /// The variable `name` with `value` (`None`: missing); `None` if it cannot be written.
    pub(super) fn carry(
        &mut self,
        ctx: &mut RenderContext<'_>,
        name: &str,
        value: Option<&[u8]>,
        at: &SecretKey,
    ) -> Option<Value> {
        let options = ctx.input.options;
        let text = match value.map(std::str::from_utf8) {
            None => None,
            Some(Ok(text)) if !text.contains('\0') => Some(text),
            Some(_) => {
                refuse(ctx, at, "which is not text", "a variable cannot hold it; mount the Secret as a volume");
                return None;
            }
        };
        if text == Some("") {
            return Some(json!({"name": name, "value": ""}));
        }
        let key = self.key(name, at.index);
        let unfit = match options.kubelet_version {
            Some(version) if version < SINCE => Some(("which needs a kubelet of 1.35 or later", OTHER_KUBELET)),
            _ => text.and_then(|text| Some((unfit(&key, text)?, OTHER_VALUE))),
        };
        match (unfit, text) {
            (Some(_), None) if options.inline_secret_env => return None,
            (Some(_), Some(text)) if options.inline_secret_env => return Some(env::literal(name, text)),
            (Some((reason, hint)), _) => {
                refuse(ctx, at, reason, hint);
                return None;
            }
            (None, _) => {}
        }
        if options.kubelet_version.is_none() {
            ctx.not_known(ctx.missing("KubeletVersion", "", &options.node_name, ""));
        }
        self.is_used = true;
        if let Some(text) = text {
            self.content.push_str(&format!("{key}='{text}'\n"));
        }
        let reference = json!({"volumeName": self.volume, "path": FILE, "key": key});
        Some(json!({"name": name, "valueFrom": {"fileKeyRef": reference}}))
    }

    /// A variable that keeps the kubelet from starting the container: its key names what is `missing`, and the file
    /// never has it.
    pub(super) fn wait_for(&mut self, missing: &Missing) -> Value {
        let key = waiting_key(missing);
        self.is_used = true;
        let reference = json!({"volumeName": self.volume, "path": FILE, "key": key});
        json!({"name": "DAEMONLET_WAITS_FOR", "valueFrom": {"fileKeyRef": reference}})
    }

    /// The key of the variable `name`, which is at `index` of `env` or from `envFrom`: one that the parser accepts. Letters,
    /// digits, `_` and `.` of the name stay; any other byte is `%` and two hex digits. The names of `envFrom` are unique;
    /// what comes after a `:` sets apart those that `env` has, too.
    fn key(&self, name: &str, index: Option<usize>) -> String {
        let mut key = String::with_capacity(name.len());
        for byte in name.bytes() {
            match byte {
                b'_' | b'.' => key.push(char::from(byte)),
                _ if byte.is_ascii_alphanumeric() => key.push(char::from(byte)),
                _ => key.push_str(&format!("%{byte:02x}")),
            }
        }
        match (index, self.own.get(name)) {
            (None, Some(_)) => key.push_str(":from"),
            (Some(index), Some(own)) => {
                if let Ok(before @ 1..) = own.binary_search(&index) {
                    key.push_str(&format!(":{}", before + 1));
                }
            }
            (_, None) => {}
        }
        key
    }

    /// Mounts the file, if anything is in it, and returns its volume.
    pub(super) fn mount(self, ctx: &mut RenderContext<'_>, container: &mut Object) -> Option<Value> {
        if !self.is_used {
            return None;
        }
        let mounts = json::list_mut(container, "volumeMounts")?;
        let path = free_path(MOUNT_PATH, mounts);
        mounts.push(json!({"name": self.volume, "mountPath": path, "readOnly": true}));
        let volume = json!({"name": self.volume, "emptyDir": {}});
        let file = VolumeFile { data: self.content.into_bytes().into(), mode: 0o400, uid: None };
        let files = BTreeMap::from([(FILE.to_owned(), file)]);
        ctx.volumes.push(VolumeData { name: self.volume, files, is_environment: true, ..VolumeData::default() });
        Some(volume)
    }
}

/// A key that says what is missing. Keys of values have no hyphen, so it is none of them.
fn waiting_key(missing: &Missing) -> String {
    let Missing { kind, namespace, name, key } = missing;
    let key = if key.is_empty() { String::new() } else { format!("key-{key}-of-") };
    let text = format!("waits-for-{key}{kind}-{namespace}.{name}");
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    text.chars().map(|c| if is_plain(c) { c } else { '_' }).take(MAX_KEY).collect()
}

fn refuse(ctx: &mut RenderContext<'_>, at: &SecretKey, reason: &str, hint: &str) {
    let secret = format!("the key {:?} of Secret {}/{}", at.key, ctx.namespace(), at.secret);
    ctx.refuse(&at.field, format!("a static pod cannot have this variable from {secret}, {reason}"), hint);
}

/// Why the kubelet's parser cannot read `text` as the value of `key`.
fn unfit(key: &str, text: &str) -> Option<&'static str> {
    if text.contains('\'') {
        return Some("whose value has a single quote");
    }
    if text.contains("\r\n") {
        return Some("whose value has a carriage return before a line break");
    }
    // The first line begins with the key, and the last one ends with a quote.
    let longest = text.split('\n').map(str::len).max().unwrap_or(0) + key.len() + "=''".len();
    (longest > MAX_LINE).then_some("whose value has a line of more than 64 KiB")
}

/// A path like `wanted` that is not among `mounts`: the kubelet refuses a path that is mounted twice.
pub(super) fn free_path(wanted: &str, mounts: &[Value]) -> String {
    let paths = mounts.iter().filter_map(|mount| mount.text_at("mountPath"));
    // The kubelet puts a relative one below the root.
    let taken: BTreeSet<String> = paths.map(|path| clean_path(&format!("/{path}"))).collect();
    let mut path = wanted.to_owned();
    let mut number = 2;
    while taken.contains(&path) {
        path = format!("{wanted}-{number}");
        number += 1;
    }
    path
}

/// A volume name for `container`: readable, at most 63 characters, and not among `volumes`.
fn volume_name(container: &str, volumes: &BTreeSet<String>) -> String {
    let taken = |name: &str| volumes.contains(name);
    let plain = format!("daemonlet-env-{container}");
    if plain.len() <= 63 && !taken(&plain) {
        return plain;
    }
    let short: String = container.chars().take(40).collect();
    let short = short.trim_end_matches('-');
    let hashed = |number: u32| {
        let digest = Sha256::digest(format!("{container}/{number}"));
        let hash: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        format!("daemonlet-env-{short}-{hash}")
    };
    (0..).map(hashed).find(|name| !taken(name)).unwrap_or(plain)
}

#[cfg(test)]
mod tests;
