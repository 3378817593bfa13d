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
use crate::guard::decide::Heard;
use crate::guard::table::MARK;

/// How long a probe waits for a late answer: the kubelet's own TLS handshake takes no longer.
const GIVE_UP: Duration = Duration::from_secs(10);

/// Probes `address`; calls `heard` with what it heard, twice where an answer comes late.
pub(super) async fn probe(
    address: SocketAddr,
    name: ServerName<'static>,
    tls: Arc<ClientConfig>,
    heard: impl Fn(Heard),
) {
    let attempt = handshake(address, name, tls);
    tokio::pin!(attempt);
    let result = match timeout(ANSWER_WITHIN, &mut attempt).await {
        Ok(result) => result,
        Err(_) => {
            heard(Heard::Silence);
            match timeout(GIVE_UP - ANSWER_WITHIN, attempt).await {
                // Whoever is refused after a second has waited, as with silence.
                Ok(Ok(())) => Ok(()),
                Ok(Err(_)) | Err(_) => return,
            }
        }
    };
    heard(judge(&result));
}

async fn handshake(address: SocketAddr, name: ServerName<'static>, tls: Arc<ClientConfig>) -> io::Result<()> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    setsockopt(&socket, Mark, &MARK)?;
    let stream = socket.connect(address).await?;
    TlsConnector::from(tls).connect(name, stream).await.map(drop)
}

fn judge(result: &io::Result<()>) -> Heard {
    let Err(error) = result else { return Heard::Answer };
    match error.kind() {
        // The port is closed, or a load balancer without back ends hangs up.
        ErrorKind::ConnectionRefused
        | ErrorKind::ConnectionReset
        | ErrorKind::BrokenPipe
        | ErrorKind::UnexpectedEof => Heard::Refusal,
        // It spoke, though not as we hoped: an alert, or something that is not TLS.
        ErrorKind::InvalidData => Heard::Refusal,
        // No route yet, no neighbour, a firewall of our own. The kubelet may find a way a moment
        // later, and silence at its end.
        _ => Heard::Silence,
    }
}
