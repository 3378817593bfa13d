//! Lists what the plugin shows.

use std::path::PathBuf;
use std::time::Duration;

use futures::StreamExt;
use http::Request;
use http::request::Builder;
use kube::config::Kubeconfig;
use serde_json::Value;

use crate::cli::CommandFailure;
use crate::cli::Exit;
use crate::cli::kubectl::user::ANOTHER;
use crate::cli::output;
use crate::clock;
use crate::core::cluster::liveness;
use crate::core::cluster::overview::ClusterOverview;
use crate::core::cluster::overview::Leader;
use crate::core::json::Json;
use crate::core::model::ObjectKey;
use crate::core::time::Timestamp;
use crate::node::api;
use crate::node::api::FailureKind;

/// How many DaemonSets that are too large are named.
const NAMED: usize = 5;
/// The coordinator's Lease, where `coordinator.lease-namespace` and `-name` are not changed.
const LEASE: (&str, &str) = ("kube-system", "daemonlet-coordinator");
/// How many mirror pods on nodes of silent agents are looked up; whether the rest are ready is not known.
const LOOKUPS: usize = 500;
/// How many of them at once.
const AT_ONCE: usize = 16;
/// Within this time a coordinator that lives has renewed it: it does every 2 s.
const RENEWED: Duration = Duration::from_secs(6);
/// Objects a page, of which a tenant writes none.
const PAGE: u32 = 500;
/// DaemonSets a page: a tenant may write each as large as it is read.
pub(super) const DAEMON_SETS_PAGE: u32 = 10;

/// Nodes, DaemonSets and NodeDaemons of the cluster.
pub(super) async fn read(client: &kube::Client) -> Result<ClusterOverview, CommandFailure> {
    let nodes = list(client, "/api/v1/nodes").await.map_err(failed)?;
    let reports = list(client, "/apis/daemonlet.dev/v1beta1/nodedaemons").await.map_err(|failure| {
        if failure.kind == FailureKind::NotFound {
            let message = "the cluster does not have the resource NodeDaemons, in which agents say what they run";
            return CommandFailure::new(Exit::Refused, message)
                .hint("apply /usr/share/daemonlet/k8s/nodedaemons.yaml, or ask `daemonlet status` on the node");
        }
        failed(failure)
    })?;
    // Their node selectors matter to few, and not everybody may list them.
    let namespaces = list(client, "/api/v1/namespaces").await.unwrap_or_default();
    let mut cluster = ClusterOverview::new(&nodes, &[], &reports, &namespaces);
    let mut pages = Pages::new("/apis/apps/v1/daemonsets", DAEMON_SETS_PAGE);
    while let Some(page) = pages.next(client).await.map_err(failed)? {
        page.into_iter().for_each(|object| cluster.add(object));
    }
    output::remarks(&not_shown(&cluster.too_large));
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases/{}", LEASE.0, LEASE.1);
    let mut renewed = None;
    cluster.coordinator = match leader(client, &path, &mut renewed).await {
        Ok(leader) => leader,
        Err(failure) if failure.kind == FailureKind::NotFound => without_lease(&cluster),
        Err(failure) => Leader { unknown: failure.message, ..Leader::default() },
    };
    silent(client, &mut cluster, renewed).await;
    Ok(cluster)
}

/// Which agents are silent, and which daemons are ready on their nodes. `renewed`: when the coordinator last renewed its Lease, by its
/// own clock.
async fn silent(client: &kube::Client, cluster: &mut ClusterOverview, renewed: Option<Timestamp>) {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", liveness::NAMESPACE);
    match list(client, &path).await {
        Ok(leases) => cluster.take_leases(&leases, renewed),
        Err(failure) => {
            let text = "the agents' Leases cannot be listed, so agents that are dead are shown as they last reported";
            output::remarks(&output::line(format!("{text}: {}", failure.message)));
        }
    }
    let lookups = cluster.mirror_pods();
    let mut unread = lookups.len().saturating_sub(LOOKUPS);
    let mut why = format!("no more than {LOOKUPS} are");
    let answers = lookups.into_iter().take(LOOKUPS).map(|lookup| async move {
        let path = format!("/api/v1/namespaces/{}/pods/{}", lookup.pod.namespace, lookup.pod.name);
        (lookup, get(client, &path).await)
    });
    let mut answers = futures::stream::iter(answers).buffered(AT_ONCE);
    while let Some((lookup, answer)) = answers.next().await {
        match answer {
            Ok(pod) => cluster.take_mirror_pod(lookup, &pod),
            Err(failure) if failure.kind == FailureKind::NotFound => {}
            Err(failure) => (unread, why) = (unread + 1, failure.message),
        }
    }
    if unread > 0 {
        let text = "mirror pods on nodes of silent agents are not looked up, and shown as not ready";
        output::remarks(&output::line(format!("{unread} {text}: {why}")));
    }
}

