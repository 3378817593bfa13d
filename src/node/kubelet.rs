//! The kubelet's own API, if this node's configuration lets the agent use it.
//!
//! Owns the requests and the reading of replies. Must not decide. `/runningpods` lists what the runtime runs; `/pods`
//! lists what the kubelet knows, which a removed pod leaves at once, so it never proves an end. An error means
//! unknown.

#[cfg(test)]
mod tests;

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
use http_body_util::Limited;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde::Deserialize;
use serde_json::Value;
use serde_json::json;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::node::api::KubeconfigError;
use crate::node::api::kubeconfig::ApiCredentials;

/// Where a kubelet says that it is at work: its default `healthzBindAddress` and `healthzPort`.
pub const HEALTHZ: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10_248);

/// Timeout of a request, connecting included.
const ASK: Duration = Duration::from_secs(5);
/// Larger than any list of a node's pods.
const MAX_BYTES: usize = 64 << 20;

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
        /// What the connection said.
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodReport {
    /// The UID by which the kubelet knows the pod (of a static pod: the manifest's).
    pub uid: String,
    pub namespace: String,
    pub name: String,
    /// `Pending`, `Running`, `Succeeded` or `Failed`.
    pub phase: String,
    /// The reason, such as `NodePorts` for a rejected pod; else empty.
    pub reason: String,
    /// The message.
    pub message: String,
    /// The condition Ready; `None`: not set yet.
    pub ready: Option<bool>,
    /// The pod's `status`, in the API's form (`{"status": …}`).
    pub reported: Value,
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
        Ok(pods.into_iter().map(|pod| pod.metadata.uid).collect())
    }

    /// The pods that the kubelet should run, including rejected ones.
    pub async fn pods(&self) -> Result<Vec<PodReport>, KubeletError> {
        Ok(self.pods_at("/pods").await?.into_iter().map(PodReport::from).collect())
    }

    async fn pods_at(&self, path: &'static str) -> Result<Vec<KubeletPod>, KubeletError> {
        let endpoint = || self.endpoint.to_string().trim_end_matches('/').to_owned();
        let credentials = ApiCredentials::load(&self.kubeconfig).map_err(KubeletError::Credentials)?;
        let asked = tokio::time::timeout(ASK, self.get(path, &credentials)).await;
        let (status, body) = asked
            .map_err(|_| KubeletError::Timeout { endpoint: endpoint(), path })?
            .map_err(|source| KubeletError::Unreachable { endpoint: endpoint(), path, source })?;
        if status != StatusCode::OK {
            return Err(KubeletError::Refused { endpoint: endpoint(), path, status });
        }
        let list: PodList = serde_json::from_slice(&body).map_err(|source| KubeletError::Decode {
            endpoint: endpoint(),
            path,
            source,
        })?;
        Ok(list.items.unwrap_or_default())
    }

    /// One request on its own connection: requests are rare, and made only without a CRI.
    async fn get(&self, path: &str, credentials: &ApiCredentials) -> Result<(StatusCode, Bytes), BoxedError> {
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
        let body = Limited::new(reply.into_body(), MAX_BYTES).collect().await?.to_bytes();
        Ok((status, body))
    }
}

/// The fields of a PodList that are read. `/runningpods` leaves most of them empty.
#[derive(Deserialize)]
struct PodList {
    items: Option<Vec<KubeletPod>>,
}

#[derive(Deserialize)]
struct KubeletPod {
    metadata: PodMetadata,
    #[serde(default)]
    status: Value,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct PodMetadata {
    uid: String,
    namespace: String,
    name: String,
}

impl From<KubeletPod> for PodReport {
    fn from(pod: KubeletPod) -> Self {
        let reported = json!({"status": pod.status});
        let text = |field: &str| reported["status"][field].as_str().unwrap_or_default().to_owned();
        let conditions = reported["status"]["conditions"].as_array();
        let ready = conditions.and_then(|list| list.iter().find(|condition| condition["type"] == "Ready"));
        Self {
            uid: pod.metadata.uid,
            namespace: pod.metadata.namespace,
            name: pod.metadata.name,
            phase: text("phase"),
            reason: text("reason"),
            message: text("message"),
            ready: ready.map(|condition| condition["status"] == "True"),
            reported,
        }
    }
}
