//! What a runtime's error text means for a failed pull.
//!
//! Runtimes pass a registry's answer on only as text. If nothing in it is recognised, the registry counts as
//! unreachable; that makes a difference only when the image is already on the node.

/// Why an image could not be pulled. Of several attempts the greatest counts: an answer to other credentials says nothing of
/// those with which the registry was away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum Refusal {
    /// The registry answers that it does not have the image, or the image's content is not accepted.
    Image,
    /// The registry requires other credentials.
    Credentials,
    /// The registry does not answer, or any other error.
    Away,
}

/// Texts of containerd, CRI-O and registries for missing or wrong credentials.
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

/// Their texts for an image that does not exist or is not accepted.
const IMAGE: [&str; 7] = [
    "not found",
    "manifest unknown",
    "name unknown",
    "404 ",
    "signaturevalidationfailed",
    "invalid reference format",
    "no match for platform",
];

/// Texts of network failures, which name hosts and addresses. Checked first, because they quote other texts.
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

/// What the error text `words` means.
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
    fn one_attempt_that_reached_no_registry_outweighs_the_answers_to_others() {
        for (attempts, meaning) in [
            (["401 Unauthorized", "unexpected status: 503 Service Unavailable"], Refusal::Away),
            (["401 Unauthorized", "r.test/x:1: not found"], Refusal::Credentials),
        ] {
            assert_eq!(attempts.into_iter().map(refusal).max(), Some(meaning), "{attempts:?}");
        }
    }

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
