//! The kubeconfig, or a pod's in-cluster identity: server, trust and credentials; notices when its files change.
//!
//! Owns reading and validating. Must not connect. If a file becomes invalid, `connector` keeps the last valid content
//! in force.

mod file;
mod in_cluster;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use http::HeaderName;
use http::HeaderValue;
use http::Uri;
use http::header::AUTHORIZATION;
use kube::config::AuthInfo;
use kube::config::Cluster;
use kube::config::Kubeconfig;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use secrecy::ExposeSecret;
use sha2::Digest;
use sha2::Sha256;

use crate::core::enrolment::end_of;
use crate::core::render::Endpoint;
use crate::core::time::Timestamp;
use crate::node::api::tls;
use crate::node::api::tls::TlsError;
use crate::node::api::tls::TlsInput;
use crate::regular_file;

pub use file::FileError;
#[cfg(test)]
pub(crate) use file::parse;

/// Why a kubeconfig cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// The file cannot be read or parsed.
    #[error("kubeconfig {path} cannot be read")]
    Read {
        path: PathBuf,
        #[source]
        source: Box<FileError>,
    },
    /// A file that it names cannot be read.
    #[error("kubeconfig {path}: {field} {file} cannot be read")]
    File {
        path: PathBuf,
        /// The field that names it.
        field: &'static str,
        file: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A field's value cannot be used.
    #[error("kubeconfig {path}: {field}: {reason}")]
    Field {
        path: PathBuf,
        field: &'static str,
        /// What is wrong and what to do.
        reason: String,
    },
    /// Certificates or keys cannot be used.
    #[error("kubeconfig {path}")]
    Tls {
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: TlsError,
    },
}

/// Size, time and identity of a file, which show that it was replaced or written.
type FileIdentity = Option<(u64, i64, i64, u64)>;

/// A kubeconfig, read and ready to connect with.
pub(in crate::node) struct ApiCredentials {
    /// The server's URL: scheme, authority and an optional path prefix.
    pub(in crate::node) server: Uri,
    /// Host (no brackets) and port.
    pub(in crate::node) endpoint: Endpoint,
    /// TLS with the name that the certificate must have; `None` for `http://`.
    pub(in crate::node) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    /// `Authorization` and impersonation.
    pub(in crate::node) headers: HeaderMap,
    /// Changes when connections made with the old credentials must no longer be used.
    pub(super) fingerprint: [u8; 32],
    files: Vec<(PathBuf, FileIdentity)>,
}

impl ApiCredentials {
    /// Reads the kubeconfig and the files that it names; `in-cluster`: a pod's environment and token.
    pub(in crate::node) fn load(path: &Path) -> Result<Self, KubeconfigError> {
        let (reader, config) = open(path)?;
        Self::with(reader, config)
    }

    /// Reads the files that `config` names; `path`: where it was read.
    pub(super) fn of(path: &Path, config: Kubeconfig) -> Result<Self, KubeconfigError> {
        Self::with(KubeconfigReader { path, files: Vec::new() }, config)
    }

    fn with(mut reader: KubeconfigReader<'_>, config: Kubeconfig) -> Result<Self, KubeconfigError> {
        let path = reader.path;
        let (cluster, user) = reader.context(config)?;
        let server = reader.server(&cluster)?;
        let endpoint = address(&server);
        let plain = server.scheme_str() == Some("http");
        let input = reader.tls_input(&cluster, &user)?;
        let name = cluster.tls_server_name.filter(|name| !name.is_empty()).unwrap_or_else(|| endpoint.host.clone());
        let fingerprint = fingerprint(&server, &name, &input);
        let tls = if plain {
            None
        } else {
            let config =
                tls::client_config(&input).map_err(|source| KubeconfigError::Tls { path: path.into(), source })?;
            let name = ServerName::try_from(name)
                .map_err(|_| reader.field("tls-server-name", "neither a host name nor an address"))?;
            Some((Arc::new(config), name))
        };
        let headers = reader.headers(&user)?;
        Ok(Self { server, endpoint, tls, headers, fingerprint, files: reader.files })
    }

