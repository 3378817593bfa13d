//! Downward-API files inside a projected volume that we write: the values known here.
//!
//! Follows upstream's `downwardapi.CollectData`. Plain downwardAPI volumes stay with the kubelet.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use serde_json::Value;

use crate::core::json::Json;
use crate::core::quantity::Quantity;
use crate::core::quantity::parse_json;
use crate::core::render::RenderInput;
use crate::core::render::containers::ByName;
use crate::core::render::context::RenderContext;
use crate::core::render::json::Object;
use crate::core::render::payload;
use crate::core::render::payload::Payload;
use crate::core::render::unfolding::FIELD;

const OWN_VOLUME: &str = "move it to a downwardAPI volume of its own";
/// Without a limit the value is what the node can allocate.
const SET_LIMIT: &str = "set the container's limit, or move it to a downwardAPI volume of its own";

/// The pod's metadata as its containers see it.
pub(super) struct PodView<'a> {
    /// The full name, with the node's.
    pub(super) name: String,
    pub(super) namespace: &'a str,
    pub(super) uid: &'a str,
    labels: TextMap<'a>,
    annotations: TextMap<'a>,
    /// All labels as one text; made once.
    all_labels: OnceCell<Arc<[u8]>>,
    all_annotations: OnceCell<Arc<[u8]>>,
    /// The ServiceAccount's name.
    pub(super) service_account: &'a str,
}

impl<'a> PodView<'a> {
    /// The view of an instance with `metadata`.
    pub(super) fn new(input: RenderInput<'a>, metadata: &'a Object, service_account: &'a str) -> Self {
        let map = |name| metadata.get(name).and_then(Value::as_object);
        Self {
            name: format!("{}-{}", input.identity.pod_name, input.options.node_name.to_lowercase()),
            namespace: &input.daemon_set.key.namespace,
            uid: &input.identity.uid,
            labels: text_map(map("labels")),
            annotations: annotations(map("annotations"), &input.identity.uid),
            all_labels: OnceCell::new(),
            all_annotations: OnceCell::new(),
            service_account,
        }
    }
}

/// Why a value cannot be projected.
const KUBELET_ALONE: &str =
    "only the kubelet knows this value, but the volume also contains data that the kubelet cannot fetch";

/// Adds the files of a downwardAPI source.
pub(super) fn project(
    payload: &mut Payload<'_, '_>,
    pod: &PodView<'_>,
    containers: &ByName<'_>,
    source: &Value,
    field: &str,
) {
    for (index, item) in source.list_at("items").iter().enumerate() {
        let field = format!("{field}.items[{index}]");
        let known = match (item.at("fieldRef"), item.at("resourceFieldRef")) {
            (Some(reference), _) => {
                let unknown = || ("fieldRef", KUBELET_ALONE.to_owned(), OWN_VOLUME);
                field_value(pod, reference.str_at("fieldPath")).ok_or_else(unknown)
            }
            (None, Some(reference)) => {
                let container = reference.str_at("containerName");
                let (reason, hint) = match reference.str_at("resource").starts_with("limits.") {
                    _ if !containers.contains_key(container) => {
                        (format!("the pod has no container {container:?}"), "correct containerName")
                    }
                    true => (KUBELET_ALONE.to_owned(), SET_LIMIT),
                    false => (KUBELET_ALONE.to_owned(), OWN_VOLUME),
                };
                resource_value(containers, reference).ok_or(("resourceFieldRef", reason, hint))
            }
            (None, None) => Ok(Arc::default()),
        };
        let value = match known {
            Ok(value) => value,
            Err((member, reason, hint)) => {
                payload.ctx.refuse(format!("{field}.{member}"), reason, hint);
                continue;
            }
        };
        let mode = payload::mode(item, "mode").unwrap_or(payload.mode);
        let file = payload.owner.file(value.into(), mode);
        payload.insert(item.str_at("path"), file, &format!("{field}.path"));
    }
}

/// Counts the files of a downwardAPI source that the kubelet writes: they are in the node's memory as those that we write.
pub(super) fn spend(ctx: &mut RenderContext<'_>, pod: &PodView<'_>, source: &Value, field: &str) {
    let file = |item: &Value| {
        let value = item.at("fieldRef").and_then(|reference| field_value(pod, reference.str_at("fieldPath")));
        item.str_at("path").len() + value.map_or(FIELD, |value| value.len())
    };
    for (index, item) in source.list_at("items").iter().enumerate() {
        if !ctx.spend(file(item), &format!("{field}.items[{index}]")) {
            return;
        }
    }
}

