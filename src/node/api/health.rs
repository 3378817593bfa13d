//! The state of the API server's link and of each watch, for `status`.
//!
//! Owns plain values. Must not do I/O.

use serde::Serialize;
use serde::Serializer;

use crate::core::time::Timestamp;
use crate::node::api::connector::ConnectionCounters;
use crate::node::api::connector::Connector;
use crate::node::api::connector::Link;
use crate::node::api::store::Scope;
use crate::node::api::store::Snapshot;

/// The state of the whole connection.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", tag = "state")]
pub enum LinkHealth {
    /// Not connected and no failure yet, or not everything listed yet that the agent itself needs.
    Connecting,
    /// Connected, and every watch works that the agent itself needs. Objects that daemons name have their state in
    /// `scopes` alone: the author of a DaemonSet decides what it names.
    Ok,
    /// No connection, or one of these watches fails (`scopes` says which).
    Failing {
        /// Why, in words.
        error: String,
        /// Since when.
        #[serde(serialize_with = "timestamp")]
        since: Timestamp,
    },
}

/// The state of one watch.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ScopeHealth {
    /// Printed as `daemonsets` or `ConfigMap kube-system/flannel`.
    #[serde(serialize_with = "scope")]
    pub scope: Scope,
    /// Complete lists so far; 0: nothing is known.
    pub lists: u64,
    /// Why it fails, if it does.
    pub error: Option<String>,
    /// Since when it fails.
    #[serde(serialize_with = "optional_timestamp")]
    pub since: Option<Timestamp>,
}

/// Everything that `status` shows of the API.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiHealth {
    /// The state in one word.
    #[serde(flatten)]
    pub state: LinkHealth,
    /// `host:port` of the server, once the kubeconfig was read.
    pub server: Option<String>,
    /// Why the present kubeconfig cannot be used; its last good content is in force.
    pub kubeconfig_error: Option<String>,
    pub counters: ConnectionCounters,
    /// Each watch.
    pub scopes: Vec<ScopeHealth>,
}

/// Combines the state of connections and store.
pub(super) fn summary(link: &Link, connector: &Connector, snapshot: &Snapshot) -> ApiHealth {
    let scopes = snapshot.scopes.iter().map(|(scope, state)| ScopeHealth {
        scope: scope.clone(),
        lists: state.lists,
        error: state.error.as_ref().map(|(failure, _)| failure.message.clone()),
        since: state.error.as_ref().map(|(_, since)| *since),
    });
    let scopes: Vec<ScopeHealth> = scopes.collect();
    let failing = snapshot.scopes.iter().filter(|(scope, _)| scope.is_of_agent()).find_map(|(scope, state)| {
        let (failure, since) = state.error.as_ref()?;
        Some(LinkHealth::Failing { error: format!("{scope}: {}", failure.message), since: *since })
    });
    let state = match link {
        Link::Down { failure, since } => LinkHealth::Failing { error: failure.message.clone(), since: *since },
        Link::Connecting => LinkHealth::Connecting,
        Link::Up => failing.unwrap_or(match snapshot.has_listed_own() {
            true => LinkHealth::Ok,
            false => LinkHealth::Connecting,
        }),
    };
    ApiHealth {
        state,
        server: connector.endpoint().map(|endpoint| format!("{}:{}", endpoint.host, endpoint.port)),
        kubeconfig_error: connector.complaint(),
        counters: connector.counters(),
        scopes,
    }
}

fn scope<S: Serializer>(scope: &Scope, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(scope)
}

fn timestamp<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(time)
}

fn optional_timestamp<S: Serializer>(time: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => timestamp(time, serializer),
        None => serializer.serialize_none(),
    }
}
