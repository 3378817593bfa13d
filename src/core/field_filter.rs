//! Keeps of the objects of a response no more than the fields that are read, while the response comes in.
//!
//! Owns which bytes pass: of each object of a list, of a watch's event, or of the object itself the fields that the caller
//! names. Of an object that has more of them than a bound its identity alone passes, with the mark `tooLarge`, so that
//! no reader takes a part for the whole. At most that much of one object is held at a time. What is not an object passes as it
//! is.

use serde_json::Value;

use crate::core::json::Json;

/// How much of one object passes, in bytes, unless the caller sets another bound.
const LONGEST: usize = 128 << 10;
/// How many maps, lists and commas: a map takes 50 times its text in memory.
const MOST_VALUES: usize = 4096;
/// The fields of the metadata that pass whatever the size of the object is.
const IDENTITY: [&[u8]; 4] = [b"name", b"namespace", b"uid", b"resourceVersion"];
/// The mark of an object that is too large.
const TOO_LARGE: &str = "tooLarge";

/// Which part of a value is kept. Lists are looked through: a rule for a list applies to each of its items.
#[derive(Debug)]
pub enum FieldSelection {
    All,
    /// Of a map these fields; what is no map passes.
    Of(&'static [(&'static str, FieldSelection)]),
    /// Of an object of the API these fields, what kind it is, and, if it is a watch's error, all of that.
    Object(&'static [(&'static str, FieldSelection)]),
}

/// The fields of every object, and of a `Status`.
static STATUS_FIELDS: [(&str, FieldSelection); 7] = [
    ("kind", FieldSelection::All),
    ("apiVersion", FieldSelection::All),
    ("status", FieldSelection::All),
    ("message", FieldSelection::All),
    ("reason", FieldSelection::All),
    ("code", FieldSelection::All),
    ("details", FieldSelection::All),
];

impl FieldSelection {
    fn get(&'static self, key: &[u8]) -> Option<&'static FieldSelection> {
        match self {
            Self::All => Some(&Self::All),
            Self::Of(fields) => find(fields, key),
            Self::Object(fields) => find(fields, key).or_else(|| find(&STATUS_FIELDS, key)),
        }
    }
}

fn find(fields: &'static [(&'static str, FieldSelection)], key: &[u8]) -> Option<&'static FieldSelection> {
    fields.iter().find(|(name, _)| name.as_bytes() == key).map(|(_, fields)| fields)
}

/// Whether only the identity of an object was read, because it is too large.
pub fn is_too_large(object: &Value) -> bool {
    object.flag_at([TOO_LARGE])
}

/// The words for an object that is.
pub fn too_large() -> String {
    format!("has more than {} KiB, or {MOST_VALUES} maps, lists and commas, of what is read of it", LONGEST >> 10)
}

/// Where the objects of a response are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseShape {
    /// It is one.
    Whole,
    /// In a list, or in the events of a watch.
    Items,
}

/// The reader of one response.
#[derive(Debug)]
pub struct FieldFilter {
    fields: &'static FieldSelection,
    place: ResponseShape,
    /// How much of one object passes: bytes, and values.
    most: (usize, usize),
    in_string: bool,
    is_escaped: bool,
    /// How deep what is no object is nested.
    depth: usize,
    /// The string that is read now or was read last, if it began at the first level of the document.
    text: Vec<u8>,
    /// The last key of the document itself.
    key: Vec<u8>,
    item: Option<FilteredItem>,
}

impl FieldFilter {
    /// At the beginning of a response.
    pub fn new(fields: &'static FieldSelection, place: ResponseShape) -> Self {
        let (text, key) = (Vec::new(), Vec::new());
        let most = (LONGEST, MOST_VALUES);
        Self { fields, place, most, in_string: false, is_escaped: false, depth: 0, text, key, item: None }
    }

    /// The same with another bound of one object: bytes, and maps, lists and commas.
    pub fn at_most(self, (bytes, values): (usize, usize)) -> Self {
        Self { most: (bytes, values), ..self }
    }

