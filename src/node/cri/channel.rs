//! One gRPC connection to a unix socket: made when needed, made anew when it broke, every call bounded.

use std::io;
use std::iter;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Duration;

use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::net::UnixStream;
use tokio::sync::OnceCell;
use tonic::Code;
use tonic::client::Grpc;
use tonic::metadata::MetadataValue;
use tonic::transport::Endpoint;
use tonic_prost::ProstCodec;

use crate::core::escape;

/// As much as the kubelet takes in one message (cri-client/pkg/remote_runtime.go).
const MAX_MESSAGE: usize = 16 << 20;

/// A question that the runtime did not answer. Never evidence that something is gone.
#[derive(Debug, thiserror::Error)]
pub enum CriError {
    /// The endpoint is no unix socket's path.
    #[error("runtime-endpoint {endpoint:?} is no path of a unix socket")]
    Endpoint { endpoint: String },
    /// No runtime answers at the socket.
    #[error("container runtime at {} does not answer {method}: retrying", socket.display())]
    Unreachable {
        socket: PathBuf,
        /// The call.
        method: String,
        /// The connection's error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No answer within the time that the call may take.
    #[error(
        "container runtime at {} has not answered {method} within {} s: retrying",
        socket.display(),
        limit.as_secs()
    )]
    Timeout {
        socket: PathBuf,
        /// The call.
        method: String,
        /// The time.
        limit: Duration,
    },
    /// The runtime answered with an error.
    #[error("container runtime at {} refused {method}: {message} ({code:?})", socket.display())]
    Refused {
        socket: PathBuf,
        /// The call.
        method: String,
        code: Code,
        /// Its words.
        message: String,
    },
}

impl CriError {
    /// What to do about it, if there is something to do.
    pub fn hint(&self) -> Option<String> {
        match self {
            CriError::Endpoint { .. } => {
                Some("write it as the kubelet does, such as unix:///run/containerd/containerd.sock".to_owned())
            }
            CriError::Unreachable { socket, .. } if !socket.exists() => {
                Some(format!("{} does not exist: is the runtime started, is runtime-endpoint right?", socket.display()))
            }
            CriError::Refused { code: Code::Unimplemented, .. } => Some(
                "the runtime does not serve the CRI's runtime.v1: it may be too old, or its CRI is switched off"
                    .to_owned(),
            ),
            _ => None,
        }
    }

    /// The cause without the caller's context: the runtime's own text if it answered.
    pub fn words(&self) -> String {
        match self {
            CriError::Refused { message, .. } => message.clone(),
            other => other.to_string(),
        }
    }

    /// Whether the runtime answered, even with an error.
    pub fn is_answer(&self) -> bool {
        matches!(self, CriError::Refused { .. })
    }

    /// Whether the runtime answered that it does not know the object.
    pub(super) fn is_not_found(&self) -> bool {
        matches!(self, CriError::Refused { code: Code::NotFound, .. })
    }
}

/// The sockets at which a runtime may be.
#[derive(Debug)]
struct Sockets {
    first: PathBuf,
    others: Vec<PathBuf>,
    /// The one that has taken a connection: no other one is the same runtime.
    taken: OnceLock<PathBuf>,
}

impl Sockets {
    /// The socket to connect to now.
    fn now(&self) -> &Path {
        let all = || iter::once(&self.first).chain(&self.others);
        let exists = || all().find(|socket| !self.others.is_empty() && socket.exists());
        self.taken.get().or_else(exists).unwrap_or(&self.first)
    }

    async fn connect(&self) -> io::Result<UnixStream> {
        let socket = self.now();
        let stream = UnixStream::connect(socket).await?;
        self.taken.get_or_init(|| socket.to_owned());
        Ok(stream)
    }
}

/// A connection to one socket.
#[derive(Debug)]
pub(super) struct Channel {
    sockets: Arc<Sockets>,
    // Connected with the first call: connecting needs a running tokio.
    channel: OnceCell<tonic::transport::Channel>,
}

impl Channel {
    /// The socket of `endpoint`; does not connect yet.
    pub(super) fn new(endpoint: &str) -> Result<Self, CriError> {
        let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
        if !Path::new(path).is_absolute() || path.contains('\0') {
            return Err(CriError::Endpoint { endpoint: endpoint.to_owned() });
        }
        Ok(Self::at(path.into(), Vec::new()))
    }

    fn at(first: PathBuf, others: Vec<PathBuf>) -> Self {
        let sockets = Sockets { first, others, taken: OnceLock::new() };
        Self { sockets: Arc::new(sockets), channel: OnceCell::new() }
    }

    /// The same, or the first of `others` that exists while its own socket does not.
    pub(super) fn or_at(self, others: Vec<PathBuf>) -> Self {
        Self::at(self.sockets.first.clone(), others)
    }

    fn socket(&self) -> PathBuf {
        self.sockets.now().to_owned()
    }

    async fn channel(&self) -> tonic::transport::Channel {
        let make = || async {
            let sockets = Arc::clone(&self.sockets);
            let connect = tower::service_fn(move |_: http::Uri| {
                let sockets = Arc::clone(&sockets);
                async move { Ok::<_, io::Error>(TokioIo::new(sockets.connect().await?)) }
            });
            // The name is only used for the header `:authority`; runtimes require one that can be parsed.
            Endpoint::from_static("http://localhost").connect_with_connector_lazy(connect)
        };
        self.channel.get_or_init(make).await.clone()
    }

