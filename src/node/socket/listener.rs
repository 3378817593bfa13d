//! The name of the agent's socket on the file system.
//!
//! Owns making it, and making it anew when it is gone. Must not read what comes through it.

use std::path::Path;
use std::path::PathBuf;

use tokio::net::UnixListener;

use super::SOCKET;
use super::SocketError;
use crate::node::fsx;
use crate::node::fsx::Dir;
use crate::node::fsx::Real;

/// The socket that an agent listens on.
pub struct AgentSocket {
    path: PathBuf,
    pub(super) listener: UnixListener,
    /// The file that it is.
    file: Option<(u64, u64)>,
    /// Why it could not be made anew.
    failure: Option<String>,
}

/// Listens on the socket in `run_dir`, mode 0600; replaces the socket of an earlier agent.
///
/// # Errors
/// If the folder cannot be created or the socket cannot be bound.
pub fn listen(run_dir: &Path) -> Result<AgentSocket, SocketError> {
    let path = run_dir.join(SOCKET);
    let failed = |source| SocketError::Listen { path: path.clone(), source };
    Dir::open_or_create(&Real::shared(), run_dir, 0o755).map_err(|error| failed(error.source))?;
    let listener = fsx::bind(&path).map_err(failed)?;
    let file = fsx::file_at(&path).map_err(failed)?;
    Ok(AgentSocket { path, listener, file, failure: None })
}

impl AgentSocket {
    /// Makes the socket anew if it is gone; if another socket has its name only where `replaces`.
    pub(super) fn restore(&mut self, replaces: bool) {
        let there = fsx::file_at(&self.path);
        let is_anothers = || fsx::is_socket(&self.path).is_ok_and(|is_there| is_there);
        if there.is_ok_and(|there| there.is_some() && there == self.file) || !replaces && is_anothers() {
            self.failure = None;
            return;
        }
        match self.path.parent().map(listen) {
            Some(Ok(new)) => {
                tracing::warn!("the agent's socket {} was gone: it is made anew", self.path.display());
                *self = new;
            }
            Some(Err(error)) => {
                let SocketError::Listen { source, .. } = &error;
                let why = format!("{error}: {source}");
                if self.failure.as_ref() != Some(&why) {
                    tracing::error!(hint = error.hint(), "{why}: no command reaches the agent");
                }
                self.failure = Some(why);
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[tokio::test]
    async fn a_socket_that_is_gone_is_made_anew_and_nothing_else_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let path = run.join(SOCKET);
        let mut socket = listen(&run).unwrap();
        let first = socket.file;
        let is_reached = |socket: &AgentSocket| {
            let client = std::os::unix::net::UnixStream::connect(&path);
            client.is_ok() && fsx::file_at(&path).unwrap() == socket.file
        };
        socket.restore(true);
        assert!(socket.file == first && is_reached(&socket), "it is there");
        fs::remove_dir_all(&run).unwrap();
        socket.restore(false);
        assert!(is_reached(&socket), "the folder was gone");
        fs::remove_file(&path).unwrap();
        fs::write(&path, "x").unwrap();
        for replaces in [false, true] {
            socket.restore(replaces);
            assert_eq!(fs::read(&path).unwrap(), b"x");
            assert!(socket.failure.as_ref().unwrap().contains("something that is no socket"), "{:?}", socket.failure);
        }
        fs::remove_file(&path).unwrap();
        let another = std::os::unix::net::UnixListener::bind(&path).unwrap();
        socket.restore(false);
        assert!(!is_reached(&socket), "another agent has taken it");
        drop(another);
        socket.restore(true);
        assert!(is_reached(&socket));
    }
}