/// The value of a field path (upstream's `ExtractFieldPathAsString`).
fn field_value(pod: &PodView<'_>, path: &str) -> Option<Arc<[u8]>> {
    if let Some((map, key)) = path.strip_suffix("']").and_then(|path| path.split_once("['")) {
        let map = match map {
            "metadata.labels" => &pod.labels,
            "metadata.annotations" => &pod.annotations,
            _ => return None,
        };
        return Some(map.get(key).map(|value| bytes(value)).unwrap_or_default());
    }
    match path {
        "metadata.name" => Some(bytes(&pod.name)),
        "metadata.namespace" => Some(bytes(pod.namespace)),
        "metadata.uid" => Some(bytes(pod.uid)),
        "metadata.labels" => Some(Arc::clone(pod.all_labels.get_or_init(|| bytes(&format_map(&pod.labels))))),
        "metadata.annotations" => {
            Some(Arc::clone(pod.all_annotations.get_or_init(|| bytes(&format_map(&pod.annotations)))))
        }
        _ => None,
    }
}

type TextMap<'a> = BTreeMap<&'a str, &'a str>;

fn text_map(object: Option<&Object>) -> TextMap<'_> {
    object.into_iter().flatten().map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default())).collect()
}

/// The annotations with those that the kubelet adds, but for the time at which it first saw the file.
fn annotations<'a>(own: Option<&'a Object>, uid: &'a str) -> TextMap<'a> {
    let mut map = text_map(own);
    map.insert("kubernetes.io/config.hash", uid);
    map.insert("kubernetes.io/config.source", "file");
    map
}

fn bytes(text: &str) -> Arc<[u8]> {
    text.as_bytes().into()
}

/// Upstream's `FormatMap`: one `key="value"` a line, sorted.
fn format_map(map: &TextMap<'_>) -> String {
    let lines: Vec<String> = map.iter().map(|(key, value)| format!("{key}={}", go_quote(value))).collect();
    lines.join("\n")
}

/// `text` as Go's `strconv.Quote` writes it.
fn go_quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            c if c.is_ascii_control() => drop(write!(quoted, "\\x{:02x}", u32::from(c))),
            c if !is_print(c) => match u32::from(c) {
                code @ ..=0xffff => drop(write!(quoted, "\\u{code:04x}")),
                code => drop(write!(quoted, "\\U{code:08x}")),
            },
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Go's `strconv.IsPrint`: letters, marks, numbers, punctuation, symbols and the space.
fn is_print(c: char) -> bool {
    // The standard library knows the same set, but tells it only by what it escapes inside a string;
    // alone, or at its beginning, it would escape marks too.
    c.is_ascii() || ['a', c].iter().collect::<String>().escape_debug().nth(1) == Some(c)
}

/// The value of a container's resource (upstream's `ExtractContainerResourceValue`), if the container sets it. An
/// unset limit is what the node can allocate, which is unknown here.
fn resource_value(containers: &ByName<'_>, reference: &Value) -> Option<Arc<[u8]>> {
    let found = containers.get(reference.text_at("containerName")?)?;
    let (kind, resource) = reference.text_at("resource")?.split_once('.')?;
    let open_on_node = matches!(resource, "cpu" | "memory" | "ephemeral-storage");
    if !open_on_node && !resource.starts_with("hugepages-") {
        return None;
    }
    let amount =
        |kind| found.at(["resources", kind, resource]).map_or(Some(None), |amount| parse_json(amount).map(Some));
    let limit = amount("limits")?;
    let amount = match kind {
        "limits" if open_on_node => Some(limit.filter(|limit| limit.value() != 0)?),
        "limits" => limit,
        "requests" => amount("requests")?.or(limit),
        _ => return None,
    };
    let divisor = reference.get("divisor").and_then(parse_json);
    let count = |quantity: Quantity| if resource == "cpu" { quantity.milli_value() } else { quantity.value() };
    let unit = if resource == "cpu" { 1000 } else { 1 };
    let divisor = divisor.map(count).filter(|divisor| *divisor > 0).unwrap_or(unit);
    let amount = amount.map_or(0, count);
    Some(bytes(&(amount / divisor + i128::from(amount % divisor > 0)).to_string()))
}

#[cfg(test)]
mod tests;
