//! What a runtime's words say about a pull that failed.
//!
//! Runtimes give a registry's answer as text alone; where nothing is recognised the registry counts as
//! away, which changes nothing unless the image is on the node already.

/// Why an image could not be pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The registry wants other credentials.
    Credentials,
    /// The registry answers, and does not have the image; or its content is not accepted.
    Image,
    /// The registry does not answer, or anything else.
    Away,
}

/// What containerd, CRI-O and the registries behind them say of missing or wrong credentials.
const CREDENTIALS: [&str; 9] = [
    "401 unauthorized",
    "403 forbidden",
    "authorization failed",
    "failed to authorize",
    "no basic auth credentials",
    "authentication required",
    "unauthorized:",
    "pull access denied",
    "requested access to the resource is denied",
];

/// What they say of an image that is not there, or that is not taken.
const IMAGE: [&str; 7] = [
    "not found",
    "manifest unknown",
    "name unknown",
    "404 ",
    "signaturevalidationfailed",
    "invalid reference format",
    "no match for platform",
];

/// A network that fails speaks of hosts and addresses; it comes first, as its words hold others' words.
const AWAY: [&str; 8] = [
    "no such host",
    "connection refused",
    "connection reset",
    "i/o timeout",
    "no route to host",
    "network is unreachable",
    "tls handshake timeout",
    "deadline exceeded",
];

/// What `words` mean.
pub fn refusal(words: &str) -> Refusal {
    let words = words.to_lowercase();
    let says = |list: &[&str]| list.iter().any(|text| words.contains(text));
    match () {
        () if says(&AWAY) => Refusal::Away,
        () if says(&CREDENTIALS) => Refusal::Credentials,
        () if says(&IMAGE) => Refusal::Image,
        () => Refusal::Away,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_words() {
        let resolve = "failed to pull and unpack image \"r.test/x:1\": failed to resolve reference \"r.test/x:1\": ";
        for (words, meaning) in [
            ("pulling from host r.test failed with status code [manifests 1]: 401 Unauthorized", Refusal::Credentials),
            ("pull access denied, repository does not exist or may require authorization", Refusal::Credentials),
            ("failed to authorize: failed to fetch anonymous token: 403 Forbidden", Refusal::Credentials),
            ("r.test/x:1: not found", Refusal::Image),
            ("reading manifest 1 in r.test/x: manifest unknown", Refusal::Image),
            ("failed to do request: Head \"https://r.test\": dial tcp: lookup r.test: no such host", Refusal::Away),
            (
                "failed to authorize: failed to fetch oauth token: dial tcp 1.2.3.4:443: connect: connection refused",
                Refusal::Away,
            ),
            ("unexpected status from HEAD request: 503 Service Unavailable", Refusal::Away),
            ("write /var/lib/x: no space left on device", Refusal::Away),
        ] {
            assert_eq!(refusal(&format!("{resolve}{words}")), meaning, "{words}");
        }
    }
}