/// Which DaemonSets are not shown as the API has them, in one line; nothing without any.
fn not_shown(too_large: &[ObjectKey]) -> String {
    let number = too_large.len();
    if number == 0 {
        return String::new();
    }
    let names: Vec<String> = too_large.iter().take(NAMED).map(ToString::to_string).collect();
    let more = if number > NAMED { ", …" } else { "" };
    let text = "DaemonSets are not shown as the API has them, because they are too large";
    output::line(format!("{number} {text}: {}{more}", names.join(", ")))
}

/// Who holds the Lease at `path`, and when the holder `renewed` it by its own clock, if it still does. The clock here may be
/// another: a Lease that looks expired is looked at again when its holder had the time to renew it.
async fn leader(client: &kube::Client, path: &str, renewed: &mut Option<Timestamp>) -> Result<Leader, api::ApiFailure> {
    let before = Leader::of(&get(client, path).await?);
    if !before.is_expired(clock::now()) {
        *renewed = before.renewed.parse().ok();
        return Ok(before);
    }
    tokio::time::sleep(RENEWED).await;
    let after = Leader::of(&get(client, path).await?);
    let is_renewed = after.renewed != before.renewed;
    *renewed = after.renewed.parse().ok().filter(|_| is_renewed);
    Ok(if is_renewed { Leader { renewed: clock::now().to_string(), ..after } } else { after })
}

/// The leader if the Lease does not exist: none, if no DaemonSet has a status that a coordinator wrote.
fn without_lease(cluster: &ClusterOverview) -> Leader {
    let is_coordinated = cluster.daemons.values().any(|daemon| !daemon.rollout.is_empty());
    let unknown = format!(
        "there is no Lease {}/{}; if coordinator.lease-namespace or -name is another, look at that one",
        LEASE.0, LEASE.1
    );
    Leader { unknown: if is_coordinated { unknown } else { String::new() }, ..Leader::default() }
}

/// Who asks, with the rights of a kubeconfig.
pub(super) fn client((path, kubeconfig): (PathBuf, Kubeconfig)) -> Result<kube::Client, CommandFailure> {
    api::client_of(&path, kubeconfig)
        .map_err(|error| CommandFailure::new(Exit::Unreadable, api::words(&error)).hint(ANOTHER))
}

/// One object, or its list.
pub(super) async fn get(client: &kube::Client, path: &str) -> Result<Value, api::ApiFailure> {
    send(client, Request::get(path), Vec::new()).await
}

/// Changes an object by a JSON merge patch.
pub(super) async fn patch(client: &kube::Client, path: &str, patch: &Value) -> Result<Value, api::ApiFailure> {
    let request = Request::patch(path).header("content-type", "application/merge-patch+json");
    send(client, request, patch.to_string().into_bytes()).await
}

pub(super) async fn send(client: &kube::Client, request: Builder, body: Vec<u8>) -> Result<Value, api::ApiFailure> {
    let request = request.body(body);
    let request = request.map_err(|error| api::ApiFailure::new(FailureKind::Protocol, error.to_string()))?;
    client.request(request).await.map_err(|error| api::ApiFailure::from_kube(&error))
}

pub(super) fn failed(failure: api::ApiFailure) -> CommandFailure {
    let is_link = failure.is_link();
    let failed = CommandFailure::new(Exit::Refused, failure.message);
    match is_link {
        true => failed.hint("does `kubectl get nodes` work with the same kubeconfig and context?"),
        false => failed,
    }
}

