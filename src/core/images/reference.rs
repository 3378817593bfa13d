//! Image names in the full form that registries and runtimes use.
//!
//! Follows `ParseNormalizedNamed` and `Familiar` names of `distribution/reference`.

/// The algorithms of digests (`opencontainers/go-digest`).
const ALGORITHMS: [&str; 4] = ["sha256", "sha384", "sha512", "blake3"];

/// The repository of `image` with its registry: `busybox:1` is `docker.io/library/busybox`.
pub fn repository(image: &str) -> String {
    let named = image.split_once('@').map_or(image, |(named, _)| named);
    let last = named.rfind('/').map_or(0, |slash| slash + 1);
    let named = match named[last..].find(':') {
        Some(colon) => &named[..last + colon],
        None => named,
    };
    match named.split_once('/') {
        Some(("docker.io" | "index.docker.io", path)) if path.contains('/') => format!("docker.io/{path}"),
        Some(("docker.io" | "index.docker.io", path)) => format!("docker.io/library/{path}"),
        Some((host, _)) if is_host(host) => named.to_owned(),
        Some(_) => format!("docker.io/{named}"),
        None => format!("docker.io/library/{named}"),
    }
}

/// The name under which a runtime stores `image`: with its digest, else with its tag, `latest` by default.
pub fn full_name(image: &str) -> String {
    let repository = repository(image);
    if let Some((_, digest)) = image.split_once('@') {
        return format!("{repository}@{digest}");
    }
    let last = image.rfind('/').map_or(0, |slash| slash + 1);
    let tag = image[last..].split_once(':').map_or("latest", |(_, tag)| tag);
    format!("{repository}:{tag}")
}

/// Whether a runtime takes `image` for the ID of an image that it has: a digest or hexadecimal digits alone. containerd
/// (`LocalResolve`) and CRI-O look those up among their IDs, in full or shortened, whatever the image's name is.
pub fn is_id(image: &str) -> bool {
    let is_hex = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match image.split_once(':') {
        Some((algorithm, hex)) => ALGORITHMS.contains(&algorithm.to_ascii_lowercase().as_str()) && is_hex(hex),
        None => is_hex(image),
    }
}

/// What precedes the first slash is a host if it cannot be a path component, or is `localhost`.
pub fn is_host(host: &str) -> bool {
    host.contains(['.', ':']) || host == "localhost" || host.bytes().any(|b| b.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_runtime_takes_for_an_id() {
        let full = "0123456789abcdef".repeat(4);
        for id in [&full, "beef", "0", "sha256:beef", &format!("sha256:{full}"), "SHA256:BEEF", "sha512:00"] {
            assert!(is_id(id), "{id}");
        }
        let digest = format!("beef@sha256:{full}");
        for name in
            ["beef:1", "beefy", "a/beef", &digest, "sha256", "sha256:v1", "sha256:", "beef:00", "", "a.b:5000/beef"]
        {
            assert!(!is_id(name), "{name}");
        }
    }

    /// What `distribution/reference` makes of them.
    #[test]
    fn names_are_written_out() {
        for (image, repo, full) in [
            ("busybox", "docker.io/library/busybox", "docker.io/library/busybox:latest"),
            ("a/b:1", "docker.io/a/b", "docker.io/a/b:1"),
            ("docker.io/x", "docker.io/library/x", "docker.io/library/x:latest"),
            ("index.docker.io/a/b", "docker.io/a/b", "docker.io/a/b:latest"),
            ("localhost/x:2", "localhost/x", "localhost/x:2"),
            ("r.test:5000/x", "r.test:5000/x", "r.test:5000/x:latest"),
            ("r.test:5000/a/x:v1@sha256:ab", "r.test:5000/a/x", "r.test:5000/a/x@sha256:ab"),
            ("[::1]:5000/x:1", "[::1]:5000/x", "[::1]:5000/x:1"),
        ] {
            assert_eq!((repository(image).as_str(), full_name(image).as_str()), (repo, full), "{image}");
        }
    }
}
