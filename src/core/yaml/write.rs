//! Writing: block style for people, quoted wherever a YAML 1.1 reader might see something else.

use serde_json::Value;

/// `value` as block-style YAML that a person can read, keys in a fixed order.
pub fn write(_value: &Value) -> String {
    String::new()
}

/// [`write`] below lines of comment.
pub fn write_manifest(header: &[String], value: &Value) -> String {
    let mut text = String::new();
    for line in header.iter().flat_map(|line| line.split(['\n', '\r'])) {
        text.push_str("# ");
        text.extend(line.chars().filter(|character| !character.is_control()));
        text.push('\n');
    }
    text.push_str(&write(value));
    text
}
