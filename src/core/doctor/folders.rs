//! The folders that define DaemonSets: a user who may write there is root on this node.
//!
//! Owns what that means. Must not look at a disk.

use super::Finding;

/// The name of the check.
pub const CHECK: &str = "definition folders";

/// Judges the folders of the key `folders`, of which users other than root may write to the paths `open`.
pub fn examine(open: &[String]) -> Finding {
    match open.is_empty() {
        true => Finding::ok(CHECK, "only root may write to them"),
        false => Finding::bad(
            CHECK,
            format!("users other than root may write to {} and so decide what runs as root", open.join(", ")),
            format!("chown root {0}; chmod go-w {0}", open.join(" ")),
        ),
    }
}

/// Names the files `readable`, which have Secrets and which every user of the node can read.
pub fn readable(readable: &[String]) -> Option<Finding> {
    (!readable.is_empty()).then(|| {
        let text = format!("every user of this node can read the Secrets in {}", readable.join(", "));
        Finding::warn(CHECK, text, format!("chmod o-r {}", readable.join(" ")))
    })
}
