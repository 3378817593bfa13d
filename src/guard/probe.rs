//! One look at an address: a TLS handshake.
//!
//! Owns the connection of a probe. Must not judge more than one attempt shows. Who the server is does
//! not matter here, so that no certificate is checked: the kubelet will see for itself.

use std::io;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::Mark;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpSocket;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::guard::decide::ANSWER_WITHIN;
use crate::guard::decide::ProbeResult;
use crate::guard::table::MARK;

/// How long a probe waits for a late answer: the kubelet's own TLS handshake takes no longer.
const GIVE_UP: Duration = Duration::from_secs(10);

/// A socket whose packets the rule lets pass.
///
/// # Errors
/// The system's; marking takes CAP_NET_ADMIN.
pub(super) fn socket(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    setsockopt(&socket, Mark, &MARK)?;
    Ok(socket)
}

/// Probes `address` from `socket`; calls `report` with the result, twice if the answer comes late.
pub(super) async fn probe(
    socket: io::Result<TcpSocket>,
    address: SocketAddr,
    name: ServerName<'static>,
    tls: Arc<ClientConfig>,
    report: impl Fn(ProbeResult),
) {
    let attempt = handshake(socket, address, name, tls);
    tokio::pin!(attempt);
    let result = match timeout(ANSWER_WITHIN, &mut attempt).await {
        Ok(result) => result,
        Err(_) => {
            report(ProbeResult::NoAnswer);
            match timeout(GIVE_UP - ANSWER_WITHIN, attempt).await {
                // Whoever is refused after a second has waited, as with silence.
                Ok(Ok(())) => Ok(()),
                Ok(Err(_)) | Err(_) => return,
            }
        }
    };
    report(judge(&result));
}

async fn handshake(
    socket: io::Result<TcpSocket>,
    address: SocketAddr,
    name: ServerName<'static>,
    tls: Arc<ClientConfig>,
) -> io::Result<()> {
    let stream = socket?.connect(address).await?;
    TlsConnector::from(tls).connect(name, stream).await.map(drop)
}

fn judge(result: &io::Result<()>) -> ProbeResult {
    let Err(error) = result else { return ProbeResult::Answer };
    match error.kind() {
        // The port is closed, or a load balancer without back ends hangs up.
        ErrorKind::ConnectionRefused
        | ErrorKind::ConnectionReset
        | ErrorKind::BrokenPipe
        | ErrorKind::UnexpectedEof => ProbeResult::Refusal,
        // It spoke, though not as we hoped: an alert, or something that is not TLS.
        ErrorKind::InvalidData => ProbeResult::Refusal,
        // No route yet, no neighbour, a firewall of our own. The kubelet may find a way a moment
        // later, and silence at its end.
        _ => ProbeResult::NoAnswer,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::io::AsyncReadExt;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;
    use tokio::net::TcpStream;

    use super::*;
    use crate::node::api;

    /// What a probe hears of a server that does `serve` with a connection.
    async fn hears<F: Future<Output = ()> + Send + 'static>(serve: fn(TcpStream) -> F) -> Vec<ProbeResult> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            serve(stream).await;
        });
        let results = look(address).await;
        server.abort();
        results
    }

    async fn look(address: SocketAddr) -> Vec<ProbeResult> {
        let results = Mutex::new(Vec::new());
        let tls = Arc::new(api::tls_that_trusts_anybody().unwrap());
        let name = ServerName::try_from("api.example").unwrap();
        probe(TcpSocket::new_v4(), address, name, tls, |result| results.lock().unwrap().push(result)).await;
        results.into_inner().unwrap()
    }

    #[tokio::test]
    async fn a_closed_port_refuses() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        assert_eq!(look(address).await, [ProbeResult::Refusal]);
    }

    #[tokio::test]
    async fn a_load_balancer_that_hangs_up_refuses() {
        assert_eq!(hears(|stream| async move { drop(stream) }).await, [ProbeResult::Refusal]);
    }

    #[tokio::test]
    async fn whoever_speaks_something_else_is_no_silence() {
        let results = hears(|mut stream| async move {
            let mut hello = [0; 16];
            let _ = stream.read(&mut hello).await;
            let _ = stream.write_all(b"HTTP/1.0 400 Bad Request\r\n\r\n").await;
            tokio::time::sleep(GIVE_UP).await;
        });
        assert_eq!(results.await, [ProbeResult::Refusal]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_takes_the_connection_and_says_nothing_is_silent() {
        let results = hears(|stream| async move {
            tokio::time::sleep(Duration::from_secs(600)).await;
            drop(stream);
        });
        assert_eq!(results.await, [ProbeResult::NoAnswer]);
    }

    #[tokio::test]
    async fn a_socket_that_cannot_be_had_says_nothing_about_the_server() {
        let results = Mutex::new(Vec::new());
        let tls = Arc::new(api::tls_that_trusts_anybody().unwrap());
        let name = ServerName::try_from("api.example").unwrap();
        let denied = Err(ErrorKind::PermissionDenied.into());
        let address = "127.0.0.1:1".parse().unwrap();
        probe(denied, address, name, tls, |result| results.lock().unwrap().push(result)).await;
        assert_eq!(*results.lock().unwrap(), [ProbeResult::NoAnswer]);
    }
}
