//! The kubelet's own API, if this node's configuration lets the agent use it.
//!
//! Owns the requests and the reading of replies. Must not decide. `/runningpods` lists what the runtime runs; `/pods`
//! lists what the kubelet knows, which a removed pod leaves at once, so it never proves an end. An error means
//! unknown. Anyone who may create pods for the node can make these lists long: only the fields in use are kept of each pod.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http::StatusCode;
use http::Uri;
use http::header::HOST;
use http_body_util::BodyExt;
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde::Deserialize;
use serde_json::Value;
use serde_json::json;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::core::field_filter::FieldFilter;
use crate::core::field_filter::ResponseShape;
use crate::core::json::condition;
use crate::core::owners::FROM_API;
use crate::core::owners::SOURCE_ANNOTATION;
use crate::node::api::KubeconfigError;
use crate::node::api::kubeconfig::ApiCredentials;
use crate::node::api::shortening::KUBELET_POD;

/// Where a kubelet answers health checks: its default `healthzBindAddress` and `healthzPort`.
pub const HEALTHZ: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10_248);

/// Timeout of a request, connecting included.
const ASK: Duration = Duration::from_secs(5);
/// Larger than any list of a node's pods.
const MAX_BYTES: usize = 64 << 20;
/// More than what is read of a thousand pods; all of it is in memory at once.
const MAX_KEPT: usize = 8 << 20;

type BoxedError = Box<dyn std::error::Error + Send + Sync>;

/// A request that the kubelet did not answer.
#[derive(Debug, thiserror::Error)]
pub enum KubeletError {
    /// The endpoint is no `https://host:port`.
    #[error("kubelet-endpoint {endpoint:?} is no https URL of a host and port")]
    Endpoint { endpoint: String },
    /// The credentials cannot be read.
    #[error("no credentials for the kubelet")]
    Credentials(#[source] KubeconfigError),
    /// No answer, or not from a kubelet.
    #[error("the kubelet at {endpoint} does not answer {path}: retrying")]
    Unreachable {
        endpoint: String,
        /// What was asked.
        path: &'static str,
        /// The connection's error.
        #[source]
        source: BoxedError,
    },
    /// No answer in time.
    #[error("the kubelet at {endpoint} has not answered {path} within {} s: retrying", ASK.as_secs())]
    Timeout {
        endpoint: String,
        /// What was asked.
        path: &'static str,
    },
    #[error("the kubelet at {endpoint} refused {path}: {status}")]
    Refused {
        endpoint: String,
        /// What was asked.
        path: &'static str,
        status: StatusCode,
    },
    /// The reply is not a list of pods.
    #[error("the kubelet at {endpoint} answered {path} with something else than pods")]
    Decode {
        endpoint: String,
        /// What was asked.
        path: &'static str,
        /// Why it does not parse.
        #[source]
        source: serde_json::Error,
    },
}

impl KubeletError {
    /// What to do about it, if there is something to do.
    pub fn hint(&self) -> Option<String> {
        match self {
            KubeletError::Endpoint { .. } => Some("write it as https://127.0.0.1:10250, or leave it empty".to_owned()),
            KubeletError::Refused { status, .. }
                if matches!(*status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) =>
            {
                Some(
                    "the agent's user needs get on nodes/pods (or nodes/proxy), or leave kubelet-endpoint empty"
                        .to_owned(),
                )
            }
            KubeletError::Unreachable { source, .. } if is_untrusted(source.as_ref()) => Some(
                "the kubelet's serving certificate is not signed by the kubeconfig's authority: serverTLSBootstrap \
                 gives it one that is"
                    .to_owned(),
            ),
            _ => None,
        }
    }
}

fn is_untrusted(error: &(dyn std::error::Error + 'static)) -> bool {
    let io = error.downcast_ref::<std::io::Error>().and_then(|io| io.get_ref());
    io.is_some_and(|inner| matches!(inner.downcast_ref(), Some(rustls::Error::InvalidCertificate(_))))
}

/// What the kubelet knows of one pod.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "KubeletPod")]
pub struct PodReport {
    /// The UID by which the kubelet knows the pod (of a static pod: the manifest's).
    pub uid: String,
    pub namespace: String,
    pub name: String,
    /// `Pending`, `Running`, `Succeeded` or `Failed`.
    pub phase: String,
    /// The reason, such as `NodePorts` for a rejected pod; else empty.
    pub reason: String,
    pub message: String,
    /// The condition Ready; `None`: not set yet.
    pub ready: Option<bool>,
    /// The pod's `status`, in the API's form (`{"status": …}`); `None`: the kubelet has the pod from the API server, or too
    /// much was said of it. Then phase, reason and message are empty, too.
    pub reported: Option<Value>,
}

/// The API of this node's kubelet.
#[derive(Debug)]
pub struct Kubelet {
    endpoint: Uri,
    kubeconfig: PathBuf,
}

impl Kubelet {
    /// The kubelet at `endpoint`, with the credentials of `kubeconfig`, whose authority must have signed the kubelet's
    /// certificate. Does not connect yet.
    pub fn new(endpoint: &str, kubeconfig: impl Into<PathBuf>) -> Result<Self, KubeletError> {
        let error = || KubeletError::Endpoint { endpoint: endpoint.to_owned() };
        let uri: Uri = endpoint.trim_end_matches('/').parse().map_err(|_| error())?;
        if uri.scheme_str() != Some("https") || uri.host().is_none() || !matches!(uri.path(), "" | "/") {
            return Err(error());
        }
        Ok(Self { endpoint: uri, kubeconfig: kubeconfig.into() })
    }

    /// UIDs of the pods of which something runs, according to the runtime.
    pub async fn running_uids(&self) -> Result<BTreeSet<String>, KubeletError> {
        let pods = self.pods_at("/runningpods/").await?;
        Ok(pods.into_iter().map(|pod| pod.uid).collect())
    }

    /// The pods that the kubelet should run, including rejected ones.
    pub async fn pods(&self) -> Result<Vec<PodReport>, KubeletError> {
        self.pods_at("/pods").await
    }

    async fn pods_at(&self, path: &'static str) -> Result<Vec<PodReport>, KubeletError> {
        let endpoint = || self.endpoint.to_string().trim_end_matches('/').to_owned();
        let credentials = ApiCredentials::load(&self.kubeconfig).map_err(KubeletError::Credentials)?;
        let asked = tokio::time::timeout(ASK, self.get(path, &credentials)).await;
        let (status, list) = asked
            .map_err(|_| KubeletError::Timeout { endpoint: endpoint(), path })?
            .map_err(|source| KubeletError::Unreachable { endpoint: endpoint(), path, source })?;
        if status != StatusCode::OK {
            return Err(KubeletError::Refused { endpoint: endpoint(), path, status });
        }
        list.pods().map_err(|source| KubeletError::Decode { endpoint: endpoint(), path, source })
    }

    /// One request on its own connection: requests are rare, and made only without a CRI.
    async fn get(&self, path: &str, credentials: &ApiCredentials) -> Result<(StatusCode, PodListText), BoxedError> {
        let host = self.endpoint.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let (config, _) = credentials.tls.as_ref().ok_or("the kubeconfig has no TLS credentials")?;
        let tcp = TcpStream::connect((host.as_str(), self.endpoint.port_u16().unwrap_or(10250))).await?;
        // The kubelet's server only speaks HTTP/1.1 (its TLS configuration has no ALPN).
        let mut config = ClientConfig::clone(config);
        config.alpn_protocols.clear();
        let tls = TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(host)?, tcp).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(Box::new(tls))).await?;
        // Ends with the sender; the request reports its error.
        tokio::spawn(connection);
        let authority = self.endpoint.authority().ok_or("no authority")?.as_str();
        let mut request = Request::get(path).header(HOST, authority);
        if let Some(headers) = request.headers_mut() {
            headers.extend(credentials.headers.clone());
        }
        let reply = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
        let status = reply.status();
        let mut body = reply.into_body();
        let mut list = PodListText::new();
        while let Some(frame) = body.frame().await.filter(|_| status == StatusCode::OK) {
            if let Ok(bytes) = frame?.into_data() {
                list.feed(&bytes)?;
            }
        }
        Ok((status, list))
    }
}

