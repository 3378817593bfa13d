//! The reader and the writer of YAML: whatever is read is written so that the same comes back.
#![no_main]

use daemonlet::core::quantity;
use daemonlet::core::yaml;
use daemonlet_fuzz::mutate;
use libfuzzer_sys::fuzz_mutator;
use libfuzzer_sys::fuzz_target;
use libfuzzer_sys::fuzzer_mutate;
use serde_json::Value;
use serde_json::json;

fuzz_target!(|data: &[u8]| {
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
});

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

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    if seed % 4 == 0
        && let Some(changed) = mutate::documents(&data[..size], max_size, seed)
    {
        data[..changed.len()].copy_from_slice(&changed);
        return changed.len();
    }
    fuzzer_mutate(data, size, max_size)
});
