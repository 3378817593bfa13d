//! An instance's identity: UID and pod name, from template, node and incarnation and nothing else.
//!
//! Owns the hash functions that every restart depends on: if any hashed byte changes, every daemon on every node is
//! replaced. Must not use labels, objects, versions or addresses.

use sha1::Digest;
use sha1::Sha1;
use uuid::Builder;
use uuid::Uuid;

use crate::core::model::ObjectKey;

/// The namespace of our UUIDs. Must never change.
const NAMESPACE: Uuid =
    Uuid::from_bytes([0x5b, 0x0f, 0x1d, 0x4e, 0x62, 0xc7, 0x4a, 0x39, 0x9e, 0x18, 0xd3, 0x71, 0xc4, 0xa6, 0x2f, 0x80]);
/// The version of the encoding, its first field.
const ENCODING: &str = "daemonlet instance 1";
/// Upstream's alphabet for generated names: no vowels, no characters that look alike.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// The length of a pod name's generated suffix, as upstream.
const SUFFIX: usize = 5;
/// The longest name of a pod.
const MAX_POD_NAME: usize = 253;

/// UID and pod name of one instance.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Identity {
    /// The pod UID (UUIDv5, lower case with dashes).
    pub uid: String,
    /// The pod's name without the node's: `<daemonset>-<5 characters>`.
    pub pod_name: String,
}

/// The identity of `incarnation` of the daemon `key` with the canonical template `canonical` on `node`.
///
/// `canonical` is the JSON of [`crate::core::canonical::template`], whose keys are sorted. The DaemonSet's part of the
/// pod name is shortened if the mirror pod's name, `<pod name>-<node, lower case>`, would exceed 253 bytes.
pub fn identity(key: &ObjectKey, canonical: &str, node: &str, incarnation: u64) -> Identity {
    // UUIDv5, RFC 9562 5.5: a SHA-1 over the namespace and the name, here all these fields.
    let mut hash = Sha1::new();
    hash.update(NAMESPACE.as_bytes());
    for field in [ENCODING, &key.namespace, &key.name, canonical, node, &incarnation.to_string()] {
        hash.update((field.len() as u64).to_be_bytes());
        hash.update(field);
    }
    let digest: [u8; 20] = hash.finalize().into();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    let uuid = Builder::from_sha1_bytes(bytes).into_uuid();
    Identity { uid: uuid.to_string(), pod_name: pod_name(&key.name, node, &suffix(uuid)) }
}

/// The hash of a revision (label `controller-revision-hash`) over the JSON of its canonical template:
/// 32-bit FNV-1a in decimal, written with upstream's alphabet as `rand.SafeEncodeString` does.
pub fn revision_hash(canonical: &str) -> String {
    revision_hash_with(canonical, None)
}

/// [`revision_hash`] when another revision already has that hash: `collisions` is hashed too, as eight bytes, least
/// significant first, as in upstream's `ComputeHash`.
pub fn revision_hash_with(canonical: &str, collisions: Option<i32>) -> String {
    let count = collisions.map(|count| i64::from(count).to_le_bytes());
    let hash = canonical
        .bytes()
        .chain(count.into_iter().flatten())
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash.to_string().bytes().map(|digit| letter(u128::from(digit))).collect()
}

/// What an instance is current by, as text: the hash of its template and, after a dot, the digest of the overlays that
/// apply to its node; the hash alone where none does.
pub fn patched_revision(hash: &str, overlays: &str) -> String {
    if overlays.is_empty() { hash.to_owned() } else { format!("{hash}.{overlays}") }
}

/// The hash of the template in a [`patched_revision`].
pub fn template_hash(revision: &str) -> &str {
    revision.split_once('.').map_or(revision, |(hash, _)| hash)
}

/// The digest of the overlays in a [`patched_revision`]; empty if none applies.
pub fn overlays_digest(revision: &str) -> &str {
    revision.split_once('.').map_or("", |(_, overlays)| overlays)
}

