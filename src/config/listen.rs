//! Where something is served on this node, and nowhere else: a loopback address or a Unix socket.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// A place to listen at that no other machine can reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A loopback address and a port.
    Tcp(SocketAddr),
    /// A socket's absolute path.
    Unix(PathBuf),
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix://") {
            let path = PathBuf::from(path);
            return match path.is_absolute() {
                true => Ok(Self::Unix(path)),
                false => Err(format!("must be an absolute path, not \"{text}\"")),
            };
        }
        let address: SocketAddr = text.parse().map_err(|_| {
            format!("expected an address and a port such as \"127.0.0.1:9465\", or a socket, not \"{text}\"")
        })?;
        match address.ip().is_loopback() {
            _ if address.port() == 0 => Err(format!("\"{text}\" has no port")),
            true => Ok(Self::Tcp(address)),
            false => Err(format!(
                "{} can be reached from other machines and nothing here asks who they are: only a loopback address \
                 (127.0.0.1 or [::1]) is taken",
                address.ip()
            )),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_node_can_reach_it() {
        for text in ["127.0.0.1:9465", "127.0.0.53:1", "[::1]:9465", "unix:///run/daemonlet/metrics.sock"] {
            assert_eq!(text.parse::<Listen>().map(|listen| listen.to_string()), Ok(text.to_owned()));
        }
        for (text, why) in [
            ("0.0.0.0:9465", "0.0.0.0 can be reached from other machines"),
            ("10.0.0.1:9465", "10.0.0.1 can be reached"),
            ("[::]:9465", ":: can be reached"),
            ("[::ffff:127.0.0.1]:9465", "can be reached"),
            ("127.0.0.1:0", "\"127.0.0.1:0\" has no port"),
            ("localhost:9465", "expected an address and a port"),
            ("9465", "expected an address and a port"),
            ("unix://metrics.sock", "must be an absolute path"),
        ] {
            let error = text.parse::<Listen>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
