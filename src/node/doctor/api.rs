//! The API server, with the agent's own requests.

use std::collections::BTreeMap;
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
use crate::core::doctor::api::right_to_conditions;
use crate::core::doctor::api::right_to_taint;
use crate::core::doctor::api::rights;
use crate::core::doctor::api::rights_of;
use crate::core::doctor::api::rights_to_ask;
use crate::core::doctor::policies::PolicyProbeResult;
use crate::core::doctor::policies::ProbeWrite;
use crate::core::doctor::policies::Targets;
use crate::core::doctor::policies::probes;
use crate::core::json::Json;
use crate::core::model::Mode;
use crate::core::model::ObjectKey;
use crate::core::model::STATIC_GATE;
use crate::core::placement;
use crate::core::status::StatusReport;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::node::api::ApiFailure;
use crate::node::api::Connector;
use crate::node::api::FailureKind;
use crate::node::api::tls_that_trusts_anybody;

/// Timeout for one address to answer.
const ANSWER: Duration = Duration::from_secs(3);
/// Timeout of one request, connecting included.
const ASK: Duration = Duration::from_secs(12);
/// Concurrent access reviews.
const AT_ONCE: usize = 16;

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
            let unauthorized = matches!(failure.kind, FailureKind::Unauthorized | FailureKind::Kubeconfig);
            return ApiFindings {
                facts: ApiFacts::Unreachable { why: failure.message, unauthorized },
                node_version: None,
            };
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
    let daemon_sets = match modes.is_empty() && !config.startup_taint {
        true => None,
        false => asker.daemon_sets().await,
    };
    let daemons = asker.daemons(config, daemon_sets.as_deref().unwrap_or_default(), &modes).await;
    let mut wanted = rights(crd == Ok(true), (&config.lease_namespace, &config.lease_name));
    if config.dry_run_admission {
        wanted.extend(rights_to_ask(&config.policy_namespaces));
    }
    wanted.extend(config.startup_taint.then(right_to_taint));
    wanted.extend(config.node_conditions.then(right_to_conditions));
    for (daemon_set, _, _) in &daemons {
        let namespace = daemon_set.str_at(["metadata", "namespace"]);
        wanted.extend(rights_of(namespace, daemon_set.at(["spec", "template"]).unwrap_or(&Value::Null)));
    }
    let (denied, unasked) = asker.denied(&wanted).await;
    let endpoint = connector.endpoint().map(|e| format!("{}:{}", e.host, e.port)).unwrap_or_default();
    let git = version.body["gitVersion"].as_str().unwrap_or("of unknown version").to_owned();
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
    let answers = Answers {
        server: format!("{endpoint} ({git})"),
        has_address_for_pods: config.api_endpoint.is_some() || connector.endpoint_for_pods().is_some(),
        ahead,
        registered: match node {
            Ok(_) => Some(true),
            Err(failure) if failure.kind == FailureKind::NotFound => Some(false),
            Err(_) => None,
        },
        crd,
        coordinator,
        denied,
        asked: wanted.len(),
        unasked,
        daemons,
        intolerant: daemon_sets
            .filter(|_| config.startup_taint && status.is_some())
            .map(|sets| intolerant(&sets, &modes)),
        probes: asker.probes(&targets).await,
        service: asker.service().await,
    };
    ApiFindings { facts: ApiFacts::Answers(Box::new(answers)), node_version }
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
            // A missing right is told by itself.
            Err(_) => None,
        }
    }

    /// Every DaemonSet; `None`: they cannot be listed.
    async fn daemon_sets(&self) -> Option<Vec<Value>> {
        let sets = self.get("/apis/apps/v1/daemonsets").await.ok()?;
        Some(sets.body["items"].as_array().cloned().unwrap_or_default())
    }

    /// The DaemonSets of the API that run here according to the agent, with pods of the DaemonSet controller.
    async fn daemons(&self, config: &Config, sets: &[Value], modes: &Modes) -> Vec<(Value, Mode, Vec<String>)> {
        if modes.is_empty() {
            return Vec::new();
        }
        let pods = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{}", config.node_name);
        let pods = self.get(&pods).await.map(|answer| answer.body).unwrap_or_default();
        let of = |set: &Value| {
            let theirs = stock_pods(&pods, set.str_at(["metadata", "uid"]));
            Some((set.clone(), *modes.get(&name_of(set))?, theirs))
        };
        sets.iter().filter_map(of).collect()
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

/// The modes of the daemons that the agent knows, by namespace and name.
type Modes = BTreeMap<(String, String), Mode>;

fn modes(status: Option<&StatusReport>) -> Modes {
    let known = status.into_iter().flat_map(|status| &status.daemons);
    known.filter_map(|d| Some(((d.namespace.clone(), d.name.clone()), d.mode?))).collect()
}

fn name_of(set: &Value) -> (String, String) {
    let [namespace, name] = ["namespace", "name"].map(|field| set.str_at(["metadata", field]).to_owned());
    (namespace, name)
}

/// The DaemonSets that the DaemonSet controller runs and that do not tolerate the taint of a node that waits.
fn intolerant(sets: &[Value], modes: &Modes) -> Vec<String> {
    let is_stock = |set: &&Value| {
        let gate = set.at(["spec", "template", "spec", "nodeSelector"]).and_then(|selector| selector.get(STATIC_GATE));
        gate.is_none() && modes.get(&name_of(set)) != Some(&Mode::Static)
    };
    let tolerates =
        |set: &&Value| placement::tolerates_starting(set.list_at(["spec", "template", "spec", "tolerations"]));
    let names = sets.iter().filter(is_stock).filter(|set| !tolerates(set)).map(name_of);
    names.map(|(namespace, name)| format!("{namespace}/{name}")).collect()
}

/// The names of the pods of the DaemonSet `uid` that the DaemonSet controller made and that are not ending.
fn stock_pods(pods: &Value, uid: &str) -> Vec<String> {
    let items = pods["items"].as_array().into_iter().flatten();
    let theirs = items.filter(|pod| {
        let metadata = &pod["metadata"];
        let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
        let mirror = metadata["annotations"]["kubernetes.io/config.mirror"].is_string();
        !mirror && metadata["deletionTimestamp"].is_null() && owners.into_iter().any(|owner| owner["uid"] == uid)
    });
    theirs.filter_map(|pod| pod["metadata"]["name"].as_str().map(str::to_owned)).collect()
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

    #[test]
    fn a_daemon_set_of_the_controller_that_does_not_tolerate_the_taint_is_named() {
        let set = |name: &str, spec: Value| json!({"metadata": {"namespace": "a", "name": name}, "spec": {"template": {"spec": spec}}});
        let starting = json!([{"key": "daemonlet.dev/starting", "operator": "Exists"}]);
        let sets = [
            set("plain", json!({})),
            set("handed", json!({"tolerations": []})),
            set("tolerant", json!({"tolerations": starting})),
            set("any", json!({"tolerations": [{"operator": "Exists"}]})),
            set("static", json!({})),
            set("gated", json!({"nodeSelector": {STATIC_GATE: "true"}})),
        ];
        let mode = |name: &str, mode| (("a".to_owned(), name.to_owned()), mode);
        let modes = BTreeMap::from([mode("static", Mode::Static), mode("handed", Mode::Bootstrap)]);
        assert_eq!(intolerant(&sets, &modes), ["a/plain", "a/handed"]);
    }

    #[test]
    fn only_living_pods_of_the_controller_count() {
        let pod = |name: &str, extra: Value| {
            let mut metadata = json!({"name": name, "ownerReferences": [{"uid": "u"}], "deletionTimestamp": null});
            metadata.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            json!({"metadata": metadata})
        };
        let pods = json!({"items": [
            pod("theirs", json!({})),
            pod("ours", json!({"annotations": {"kubernetes.io/config.mirror": "x"}})),
            pod("ending", json!({"deletionTimestamp": "2026-11-21T10:00:00Z"})),
            pod("another", json!({"ownerReferences": [{"uid": "v"}]})),
        ]});
        assert_eq!(stock_pods(&pods, "u"), ["theirs"]);
        assert!(stock_pods(&Value::Null, "u").is_empty());
    }
}
