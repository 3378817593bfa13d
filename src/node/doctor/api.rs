//! The API server, with the agent's own requests.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use futures::StreamExt;
use http::Method;
use http::Request;
use http_body_util::BodyExt;
use jiff::fmt::rfc2822::DateTimeParser;
use kube::client::Body;
use rustls::pki_types::ServerName;
use serde_json::Value;
use serde_json::json;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::clock::now;
use crate::config::Config;
use crate::core::cluster::overview::Leader;
use crate::core::doctor::api::Answers;
use crate::core::doctor::api::ApiFacts;
use crate::core::doctor::api::Right;
use crate::core::doctor::api::UnreachableCause;
use crate::core::doctor::api::right_to_conditions;
use crate::core::doctor::api::right_to_taint;
use crate::core::doctor::api::rights;
use crate::core::doctor::api::rights_to_ask;
use crate::core::doctor::policies::PolicyProbeResult;
use crate::core::doctor::policies::ProbeWrite;
use crate::core::doctor::policies::Targets;
use crate::core::doctor::policies::probes;
use crate::core::json::Json;
use crate::core::model::Mode;
use crate::core::model::ObjectKey;
use crate::core::status::StatusReport;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::node::api::ApiFailure;
use crate::node::api::Connector;
use crate::node::api::FailureKind;
use crate::node::api::tls_that_trusts_anybody;
use crate::node::doctor::found::FoundDaemonSets;
use crate::node::doctor::found::modes;
use crate::node::doctor::found::name_of;
use crate::node::enrolment;

/// Timeout for one address to answer.
const ANSWER: Duration = Duration::from_secs(3);
/// Timeout of one request, connecting included.
const ASK: Duration = Duration::from_secs(12);
/// Concurrent access reviews.
const AT_ONCE: usize = 16;
/// DaemonSets a page: a tenant may write each as large as it is read.
const DAEMON_SETS_PAGE: u32 = 10;
/// Pods a page, of which the same holds.
const PODS_PAGE: u32 = 25;

/// The findings, and the kubelet's version from the Node.
pub(super) struct ApiFindings {
    pub(super) facts: ApiFacts,
    pub(super) node_version: Option<String>,
}

