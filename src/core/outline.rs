//! Shortens DaemonSets that are not selected while a list or a watch of them is read.
//!
//! Owns which bytes of a response pass: of a DaemonSet that is not read whole its identity alone, with `spec: null` as the
//! mark of an outline. At most the metadata of one object is held at a time. Must not decide which are read whole: that is
//! an argument. What it does not understand passes as it is.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;

use crate::core::model::MODE_LABEL;

/// What is read within bounds has no longer metadata and no longer spec, in bytes: some more than the bounds of a DaemonSet
/// in a namespace that is not trusted ([`crate::core::bounds::TENANT`]).
pub const LONGEST_PART: usize = 384 << 10;
/// A status of an outline that is longer, in bytes, is left out.
const LONGEST_STATUS: usize = 64 << 10;
/// No key that is looked for has more bytes.
const LONGEST_KEY: usize = 16;

/// What the metadata of a DaemonSet say before the rest of it is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub resource_version: String,
    pub labels: BTreeMap<String, String>,
}

/// What is read of the status of a DaemonSet that is not read whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutlineStatus {
    /// Nothing.
    Dropped,
    /// All of it, unless it has more than 64 KiB.
    Kept,
}

/// How a DaemonSet is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// That it exists.
    Outline,
    /// All of it, unless its metadata or its spec are longer than [`LONGEST_PART`].
    Bounded,
    /// All of it.
    Whole,
}

/// Whether an object is an outline, which says that the DaemonSet exists and not what it defines.
pub fn is_outline(object: &Value) -> bool {
    object.get("spec") == Some(&Value::Null)
}

/// What becomes of the value that is being read.
#[derive(Debug)]
enum Sink {
    Pass,
    Drop,
    Metadata(Vec<u8>),
    Spec(Vec<u8>),
    Status(Vec<u8>),
}

/// How much of an item is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// Its metadata have not been read yet.
    Undecided,
    Whole,
    Bounded,
    Outline,
}

/// The object of a list or of a watch's event that is being read.
#[derive(Debug)]
struct Item {
    /// How deep its fields are nested.
    depth: usize,
    extent: Extent,
}

/// The reader of one response.
#[derive(Debug)]
pub struct Outliner {
    status: OutlineStatus,
    depth: usize,
    in_string: bool,
    is_escaped: bool,
    /// Whether the next string of the document or of the item is a key.
    expects_key: bool,
    reads_key: bool,
    key: Vec<u8>,
    /// The last key of the document itself.
    root_key: Vec<u8>,
    item: Option<Item>,
    sink: Sink,
}

impl Outliner {
    /// At the beginning of a response.
    pub fn new(status: OutlineStatus) -> Self {
        Self {
            status,
            depth: 0,
            in_string: false,
            is_escaped: false,
            expects_key: false,
            reads_key: false,
            key: Vec::new(),
            root_key: Vec::new(),
            item: None,
            sink: Sink::Pass,
        }
    }

    /// Reads the next `bytes` of the response; gives what of it is to be read on.
    pub fn feed(&mut self, bytes: &[u8], reading: &impl Fn(&Metadata) -> Reading) -> Vec<u8> {
        let mut out = Vec::new();
        let mut rest = bytes;
        while let Some(byte) = rest.first() {
            let plain = rest.iter().position(|byte| self.is_read_alone(*byte)).unwrap_or(rest.len());
            if plain > 0 {
                self.read_key(&rest[..plain]);
                self.put(&rest[..plain], &mut out);
                rest = &rest[plain..];
                continue;
            }
            rest = &rest[1..];
            match self.in_string {
                true => self.in_text(*byte, &mut out),
                false => self.structure(*byte, reading, &mut out),
            }
        }
        out
    }

