//! The names of records' files.

use crate::node::manifests::sha256;

/// Names of records longer than this are shortened; with `.json` and `.bad-<n>` appended, a name stays below the file
/// system limit of 255 bytes.
const MAX_NAME: usize = 200;

/// The file of the record `name`: the name itself, or shortened with a hash if it is too long or not a plain file
/// name.
pub(super) fn file_name(name: &str) -> String {
    let plain = !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0']);
    if plain && name.len() <= MAX_NAME {
        return format!("{name}.json");
    }
    let hash = &sha256(name.as_bytes())[..16];
    let mut short: String = name.trim_start_matches('.').replace(['/', '\0'], "_");
    let mut end = short.len().min(MAX_NAME - 1 - hash.len());
    while !short.is_char_boundary(end) {
        end -= 1;
    }
    short.truncate(end);
    format!("{short}-{hash}.json")
}