/// Gathers the facts; `status` says which daemons run here.
pub(super) async fn facts(config: &Config, status: Option<&StatusReport>) -> ApiFindings {
    let Some(kubeconfig) = &config.kubeconfig else {
        return ApiFindings { facts: ApiFacts::NotConfigured, node_version: None };
    };
    let connector = Connector::new(kubeconfig.clone());
    let asker = Asker { client: connector.client() };
    let before = now();
    let version = match asker.get("/version").await {
        Ok(version) => version,
        Err(failure) => {
            let cause = match failure.kind {
                FailureKind::Unauthorized => UnreachableCause::Unauthorized,
                FailureKind::Kubeconfig => UnreachableCause::Kubeconfig,
                _ => UnreachableCause::Silent,
            };
            let is_enrolled = enrolment::is_enrolled(kubeconfig, &config.state_dir);
            let facts = ApiFacts::Unreachable { why: failure.message, cause, is_enrolled };
            return ApiFindings { facts, node_version: None };
        }
    };
    // Connecting must not count as round-trip time: a second request measures the clock.
    let ahead = asker.clock().await.or_else(|| version.ahead(before));
    let node = asker.get(&format!("/api/v1/nodes/{}", config.node_name)).await;
    let crd = match asker.get("/apis/daemonlet.dev/v1beta1").await {
        Ok(_) => Ok(true),
        Err(failure) if failure.kind == FailureKind::NotFound => Ok(false),
        Err(failure) => Err(failure.message),
    };
    let coordinator = asker.coordinator(config).await.filter(|_| crd == Ok(true));
    let modes = modes(status);
    let mut found = FoundDaemonSets::default();
    let list = match modes.is_empty() && !config.startup_taint {
        true => None,
        false => {
            let add = |set: &Value| found.add(set, &modes, &config.trusted_namespaces);
            Some(asker.each("/apis/apps/v1/daemonsets", "", DAEMON_SETS_PAGE, add).await)
        }
    };
    let is_listed = matches!(list, Some(Ok(())));
    if !found.daemons.is_empty() {
        let of_node = format!("fieldSelector=spec.nodeName%3D{}&", config.node_name);
        // Without this list, nothing is reported about pods.
        let _ = asker.each("/api/v1/pods", &of_node, PODS_PAGE, |pod| found.add_pod(pod)).await;
    }
    let mut wanted = rights(crd == Ok(true), (&config.lease_namespace, &config.lease_name));
    if config.dry_run_admission {
        wanted.extend(rights_to_ask(&config.policy_namespaces));
    }
    wanted.extend(config.startup_taint.then(right_to_taint));
    wanted.extend(config.node_conditions.then(right_to_conditions));
    wanted.append(&mut found.trusted_rights);
    wanted.append(&mut found.tenant_rights);
    let (denied, unasked) = asker.denied(&wanted).await;
    let endpoint = connector.endpoint().map(|e| format!("{}:{}", e.host, e.port)).unwrap_or_default();
    let git = version.body["gitVersion"].as_str().unwrap_or("of unknown version").to_owned();
    let is_granted = config.grants.values().any(|grant| !grant.host_paths.is_empty());
    let is_writable_below = is_granted && node.as_ref().is_ok_and(|node| !is_read_only_throughout(&node.body));
    let node_version = node
        .as_ref()
        .ok()
        .and_then(|node| node.body.text_at(["status", "nodeInfo", "kubeletVersion"]).map(str::to_owned));
    let targets = Targets {
        crd: crd == Ok(true),
        tainted: config.startup_taint.then(|| config.node_name.clone()),
        conditions: config.node_conditions.then(|| config.node_name.clone()),
        asks_admission: config.dry_run_admission,
        pod: asker.a_pod().await,
        account: account(wanted.iter().filter(|right| unasked.is_none() && !denied.contains(right))),
    };
    let mut daemons: Vec<(Value, Mode, Vec<String>)> = found.daemons.into_values().collect();
    daemons.sort_by_key(|(part, ..)| name_of(part));
    let answers = Answers {
        server: format!("{endpoint} ({git})"),
        has_address_for_pods: config.api_endpoint.is_some() || connector.endpoint_for_pods().is_some(),
        ahead,
        registered: match node {
            Ok(_) => Some(true),
            Err(failure) if failure.kind == FailureKind::NotFound => Some(false),
            Err(_) => None,
        },
        is_writable_below,
        crd,
        coordinator,
        denied,
        asked: wanted.len(),
        unasked,
        left_out: found.left_out,
        unlisted: list.and_then(Result::err).map(|failure| failure.message),
        daemons,
        intolerant: (is_listed && config.startup_taint && status.is_some()).then_some(found.intolerant),
        probes: asker.probes(&targets).await,
        service: asker.service().await,
    };
    ApiFindings { facts: ApiFacts::Answers(Box::new(answers)), node_version }
}

/// Whether `node` says that its runtime mounts recursively read only where no RuntimeClass names another handler.
fn is_read_only_throughout(node: &Value) -> bool {
    let default =
        node.list_at(["status", "runtimeHandlers"]).iter().filter(|handler| handler.str_at("name").is_empty());
    default.into_iter().any(|handler| handler.flag_at(["features", "recursiveReadOnlyMounts"]))
}

/// A ServiceAccount whose tokens one of `rights` is for.
fn account<'a>(mut rights: impl Iterator<Item = &'a Right>) -> Option<ObjectKey> {
    let right = rights.find(|right| right.resource == "serviceaccounts" && right.subresource == "token")?;
    Some(ObjectKey::new(&*right.namespace, &*right.name))
}

struct Asker {
    client: kube::Client,
}

