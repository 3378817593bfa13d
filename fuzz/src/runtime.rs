//! Answers of a container runtime, in protobuf: a list of sandboxes behind its length in two bytes, then containers.

use std::collections::BTreeSet;

use daemonlet::node::agent::fuzzing as agent;
use daemonlet::node::cri;

use super::mutate;

/// What must hold of any bytes.
///
/// # Panics
/// Where it does not.
pub fn check(data: &[u8]) {
    let _ = cri::decoded_status(data);
    let Some((length, rest)) = data.split_at_checked(2) else { return };
    let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
    let (sandboxes, containers) = rest.split_at(length.min(rest.len()));
    let Some(pods) = agent::runtime_pods(sandboxes, containers) else { return };
    let uids: BTreeSet<&str> = pods.iter().map(|(uid, _)| uid.as_str()).collect();
    assert_eq!(uids.len(), pods.len(), "a pod is listed twice");
}

/// Other bytes of the same length; `None`: any other bytes will do.
pub fn change(data: &[u8], max: usize, seed: u32) -> Option<Vec<u8>> {
    mutate::bytes(data, max, seed)
}
