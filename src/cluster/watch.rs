//! The coordinator's watches: Nodes, DaemonSets, NodeDaemons, ControllerRevisions, Namespaces of the whole cluster.
//!
//! Owns their streams. An error never removes anything: a stream that fails is taken up again, and only the end of a
//! complete list shows what is gone. While a kind is not served, or may not be read, it counts as not listed: what is
//! known of it grows old, and nothing is decided from that.

use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use kube::Api;
use kube::api::DynamicObject;
use kube::core::ApiResource;
use kube::core::GroupVersionKind;
use kube::runtime::watcher;
use kube::runtime::watcher::Config;
use kube::runtime::watcher::Event;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::core::cluster::node_daemons;
use crate::core::cluster::snapshot::Change;
use crate::core::cluster::snapshot::WatchedKind;
use crate::core::enrolment;
use crate::core::model::ObjectKey;
use crate::core::time::doubled;
use crate::node::api::ApiFailure;
use crate::node::api::FailureKind;

use super::inputs::ClusterEvent;
use super::inputs::ClusterEvents;

/// Objects a page; of ControllerRevisions no more than 8 KiB of metadata each.
const PAGE: u32 = 500;
/// DaemonSets a page: most pass by, but the API server holds the page, and what does not pass may have 768 KiB.
const DAEMON_SETS_PAGE: u32 = 16;
/// Certificate requests a page: each may have a megabyte.
const CERTIFICATES_PAGE: u32 = 16;
/// What cannot be read is read again after this, and a watch after twice as long each time that it fails again.
const AGAIN: Duration = Duration::from_secs(2);
/// But never after more than this: while one kind cannot be read, nothing is rolled out.
const LONGEST: Duration = Duration::from_secs(8);

pub(super) fn resource(kind: WatchedKind) -> ApiResource {
    let (group, version, name) = match kind {
        WatchedKind::Nodes => ("", "v1", "Node"),
        WatchedKind::DaemonSets => ("apps", "v1", "DaemonSet"),
        WatchedKind::NodeDaemons => (node_daemons::GROUP, node_daemons::VERSION, node_daemons::KIND),
        WatchedKind::Revisions => ("apps", "v1", "ControllerRevision"),
        WatchedKind::Namespaces => ("", "v1", "Namespace"),
        WatchedKind::CertificateRequests => ("certificates.k8s.io", "v1", "CertificateSigningRequest"),
    };
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, name), kind.plural())
}

/// The object as the API has it.
pub(super) fn value(object: DynamicObject) -> Value {
    let mut value = object.data;
    if let (Some(fields), Ok(metadata)) = (value.as_object_mut(), serde_json::to_value(&object.metadata)) {
        fields.insert("metadata".to_owned(), metadata);
    }
    value
}

/// Reads one object of which only an outline is known.
pub(super) async fn read(
    (kind, key): (WatchedKind, ObjectKey),
    client: kube::Client,
    term: u64,
    events: ClusterEvents,
) {
    let api: Api<DynamicObject> = Api::namespaced_with(client, &key.namespace, &resource(kind));
    let change = match api.get(&key.name).await {
        Ok(object) => Some(Change::Read(kind, Box::new(value(object)))),
        Err(error) => {
            let failure = ApiFailure::from_kube(&error);
            // If it is gone, the watch brings the deletion; otherwise it is read again after this.
            if failure.kind != FailureKind::NotFound {
                let _ = events.send(ClusterEvent::ReadFailed(term, kind, failure)).await;
            }
            tokio::time::sleep(AGAIN).await;
            None
        }
    };
    // Nothing receives it once the coordinator has ended.
    let _ = events.send(ClusterEvent::Read(term, (kind, key), change)).await;
}

/// Starts all watches; they end when what this gives is dropped.
pub(super) fn start(
    kinds: impl Iterator<Item = WatchedKind>,
    client: &kube::Client,
    term: u64,
    events: &ClusterEvents,
) -> JoinSet<()> {
    kinds.map(|kind| follow(kind, client.clone(), term, events.clone())).collect()
}

pub(super) async fn follow(kind: WatchedKind, client: kube::Client, term: u64, events: ClusterEvents) {
    let api: Api<DynamicObject> = Api::all_with(client, &resource(kind));
    let config = match kind {
        WatchedKind::CertificateRequests => Config::default().fields(&format!("spec.signerName={}", enrolment::SIGNER)),
        _ => Config::default(),
    };
    let config = config.page_size(match kind {
        WatchedKind::DaemonSets => DAEMON_SETS_PAGE,
        WatchedKind::CertificateRequests => CERTIFICATES_PAGE,
        _ => PAGE,
    });
    // The library's own back-off lets a kind that is served again wait for up to a minute.
    let open = || watcher(api.clone(), config.clone());
    let mut stream = pin!(open());
    let mut reported = String::new();
    let mut pause = AGAIN;
    while let Some(event) = stream.next().await {
        // A list alone shows no watch: where the one is allowed and the other is not, it would list again and again.
        if matches!(event, Ok(Event::Apply(_) | Event::Delete(_))) {
            pause = AGAIN;
        }
        let change = match event {
            Ok(Event::Init) => Change::Begin(kind),
            Ok(Event::InitApply(object)) => Change::Present(kind, Box::new(value(object)), true),
            Ok(Event::InitDone) => {
                reported.clear();
                Change::Complete(kind)
            }
            Ok(Event::Apply(object)) => Change::Present(kind, Box::new(value(object)), false),
            Ok(Event::Delete(object)) => Change::Gone(kind, Box::new(value(object))),
            Err(error) => {
                let words = unreadable(kind, &ApiFailure::from_watcher(&error));
                let is_new = words != reported;
                reported.clone_from(&words);
                let _ = events.send(ClusterEvent::Unreadable(term, kind, is_new.then_some(words))).await;
                if is_refused(&error) {
                    // It would go on from where it was, as if nothing had happened since: another begins with a list.
                    stream.set(open());
                }
                tokio::time::sleep(pause).await;
                pause = doubled(pause, 1, LONGEST);
                continue;
            }
        };
        if events.send(ClusterEvent::Changed(term, change)).await.is_err() {
            return;
        }
    }
}