/// The path of a DaemonSet.
pub(super) fn daemon_set_path(key: &ObjectKey) -> String {
    format!("/apis/apps/v1/namespaces/{}/daemonsets/{}", key.namespace, key.name)
}

/// The DaemonSet that a command names.
pub(super) async fn daemon_set(client: &kube::Client, key: &ObjectKey) -> Result<Value, CommandFailure> {
    get(client, &daemon_set_path(key)).await.map_err(|failure| match failure.kind {
        FailureKind::NotFound => {
            CommandFailure::new(Exit::Refused, format!("there is no DaemonSet {key}")).hint("see `kubectl get ds -A`")
        }
        _ => failed(failure),
    })
}

/// Every object of a list.
pub(super) async fn list(client: &kube::Client, path: &str) -> Result<Vec<Value>, api::ApiFailure> {
    let mut items = Vec::new();
    pages(client, path, |page| items.extend(page)).await?;
    Ok(items)
}

/// Gives each page of a list to `take`.
pub(super) async fn pages(
    client: &kube::Client,
    path: &str,
    mut take: impl FnMut(Vec<Value>),
) -> Result<(), api::ApiFailure> {
    let mut pages = Pages::new(path, PAGE);
    while let Some(page) = pages.next(client).await? {
        take(page);
    }
    Ok(())
}

/// A list that is read page by page.
pub(super) struct Pages<'a> {
    path: &'a str,
    limit: u32,
    /// What the next page begins with; `None`: there is none.
    go_on: Option<String>,
}

impl<'a> Pages<'a> {
    pub(super) fn new(path: &'a str, limit: u32) -> Self {
        Self { path, limit, go_on: Some(String::new()) }
    }

    /// The next page, if there is one.
    pub(super) async fn next(&mut self, client: &kube::Client) -> Result<Option<Vec<Value>>, api::ApiFailure> {
        let Some(go_on) = self.go_on.take() else { return Ok(None) };
        let mut uri = format!("{}?limit={}", self.path, self.limit);
        if !go_on.is_empty() {
            uri.push_str(&format!("&continue={go_on}"));
        }
        let mut page = get(client, &uri).await?;
        // Base64 in its form for URLs: nothing to escape.
        self.go_on = page.text_at(["metadata", "continue"]).filter(|token| !token.is_empty()).map(str::to_owned);
        match page.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => Ok(Some(items)),
            _ => Ok(Some(Vec::new())),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::core::time::at;

    #[test]
    fn names_of_what_is_too_large_are_one_line() {
        assert_eq!(not_shown(&[]), "");
        let keys: Vec<ObjectKey> = (0..=NAMED).map(|n| ObjectKey::new("a", format!("b{n}\n\x1b[31mc"))).collect();
        let line = not_shown(&keys);
        assert!(
            line.starts_with("6 DaemonSets are not shown as the API has them, because they are too large: a/b0\\n")
        );
        assert!(line.ends_with(", …\n") && line.lines().count() == 1 && !line.contains('\x1b'), "{line:?}");
    }

    #[test]
    fn a_lease_of_another_name_is_not_taken_for_none() {
        let cluster = |conditions: Value| {
            let daemon_set = json!({"metadata": {"namespace": "n", "name": "net", "uid": "u",
                "labels": {"daemonlet.dev/mode": "static"}}, "spec": {"selector": {"matchLabels": {"a": "b"}},
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "x", "image": "y"}]}}},
                "status": {"conditions": conditions}});
            ClusterOverview::new(&[], &[daemon_set], &[], &[])
        };
        let message = "ControllerRevision net-a (hash a) at generation 1";
        let released = json!([{"type": "Released", "status": "True", "reason": "Complete", "message": message}]);
        let (words, is_missing) = without_lease(&cluster(released)).words(at(0));
        assert!(words.starts_with("unknown: there is no Lease kube-system/daemonlet-coordinator"), "{words}");
        assert!(!is_missing);
        assert!(without_lease(&cluster(json!([]))).words(at(0)).1, "none has ever coordinated");
    }
}
