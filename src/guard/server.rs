//! Which addresses the kubelet will connect to: from its kubeconfig, by name or number.
//!
//! Owns reading the server's host and port. Must not refuse what only the kubelet has to understand
//! (credential plugins and the like), and must not connect.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::net::SocketAddr;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use http::Uri;
use kube::config::Kubeconfig;
use tokio::time::sleep;

use crate::core::render::Endpoint;
use crate::node::api::KubeconfigError;
use crate::node::api::cluster_of_kubeconfig;
use crate::node::api::read_kubeconfig;
use crate::node::api::words;

/// How long after an attempt that gave no address the next one is made.
const AGAIN_AFTER: Duration = Duration::from_millis(500);
/// How long addresses are believed.
const BELIEVED_FOR: Duration = Duration::from_secs(10);

/// Host and port of the server that the first of `files` that exists names; `None`: none exists.
///
/// # Errors
/// That file does not lead to a server.
pub(super) fn server(files: &[PathBuf]) -> Result<Option<Endpoint>, KubeconfigError> {
    let Some(path) = files.iter().find(|file| file.exists()) else { return Ok(None) };
    endpoint(path, &read_kubeconfig(path)?).map(Some)
}

fn endpoint(path: &Path, config: &Kubeconfig) -> Result<Endpoint, KubeconfigError> {
    let field = |field, reason: String| KubeconfigError::Field { path: path.to_owned(), field, reason };
    let (cluster, _) = cluster_of_kubeconfig(path, config)?;
    if cluster.proxy_url.is_some_and(|url| !url.is_empty()) {
        return Err(field("proxy-url", "the kubelet connects to a proxy, which is not guarded".to_owned()));
    }
    let server = cluster.server.unwrap_or_default();
    // client-go takes a server without a scheme as well (`DefaultServerURL`).
    let url = if server.contains("://") { server.clone() } else { format!("https://{server}") };
    let url: Uri = url.parse().map_err(|_| field("server", format!("\"{server}\" is not a URL")))?;
    let host = url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
    if host.is_empty() {
        return Err(field("server", format!("\"{server}\" names no host")));
    }
    let port = url.port_u16().unwrap_or(if url.scheme_str() == Some("http") { 80 } else { 443 });
    Ok(Endpoint { host, port })
}

/// The addresses of a server: its own, or what its name stands for now.
///
/// # Errors
/// The name does not resolve.
pub(super) async fn resolve(server: &Endpoint) -> io::Result<BTreeSet<SocketAddr>> {
    if let Ok(ip) = server.host.parse::<IpAddr>() {
        return Ok([SocketAddr::new(ip, server.port)].into());
    }
    let found = tokio::net::lookup_host((server.host.as_str(), server.port)).await?;
    Ok(found.map(|address| SocketAddr::new(address.ip().to_canonical(), address.port())).collect())
}

/// Reports to `tell` the addresses that the kubelet will connect to, whenever they are read anew, until `tell` returns that
/// its receiver is gone.
pub(super) async fn follow(files: Vec<PathBuf>, tell: impl Fn(Endpoint, BTreeSet<SocketAddr>) -> bool) {
    let mut complaint = String::new();
    loop {
        match look(&files).await {
            Ok((server, addresses)) => {
                complaint.clear();
                if !tell(server, addresses) {
                    return;
                }
                sleep(BELIEVED_FOR).await;
            }
            Err(why) => {
                if why != complaint {
                    tracing::warn!("boot guard: {why}; it is tried again");
                }
                complaint = why;
                sleep(AGAIN_AFTER).await;
            }
        }
    }
}

/// The server and its addresses as they are now, or what is missing.
async fn look(files: &[PathBuf]) -> Result<(Endpoint, BTreeSet<SocketAddr>), String> {
    let server = server(files).map_err(|error| words(&error))?;
    let server = server.ok_or("there is no kubeconfig of the kubelet (boot.kubeconfig)")?;
    match resolve(&server).await {
        Ok(addresses) if addresses.is_empty() => Err(format!("{} has no address", server.host)),
        Ok(addresses) => Ok((server, addresses)),
        Err(error) => Err(format!("{} does not resolve: {error}", server.host)),
    }
}

#[cfg(test)]
mod tests {
    use crate::node::api::parse_kubeconfig;

    use super::*;

    fn of(server: &str) -> Result<Endpoint, String> {
        let text = format!(
            "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
             clusters: [{{name: k, cluster: {server}}}]\n\
             users: [{{name: u, user: {{exec: {{command: get-token, apiVersion: v1}}}}}}]\n"
        );
        let config = parse_kubeconfig(&text).unwrap();
        endpoint(Path::new("/k"), &config).map_err(|error| error.to_string())
    }

    fn endpoint_of(host: &str, port: u16) -> Result<Endpoint, String> {
        Ok(Endpoint { host: host.to_owned(), port })
    }

    #[test]
    fn the_server_is_found_whatever_the_credentials() {
        assert_eq!(of("{server: 'https://10.0.0.1:6443'}"), endpoint_of("10.0.0.1", 6443));
        assert_eq!(of("{server: 'https://[fd00::1]:6443/path'}"), endpoint_of("fd00::1", 6443));
        assert_eq!(of("{server: 'https://api.example'}"), endpoint_of("api.example", 443));
        assert_eq!(of("{server: 'api.example:6443'}"), endpoint_of("api.example", 6443));
        assert_eq!(of("{server: 'http://localhost'}"), endpoint_of("localhost", 80));
    }

    #[test]
    fn what_leads_nowhere_is_named() {
        assert_eq!(of("{}"), Err("kubeconfig /k: server: \"\" is not a URL".to_owned()));
        let proxy = of("{server: 'https://a', proxy-url: 'http://proxy:3128'}");
        assert_eq!(
            proxy,
            Err("kubeconfig /k: proxy-url: the kubelet connects to a proxy, which is not guarded".to_owned())
        );
        let none = endpoint(Path::new("/k"), &Kubeconfig::default()).map_err(|error| error.to_string());
        assert_eq!(
            none,
            Err("kubeconfig /k: current-context: is empty; name the context to use; the file has no contexts"
                .to_owned())
        );
    }

    #[test]
    fn the_first_file_that_exists_counts() {
        let folder = tempfile::tempdir().unwrap();
        let files = [folder.path().join("kubelet.conf"), folder.path().join("bootstrap.conf")];
        assert!(server(&files).unwrap().is_none());
        let text = "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n\
                    clusters: [{name: k, cluster: {server: 'https://NAME:1'}}]\n";
        std::fs::write(&files[1], text.replace("NAME", "second")).unwrap();
        assert_eq!(server(&files).unwrap().unwrap().host, "second");
        std::fs::write(&files[0], text.replace("NAME", "first")).unwrap();
        assert_eq!(server(&files).unwrap().unwrap().host, "first");
        std::fs::write(&files[0], "{").unwrap();
        assert!(server(&files).is_err(), "the kubelet would not take the second one either");
    }

    #[tokio::test]
    async fn names_and_numbers_resolve() {
        let of = |host: &str| Endpoint { host: host.to_owned(), port: 6443 };
        assert_eq!(resolve(&of("10.0.0.1")).await.unwrap(), ["10.0.0.1:6443".parse().unwrap()].into());
        assert_eq!(resolve(&of("fd00::1")).await.unwrap(), ["[fd00::1]:6443".parse().unwrap()].into());
        assert!(resolve(&of("localhost")).await.unwrap().iter().all(|address| address.ip().is_loopback()));
        assert!(resolve(&of("no.such.name.invalid")).await.is_err());
    }
}
