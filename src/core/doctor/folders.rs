//! The folders that define DaemonSets: a user who may write there is root on this node.
//!
//! Owns what that means. Must not look at a disk.

use super::Finding;

/// The name of the check.
pub const CHECK: &str = "definition folders";

/// Judges the folders of the key `folders`: `others` of them are something else, and users other than root may write to the
/// paths `open`.
pub fn examine(others: &[String], open: &[String]) -> Vec<Finding> {
    let others = (!others.is_empty()).then(|| {
        let text = format!("no folder, so that nothing is read from it: {}", others.join(", "));
        Finding::bad(CHECK, text, "make it a folder, or take it out of `folders`")
    });
    let open = match open.is_empty() {
        true => others.is_none().then(|| Finding::ok(CHECK, "only root may write to them")),
        false => Some(Finding::bad(
            CHECK,
            format!("users other than root may write to {} and so decide what runs as root", open.join(", ")),
            format!("chown root {0}; chmod go-w {0}", open.join(" ")),
        )),
    };
    others.into_iter().chain(open).collect()
}

/// Names the files `readable`, which have Secrets and which every user of the node can read.
pub fn readable(readable: &[String]) -> Option<Finding> {
    (!readable.is_empty()).then(|| {
        let text = format!("every user of this node can read the Secrets in {}", readable.join(", "));
        Finding::warn(CHECK, text, format!("chmod o-r {}", readable.join(" ")))
    })
}
