//! Lists what the plugin shows.

use http::Request;
use kube::config::Kubeconfig;
use serde_json::Value;

use crate::cli::CommandFailure;
use crate::cli::Exit;
use crate::core::cluster::overview::Cluster;
use crate::core::json::Json;
use crate::node::api;
use crate::node::api::FailureKind;

/// Objects a page.
const PAGE: u32 = 500;

/// Nodes, DaemonSets and NodeDaemons of the cluster.
pub(super) async fn read(kubeconfig: Kubeconfig) -> Result<Cluster, CommandFailure> {
    let unusable = |error: api::KubeconfigError| CommandFailure::new(Exit::Unreadable, api::words(&error));
    let client = api::client_of(kubeconfig).map_err(unusable)?;
    let nodes = list(&client, "/api/v1/nodes").await.map_err(failed)?;
    let daemon_sets = list(&client, "/apis/apps/v1/daemonsets").await.map_err(failed)?;
    let reports = list(&client, "/apis/daemonlet.dev/v1alpha1/nodedaemons").await.map_err(|failure| {
        if failure.kind == FailureKind::NotFound {
            let message = "the cluster does not have the resource NodeDaemons, in which agents say what they run";
            return CommandFailure::new(Exit::Refused, message)
                .hint("apply /usr/share/daemonlet/k8s/nodedaemons.yaml, or ask `daemonlet status` on the node");
        }
        failed(failure)
    })?;
    // Their node selectors matter to few, and not everybody may list them.
    let namespaces = list(&client, "/api/v1/namespaces").await.unwrap_or_default();
    Ok(Cluster::new(&nodes, &daemon_sets, &reports, &namespaces))
}

fn failed(failure: api::ApiFailure) -> CommandFailure {
    CommandFailure::new(Exit::Refused, failure.message)
}

/// Every object of a list, page by page.
async fn list(client: &kube::Client, path: &str) -> Result<Vec<Value>, api::ApiFailure> {
    let mut items = Vec::new();
    let mut go_on = String::new();
    loop {
        let mut uri = format!("{path}?limit={PAGE}");
        if !go_on.is_empty() {
            uri.push_str(&format!("&continue={go_on}"));
        }
        let request = Request::get(uri)
            .body(Vec::new())
            .map_err(|error| api::ApiFailure::new(FailureKind::Protocol, error.to_string()))?;
        let mut page: Value = client.request(request).await.map_err(|error| api::ApiFailure::from_kube(&error))?;
        if let Some(Value::Array(more)) = page.get_mut("items").map(Value::take) {
            items.extend(more);
        }
        // Base64 in its form for URLs: nothing to escape.
        match page.text_at(["metadata", "continue"]) {
            Some(token) if !token.is_empty() => go_on = token.to_owned(),
            _ => return Ok(items),
        }
    }
}