    /// Whether a byte may change how the next ones are read.
    fn is_read_alone(&self, byte: u8) -> bool {
        match (self.in_string, self.is_escaped) {
            (true, true) => true,
            (true, false) => matches!(byte, b'"' | b'\\'),
            (false, _) => {
                matches!(byte, b'"' | b'{' | b'}' | b'[' | b']') || matches!(byte, b':' | b',') && self.has_keys()
            }
        }
    }

    /// A quote, a backslash or what is behind one.
    fn in_text(&mut self, byte: u8, out: &mut Vec<u8>) {
        match (self.is_escaped, byte) {
            (false, b'\\') => self.is_escaped = true,
            (false, b'"') => (self.in_string, self.reads_key) = (false, false),
            _ => self.is_escaped = false,
        }
        self.put(&[byte], out);
    }

    fn structure(&mut self, byte: u8, reading: &impl Fn(&Metadata) -> Reading, out: &mut Vec<u8>) {
        match byte {
            b'"' => {
                self.in_string = true;
                self.reads_key = self.expects_key && self.has_keys();
                if self.reads_key {
                    self.key.clear();
                }
            }
            b'{' | b'[' => {
                if byte == b'{' && self.begins_item() {
                    self.item = Some(Item { depth: self.depth + 1, extent: Extent::Undecided });
                }
                self.depth += 1;
                self.expects_key = byte == b'{' && self.has_keys();
            }
            b'}' | b']' => {
                if self.is_in_item() {
                    self.end_value(reading, out);
                    self.item = None;
                }
                self.depth = self.depth.saturating_sub(1);
            }
            b',' if self.has_keys() => {
                if self.is_in_item() {
                    self.end_value(reading, out);
                }
                self.expects_key = true;
            }
            b':' if self.expects_key && self.has_keys() => {
                self.expects_key = false;
                self.put(b":", out);
                self.begin_value(out);
                return;
            }
            _ => {}
        }
        self.put(&[byte], out);
    }

    fn is_in_item(&self) -> bool {
        self.item.as_ref().is_some_and(|item| item.depth == self.depth)
    }

    /// Whether keys at this depth are looked at.
    fn has_keys(&self) -> bool {
        self.depth == 1 || self.is_in_item()
    }

    fn begins_item(&self) -> bool {
        let depth = match self.root_key.as_slice() {
            b"object" => 1,
            b"items" => 2,
            _ => return false,
        };
        self.item.is_none() && self.depth == depth
    }

    fn read_key(&mut self, text: &[u8]) {
        if self.reads_key {
            let room = LONGEST_KEY.saturating_sub(self.key.len());
            self.key.extend(text.iter().take(room));
        }
    }

    fn begin_value(&mut self, out: &mut Vec<u8>) {
        if !self.is_in_item() {
            self.root_key.clone_from(&self.key);
            return;
        }
        let Some(item) = &mut self.item else { return };
        match (item.extent, self.key.as_slice()) {
            (Extent::Undecided, b"metadata") => self.sink = Sink::Metadata(Vec::new()),
            // What came before its metadata has passed.
            (Extent::Undecided, b"spec" | b"status") => item.extent = Extent::Whole,
            (Extent::Bounded, b"spec") => self.sink = Sink::Spec(Vec::new()),
            (Extent::Outline, b"status") if self.status == OutlineStatus::Kept => {
                self.sink = Sink::Status(Vec::new());
            }
            (Extent::Outline, b"spec" | b"status") => {
                out.extend(b"null");
                self.sink = Sink::Drop;
            }
            _ => {}
        }
    }

