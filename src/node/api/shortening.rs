//! Which parts of the objects in a response are read: the rest is dropped on arrival, so that whoever may write an object
//! cannot fill the agent's memory.
//!
//! Owns which requests that is about, and which fields of pods and ServiceAccounts are read. Must not know what is kept of
//! them.

use http::HeaderValue;
use http::Method;
use http::Request;
use http::header::ACCEPT;

use crate::core::field_filter::FieldFilter;
use crate::core::field_filter::FieldSelection;
use crate::core::field_filter::FieldSelection::All;
use crate::core::field_filter::FieldSelection::Object;
use crate::core::field_filter::FieldSelection::Of;
use crate::core::field_filter::ResponseShape;
use crate::core::model::GENERATION_LABEL;
use crate::core::model::HASH_LABEL;
use crate::core::outline::OF_TEMPLATE;
use crate::core::outline::Outliner;
use crate::core::owners::MIRROR_ANNOTATION;
use crate::core::owners::SOURCE_ANNOTATION;
use crate::node::api::selection::Selection;

/// The bookmark with this annotation ends the initial events of a watch.
pub(super) const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// The annotations of pods that are read.
const ANNOTATIONS: FieldSelection = Of(&[(MIRROR_ANNOTATION, All), (INITIAL_EVENTS_END, All)]);
const LABELS: FieldSelection = Of(&[(HASH_LABEL, All), (GENERATION_LABEL, All)]);
const METADATA: FieldSelection = Of(&[
    ("name", All),
    ("namespace", All),
    ("uid", All),
    ("resourceVersion", All),
    ("deletionTimestamp", All),
    ("ownerReferences", All),
    ("annotations", ANNOTATIONS),
    ("labels", LABELS),
]);
const CONTAINER: FieldSelection = Of(&[("name", All), ("resources", All), ("ports", All), ("restartPolicy", All)]);
const CONTAINER_STATUS: FieldSelection = Of(&[
    ("name", All),
    ("containerID", All),
    ("ready", All),
    ("started", All),
    ("restartCount", All),
    ("state", All),
    ("lastState", All),
]);
const STATUS: FieldSelection = Of(&[
    ("phase", All),
    ("reason", All),
    ("message", All),
    ("qosClass", All),
    ("conditions", All),
    ("initContainerStatuses", CONTAINER_STATUS),
    ("containerStatuses", CONTAINER_STATUS),
]);

/// What is read of a node's pods.
static POD: FieldSelection = Object(&[
    ("metadata", METADATA),
    (
        "spec",
        Of(&[
            ("hostNetwork", All),
            ("overhead", All),
            ("resources", All),
            ("initContainers", CONTAINER),
            ("containers", CONTAINER),
        ]),
    ),
    ("status", STATUS),
]);

/// What is read of the kubelet's own list of its pods.
pub(in crate::node) static KUBELET_POD: FieldSelection = Of(&[
    (
        "metadata",
        Of(&[("name", All), ("namespace", All), ("uid", All), ("annotations", Of(&[(SOURCE_ANNOTATION, All)]))]),
    ),
    ("status", STATUS),
]);

/// What is read of pods that wait for a node: whose each is, for which node, and why it waits.
static PENDING_POD: FieldSelection = Object(&[
    (
        "metadata",
        Of(&[
            ("name", All),
            ("namespace", All),
            ("uid", All),
            ("resourceVersion", All),
            ("deletionTimestamp", All),
            ("ownerReferences", Of(&[("kind", All), ("name", All), ("uid", All), ("controller", All)])),
            ("annotations", Of(&[(INITIAL_EVENTS_END, All)])),
        ]),
    ),
    ("spec", Of(&[("affinity", Of(&[("nodeAffinity", Of(&[(REQUIRED, Of(&[("nodeSelectorTerms", OF_TERM)]))]))]))])),
    ("status", Of(&[("conditions", Of(&[("type", All), ("status", All), ("reason", All), ("message", All)]))])),
]);
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const OF_TERM: FieldSelection = Of(&[("matchFields", All)]);
/// So many bytes and values of one such pod are read: a page of them is read for each of several daemons at a time.
const OF_PENDING_POD: (usize, usize) = (16 << 10, 1024);

static SERVICE_ACCOUNT: FieldSelection = Object(&[
    ("metadata", METADATA),
    ("automountServiceAccountToken", All),
    ("imagePullSecrets", Of(&[("name", All)])),
]);

/// What is read of events: anybody may have written them.
static EVENT: FieldSelection = Object(&[
    ("metadata", Of(&[("name", All), ("namespace", All), ("resourceVersion", All), ("creationTimestamp", All)])),
    ("type", All),
    ("source", Of(&[("host", All)])),
    ("reportingInstance", All),
    ("lastTimestamp", All),
    ("eventTime", All),
    ("series", Of(&[("lastObservedTime", All)])),
]);
/// So many bytes and values of one event are read: the kubelet's message has a KiB.
const OF_EVENT: (usize, usize) = (8 << 10, 64);