/// A response: its JSON, and the server's time from its head.
struct HttpAnswer {
    body: Value,
    date: Option<Timestamp>,
    asked: Timestamp,
    answered: Timestamp,
}

impl HttpAnswer {
    /// By how much the server's clock is ahead of ours. Its `Date` is cut to whole seconds, on average half a second
    /// too low; it was written between sending the request and receiving the answer.
    fn ahead(&self, asked: Timestamp) -> Option<Span> {
        let middle = asked + (self.answered - asked) / 2;
        Some(self.date? + Span::from_millis(500) - middle)
    }
}

impl Asker {
    async fn get(&self, path: &str) -> Result<HttpAnswer, ApiFailure> {
        self.send(Method::GET, path, None).await
    }

    async fn send(&self, method: Method, path: &str, body: Option<Value>) -> Result<HttpAnswer, ApiFailure> {
        let asked = now();
        let bytes = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let content = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let wrong = |error: http::Error| ApiFailure::new(FailureKind::Protocol, error.to_string());
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("accept", "application/json")
            .header("content-type", content)
            .body(Body::from(bytes))
            .map_err(wrong)?;
        let exchange = async {
            let response = self.client.send(request).await.map_err(|error| ApiFailure::from_kube(&error))?;
            let (head, body) = response.into_parts();
            let answered = now();
            let text = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
            let date = text("date").and_then(|date| DateTimeParser::new().parse_timestamp(date).ok());
            let date = date.map(|date| Timestamp::from_secs(date.as_second()));
            let body = body.collect().await.map_err(|error| ApiFailure::from_kube(&error))?.to_bytes();
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            if head.status.is_success() {
                return Ok(HttpAnswer { body, date, asked, answered });
            }
            let kind = match head.status.as_u16() {
                401 => FailureKind::Unauthorized,
                403 => FailureKind::Forbidden,
                404 => FailureKind::NotFound,
                _ => FailureKind::Server,
            };
            let said = body["message"].as_str().unwrap_or("no reason given");
            Err(ApiFailure::new(kind, format!("{said} ({})", head.status.as_u16())))
        };
        let silence = |_| ApiFailure::new(FailureKind::Timeout, format!("no answer within {} s", ASK.as_secs()));
        tokio::time::timeout(ASK, exchange).await.map_err(silence)?
    }

    /// By how much the server's clock is ahead of ours.
    async fn clock(&self) -> Option<Span> {
        let answer = self.get("/version").await.ok()?;
        answer.ahead(answer.asked)
    }

