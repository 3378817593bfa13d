//! Names as DNS has them (RFC 1123), which most names in Kubernetes are.

/// Why `name` is no DNS subdomain, upstream's `IsDNS1123Subdomain`.
pub fn subdomain(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        return Some("required");
    }
    if name.len() > 253 {
        return Some("must be no more than 253 bytes");
    }
    let good = name.split('.').all(is_label);
    (!good).then_some(
        "must be lower case letters, digits, '-' and '.', each part beginning and ending with a letter or digit",
    )
}

/// Why `name` is no DNS label, upstream's `IsDNS1123Label`.
pub fn label(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        return Some("required");
    }
    if name.len() > 63 {
        return Some("must be no more than 63 bytes");
    }
    (!is_label(name))
        .then_some("must be lower case letters, digits and '-', beginning and ending with a letter or digit")
}

/// A name that is one exactly if names can be made with `prefix`, a `generateName` (upstream's `maskTrailingDash`).
pub fn masked(prefix: &str) -> String {
    let before_last = prefix.strip_suffix('-').and_then(|rest| rest.get(..rest.len().checked_sub(1)?));
    before_last.map_or_else(|| prefix.to_owned(), |name| format!("{name}a"))
}

fn is_label(label: &str) -> bool {
    !label.is_empty()
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}
