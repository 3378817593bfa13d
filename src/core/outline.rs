//! Shortens DaemonSets that are not selected while a list or a watch of them is read.
//!
//! Owns which bytes of a response pass: of a DaemonSet that is not read whole its identity alone, with `spec: null` as the
//! mark of an outline. Of one whose size is bounded a spec that is too large is replaced by what it has too much of. At most
//! the metadata and the bounded spec of one object are held at a time. Must not decide which are read whole: that is an
//! argument. What it does not understand passes as it is.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;

use crate::core::bounds::TENANT;
use crate::core::json::Json;
use crate::core::model::FieldError;
use crate::core::model::MODE_LABEL;

/// A status that is longer, in bytes, is left out, unless the DaemonSet is read whole.
const LONGEST_STATUS: usize = 64 << 10;
/// Metadata, or a spec, whose size is bounded are left out if they have more bytes as JSON: texts may take twice as many
/// there.
const LONGEST_PART: usize = 2 * TENANT.template;
/// How many maps, lists and commas such a spec may have: each value has at most two of them, and a map takes 50 times its
/// text in memory.
const MOST_VALUES: usize = 2 * TENANT.values + 2048;
/// How much of a revision's template is read: bytes, and maps, lists and commas. It was read as a spec once.
pub const OF_TEMPLATE: (usize, usize) = (LONGEST_PART + LONGEST_STATUS, MOST_VALUES);
/// No key that is looked for has more bytes.
const LONGEST_KEY: usize = 16;

/// Why a spec with `template`, or metadata with these `annotations`, would not be read, as far as they tell: the API server writes
/// the whole object and knows more of it.
pub fn would_be_too_large(template: &Value, annotations: &BTreeMap<String, String>) -> Option<FieldError> {
    let length = |part: String| part.len();
    let parts = [
        ("spec", length(template.to_string())),
        ("metadata", length(Value::from_iter(annotations.clone()).to_string())),
    ];
    let (field, _) = parts.into_iter().find(|(_, length)| *length > LONGEST_PART)?;
    too_large(&serde_json::json!({"spec": [field, format!("has more than {LONGEST_PART} bytes as JSON")]}))
}

/// What the metadata of a DaemonSet say before the rest of it is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonSetMetadata {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub resource_version: String,
    pub labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
}

/// How much of a DaemonSet is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadDepth {
    /// That it exists.
    Outline,
    /// All of it, as far as its size allows ([`too_large`]).
    Bounded,
    /// All of it.
    Whole,
}

/// What is read of the status of a DaemonSet that is not read whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutlineStatus {
    /// Nothing.
    Dropped,
    /// All of it, unless it has more than 64 KiB.
    Kept,
}

/// Whether an object is an outline, which says that the DaemonSet exists and not what it defines.
pub fn is_outline(object: &Value) -> bool {
    object.get("spec") == Some(&Value::Null)
}

/// Of what an object has so much that its spec was left out; `None`: its spec was read.
pub fn too_large(object: &Value) -> Option<FieldError> {
    let [field, reason] = object.list_at("spec") else { return None };
    let text = |value: &Value| value.as_str().map(str::to_owned);
    Some(FieldError { field: text(field)?, reason: text(reason)?, hint: Some(TENANT.hint()) })
}

/// What stands in place of a spec that is left out, as [`too_large`] reads it.
fn left_out(field: &str, most: usize, what: &str) -> String {
    Value::from(vec![field.to_owned(), format!("has more than {most} {what} as JSON")]).to_string()
}

/// How the value that is being read is treated.
#[derive(Debug)]
enum Sink {
    Pass,
    Drop,
    Metadata(Vec<u8>),
    Status(Vec<u8>),
    /// A spec whose size is bounded, with the number of its maps, lists and commas so far.
    Spec(Vec<u8>, usize),
}

/// How much of an item is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// Its metadata have not been read yet.
    Undecided,
    Whole,
    Bounded,
    Outline,
    /// Its metadata are too large.
    TooLarge,
}

/// The object of a list or of a watch's event that is being read.
#[derive(Debug)]
struct OutlinedItem {
    /// How deep its fields are nested.
    depth: usize,
    extent: Extent,
}

/// The reader of one response.
#[derive(Debug)]
pub struct Outliner {
    status: OutlineStatus,
    /// Whether the response is one object.
    is_one: bool,
    depth: usize,
    in_string: bool,
    is_escaped: bool,
    /// Whether the next string of the document or of the item is a key.
    expects_key: bool,
    reads_key: bool,
    key: Vec<u8>,
    /// The last key of the document itself.
    root_key: Vec<u8>,
    item: Option<OutlinedItem>,
    sink: Sink,
}