    /// Host and port of the server for pods; `None` where it is a path of its host.
    pub(super) fn for_pods(&self) -> Option<Endpoint> {
        for_pods(&self.server)
    }

    /// Whether one of the files has changed since.
    pub(super) fn is_stale(&self) -> bool {
        self.files.iter().any(|(path, before)| stamp(path) != *before)
    }
}

/// The kubeconfig at `path`, and what reads the files that it names.
fn open(path: &Path) -> Result<(KubeconfigReader<'_>, Kubeconfig), KubeconfigError> {
    if let Some(folder) = in_cluster::folder(path) {
        let config = in_cluster::kubeconfig(&folder, |name| std::env::var(name).ok())?;
        return Ok((KubeconfigReader { path, files: Vec::new() }, config));
    }
    let reader = KubeconfigReader { path, files: vec![(path.to_path_buf(), stamp(path))] };
    Ok((reader, read(path)?))
}

/// Reads the kubeconfig at `path`; relative paths are resolved from its folder.
///
/// # Errors
/// When the file is no kubeconfig.
pub(crate) fn read(path: &Path) -> Result<Kubeconfig, KubeconfigError> {
    file::read(path).map_err(|source| KubeconfigError::Read { path: path.into(), source: Box::new(source) })
}

/// The cluster of the current context, and its user's name. Refuses no credentials: the connection does.
///
/// # Errors
/// When a name leads nowhere.
pub(crate) fn cluster(path: &Path, config: &Kubeconfig) -> Result<(Cluster, Option<String>), KubeconfigError> {
    let field = |field, reason| KubeconfigError::Field { path: path.into(), field, reason };
    let current = config.current_context.as_deref().unwrap_or_default();
    let names: Vec<&str> = config.contexts.iter().map(|named| named.name.as_str()).collect();
    let names = match names.is_empty() {
        true => "the file has no contexts".to_owned(),
        false => format!("there are: {}", names.join(", ")),
    };
    if current.is_empty() {
        return Err(field("current-context", format!("is empty; name the context to use; {names}")));
    }
    let context = config.contexts.iter().find(|named| named.name == current).and_then(|named| named.context.as_ref());
    let context = context.ok_or_else(|| field("current-context", format!("there is no context {current}; {names}")))?;
    let found = config.clusters.iter().find(|named| named.name == context.cluster);
    let cluster = found.and_then(|named| named.cluster.clone());
    let missing = || field("clusters", unnamed("cluster", &context.cluster, current));
    Ok((cluster.ok_or_else(missing)?, context.user.clone().filter(|user| !user.is_empty())))
}

/// When the client certificate of the kubeconfig at `path` ends; `None`: it has none, or cannot be read.
pub(crate) fn certificate_end(path: &Path) -> Option<Timestamp> {
    let (mut reader, config) = open(path).ok()?;
    let (_, user) = reader.context(config).ok()?;
    let (inline, file) = (user.client_certificate_data.as_deref(), user.client_certificate.as_deref());
    let certificate = reader.bytes("client-certificate", inline, file).ok()??;
    end_of(&String::from_utf8_lossy(&certificate))
}

fn unnamed(kind: &str, name: &str, context: &str) -> String {
    format!("there is no {kind} {name}, which the context {context} names")
}

/// Host and port of a kubeconfig's server for pods: the default of `api-endpoint`. `None` where the server is a path of
/// its host.
///
/// # Errors
/// When the kubeconfig cannot be read, or names no server.
pub fn endpoint(path: &Path) -> Result<Option<Endpoint>, KubeconfigError> {
    let (reader, config) = open(path)?;
    let (cluster, _) = reader.context(config)?;
    reader.server(&cluster).map(|server| for_pods(&server))
}