/// What a GET that failed means, and what to do about it.
pub(super) fn unread(kind: WatchedKind, failure: &ApiFailure) -> String {
    let hint = match failure.kind {
        FailureKind::Forbidden => "; hint: apply coordinator-rbac.yaml of this version",
        _ => "",
    };
    let (kind, why) = (kind.plural(), &failure.message);
    format!(
        "the coordinator lists {kind} and cannot read them: {why}; until it can, no DaemonSet is rolled out of which it has \
         not read all; trying again{hint}"
    )
}

/// What a watch that failed means, and what to do about it.
fn unreadable(kind: WatchedKind, failure: &ApiFailure) -> String {
    let (why, hint) = match (failure.kind, kind) {
        (FailureKind::NotFound, WatchedKind::NodeDaemons) => {
            ("the API server does not serve them".to_owned(), "; hint: apply nodedaemons.yaml of this version")
        }
        (FailureKind::NotFound, _) => ("the API server does not serve them".to_owned(), ""),
        (FailureKind::Forbidden, _) => (failure.message.clone(), "; hint: apply coordinator-rbac.yaml of this version"),
        _ => (failure.message.clone(), ""),
    };
    let follows = match kind {
        WatchedKind::CertificateRequests => "no agent's certificate is approved",
        _ => "nothing is rolled out",
    };
    format!("the coordinator cannot watch {}: {why}; until it can, {follows}; trying again{hint}", kind.plural())
}

/// Whether the API server answers that it does not serve what was listed, or does not let it be read any more.
fn is_refused(error: &watcher::Error) -> bool {
    let status = match error {
        watcher::Error::WatchStartFailed(kube::Error::Api(status)) | watcher::Error::WatchError(status) => status,
        _ => return false,
    };
    matches!(status.code, 401 | 403 | 404)
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn what_is_not_served_or_not_allowed_begins_with_a_list_and_what_fails_goes_on() {
        let status = |code| Box::new(Status::failure("no", "").with_code(code));
        let failed = |code| watcher::Error::WatchStartFailed(kube::Error::Api(status(code)));
        for (code, wanted) in [(401, true), (403, true), (404, true), (410, false), (429, false), (503, false)] {
            assert_eq!(is_refused(&failed(code)), wanted, "{code}");
        }
        let list = watcher::Error::InitialListFailed(kube::Error::Api(status(404)));
        assert!(!is_refused(&list), "it begins with a list as it is, after a pause");
    }

    #[test]
    fn a_failed_read_is_one_sentence_with_what_to_do() {
        let text = |code| {
            let status =
                Box::new(Status::failure("controllerrevisions.apps \"d-1\" is forbidden: no", "").with_code(code));
            unread(WatchedKind::Revisions, &ApiFailure::from_kube(&kube::Error::Api(status)))
        };
        let message = "the coordinator lists controllerrevisions and cannot read them: controllerrevisions.apps \"d-1\" is \
                     forbidden: no (403); until it can, no DaemonSet is rolled out of which it has not read all; trying again";
        assert_eq!(text(403), format!("{message}; hint: apply coordinator-rbac.yaml of this version"));
        assert_eq!(text(500), message.replace("403", "500"));
    }

    #[test]
    fn a_failed_watch_is_one_sentence_with_what_to_do() {
        let text = |kind, message: &str, code| {
            let status = Box::new(Status::failure(message, "").with_code(code));
            let error = watcher::Error::InitialListFailed(kube::Error::Api(status));
            unreadable(kind, &ApiFailure::from_watcher(&error))
        };
        assert_eq!(
            text(WatchedKind::NodeDaemons, "404 page not found", 404),
            "the coordinator cannot watch nodedaemons: the API server does not serve them; until it can, nothing is \
             rolled out; trying again; hint: apply nodedaemons.yaml of this version"
        );
        assert_eq!(
            text(WatchedKind::Nodes, "nodes is forbidden: no", 403),
            "the coordinator cannot watch nodes: nodes is forbidden: no (403); until it can, nothing is rolled out; \
             trying again; hint: apply coordinator-rbac.yaml of this version"
        );
    }
}
