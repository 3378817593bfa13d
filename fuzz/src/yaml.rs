//! The reader and the writer of YAML: whatever is read is written so that the same comes back. And any text on its way to
//! a terminal or a log.

use daemonlet::core::escape;
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
    obeys_nothing(text);
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

/// What a terminal or the reader of a log would obey: control characters, ends of lines, and what turns letters around.
fn is_obeyed(c: char) -> bool {
    let turns = ['\u{200e}', '\u{200f}', '\u{2028}', '\u{2029}', '\u{61c}'];
    c.is_control()
        || turns.contains(&c)
        || ('\u{202a}'..='\u{202e}').contains(&c)
        || ('\u{2066}'..='\u{2069}').contains(&c)
}

/// Neither a terminal nor a log obeys `text`, but for the lines and colours of this program.
fn obeys_nothing(text: &str) {
    let line = escape::line(text);
    assert!(!line.chars().any(is_obeyed), "{line:?}");
    assert!(!escape::lines(text).chars().any(|c| c != '\n' && is_obeyed(c)), "{text:?}");
    let mut shown = escape::terminal(text).into_owned();
    for colour in ["0", "31", "32", "33", "36"] {
        shown = shown.replace(&format!("\u{1b}[{colour}m"), "");
    }
    assert!(!shown.chars().any(|c| c != '\n' && is_obeyed(c)), "{shown:?}");
    for most in [0, 7, escape::TEXT] {
        let short = escape::short(text, most);
        assert!(short.len() <= most + 40, "{}", short.len());
        // A text may look as a longer one that was shortened.
        assert!(short == text || text.len() > most);
    }
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