/// What is read of each DaemonSet in a list of all, if the request does not name those that matter.
static DAEMON_SET: FieldSelection = Object(&[
    (
        "metadata",
        Of(&[
            ("name", All),
            ("namespace", All),
            ("uid", All),
            ("resourceVersion", All),
            ("generation", All),
            ("deletionTimestamp", All),
            ("finalizers", All),
            ("labels", All),
            ("annotations", All),
            ("managedFields", Of(&[("manager", All), ("subresource", All), ("time", All)])),
        ]),
    ),
    ("spec", All),
    ("status", Of(&[("observedGeneration", All), ("conditions", All)])),
]);

/// What is read of all ControllerRevisions: whose each is. Those that matter are read whole by themselves.
static REVISION: FieldSelection = Object(&[(
    "metadata",
    Of(&[
        ("name", All),
        ("namespace", All),
        ("uid", All),
        ("resourceVersion", All),
        ("ownerReferences", All),
        ("annotations", Of(&[(INITIAL_EVENTS_END, All)])),
        ("labels", All),
    ]),
)]);
/// So many bytes and values of one ControllerRevision are read: a page has hundreds, and a tenant may write them.
const OF_REVISION: (usize, usize) = (8 << 10, 256);

/// A ControllerRevision that is read whole. Its data may be anything, and take 100 times their text in memory.
static WHOLE: FieldSelection = All;

/// The path of all ControllerRevisions.
const REVISIONS: [&str; 4] = ["apis", "apps", "v1", "controllerrevisions"];

/// Has the API server leave out what is not read, where it can: the data of a page of ControllerRevisions may have
/// hundreds of megabytes.
pub(super) fn ask_for_less<B>(request: &mut Request<B>) {
    let is_watch = request.uri().query().is_some_and(|query| query.split('&').any(|word| word == "watch=true"));
    if request.method() == Method::GET && segments(request) == REVISIONS {
        request.headers_mut().insert(
            ACCEPT,
            HeaderValue::from_static(match is_watch {
                true => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
                false => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
            }),
        );
    }
}

fn segments<B>(request: &Request<B>) -> Vec<&str> {
    request.uri().path().trim_matches('/').split('/').collect()
}

/// Shortens the objects of one response.
pub(super) enum Shortening {
    /// DaemonSets of a list or a watch.
    DaemonSets(Outliner, Selection),
    /// One DaemonSet.
    DaemonSet(Outliner, Selection),
    /// Objects of which some fields are read.
    Fields(FieldFilter),
}

impl Shortening {
    /// For the answer to `request`, if it is to be shortened.
    pub(super) fn of<B>(request: &Request<B>, selection: &Selection) -> Option<Self> {
        if request.method() != Method::GET {
            return None;
        }
        let parts = segments(request);
        let (fields, place) = match parts[..] {
            ["apis", "apps", "v1", "daemonsets"] if selection.takes_all() => {
                let filter = FieldFilter::new(&DAEMON_SET, ResponseShape::Items);
                return Some(Self::Fields(filter.at_most(OF_TEMPLATE)));
            }
            ["apis", "apps", "v1", "daemonsets"] => {
                return Some(Self::DaemonSets(Outliner::new(selection.status()), selection.clone()));
            }
            ["apis", "apps", "v1", "namespaces", _, "daemonsets", _] if !selection.takes_all() => {
                return Some(Self::DaemonSet(Outliner::of_one(selection.status()), selection.clone()));
            }
            _ if parts == REVISIONS => {
                let filter = FieldFilter::new(&REVISION, ResponseShape::Items);
                return Some(Self::Fields(filter.at_most(OF_REVISION)));
            }
            ["apis", "apps", "v1", "namespaces", namespace, "controllerrevisions", ..]
                if selection.is_bounded(namespace) =>
            {
                let place = match parts.len() {
                    6 => ResponseShape::Items,
                    _ => ResponseShape::Whole,
                };
                return Some(Self::Fields(FieldFilter::new(&WHOLE, place).at_most(OF_TEMPLATE)));
            }
            ["api", "v1", "events"] | ["api", "v1", "namespaces", _, "events"] => {
                return Some(Self::Fields(FieldFilter::new(&EVENT, ResponseShape::Items).at_most(OF_EVENT)));
            }
            ["api", "v1", "pods"] => (&POD, ResponseShape::Items),
            ["api", "v1", "namespaces", _, "pods"] => {
                let filter = FieldFilter::new(&PENDING_POD, ResponseShape::Items);
                return Some(Self::Fields(filter.at_most(OF_PENDING_POD)));
            }
            ["api", "v1", "namespaces", _, "serviceaccounts"] => (&SERVICE_ACCOUNT, ResponseShape::Items),
            ["api", "v1", "namespaces", _, "serviceaccounts", _] => (&SERVICE_ACCOUNT, ResponseShape::Whole),
            _ => return None,
        };
        Some(Self::Fields(FieldFilter::new(fields, place)))
    }

    /// What of the next `bytes` of the response is read on.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::DaemonSets(outliner, selection) => outliner.feed(bytes, &|metadata| selection.reading(metadata)),
            Self::DaemonSet(outliner, selection) => {
                outliner.feed(bytes, &|metadata| selection.reading_of_one(metadata))
            }
            Self::Fields(filter) => filter.feed(bytes),
        }
    }
}

#[cfg(test)]
mod tests;