    /// Reads the next `bytes` of the response; gives the part that passes.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut rest = bytes;
        while let Some(byte) = rest.first() {
            let plain = match (self.in_string, self.is_escaped) {
                (true, false) => rest.iter().position(|byte| matches!(byte, b'"' | b'\\')).unwrap_or(rest.len()),
                _ => 0,
            };
            let (now, later) = rest.split_at(plain.max(1));
            rest = later;
            match self.in_string {
                true => self.in_text(now, plain > 0, &mut out),
                false => self.structure(*byte, &mut out),
            }
        }
        out
    }

    fn in_text(&mut self, bytes: &[u8], is_plain: bool, out: &mut Vec<u8>) {
        let ends = !is_plain && !self.is_escaped && bytes == b"\"";
        self.is_escaped = !is_plain && !self.is_escaped && bytes == b"\\";
        self.in_string = !ends;
        match &mut self.item {
            Some(item) => item.text(bytes, ends),
            None => {
                out.extend(bytes);
                if !ends && self.text.len() < 16 {
                    self.text.extend(bytes.iter().take(16));
                }
            }
        }
    }

    fn structure(&mut self, byte: u8, out: &mut Vec<u8>) {
        self.in_string = byte == b'"';
        if let Some(item) = &mut self.item {
            if item.structure(byte) {
                out.extend(item.end());
                self.item = None;
            }
            return;
        }
        match byte {
            b'{' if self.begins_item() => {
                self.item = Some(FilteredItem::new(self.fields, self.most));
                return;
            }
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                // The next document has keys of its own.
                if self.depth == 0 {
                    self.key.clear();
                }
            }
            b'"' => self.text.clear(),
            b':' if self.depth == 1 => self.key.clone_from(&self.text),
            _ => {}
        }
        out.push(byte);
    }

    fn begins_item(&self) -> bool {
        match (self.place, self.key.as_slice()) {
            (ResponseShape::Whole, _) => self.depth == 0,
            (ResponseShape::Items, b"object") => self.depth == 1,
            (ResponseShape::Items, b"items") => self.depth == 2,
            (ResponseShape::Items, _) => false,
        }
    }
}

/// A map or a list of an object that is being read.
#[derive(Debug)]
struct Frame {
    is_map: bool,
    fields: &'static FieldSelection,
    /// Of a map: what is kept of the value that comes.
    next: &'static FieldSelection,
    is_empty: bool,
    /// Whether a key comes, or the next item of a list.
    is_between: bool,
}

impl Frame {
    fn new(is_map: bool, fields: &'static FieldSelection) -> Self {
        Self { is_map, fields, next: fields, is_empty: true, is_between: true }
    }
}

/// The object that is being read.
#[derive(Debug)]
struct FilteredItem {
    frames: Vec<Frame>,
    /// How deep what is left out is nested, if something is.
    skipped: Option<usize>,
    reads_key: bool,
    key: Vec<u8>,
    kept: Vec<u8>,
    values: usize,
    most: (usize, usize),
    /// Whether it is too large; then `skipped` counts from the object itself.
    is_too_large: bool,
    in_metadata: bool,
    in_identity: bool,
    identity: Vec<u8>,
    /// Where in `identity` the fields before the one that is read end.
    identity_ends: usize,
}

