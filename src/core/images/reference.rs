//! Image names in the full form that registries and runtimes use.
//!
//! Follows `ParseNormalizedNamed` and `Familiar` names of `distribution/reference`.

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

/// What precedes the first slash is a host if it cannot be a path component, or is `localhost`.
fn is_host(host: &str) -> bool {
    host.contains(['.', ':']) || host == "localhost" || host.bytes().any(|b| b.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

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