impl Outliner {
    /// At the beginning of a response that is one object.
    pub fn of_one(status: OutlineStatus) -> Self {
        Self { is_one: true, ..Self::new(status) }
    }

    /// At the beginning of a list or of a watch.
    pub fn new(status: OutlineStatus) -> Self {
        Self {
            status,
            is_one: false,
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

    /// Reads the next `bytes` of the response; gives what of it is to be read on. `reading`: how much of an object is read.
    pub fn feed(&mut self, bytes: &[u8], reading: &impl Fn(&DaemonSetMetadata) -> ReadDepth) -> Vec<u8> {
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

    fn structure(&mut self, byte: u8, reading: &impl Fn(&DaemonSetMetadata) -> ReadDepth, out: &mut Vec<u8>) {
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
                    self.item = Some(OutlinedItem { depth: self.depth + 1, extent: Extent::Undecided });
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
            _ if self.is_one => 0,
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
            // The fields before its metadata have passed.
            (Extent::Undecided, b"spec" | b"status") => item.extent = Extent::Whole,
            (Extent::Outline | Extent::TooLarge, b"status") if self.status == OutlineStatus::Kept => {
                self.sink = Sink::Status(Vec::new());
            }
            (Extent::Bounded, b"spec") => self.sink = Sink::Spec(Vec::new(), 0),
            (Extent::Bounded, b"status") => self.sink = Sink::Status(Vec::new()),
            (Extent::TooLarge, b"spec") => {
                out.extend(left_out("metadata", LONGEST_PART, "bytes").into_bytes());
                self.sink = Sink::Drop;
            }
            (Extent::Outline | Extent::TooLarge, b"spec" | b"status") => {
                out.extend(b"null");
                self.sink = Sink::Drop;
            }
            _ => {}
        }
    }

    fn end_value(&mut self, reading: &impl Fn(&DaemonSetMetadata) -> ReadDepth, out: &mut Vec<u8>) {
        match std::mem::replace(&mut self.sink, Sink::Pass) {
            Sink::Pass | Sink::Drop => {}
            Sink::Status(read) | Sink::Spec(read, _) => out.extend(read),
            Sink::Metadata(raw) => {
                let metadata =
                    serde_json::from_slice::<DaemonSetMetadata>(&raw).ok().filter(|read| !read.name.is_empty());
                let extent = match metadata.as_ref().map(reading) {
                    Some(ReadDepth::Outline) => Extent::Outline,
                    Some(ReadDepth::Bounded) if raw.len() > LONGEST_PART => Extent::TooLarge,
                    Some(ReadDepth::Bounded) => Extent::Bounded,
                    Some(ReadDepth::Whole) | None => Extent::Whole,
                };
                let is_short = matches!(extent, Extent::Outline | Extent::TooLarge);
                let short = metadata.filter(|_| is_short).map(|metadata| shortened(metadata, extent));
                self.item.iter_mut().for_each(|item| item.extent = extent);
                out.extend(short.and_then(|short| serde_json::to_vec(&short).ok()).unwrap_or(raw));
            }
        }
    }

    fn put(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let is_value = |byte: &&u8| matches!(byte, b'{' | b'[' | b',');
        let more = if self.in_string { 0 } else { bytes.iter().filter(is_value).count() };
        match &mut self.sink {
            Sink::Pass => out.extend(bytes),
            Sink::Drop => {}
            Sink::Metadata(raw) => raw.extend(bytes),
            Sink::Status(raw) if raw.len() + bytes.len() <= LONGEST_STATUS => raw.extend(bytes),
            Sink::Status(_) => {
                out.extend(b"null");
                self.sink = Sink::Drop;
            }
            Sink::Spec(raw, _) if raw.len() + bytes.len() > LONGEST_PART => {
                out.extend(left_out("spec", LONGEST_PART, "bytes").into_bytes());
                self.sink = Sink::Drop;
            }
            Sink::Spec(_, values) if *values + more > MOST_VALUES => {
                out.extend(left_out("spec", MOST_VALUES, "maps, lists and commas").into_bytes());
                self.sink = Sink::Drop;
            }
            Sink::Spec(raw, values) => {
                raw.extend(bytes);
                *values += more;
            }
        }
    }
}

/// Without labels but the mode. Of what is selected it stays known whether its pods are to stay.
fn shortened(mut metadata: DaemonSetMetadata, extent: Extent) -> DaemonSetMetadata {
    metadata.labels.retain(|name, _| name == MODE_LABEL);
    metadata.finalizers.retain(|finalizer| extent == Extent::TooLarge && finalizer == "orphan");
    metadata.finalizers.truncate(1);
    metadata
}

#[cfg(test)]
mod tests;
