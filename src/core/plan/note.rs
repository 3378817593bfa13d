//! A remark on a daemon, for people.
//!
//! Owns the texts. Must not decide anything.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;
use serde::Serializer;

use crate::core::insufficient::Lack;
use crate::core::knowledge::Origin;
use crate::core::knowledge::hint_where_passed_over;
use crate::core::model::AFTER;
use crate::core::model::FieldError;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;
use crate::core::model::STARTING_TAINT;
use crate::core::model::STARTUP_TAINT_TIMEOUT;
use crate::core::model::Source;
use crate::core::overlays::Overlays;
use crate::core::sources::DesiredNote;
use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::ImageReason;
use super::dry_run::SETTING;
use super::reason::list;

/// How many daemons of a circle are named.
const MOST_NAMED: usize = 32;

/// A remark; printed in one line.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Note {
    /// On a field of the definition.
    #[error("{}", .0.with_hint())]
    Field(FieldError),

    // Its definition.
    #[error("{0}")]
    Desired(DesiredNote),
    #[error("{} cannot be found, and nothing shows that it was removed: its last version is used", .0.display())]
    FileVanished(PathBuf),
    #[error(
        "{file} is passed over: the API server's {}version is used; hint: {}",
        if *.overrides { "newer " } else { "" }, hint_where_passed_over(*.overrides)
    )]
    FilePassedOver { file: Source, overrides: bool },
    #[error("{object} of {file} is passed over: {used} is used; hint: {}", hint_where_passed_over(*.overrides))]
    ObjectPassedOver { object: ObjectRef, file: String, used: Origin, overrides: bool },
    #[error("overlays: {0}")]
    Overlays(Arc<Overlays>),
    #[error("this concerns the pod as the API server's admission changed it ({SETTING})", SETTING = SETTING)]
    AsAdmitted,
    #[error("{annotation} is ignored: namespace {namespace} is not among policy.trusted-namespaces")]
    Untrusted { annotation: &'static str, namespace: String },
    #[error("{annotation} has no effect: {key} is off on this node")]
    SwitchedOff { annotation: &'static str, key: &'static str },

    // What it waits for.
    #[error("its turn comes with the next pass: many are to be written")]
    InNextPass,
    #[error("its change waits up to a minute: all that this node remembers is written before it, and was a moment ago")]
    Paused,
    #[error("{0}")]
    Lacks(Lack),

    // Its images.
    #[error("{0}")]
    Images(ImageReason),
    #[error(
        "image {0} of the last good revision may be lost to image garbage collection: the container runtime does not \
         keep it"
    )]
    Unpinned(String),

    // The start order.
    #[error("{AFTER} names the DaemonSet itself: it does not wait for itself", AFTER = AFTER)]
    AfterItself,
    #[error(
        "{AFTER} makes a circle of {}: there each waits only for names that come before its own", first(.0),
        AFTER = AFTER
    )]
    Circle(Arc<BTreeSet<ObjectKey>>),
    #[error(
        "{AFTER} makes a circle with {}: a namespace that is not trusted changes no order of trusted ones, so it does \
         not wait for them",
        list(.0), AFTER = AFTER
    )]
    Overruled(BTreeSet<ObjectKey>),
    #[error("{AFTER}: this node knows no DaemonSet {}, and does not wait for it", list(.0), AFTER = AFTER)]
    AfterUnknown(BTreeSet<ObjectKey>),
    #[error("{AFTER}: {} is not for this node now, and is not waited for", list(.0), AFTER = AFTER)]
    AfterAbsent(Vec<ObjectKey>),
    #[error("{AFTER}: its pod was made without a gate, so at a boot the kubelet starts it at once", AFTER = AFTER)]
    NoGate,

    // The startup taint.
    #[error(
        "the node was to carry {STARTING_TAINT} for {} s ({STARTUP_TAINT_TIMEOUT}), and does not wait for it any longer \
         in this boot",
        .0.as_secs_ceil(), STARTING_TAINT = STARTING_TAINT, STARTUP_TAINT_TIMEOUT = STARTUP_TAINT_TIMEOUT
    )]
    TaintExpired(Span),
    #[error(
        "the node is to carry {STARTING_TAINT} until it is Ready here, at most until {0} ({STARTUP_TAINT_TIMEOUT})",
        STARTING_TAINT = STARTING_TAINT, STARTUP_TAINT_TIMEOUT = STARTUP_TAINT_TIMEOUT
    )]
    TaintUntil(Timestamp),
    #[error(
        "the node is to carry {STARTING_TAINT} until it is Ready here, at most for {} s ({STARTUP_TAINT_TIMEOUT}) after \
         the API server answers",
        .0.as_secs_ceil(), STARTING_TAINT = STARTING_TAINT, STARTUP_TAINT_TIMEOUT = STARTUP_TAINT_TIMEOUT
    )]
    TaintOnceAnswered(Span),

    // The DaemonSet controller's pod.
    #[error("the DaemonSet controller's pod {pod} takes over when its images are here: {why}")]
    HandOverAwaitsImages { pod: String, why: ImageReason },
    /// With the scheduler's own words.
    #[error(
        "the DaemonSet controller's pod {pod} does not take over: the scheduler cannot bind it{} ({message})",
        if *.has_ended { ", with and without this instance" } else { "" }
    )]
    NoHandOver { pod: String, has_ended: bool, message: String },

    // The released revision.
    #[error("it starts with the released revision {0}: the newer one is held")]
    StartsReleased(String),
    #[error("its released revision {0} cannot start here any more: the newest starts")]
    ReleasedCannotStart(String),
    #[error("its released revision {0} is gone or holds something else: the newest starts")]
    ReleasedGone(String),
    #[error("the image of its released revision {0} could not be pulled in time: the newest starts")]
    ReleasedNotPulled(String),
}

impl Serialize for Note {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Note::Field(error) => serializer.serialize_newtype_variant("Note", 0, "Field", error),
            _ => serializer.serialize_newtype_variant("Note", 1, "Other", &self.to_string()),
        }
    }
}

fn first(circle: &BTreeSet<ObjectKey>) -> String {
    let names = list(circle.iter().take(MOST_NAMED));
    match circle.len().saturating_sub(MOST_NAMED) {
        0 => names,
        more => format!("{names} and {more} more"),
    }
}