    fn end_value(&mut self, reading: &impl Fn(&Metadata) -> Reading, out: &mut Vec<u8>) {
        match std::mem::replace(&mut self.sink, Sink::Pass) {
            Sink::Pass | Sink::Drop => {}
            Sink::Status(raw) | Sink::Spec(raw) => out.extend(raw),
            Sink::Metadata(raw) => {
                let metadata =
                    serde_json::from_slice::<Metadata>(&raw).ok().filter(|metadata| !metadata.name.is_empty());
                let reading = metadata.as_ref().map_or(Reading::Whole, reading);
                let is_short = match reading {
                    Reading::Outline => true,
                    Reading::Bounded => raw.len() > LONGEST_PART,
                    Reading::Whole => false,
                };
                let outline = metadata.filter(|_| is_short);
                let short = outline.and_then(|metadata| serde_json::to_vec(&shortened(metadata)).ok());
                let extent = match (&short, reading) {
                    (Some(_), _) => Extent::Outline,
                    (None, Reading::Bounded) => Extent::Bounded,
                    (None, _) => Extent::Whole,
                };
                self.item.iter_mut().for_each(|item| item.extent = extent);
                out.extend(short.unwrap_or(raw));
            }
        }
    }

    fn put(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        match &mut self.sink {
            Sink::Pass => out.extend(bytes),
            Sink::Drop => {}
            Sink::Metadata(raw) => raw.extend(bytes),
            Sink::Status(raw) if raw.len() + bytes.len() <= LONGEST_STATUS => raw.extend(bytes),
            Sink::Spec(raw) if raw.len() + bytes.len() <= LONGEST_PART => raw.extend(bytes),
            Sink::Spec(_) => {
                out.extend(b"null");
                self.sink = Sink::Drop;
                self.item.iter_mut().for_each(|item| item.extent = Extent::Outline);
            }
            Sink::Status(_) => {
                out.extend(b"null");
                self.sink = Sink::Drop;
            }
        }
    }
}

