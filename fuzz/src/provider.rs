//! The output of a credential provider.

use daemonlet::node::images;
use serde_json::Value;

use super::mutate;

/// What must hold of any bytes.
///
/// # Panics
/// Where it does not.
pub fn check(data: &[u8]) {
    let Err(why) = images::registries(data, "r.test/team/x") else { return };
    assert!(why.len() < 200, "{why}");
    let answer: Value = serde_json::from_slice(data).unwrap_or_default();
    for entry in answer["auth"].as_object().into_iter().flatten().map(|(_, entry)| entry) {
        for secret in ["username", "password"].iter().filter_map(|name| entry[*name].as_str()) {
            let is_a_word = secret.len() < 8
                || "a CredentialProviderResponse of credentialprovider.kubelet.k8s.io/v1".contains(secret);
            assert!(is_a_word || !why.contains(secret), "a message contains a secret: {why}");
        }
    }
}

/// Other bytes that are still a document, most of the time; `None`: any other bytes will do.
pub fn change(data: &[u8], max: usize, seed: u32) -> Option<Vec<u8>> {
    if !seed.is_multiple_of(4) { mutate::lines(data, max, seed) } else { None }
}