impl FilteredItem {
    fn new(fields: &'static FieldSelection, most: (usize, usize)) -> Self {
        Self {
            frames: vec![Frame::new(true, fields)],
            skipped: None,
            reads_key: false,
            key: Vec::new(),
            kept: vec![b'{'],
            values: 1,
            most,
            is_too_large: false,
            in_metadata: false,
            in_identity: false,
            identity: Vec::new(),
            identity_ends: 0,
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.skipped.is_some() {
            return;
        }
        self.kept.extend(bytes);
        if self.in_identity {
            self.identity.extend(bytes);
        }
        if self.kept.len() > self.most.0 || self.values > self.most.1 {
            self.is_too_large = true;
            self.kept = Vec::new();
            self.skipped = Some(self.frames.len());
            // Of a field of the identity the beginning alone would be no JSON.
            if self.in_identity {
                self.identity.truncate(self.identity_ends);
            }
        }
    }

    /// What is in a string; `ends`: its last quote.
    fn text(&mut self, bytes: &[u8], ends: bool) {
        match (self.reads_key, ends) {
            (true, true) => self.reads_key = false,
            (true, false) if self.key.len() <= LONGEST => self.key.extend(bytes),
            (true, false) => {}
            (false, _) => self.keep(bytes),
        }
    }

    /// Reads a byte outside of strings. Whether the object ends.
    fn structure(&mut self, byte: u8) -> bool {
        if let Some(depth) = self.skipped {
            match byte {
                b'{' | b'[' => self.skipped = Some(depth + 1),
                b'}' | b']' if depth > 0 => {
                    self.skipped = Some(depth - 1);
                    return self.is_too_large && depth == 1;
                }
                b'}' | b']' | b',' if depth == 0 => self.skipped = None,
                _ => {}
            }
            if self.skipped.is_some() {
                return false;
            }
        }
        match byte {
            b'"' if self.frames.last().is_some_and(|frame| frame.is_map && frame.is_between) => {
                self.reads_key = true;
                self.key.clear();
            }
            b':' => self.field(),
            b',' => {
                self.in_identity &= self.frames.len() > 2;
                self.values += 1;
                self.frames.iter_mut().last().into_iter().for_each(|frame| frame.is_between = true);
            }
            b'{' | b'[' => {
                self.begin_value();
                self.values += 1;
                let fields = self.frames.last().map_or(&FieldSelection::All, |frame| frame.next);
                self.keep(&[byte]);
                self.frames.push(Frame::new(byte == b'{', fields));
                // It was counted before it was there.
                self.skipped = self.skipped.map(|depth| depth + 1);
            }
            b'}' | b']' => {
                self.in_identity &= self.frames.len() > 2;
                self.frames.pop();
                self.keep(&[byte]);
                return self.frames.is_empty();
            }
            _ if byte.is_ascii_whitespace() => {}
            _ => {
                self.begin_value();
                self.keep(&[byte]);
            }
        }
        false
    }

    /// Of a list the next item begins, if the last one has ended.
    fn begin_value(&mut self) {
        let Some(frame) = self.frames.last_mut().filter(|frame| !frame.is_map && frame.is_between) else { return };
        frame.is_between = false;
        if !std::mem::replace(&mut frame.is_empty, false) {
            self.keep(b",");
        }
    }

    /// The key of a map was read, and its value comes.
    fn field(&mut self) {
        if self.frames.len() == 1 {
            self.in_metadata = self.key == b"metadata";
        }
        // A key within a field of the identity belongs to it.
        self.in_identity &= self.frames.len() > 2;
        let is_identity = self.frames.len() == 2 && self.in_metadata && IDENTITY.contains(&self.key.as_slice());
        let Some(frame) = self.frames.last_mut().filter(|frame| frame.is_map && frame.is_between) else { return };
        frame.is_between = false;
        let Some(fields) = frame.fields.get(&self.key) else {
            self.skipped = Some(0);
            return;
        };
        frame.next = fields;
        if !std::mem::replace(&mut frame.is_empty, false) {
            self.keep(b",");
        }
        if self.skipped.is_some() {
            return;
        }
        if is_identity {
            self.identity_ends = self.identity.len();
        }
        if is_identity && !self.identity.is_empty() {
            self.identity.push(b',');
        }
        self.in_identity |= is_identity;
        let key = std::mem::take(&mut self.key);
        [b"\"", key.as_slice(), b"\":"].into_iter().for_each(|part| self.keep(part));
        self.key = key;
    }

    /// The part that passes.
    fn end(&mut self) -> Vec<u8> {
        if !self.is_too_large {
            return std::mem::take(&mut self.kept);
        }
        let mut identity = b"{\"metadata\":{".to_vec();
        identity.append(&mut self.identity);
        identity.extend(format!("}},\"spec\":null,\"status\":null,\"{TOO_LARGE}\":true}}").into_bytes());
        identity
    }
}

#[cfg(test)]
mod tests;