/// Without labels but the mode.
fn shortened(mut metadata: Metadata) -> Metadata {
    metadata.labels.retain(|name, _| name == MODE_LABEL);
    metadata
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn daemon_set(name: &str, more: usize) -> Value {
        json!({
            "kind": "DaemonSet",
            "apiVersion": "apps/v1",
            "metadata": {"name": name, "namespace": "a", "uid": "u", "resourceVersion": "7",
                "labels": {"x": "}\"]\\", MODE_LABEL: "bootstrap"}, "managedFields": [{"spec": {"a": "b".repeat(more)}}]},
            "spec": {"items": [{"metadata": {"name": "inner"}, "spec": 1}], "text": "{[\"\\\\".repeat(more)},
            "status": {"conditions": [{"type": "Released"}], "text": "x".repeat(more)},
        })
    }

    fn outline(name: &str, status: &Value) -> Value {
        json!({
            "kind": "DaemonSet",
            "apiVersion": "apps/v1",
            "metadata": {"name": name, "namespace": "a", "uid": "u", "resourceVersion": "7", "labels": {MODE_LABEL: "bootstrap"}},
            "spec": null,
            "status": status,
        })
    }

    /// In the order that the API server writes.
    fn ordered(value: &Value) -> String {
        let Value::Object(map) = value else { return value.to_string() };
        let order = ["type", "kind", "apiVersion", "metadata", "items", "object", "spec", "status"];
        let fields = order.iter().filter_map(|field| Some((field, map.get(*field)?)));
        let text = fields.map(|(field, value)| {
            let value = match value {
                Value::Array(items) => format!("[ {} ]", items.iter().map(ordered).collect::<Vec<_>>().join(" , ")),
                value if *field == "object" => ordered(value),
                value => value.to_string(),
            };
            format!("\"{field}\" : {value}\n")
        });
        format!("{{{}}}", text.collect::<Vec<_>>().join(","))
    }

    /// What is read of `text` when it comes in pieces of that many bytes.
    fn read(text: &str, piece: usize, status: OutlineStatus) -> String {
        let mut outliner = Outliner::new(status);
        let reading = |metadata: &Metadata| match metadata.name.split('-').next() {
            Some("whole") => Reading::Whole,
            Some("bounded") => Reading::Bounded,
            _ => Reading::Outline,
        };
        let read: Vec<u8> = text.as_bytes().chunks(piece).flat_map(|bytes| outliner.feed(bytes, &reading)).collect();
        String::from_utf8(read).expect("text")
    }

    #[test]
    fn a_list_keeps_what_is_selected_and_outlines_the_rest() {
        let whole = [daemon_set("whole-1", 3), daemon_set("b", 1000), daemon_set("whole-2", 0), daemon_set("c", 1)];
        let list = |items: &[Value]| json!({"kind": "DaemonSetList", "metadata": {"resourceVersion": "9", "continue": "c"}, "items": items});
        let short = [whole[0].clone(), outline("b", &Value::Null), whole[2].clone(), outline("c", &Value::Null)];
        let text = ordered(&list(&whole));
        for piece in [1, 2, 3, 7, 64, text.len()] {
            let read: Value = serde_json::from_str(&read(&text, piece, OutlineStatus::Dropped)).expect("JSON");
            assert_eq!(read, list(&short), "{piece}");
            assert!(is_outline(&read["items"][1]) && !is_outline(&read["items"][0]));
        }
    }

    #[test]
    fn a_watch_keeps_its_lines() {
        let event = |of: &str, object: Value| json!({"type": of, "object": object});
        let bookmark =
            event("BOOKMARK", json!({"kind": "DaemonSet", "metadata": {"resourceVersion": "8"}, "spec": {}}));
        let expired = event("ERROR", json!({"kind": "Status", "metadata": {}, "status": "Failure"}));
        let events = [
            event("ADDED", daemon_set("b", 9)),
            bookmark,
            event("MODIFIED", daemon_set("whole", 9)),
            event("DELETED", daemon_set("c", 9)),
            expired,
        ];
        let text: String = events.iter().map(|event| ordered(event).replace('\n', "") + "\n").collect();
        let kept = |name| outline(name, &daemon_set(name, 9)["status"]);
        let mut expected = events.clone();
        (expected[0]["object"], expected[3]["object"]) = (kept("b"), kept("c"));
        for piece in [1, 5, text.len()] {
            let read = read(&text, piece, OutlineStatus::Kept);
            let lines: Vec<Value> = read.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
            assert_eq!(lines, expected, "{piece}");
        }
    }

    #[test]
    fn a_status_has_a_bound() {
        let text = ordered(&json!({"type": "ADDED", "object": daemon_set("b", LONGEST_STATUS)}));
        let read: Value = serde_json::from_str(&read(&text, 1000, OutlineStatus::Kept)).expect("JSON");
        assert_eq!(read["object"], outline("b", &Value::Null));
    }

    #[test]
    fn what_is_read_within_bounds_is_an_outline_beyond_them() {
        let read = |object: &Value, piece| -> Value {
            let text = ordered(&json!({"type": "ADDED", "object": object}));
            serde_json::from_str::<Value>(&read(&text, piece, OutlineStatus::Kept)).expect("JSON")["object"].take()
        };
        let small = daemon_set("bounded", 9);
        for piece in [1, 1000] {
            assert_eq!(read(&small, piece), small);
        }
        let mut large = small.clone();
        large["spec"]["text"] = json!("x".repeat(LONGEST_PART));
        assert_eq!(read(&large, 1000), {
            let mut outline = small.clone();
            outline["spec"] = Value::Null;
            outline
        });
        let mut large = small.clone();
        large["metadata"]["annotations"] = json!({"x": "x".repeat(LONGEST_PART)});
        assert_eq!(read(&large, 1000), outline("bounded", &small["status"]));
        large["metadata"]["name"] = json!("whole");
        assert_eq!(read(&large, 1000), large);
    }

    #[test]
    fn what_is_not_understood_passes() {
        for text in [
            "",
            "not found",
            "{\"kind\":\"Status\",\"metadata\":{},\"items\":7}",
            "]]}{\"items\":[{\"metadata\":[]}]}",
            "{\"items\":[{\"spec\":{},\"metadata\":{\"name\":\"b\"}}]}",
        ] {
            assert_eq!(read(text, 1, OutlineStatus::Dropped), text);
        }
    }
}