fn suffix(uuid: Uuid) -> String {
    let mut rest = uuid.as_u128();
    let mut suffix = String::with_capacity(SUFFIX);
    for _ in 0..SUFFIX {
        suffix.push(letter(rest));
        rest /= ALPHABET.len() as u128;
    }
    suffix
}

fn letter(number: u128) -> char {
    char::from(ALPHABET[(number % ALPHABET.len() as u128) as usize])
}

fn pod_name(daemon_set: &str, node: &str, suffix: &str) -> String {
    let budget = MAX_POD_NAME.saturating_sub(suffix.len() + 2 + node.to_lowercase().len());
    let end = daemon_set.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= budget).last();
    let stem = daemon_set[..end.unwrap_or(0)].trim_end_matches(['-', '.']);
    if stem.is_empty() { suffix.to_owned() } else { format!("{stem}-{suffix}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn example() -> String {
        json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"image": "x:1", "name": "x"}]}})
            .to_string()
    }

    /// These values are a promise to every cluster: an agent that computes others restarts every
    /// daemon in the world at its upgrade. If this test fails, the code is wrong, not the values.
    #[test]
    fn pinned_for_ever() {
        let pinned = [
            ("kube-system", "flannel", "n1", 0, PINNED[0]),
            ("kube-system", "flannel", "n1", 1, PINNED[1]),
            ("default", "flannel", "n1", 0, PINNED[2]),
            ("kube-system", "flannel", "n2", 0, PINNED[3]),
        ];
        for (namespace, name, node, incarnation, (uid, pod_name)) in pinned {
            let got = identity(&ObjectKey::new(namespace, name), &example(), node, incarnation);
            assert_eq!((got.uid.as_str(), got.pod_name.as_str()), (uid, pod_name), "{namespace}/{name} {node}");
        }
        assert_eq!(revision_hash(&example()), PINNED_HASH);
    }

    const PINNED: [(&str, &str); 4] = [
        ("8985242b-7008-5d5d-9e0b-999d5e6ac0b6", "flannel-gwhbk"),
        ("d858fb46-173b-5e5f-a4a1-03dfb7375c87", "flannel-59kn6"),
        ("985e52d1-0eb2-51bf-a1be-8873d196290a", "flannel-msshp"),
        ("6db1f32c-f466-57de-ba25-a1d8c322c2fd", "flannel-6j4w8"),
    ];
    const PINNED_HASH: &str = "5ff9b785d6";

    #[test]
    fn fields_do_not_run_together() {
        let one = identity(&ObjectKey::new("a", "bc"), &example(), "n", 0);
        let other = identity(&ObjectKey::new("ab", "c"), &example(), "n", 0);
        assert_ne!(one.uid, other.uid);
    }

    #[test]
    fn upstreams_fnv_and_alphabet() {
        // fnv32a over `{}` and over `"foobar"` with its quotes: numbers from Go's hash/fnv; letters from rand.SafeEncodeString.
        assert_eq!(revision_hash("{}"), GO_EMPTY_OBJECT);
        assert_eq!(revision_hash("\"foobar\""), GO_FOOBAR);
    }

    const GO_EMPTY_OBJECT: &str = "5859f96865";
    const GO_FOOBAR: &str = "6df54d5f94";

    #[test]
    fn the_mirror_pods_name_fits() {
        let node = "N".repeat(100);
        for length in [1, 5, 145, 146, 147, 200, 253] {
            let name = "d".repeat(length);
            let got = identity(&ObjectKey::new("x", &name), &example(), &node, 0).pod_name;
            assert!(got.len() + 1 + node.len() <= 253, "{length}: {got}");
            assert_eq!(got.len(), length.min(253 - 101 - 6) + 6, "{length}: as much of the name as fits");
        }
    }

    #[test]
    fn a_shortened_name_never_ends_in_a_separator() {
        let node = "n".repeat(240);
        let got = identity(&ObjectKey::new("x", "abcd-.-efgh"), &example(), &node, 0).pod_name;
        assert!(got.starts_with("abcd-") && got.len() == 10, "{got}");
        let long = "n".repeat(253);
        assert_eq!(identity(&ObjectKey::new("x", "abc"), &example(), &long, 0).pod_name.len(), 5);
    }
}
