//! The reader and the writer of YAML: whatever is read is written so that the same comes back.

use daemonlet::core::quantity;
use daemonlet::core::yaml;
use serde_json::Value;
use serde_json::json;

use super::mutate;

/// What must hold of any bytes.
///
/// # Panics
/// Where it does not.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for document in yaml::read_documents(text) {
        if let Ok(value) = document.value {
            comes_back(&value);
        }
    }
    // And the text itself, as a string in every place that one can stand in.
    let mut map = serde_json::Map::new();
    map.insert(text.to_owned(), json!([text, {"a": text}, [text]]));
    comes_back(&Value::Object(map));
    let text = Value::from(text);
    let _ = (quantity::canonical_value(&text), quantity::canonical_milli(&text));
}

/// `value` is the same after it was written and read.
fn comes_back(value: &Value) {
    let written = yaml::write(value);
    let read = yaml::read_documents(&written);
    if value.is_null() {
        return;
    }
    assert_eq!(read.len(), 1, "{written}");
    assert_eq!(read[0].value.as_ref().ok(), Some(value), "{:?}\n{written}", read[0].value.as_ref().err());
}

/// Other bytes that are still a document, most of the time; `None`: any other bytes will do.
pub fn change(data: &[u8], max: usize, seed: u32) -> Option<Vec<u8>> {
    if seed.is_multiple_of(4) { mutate::documents(data, max, seed) } else { None }
}
