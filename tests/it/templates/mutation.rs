//! Mutations of a DaemonSet: one or two fields, chosen by a number that names them all.

use std::collections::BTreeSet;

use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use super::values::MORE;
use super::values::NUMBERS;
use super::values::TEXTS;

/// Gives one mutated document after the other.
pub(super) struct Mutator<'a> {
    state: u64,
    documents: &'a [(String, Value)],
    kinds: BTreeSet<String>,
}

impl<'a> Mutator<'a> {
    pub(super) fn new(seed: u64, documents: &'a [(String, Value)]) -> Self {
        Self { state: seed, documents, kinds: BTreeSet::new() }
    }

    /// How many kinds of mutation there were: operations on fields, wherever in a list these stand.
    pub(super) fn kinds(&self) -> usize {
        self.kinds.len()
    }

    /// What was done, and the document that it gave.
    pub(super) fn next(&mut self) -> (String, Value) {
        // Half of them from our own documents, which come first and have every field.
        let among = if self.below(2) == 0 { self.documents.len().min(3) } else { self.documents.len() };
        let (name, value) = &self.documents[self.below(among)];
        let (mut value, mut description) = (value.clone(), name.clone());
        let changes = 1 + usize::from(self.below(4) == 0);
        for _ in 0..changes {
            let done = if self.below(3) == 0 { self.add(&mut value) } else { self.change(&mut value) };
            description = format!("{description}: {done}");
        }
        (description, value)
    }

    /// Steele, Lea and Flood's SplitMix64.
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.random() % bound.max(1) as u64).expect("it is small")
    }

    fn one<'t, T>(&mut self, among: &'t [T]) -> &'t T {
        &among[self.below(among.len())]
    }

    fn kind(&mut self, pointer: &str, operation: &str) {
        let general =
            |part: &str| if part.bytes().all(|b| b.is_ascii_digit()) { "*".to_owned() } else { part.to_owned() };
        let path: Vec<String> = pointer.split('/').skip(1).map(general).collect();
        self.kinds.insert(format!("{} {operation}", path.join("/")));
    }

    /// Puts a field of [`MORE`] somewhere.
    fn add(&mut self, value: &mut Value) -> String {
        let (end, field, text) = *self.one(MORE);
        let spec = "/spec/template/spec";
        let parent = match end.strip_suffix("/*") {
            None => spec.to_owned(),
            Some(list) => {
                let length = value.pointer(&format!("{spec}{list}")).and_then(Value::as_array).map_or(0, Vec::len);
                if length == 0 {
                    return self.change(value);
                }
                format!("{spec}{list}/{}", self.below(length))
            }
        };
        let put: Value = serde_json::from_str(text).expect("JSON");
        self.kind(&format!("{parent}/{field}"), text);
        if let Some(Value::Object(map)) = value.pointer_mut(&parent) {
            // A volume has one source.
            if end == "/volumes/*" && self.below(4) > 0 {
                map.retain(|name, _| name == "name");
            }
            map.insert(field.to_owned(), put);
        }
        format!("{parent}/{field} = {text}")
    }

    /// Changes a field that is there.
    fn change(&mut self, value: &mut Value) -> String {
        let mut pointers = Vec::new();
        for part in ["/metadata", "/spec"] {
            below(value.pointer(part).unwrap_or(&Value::Null), part, &mut pointers);
        }
        pointers.retain(|pointer| pointer != "/metadata/name");
        let pointer = self.one(&pointers).clone();
        let (parent, field) = pointer.rsplit_once('/').expect("it has one");
        let Some(found) = value.pointer(&pointer).cloned() else { return String::new() };
        let (operation, new) = self.operation(&found);
        self.kind(&pointer, operation);
        match (value.pointer_mut(parent), new.clone()) {
            (Some(Value::Object(map)), None) => drop(map.remove(&unescaped(field))),
            (Some(Value::Array(list)), None) => drop(list.remove(field.parse().expect("an index"))),
            (Some(Value::Object(map)), Some(new)) => drop(map.insert(unescaped(field), new)),
            (Some(Value::Array(list)), Some(new)) => list[field.parse::<usize>().expect("an index")] = new,
            _ => {}
        }
        format!("{pointer} {operation} {}", new.unwrap_or_default())
    }

    /// What to do with a value: the operation's name and the new value; `None` takes the field away.
    fn operation(&mut self, found: &Value) -> (&'static str, Option<Value>) {
        match self.below(8) {
            0 => return ("away", None),
            1 => return ("null", Some(Value::Null)),
            _ => {}
        }
        match found {
            Value::String(_) => ("text", Some(json!(*self.one(TEXTS)))),
            Value::Number(_) => ("number", Some(json!(*self.one(NUMBERS)))),
            Value::Bool(flag) => ("turned", Some(json!(!flag))),
            Value::Null => ("empty", Some(json!({}))),
            Value::Array(list) => self.of_list(list),
            Value::Object(map) => self.of_map(map),
        }
    }

    fn of_list(&mut self, list: &[Value]) -> (&'static str, Option<Value>) {
        let mut new = list.to_vec();
        match (self.below(4), list.first()) {
            (0, _) | (_, None) => ("emptied", Some(json!([]))),
            (1, Some(_)) => {
                let again = self.one(list).clone();
                new.push(again);
                ("twice", Some(Value::Array(new)))
            }
            (2, Some(Value::Object(_))) => {
                new.push(json!({}));
                ("with an empty one", Some(Value::Array(new)))
            }
            _ => {
                new.reverse();
                ("reversed", Some(Value::Array(new)))
            }
        }
    }

    fn of_map(&mut self, map: &Map<String, Value>) -> (&'static str, Option<Value>) {
        let mut new = map.clone();
        let texts = map.values().all(Value::is_string);
        if texts && self.below(2) == 0 {
            new.insert((*self.one(TEXTS)).to_owned(), json!(*self.one(TEXTS)));
            return ("with an entry", Some(Value::Object(new)));
        }
        ("emptied", Some(json!({})))
    }
}

/// Pointers of everything below a value.
fn below(value: &Value, pointer: &str, pointers: &mut Vec<String>) {
    let mut go = |name: &str, value: &Value| {
        let pointer = format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"));
        below(value, &pointer, pointers);
        pointers.push(pointer);
    };
    match value {
        Value::Object(map) => map.iter().for_each(|(name, value)| go(name, value)),
        Value::Array(list) => list.iter().enumerate().for_each(|(index, value)| go(&index.to_string(), value)),
        _ => {}
    }
}

fn unescaped(name: &str) -> String {
    name.replace("~1", "/").replace("~0", "~")
}
