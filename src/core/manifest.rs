//! The manifest as a file: its name and its text.
//!
//! Owns what an administrator sees in the manifest folder. Must not depend on time, place or version: the same pod
//! gives the same bytes on every machine.

use serde_json::Value;

use crate::core::model::ObjectKey;
use crate::core::rendering;
use crate::core::yaml;

/// How every manifest begins, up to the DaemonSet's name.
pub const HEAD: &str = "# Written by daemonlet from the DaemonSet ";
/// The longest manifest that the kubelet reads, in bytes: 10 MiB minus one byte (kubelet/config/common.go).
pub const MAX_BYTES: usize = (10 << 20) - 1;
/// A longer manifest may have a mirror pod that etcd does not take (`--max-request-bytes`, 1.5 MiB of protobuf).
pub const MIRRORED: usize = 1_400_000;
/// How much longer a manifest may become: it is touched by an annotation.
pub const TOUCHED: usize = 1 << 10;
/// The longest file name, in bytes.
const LONGEST_NAME: usize = 200;
/// How many hexadecimal digits of a hash replace the cut part.
const HASH: usize = 10;

/// The text of the manifest of `pod`, an instance of the DaemonSet `key` at `revision`.
pub fn text(key: &ObjectKey, revision: &str, pod: &Value) -> String {
    format!(
        "{HEAD}{key}, revision {revision}.\n\
         # A change of this file is undone; change the DaemonSet instead.\n\
         {}",
        yaml::write(pod)
    )
}

/// The file name of the manifest of the pod `pod_name` (without the node's name): `<namespace>_<pod name>.yaml`; if
/// that exceeds 200 bytes, its end is replaced by a hash. Neither part can hold a `_`, so no name of one namespace is
/// one of another.
pub fn file_name(namespace: &str, pod_name: &str) -> String {
    let stem = format!("{namespace}_{pod_name}");
    if stem.len() + ".yaml".len() <= LONGEST_NAME {
        return format!("{stem}.yaml");
    }
    let hash = rendering::digest(stem.as_bytes());
    let room = LONGEST_NAME - ".yaml".len() - 1 - HASH;
    let keep = (0..=room).rev().find(|end| stem.is_char_boundary(*end)).unwrap_or_default();
    format!("{}-{}.yaml", &stem[..keep], &hash[..HASH])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_text_is_headed_by_what_it_is_from() {
        let text = text(&ObjectKey::new("kube-system", "cni"), "5d8c7", &json!({"kind": "Pod"}));
        assert_eq!(
            text.strip_suffix(&yaml::write(&json!({"kind": "Pod"}))).unwrap(),
            "# Written by daemonlet from the DaemonSet kube-system/cni, revision 5d8c7.\n\
             # A change of this file is undone; change the DaemonSet instead.\n"
        );
    }

    #[test]
    fn names_up_to_200_bytes_are_kept() {
        assert_eq!(file_name("kube-system", "cni-7x2kp"), "kube-system_cni-7x2kp.yaml");
        assert_ne!(file_name("kube-system", "cni-7x2kp"), file_name("kube", "system-cni-7x2kp"));
        let pod = "p".repeat(200 - "kube-system_.yaml".len());
        assert_eq!(file_name("kube-system", &pod), format!("kube-system_{pod}.yaml"));
    }

    #[test]
    fn longer_names_are_cut_to_200_bytes_and_stay_different() {
        let pod = "p".repeat(201 - "kube-system_.yaml".len());
        let one = file_name("kube-system", &format!("{pod}-aaaaa"));
        let other = file_name("kube-system", &format!("{pod}-bbbbb"));
        assert_eq!((one.len(), other.len()), (200, 200));
        assert!(one.starts_with("kube-system_ppp") && one.ends_with(".yaml"));
        assert_ne!(one, other);
    }
}