/// What is read of a list of pods, in one piece.
struct PodListText {
    filter: FieldFilter,
    /// How many bytes came in.
    len: usize,
    kept: Vec<u8>,
}

impl PodListText {
    fn new() -> Self {
        Self { filter: FieldFilter::new(&KUBELET_POD, ResponseShape::Items), len: 0, kept: Vec::new() }
    }

    /// Takes the next `bytes` of the list.
    fn feed(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.len = self.len.saturating_add(bytes.len());
        let kept = self.filter.feed(bytes);
        if self.len > MAX_BYTES || self.kept.len() + kept.len() > MAX_KEPT {
            let (most, read) = (MAX_BYTES >> 20, MAX_KEPT >> 20);
            return Err(format!("its list of pods has more than {most} MiB, or {read} MiB of what is read"));
        }
        self.kept.extend(kept);
        Ok(())
    }

    fn pods(&self) -> Result<Vec<PodReport>, serde_json::Error> {
        let list: PodList = serde_json::from_slice(&self.kept)?;
        Ok(list.items.unwrap_or_default())
    }
}

/// The fields of a PodList that are read. `/runningpods` leaves most of them empty.
#[derive(Deserialize)]
struct PodList {
    items: Option<Vec<PodReport>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KubeletPod {
    metadata: PodMetadata,
    #[serde(default)]
    status: Value,
    /// [`crate::core::field_filter::is_too_large`].
    #[serde(default)]
    too_large: bool,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct PodMetadata {
    uid: String,
    namespace: String,
    name: String,
    annotations: BTreeMap<String, String>,
}

impl From<KubeletPod> for PodReport {
    /// One pod after the other is read, so that no more than one status of a pod of the API server is in memory.
    fn from(pod: KubeletPod) -> Self {
        let is_known =
            !pod.too_large && pod.metadata.annotations.get(SOURCE_ANNOTATION).is_none_or(|at| at != FROM_API);
        let reported = json!({"status": if is_known { pod.status } else { Value::Null }});
        let text = |field: &str| reported["status"][field].as_str().unwrap_or_default().to_owned();
        let ready = condition(&reported, "Ready");
        Self {
            uid: pod.metadata.uid,
            namespace: pod.metadata.namespace,
            name: pod.metadata.name,
            phase: text("phase"),
            reason: text("reason"),
            message: text("message"),
            ready: ready.map(|condition| condition["status"] == "True"),
            reported: is_known.then_some(reported),
        }
    }
}