    /// The denied rights, and why they could not be checked.
    async fn denied(&self, wanted: &BTreeSet<Right>) -> (Vec<Right>, Option<String>) {
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let questions = wanted.iter().map(|right| async move {
            let body = json!({
                "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": {"verb": right.verb, "group": right.group, "resource": right.resource,
                    "subresource": right.subresource, "namespace": right.namespace, "name": right.name}},
            });
            let answer = self.send(Method::POST, path, Some(body)).await;
            (right.clone(), answer.map(|answer| answer.body.at(["status", "allowed"]) == Some(&Value::Bool(true))))
        });
        let mut answers = futures::stream::iter(questions).buffer_unordered(AT_ONCE);
        let (mut denied, mut unasked) = (BTreeSet::new(), None);
        while let Some((right, answer)) = answers.next().await {
            match answer {
                Ok(true) => {}
                Ok(false) => drop(denied.insert(right)),
                Err(failure) => unasked = Some(failure.message),
            }
        }
        (denied.into_iter().collect(), unasked)
    }

    /// What becomes of the writes that the admission policies have to refuse, as dry runs.
    async fn probes(&self, targets: &Targets) -> Vec<(&'static str, PolicyProbeResult)> {
        let mut outcomes = Vec::new();
        for probe in probes(targets) {
            let method = match probe.write {
                ProbeWrite::Create => Method::POST,
                ProbeWrite::Patch => Method::PATCH,
            };
            let answer = self.send(method, &format!("{}?dryRun=All", probe.path), Some(probe.object)).await;
            let outcome = match answer {
                Ok(_) => PolicyProbeResult::Accepted,
                Err(failure) if failure.kind == FailureKind::Forbidden => PolicyProbeResult::Forbidden(failure.message),
                Err(failure) => PolicyProbeResult::Unknown(failure.message),
            };
            outcomes.push((probe.policy, outcome));
        }
        outcomes
    }

    /// Any pod: no policy lets an agent change its annotations.
    async fn a_pod(&self) -> Option<ObjectKey> {
        let pods = self.get("/api/v1/pods?limit=1").await.ok()?;
        let pod = pods.body.list_at("items").first()?;
        Some(ObjectKey::new(pod.str_at(["metadata", "namespace"]), pod.str_at(["metadata", "name"])))
    }

    /// Who holds the coordinator's Lease, and the API server's time.
    async fn coordinator(&self, config: &Config) -> Option<(Leader, Timestamp)> {
        let Config { lease_namespace, lease_name, .. } = config;
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{lease_namespace}/leases/{lease_name}");
        match self.get(&path).await {
            Ok(answer) => Some((Leader::of(&answer.body), answer.date?)),
            Err(failure) if failure.kind == FailureKind::NotFound => Some((Leader::default(), Timestamp::default())),
            // A missing right is reported by its own check.
            Err(_) => None,
        }
    }

    /// Looks at every object of a list, page by page; `query`: what else is asked for.
    async fn each(&self, path: &str, query: &str, limit: u32, mut look: impl FnMut(&Value)) -> Result<(), ApiFailure> {
        let mut go_on = String::new();
        loop {
            let page = self.get(&format!("{path}?{query}limit={limit}{go_on}")).await?.body;
            page.list_at("items").iter().for_each(&mut look);
            // Base64 in its form for URLs: nothing to escape.
            match page.text_at(["metadata", "continue"]) {
                Some(token) if !token.is_empty() => go_on = format!("&continue={token}"),
                _ => return Ok(()),
            }
        }
    }

    /// The address of the Service `kubernetes` and whether an API server answers there.
    async fn service(&self) -> Option<(String, Result<(), String>)> {
        let service = self.get("/api/v1/namespaces/default/services/kubernetes").await.ok()?.body;
        let ip: std::net::IpAddr = service.at(["spec", "clusterIP"])?.as_str()?.parse().ok()?;
        let port = service
            .at(["spec", "ports", "0", "port"])
            .and_then(Value::as_u64)
            .and_then(|port| u16::try_from(port).ok());
        let address = SocketAddr::new(ip, port.unwrap_or(443));
        let answer = tokio::time::timeout(ANSWER, handshake(address)).await;
        let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {} s", ANSWER.as_secs())));
        Some((address.to_string(), answer))
    }
}

/// Whether a server completes a TLS handshake there: a load balancer without back ends does not.
async fn handshake(address: SocketAddr) -> Result<(), String> {
    let words = |error: std::io::Error| crate::config::io_reason(&error);
    let stream = TcpStream::connect(address).await.map_err(words)?;
    let config = tls_that_trusts_anybody().map_err(|error| error.to_string())?;
    let name = ServerName::from(address.ip());
    TlsConnector::from(std::sync::Arc::new(config)).connect(name, stream).await.map(|_| ()).map_err(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::time::ms;

    #[test]
    fn the_servers_time_is_compared_with_the_middle_of_the_exchange() {
        let date = DateTimeParser::new().parse_timestamp("Sat, 21 Nov 2026 16:00:10 GMT").unwrap();
        let base = Timestamp::from_secs(date.as_second());
        let answer = |answered| HttpAnswer { body: Value::Null, date: Some(base), asked: base, answered };
        assert_eq!(answer(base + ms(1_000)).ahead(base), Some(ms(0)));
        assert_eq!(answer(base - ms(59_000)).ahead(base - ms(60_000)), Some(ms(60_000)));
    }
}
