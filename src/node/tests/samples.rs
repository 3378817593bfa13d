//! A sample of each message: the error, what it has to name, and its hint.

use std::io;
use std::time::Duration;

use http::StatusCode;
use rustls::pki_types::pem;
use tonic::Code;

use crate::config::ConfigError;
use crate::config::ConfigProblem;
use crate::core::enrolment::AwaitedStep;
use crate::core::enrolment::CertificateError;
use crate::core::enrolment::RequestError;
use crate::core::quantity::QuantityError;
use crate::guard::GuardError;
use crate::guard::TableError;
use crate::log::LogError;
use crate::node::agent::AgentError;
use crate::node::api::ApiFailure;
use crate::node::api::FailureKind;
use crate::node::api::FileError;
use crate::node::api::KubeconfigError;
use crate::node::api::TlsError;
use crate::node::cri::CriError;
use crate::node::enrolment::EnrolmentError;
use crate::node::fsx::Doing;
use crate::node::fsx::FsError;
use crate::node::kubelet::KubeletError;
use crate::node::recording::read::ReadError;
use crate::node::seal::SealError;
use crate::node::socket::SocketError;
use crate::node::volumes::VolumeError;

use super::*;

/// A message, as far as it is wanted: the error, what it has to name, and its hint.
pub(super) type Sample = (Box<dyn Error>, &'static str, Option<String>);

fn io_error(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

/// A step on this path that was not allowed.
fn step(doing: Doing, path: &str) -> FsError {
    FsError::new(doing, path, io_error(13))
}

fn not_json() -> serde_json::Error {
    serde_json::from_str::<u8>("{").expect_err("it is none")
}

/// The error with its own hint.
macro_rules! hinted {
    ($error:expr, $object:expr) => {{
        let error = $error;
        let hint = error.hint();
        (Box::new(error) as Box<dyn Error>, $object, hint)
    }};
}

pub(super) fn of_files() -> Vec<Sample> {
    let path = || PathBuf::from("/f/a.yaml");
    let folder = || PathBuf::from("/f");
    let text = |text: &str| text.to_owned();
    let below = || step(Doing::Write, "/f/a.yaml");
    let mut samples = vec![
        hinted!(CheckpointError::Folder { path: folder(), source: step(Doing::Open, "/f") }, "/f"),
        hinted!(
            CheckpointError::Unsafe { path: folder(), why: text("is open to others"), hint: text("chmod 0700 /f") },
            "/f"
        ),
        hinted!(CheckpointError::Save { path: path(), source: below() }, "/f/a.yaml"),
        hinted!(CheckpointError::Remove { path: path(), source: step(Doing::Remove, "/f/a.yaml") }, "/f/a.yaml"),
        hinted!(CheckpointError::Encode { path: path(), source: not_json() }, "/f/a.yaml"),
        hinted!(
            ManifestError::Unsafe { path: folder(), why: text("is open to others"), hint: text("chmod 0700 /f") },
            "/f"
        ),
        hinted!(ManifestError::Locked { path: folder(), holder: Some(7) }, "process 7"),
        hinted!(ManifestError::ManifestFolder { path: folder(), source: step(Doing::Create, "/f") }, "/f"),
        hinted!(ManifestError::Foreign { path: path(), why: text("it has no marker") }, "/f/a.yaml"),
        hinted!(ManifestError::ReadOnly { path: folder() }, "/f"),
        hinted!(ManifestError::Name { name: text(".a") }, ".a"),
        hinted!(ManifestError::Gone { path: path() }, "/f/a.yaml"),
        hinted!(ManifestError::Check { path: path(), why: text("it is empty") }, "/f/a.yaml"),
        hinted!(ManifestError::Write { path: path(), source: step(Doing::Rename, "/f/a.yaml") }, "/f/a.yaml"),
        hinted!(ManifestError::Remove { path: path(), source: step(Doing::Remove, "/f/a.yaml") }, "/f/a.yaml"),
        hinted!(
            ManifestError::Attributes { path: path(), source: step(Doing::SetAttributes, "/f/a.yaml") },
            "/f/a.yaml"
        ),
        hinted!(ManifestError::Watch { path: folder(), source: io_error(28) }, "/f"),
        hinted!(VolumeError::Uid { uid: text("../u") }, "../u"),
        hinted!(VolumeError::Path { uid: text("u"), volume: text("config"), path: text("../x") }, "config"),
        hinted!(VolumeError::Write { uid: text("u"), volume: text("config"), source: below() }, "config"),
        hinted!(VolumeError::Pod { uid: text("u-1"), source: step(Doing::Create, "/f/u-1") }, "u-1"),
        hinted!(VolumeError::Clear { uid: text("u-1"), source: step(Doing::Remove, "/f/u-1") }, "u-1"),
        hinted!(SocketError::Listen { path: path(), source: io_error(98) }, "/f/a.yaml"),
        hinted!(SocketError::Listen { path: path(), source: io::Error::other("it is no socket") }, "/f/a.yaml"),
    ];
    for doing in [
        Doing::Open,
        Doing::Create,
        Doing::Read,
        Doing::Write,
        Doing::SetAttributes,
        Doing::Sync,
        Doing::Rename,
        Doing::Remove,
        Doing::Watch,
    ] {
        for number in [1, 13, 20, 28, 30, 40, 122] {
            samples.push(hinted!(FsError::new(doing, "/f/a.yaml", io_error(number)), "/f/a.yaml"));
            let source = FsError::new(doing, "/f/a.yaml", io_error(number));
            samples.push(hinted!(CheckpointError::Save { path: path(), source }, "/f/a.yaml"));
        }
    }
    samples
}

pub(super) fn of_the_agent() -> Vec<Sample> {
    let path = || PathBuf::from("/f");
    let text = |text: &str| text.to_owned();
    let state = CheckpointError::Folder { path: path(), source: step(Doing::Open, "/f") };
    let socket = SocketError::Listen { path: path(), source: io_error(13) };
    let runtime = || CriError::Endpoint { endpoint: text("tcp:1") };
    let fault = ConfigProblem { message: text("/f: it is empty"), hint: None };
    let kubelet = || KubeletError::Endpoint { endpoint: text("http:1") };
    vec![
        hinted!(AgentError::State(state), "/f"),
        hinted!(AgentError::Locked { path: path() }, "/f"),
        hinted!(AgentError::Lock { path: path(), source: io_error(13) }, "/f"),
        hinted!(AgentError::ManifestFolder(ManifestError::Locked { path: path(), holder: None }), "/f"),
        hinted!(AgentError::Socket(socket), "/f"),
        hinted!(AgentError::Runtime(runtime()), "tcp:1"),
        hinted!(AgentError::Kubelet(kubelet()), "http:1"),
        hinted!(AgentError::Config(ConfigError { problems: vec![fault] }), "/f"),
        hinted!(AgentError::Selector(text("\"a in\": found nothing, expected \"(\"")), "a in"),
        hinted!(AgentError::Loop(io_error(24)), "event loop"),
        hinted!(AgentError::Signals(io_error(24)), "signals"),
        (Box::new(LogError::Filter { filter: text("loud") }), "loud", None),
        (Box::new(LogError::Journal { source: io_error(2) }), "log.target", None),
        (Box::new(GuardError::Table(TableError::Open(io_error(1)))), "boot guard", None),
        (Box::new(GuardError::Table(TableError::Busy)), "boot guard", None),
        (Box::new(GuardError::Table(TableError::Set(io_error(1)))), "boot guard", None),
        (Box::new(GuardError::Table(TableError::Remove(io_error(1)))), "boot guard", None),
        (Box::new(GuardError::System { what: "read /proc/net/tcp", source: io_error(13) }), "/proc/net/tcp", None),
        (Box::new(SealError::Program(io_error(2))), "systemd-creds", None),
        (Box::new(SealError::Refused { doing: "encrypt", said: text("no TPM") }), "systemd-creds", None),
        (Box::new(SealError::Broken), "", None),
        (Box::new(SealError::Random), "", None),
        (Box::new(ReadError::NotOne(text("its first bytes are another program's"))), "", None),
        (Box::new(ReadError::Format(7, text("9.9"))), "daemonlet 9.9", None),
        (Box::new(ReadError::Damaged(text("it ends early"))), "", None),
        (Box::new(ReadError::TooLarge), "", None),
        (Box::new(ReadError::NoRandomness), "", None),
        (Box::new(QuantityError::Format), "", None),
        (Box::new(QuantityError::Suffix), "", None),
        (Box::new(QuantityError::TooLarge), "", None),
    ]
}

pub(super) fn of_others() -> Vec<Sample> {
    let text = |text: &str| text.to_owned();
    let socket = || PathBuf::from("/run/c.sock");
    let endpoint = || text("https://127.0.0.1:10250");
    let kubeconfig = || PathBuf::from("/k");
    let read = |source| KubeconfigError::Read { path: kubeconfig(), source: Box::new(source) };
    let tls = |source| KubeconfigError::Tls { path: kubeconfig(), source };
    let forbidden = || ApiFailure::new(FailureKind::Forbidden, "the user may not create it");
    let request = || text("csr-1");
    let subject = CertificateError::Subject { subject: text("CN=a"), wanted: text("CN=b") };
    let merge = FileError::Merge(kube::config::KubeconfigError::CurrentContextNotSet);
    let yaml = FileError::Yaml { line: 1, column: 2, message: text("unclosed bracket") };
    let general = || rustls::Error::General(text("no such curve"));
    let used = |source| EnrolmentError::Certificate { request: request(), source };
    vec![
        hinted!(CriError::Endpoint { endpoint: text("tcp:1") }, "tcp:1"),
        hinted!(
            CriError::Unreachable { socket: socket(), method: text("Version"), source: Box::new(io_error(2)) },
            "/run/c.sock"
        ),
        hinted!(
            CriError::Timeout { socket: socket(), method: text("Version"), limit: Duration::from_secs(2) },
            "/run/c.sock"
        ),
        hinted!(
            CriError::Refused {
                socket: socket(),
                method: text("Version"),
                code: Code::Unimplemented,
                message: text("unknown service")
            },
            "/run/c.sock"
        ),
        hinted!(KubeletError::Endpoint { endpoint: text("http:1") }, "http:1"),
        hinted!(KubeletError::Credentials(read(FileError::Io(io_error(13)))), "/k"),
        hinted!(
            KubeletError::Unreachable { endpoint: endpoint(), path: "/pods", source: Box::new(io_error(111)) },
            "10250"
        ),
        hinted!(KubeletError::Timeout { endpoint: endpoint(), path: "/pods" }, "10250"),
        hinted!(KubeletError::Refused { endpoint: endpoint(), path: "/pods", status: StatusCode::FORBIDDEN }, "10250"),
        hinted!(KubeletError::Decode { endpoint: endpoint(), path: "/pods", source: not_json() }, "10250"),
        (Box::new(read(FileError::Io(io_error(13)))), "/k", None),
        (Box::new(read(yaml)), "/k", None),
        (Box::new(read(FileError::Field(text("users[0].name is missing")))), "/k", None),
        (Box::new(read(merge)), "/k", None),
        (
            Box::new(KubeconfigError::File {
                path: kubeconfig(),
                field: "client-key",
                file: PathBuf::from("/key"),
                source: io_error(13),
            }),
            "/key",
            None,
        ),
        (
            Box::new(KubeconfigError::Field { path: kubeconfig(), field: "exec", reason: text("is not supported") }),
            "/k",
            None,
        ),
        (Box::new(tls(TlsError::Pem { what: "client-key", source: pem::Error::NoItemsFound })), "/k", None),
        (Box::new(tls(TlsError::NoCertificate { what: "client-certificate" })), "/k", None),
        (Box::new(tls(TlsError::NoRoots)), "/k", None),
        (Box::new(tls(TlsError::Refused { what: "client-key", why: general() })), "/k", None),
        hinted!(EnrolmentError::NoSource(vec![PathBuf::from("/k"), PathBuf::from("/b")]), "/k"),
        hinted!(EnrolmentError::NoSource(vec![kubeconfig()]), "/k does not exist"),
        hinted!(EnrolmentError::Source(read(FileError::Io(io_error(2)))), "/k"),
        hinted!(
            EnrolmentError::Connection(ApiFailure::new(FailureKind::Kubeconfig, "kubeconfig /k cannot be read")),
            "kubeconfig /k"
        ),
        hinted!(EnrolmentError::Taken(kubeconfig()), "/k"),
        hinted!(EnrolmentError::Files(step(Doing::Write, "/k")), "/k"),
        hinted!(EnrolmentError::Key, "key"),
        hinted!(EnrolmentError::Api { request: request(), source: forbidden() }, "csr-1"),
        hinted!(
            EnrolmentError::Unreachable {
                server: "https://a:6443".to_owned(),
                kubeconfig: kubeconfig(),
                seconds: 15,
                source: ApiFailure::new(FailureKind::Unreachable, "connection refused")
            },
            "https://a:6443"
        ),
        hinted!(EnrolmentError::Refused { request: request(), what: "denied", message: text("unknown node") }, "csr-1"),
        hinted!(EnrolmentError::TooLong { request: request(), awaited: AwaitedStep::Approval, seconds: 300 }, "csr-1"),
        hinted!(used(subject), "csr-1"),
        hinted!(used(CertificateError::NotACertificate), "csr-1"),
        hinted!(EnrolmentError::OtherKey(request()), "csr-1"),
        (Box::new(RequestError::NotPem), "request", None),
        (Box::new(RequestError::NotARequest), "request", None),
        (Box::new(RequestError::Attributes), "request", None),
        (Box::new(RequestError::Subject { subject: text("CN=a") }), "CN=a", None),
    ]
}