fn address(server: &Uri) -> Endpoint {
    let host = server.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_string();
    let plain = server.scheme_str() == Some("http");
    Endpoint { host, port: server.port_u16().unwrap_or(if plain { 80 } else { 443 }) }
}

/// What a pod's `KUBERNETES_SERVICE_HOST` and `_PORT` may be: a path they cannot say.
fn for_pods(server: &Uri) -> Option<Endpoint> {
    matches!(server.path(), "" | "/").then(|| address(server))
}

struct KubeconfigReader<'a> {
    path: &'a Path,
    files: Vec<(PathBuf, FileIdentity)>,
}

impl KubeconfigReader<'_> {
    fn field(&self, field: &'static str, reason: impl Into<String>) -> KubeconfigError {
        KubeconfigError::Field { path: self.path.into(), field, reason: reason.into() }
    }

    /// Cluster and user of the current context.
    fn context(&self, config: Kubeconfig) -> Result<(Cluster, AuthInfo), KubeconfigError> {
        let (cluster, user) = cluster(self.path, &config)?;
        let current = config.current_context.unwrap_or_default();
        let user = match user {
            None => AuthInfo::default(),
            Some(name) => config
                .auth_infos
                .into_iter()
                .find(|named| named.name == name)
                .and_then(|named| named.auth_info)
                .ok_or_else(|| self.field("users", unnamed("user", &name, &current)))?,
        };
        self.refuse(&cluster, &user)?;
        Ok((cluster, user))
    }

    /// What is not supported is refused by name and never ignored: a request would use another identity, or another
    /// route, than the file says.
    fn refuse(&self, cluster: &Cluster, user: &AuthInfo) -> Result<(), KubeconfigError> {
        let instead = "use a client certificate, a token or a tokenFile";
        if user.exec.is_some() {
            return Err(self.field("exec", format!("credential plugins are not supported on a node; {instead}")));
        }
        if user.auth_provider.is_some() {
            return Err(self.field("auth-provider", format!("not supported; {instead}")));
        }
        if user.username.is_some() || user.password.is_some() {
            return Err(self.field("username", format!("no API server takes passwords any longer; {instead}")));
        }
        if cluster.proxy_url.as_deref().is_some_and(|url| !url.is_empty()) {
            return Err(self.field("proxy-url", "proxies are not supported; name the server's own address"));
        }
        if user.impersonate_uid.is_some() || user.impersonate_user_extra.is_some() {
            return Err(self.field("as-uid", "only as and as-groups are supported"));
        }
        Ok(())
    }

    fn server(&self, cluster: &Cluster) -> Result<Uri, KubeconfigError> {
        let text = cluster.server.as_deref().unwrap_or_default();
        let uri: Uri = text.parse().map_err(|_| self.field("server", format!("{text:?} is not a URL")))?;
        let host = uri.host().unwrap_or_default();
        match uri.scheme_str() {
            Some("https") if !host.is_empty() => Ok(uri),
            // Credentials must not cross a network unencrypted; loopback is for tests.
            Some("http") if matches!(host, "127.0.0.1" | "localhost" | "[::1]") => Ok(uri),
            Some("http") => Err(self.field("server", "http:// is only allowed for loopback addresses; use https://")),
            _ => Err(self.field("server", format!("{text:?} is not an https:// URL"))),
        }
    }

    fn tls_input(&mut self, cluster: &Cluster, user: &AuthInfo) -> Result<TlsInput, KubeconfigError> {
        let insecure = cluster.insecure_skip_tls_verify.unwrap_or(false);
        let ca = self.bytes(
            "certificate-authority",
            cluster.certificate_authority_data.as_deref(),
            cluster.certificate_authority.as_deref(),
        )?;
        if insecure && ca.is_some() {
            return Err(self.field("insecure-skip-tls-verify", "contradicts certificate-authority; remove one"));
        }
        let certificate = self.bytes(
            "client-certificate",
            user.client_certificate_data.as_deref(),
            user.client_certificate.as_deref(),
        )?;
        let key = self.bytes(
            "client-key",
            user.client_key_data.as_ref().map(|secret| secret.expose_secret()),
            user.client_key.as_deref(),
        )?;
        if certificate.is_some() != key.is_some() {
            return Err(self.field("client-certificate", "certificate and key must come together"));
        }
        Ok(TlsInput { ca, certificate, key, insecure })
    }

    /// Inline data takes precedence over a file, as in client-go.
    fn bytes(
        &mut self,
        field: &'static str,
        inline: Option<&str>,
        file: Option<&str>,
    ) -> Result<Option<Vec<u8>>, KubeconfigError> {
        if let Some(inline) = inline.filter(|text| !text.is_empty()) {
            let text: String = inline.split_ascii_whitespace().collect();
            let bytes = STANDARD.decode(text).map_err(|_| self.field(field, "the inline data is not base64"))?;
            return Ok(Some(bytes));
        }
        file.filter(|file| !file.is_empty()).map(|file| self.file(field, Path::new(file))).transpose()
    }

    fn file(&mut self, field: &'static str, file: &Path) -> Result<Vec<u8>, KubeconfigError> {
        self.files.push((file.to_path_buf(), stamp(file)));
        regular_file::read(file).map_err(|source| KubeconfigError::File {
            path: self.path.into(),
            field,
            file: file.into(),
            source,
        })
    }

    /// The token in a file. One that is empty is being written: what was read before stays in force.
    fn written_token(&self, bytes: &[u8]) -> Result<String, KubeconfigError> {
        let token = String::from_utf8_lossy(bytes).trim().to_owned();
        if token.is_empty() { Err(self.field("tokenFile", "the file is empty")) } else { Ok(token) }
    }

    fn headers(&mut self, user: &AuthInfo) -> Result<HeaderMap, KubeconfigError> {
        let mut headers = HeaderMap::new();
        let token_file = user.token_file.as_deref().filter(|file| !file.is_empty());
        let inline = user.token.as_ref().map(|token| token.expose_secret().to_string());
        let token = match (token_file, inline.filter(|token| !token.is_empty())) {
            // client-go: the file takes precedence over the inline token, which is only the initial value.
            (Some(file), inline) => match (self.file("tokenFile", Path::new(file)), inline) {
                (Ok(bytes), _) => Some(self.written_token(&bytes)?),
                (Err(_), Some(token)) => Some(token),
                (Err(error), None) => return Err(error),
            },
            (None, inline) => inline,
        };
        if let Some(token) = token {
            let mut value = HeaderValue::try_from(format!("Bearer {token}"))
                .map_err(|_| self.field("token", "has characters that a header cannot contain"))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let impersonate = user.impersonate.iter().map(|name| ("impersonate-user", name));
        let groups = user.impersonate_groups.iter().flatten().map(|group| ("impersonate-group", group));
        for (name, value) in impersonate.chain(groups) {
            let value = HeaderValue::try_from(value.as_str())
                .map_err(|_| self.field("as", "has characters that a header cannot contain"))?;
            headers.append(HeaderName::from_static(name), value);
        }
        Ok(headers)
    }
}

fn stamp(path: &Path) -> FileIdentity {
    let data = fs::metadata(path).ok()?;
    Some((data.len(), data.mtime(), data.mtime_nsec(), data.ino()))
}

fn fingerprint(server: &Uri, name: &str, input: &TlsInput) -> [u8; 32] {
    let mut hash = Sha256::new();
    let server = server.to_string();
    let flags = [u8::from(input.insecure)];
    let parts = [Some(server.as_bytes()), Some(name.as_bytes()), Some(&flags[..])].into_iter().chain([
        input.ca.as_deref(),
        input.certificate.as_deref(),
        input.key.as_deref(),
    ]);
    for part in parts {
        hash.update(part.map_or(u64::MAX, |part| part.len() as u64).to_le_bytes());
        hash.update(part.unwrap_or_default());
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests;
