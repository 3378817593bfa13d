//! Recordings for `daemonlet replay`, as an operator hands them over.

use daemonlet::node::agent::replay;

use super::mutate;

/// What must hold of any bytes.
///
/// # Panics
/// Where it does not.
pub fn check(data: &[u8]) {
    if let Ok(report) = replay::replay(data) {
        assert!(report.unreadable.len() <= report.passes, "{report:?}");
    }
}

/// Other bytes of the same length; `None`: any other bytes will do.
pub fn change(data: &[u8], max: usize, seed: u32) -> Option<Vec<u8>> {
    mutate::bytes(data, max, seed)
}