    /// Calls `method` of the runtime service with the timeout `limit`, connecting included.
    pub(super) async fn call<Request, Reply>(
        &self,
        method: &str,
        request: &Request,
        limit: Duration,
    ) -> Result<Reply, CriError>
    where
        Request: Message + Clone + 'static,
        Reply: Message + Default + 'static,
    {
        self.call_of("runtime.v1.RuntimeService", None, method, request, limit).await
    }

    /// As [`Channel::call`], for any service, in a namespace of containerd if given.
    pub(super) async fn call_of<Request, Reply>(
        &self,
        service: &str,
        namespace: Option<&'static str>,
        method: &str,
        request: &Request,
        limit: Duration,
    ) -> Result<Reply, CriError>
    where
        Request: Message + Clone + 'static,
        Reply: Message + Default + 'static,
    {
        let unreachable = |error: &(dyn std::error::Error + 'static)| CriError::Unreachable {
            socket: self.socket(),
            method: method.to_owned(),
            source: cause(error),
        };
        #[cfg(feature = "simulation")]
        let simulated =
            crate::simulation::world().map(|world| self.simulated(&*world, method, &request.encode_to_vec(), limit));
        #[cfg(feature = "simulation")]
        if let Some(answer) = simulated {
            return answer.await;
        }
        let path = PathAndQuery::try_from(format!("/{service}/{method}"));
        let path = path.map_err(|e| unreachable(&e))?;
        let asked = async {
            let mut client = Grpc::new(self.channel().await).max_decoding_message_size(MAX_MESSAGE);
            client.ready().await.map_err(|e| unreachable(&e))?;
            let mut message = tonic::Request::new(request.clone());
            // The runtime's own deadline is a little later than ours, so that the error text always comes from here.
            message.set_timeout(limit + Duration::from_secs(1));
            if let Some(namespace) = namespace {
                message.metadata_mut().insert("containerd-namespace", MetadataValue::from_static(namespace));
            }
            let reply = client.unary(message, path, ProstCodec::<Request, Reply>::default()).await;
            reply.map(tonic::Response::into_inner).map_err(|status| self.error(method, status, limit))
        };
        match tokio::time::timeout(limit, asked).await {
            Ok(reply) => reply,
            Err(_) => Err(self.timeout(method, limit)),
        }
    }

    /// The answer of a simulated world's runtime.
    #[cfg(feature = "simulation")]
    fn simulated<Reply: Message + Default>(
        &self,
        world: &dyn crate::simulation::World,
        method: &str,
        request: &[u8],
        limit: Duration,
    ) -> impl Future<Output = Result<Reply, CriError>> + Send + use<Reply> {
        use crate::simulation::RuntimeAnswer;
        let (after, answer) = world.runtime(method, request);
        let (socket, method) = (self.socket(), method.to_owned());
        async move {
            let answer = if after < limit { answer } else { RuntimeAnswer::Silence };
            if !matches!(answer, RuntimeAnswer::Silence) {
                tokio::time::sleep(after).await;
            }
            let (code, message) = match answer {
                RuntimeAnswer::Message(bytes) => match Reply::decode(bytes.as_slice()) {
                    Ok(reply) => return Ok(reply),
                    Err(error) => (Code::Internal, error.to_string()),
                },
                RuntimeAnswer::NotFound => (Code::NotFound, "not found".to_owned()),
                RuntimeAnswer::Refused(message) => (Code::Unknown, message),
                RuntimeAnswer::Unreachable => {
                    let source = std::io::Error::from_raw_os_error(nix::errno::Errno::ECONNREFUSED as i32).into();
                    return Err(CriError::Unreachable { socket, method, source });
                }
                RuntimeAnswer::Silence => {
                    tokio::time::sleep(limit).await;
                    return Err(CriError::Timeout { socket, method, limit });
                }
            };
            Err(CriError::Refused { socket, method, code, message })
        }
    }

    fn timeout(&self, method: &str, limit: Duration) -> CriError {
        CriError::Timeout { socket: self.socket(), method: method.to_owned(), limit }
    }

    /// Distinguishes an answer of the runtime from a failure of the connection, which has a cause.
    fn error(&self, method: &str, status: tonic::Status, limit: Duration) -> CriError {
        let is_of_connection = std::error::Error::source(&status).is_some();
        match status.code() {
            Code::DeadlineExceeded => self.timeout(method, limit),
            Code::Unavailable | Code::Unknown | Code::Internal | Code::Cancelled if is_of_connection => {
                CriError::Unreachable { socket: self.socket(), method: method.to_owned(), source: cause(&status) }
            }
            code => CriError::Refused {
                socket: self.socket(),
                method: method.to_owned(),
                code,
                message: escape::short(status.message(), escape::TEXT).into_owned(),
            },
        }
    }
}

/// The innermost cause of a failed connection: the errors around it repeat it.
fn cause(error: &(dyn std::error::Error + 'static)) -> Box<dyn std::error::Error + Send + Sync> {
    let Some(innermost) = iter::successors(Some(error), |error| error.source()).last() else { return "".into() };
    match innermost.downcast_ref::<io::Error>() {
        Some(io) => match io.raw_os_error() {
            Some(number) => io::Error::from_raw_os_error(number).into(),
            None => io.to_string().into(),
        },
        None => innermost.to_string().into(),
    }
}
