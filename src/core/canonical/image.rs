//! The default pull policy, which depends on the image's tag.

/// The `imagePullPolicy` that defaulting gives an image: `Always` for `:latest`, written or implied, else
/// `IfNotPresent`, which invalid image names get too (upstream's `SetDefaults_Container`).
pub(crate) fn default_pull_policy(image: &str) -> &'static str {
    if is_latest(image) { "Always" } else { "IfNotPresent" }
}

/// The grammar of `distribution/reference`, as far as it decides whether this is an image name.
fn is_latest(image: &str) -> bool {
    let (named, digest) = match image.split_once('@') {
        Some((named, digest)) => (named, Some(digest)),
        None => (image, None),
    };
    let last = named.rfind('/').map_or(0, |slash| slash + 1);
    let (name, tag) = match named[last..].split_once(':') {
        Some((_, tag)) => (&named[..named.len() - tag.len() - 1], Some(tag)),
        None => (named, None),
    };
    is_name(name) && tag.unwrap_or(if digest.is_none() { "latest" } else { "" }) == "latest"
}

fn is_name(name: &str) -> bool {
    if name.len() == 64 && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        return false;
    }
    let path = match name.split_once('/') {
        Some((host, path)) if is_host(host) => path,
        _ => name,
    };
    path.split('/').all(is_component)
}

/// What comes before the first slash is a host if it cannot be a path, or is `localhost`.
fn is_host(host: &str) -> bool {
    host.contains(['.', ':', '[']) || host == "localhost" || host.bytes().any(|b| b.is_ascii_uppercase())
}

/// Lower-case letters and digits, joined by one dot, one or two underscores, or dashes.
fn is_component(component: &str) -> bool {
    let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let joins = component.split(word).filter(|join| !join.is_empty());
    component.starts_with(word)
        && component.ends_with(word)
        && joins.into_iter().all(|join| matches!(join, "." | "_" | "__") || join.bytes().all(|b| b == b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Policies that a 1.36 API server fills in.
    #[test]
    fn by_tag() {
        let always = ["nginx", "nginx:latest", "a.b/c", "a.b:5000/c", "localhost/x", "localhost:5000/x:latest"];
        let always_too = ["x:latest@sha256:aaaa", "Registry.io/x", "a/b/c", "a__b/c-d", "a--b"];
        for image in always.into_iter().chain(always_too) {
            assert_eq!(default_pull_policy(image), "Always", "{image}");
        }
        let present = ["nginx:1", "a.b:5000/c:v1", "x@sha256:aaaa", "x:1@sha256:aaaa", "x:Latest", ""];
        let no_names = ["Upper", "a/Upper", "a//b", "{{ .Image }}", "a_-b", "-a", "a b", &"0a".repeat(32)];
        for image in present.into_iter().chain(no_names) {
            assert_eq!(default_pull_policy(image), "IfNotPresent", "{image}");
        }
    }
}
