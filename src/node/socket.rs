//! The agent's socket: `<run-dir>/agent.sock`, one JSON request and one JSON reply per line.
//!
//! Owns the listener and the line protocol. Must not answer requests itself: they go to the loop.

use std::io;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;
use tokio::io::AsyncBufReadExt;
use tokio::io::AsyncReadExt;
use tokio::io::AsyncWriteExt;
use tokio::io::BufReader;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::Notify;
use tokio::sync::mpsc;
use tokio::sync::oneshot;

mod listener;

use crate::clock;
use crate::core::model::ObjectKey;
use crate::core::time::Span;
use crate::node::fsx;
use crate::node::fsx::Dir;
use crate::node::fsx::DiskHandle;
use crate::node::fsx::Real;

pub use listener::AgentSocket;
pub use listener::listen;

/// The socket's file name in the run folder.
pub const SOCKET: &str = "agent.sock";
/// The longest request line, in bytes.
const LONGEST_REQUEST: u64 = 64 * 1024;
/// How long a client may stay connected without a request.
const IDLE: Duration = Duration::from_secs(60);
/// How often it is looked whether the socket is still there.
const GONE: Duration = Duration::from_secs(10);
/// How often it is looked whether a client still waits for its reply.
const LOOK: Duration = Duration::from_millis(500);

/// A client's request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "camelCase")]
pub enum SocketOperation {
    /// The state of every daemon on this node.
    Status,
    /// What the next pass would change.
    Plan,
    /// Why one daemon does or does not run here.
    Explain { namespace: String, name: String },
    /// Try a failed revision again, and end back-offs.
    Retry { namespace: String, name: String },
    /// Let a revision start that waits for this.
    Approve {
        namespace: String,
        name: String,
        /// The one that was seen to wait, and no other; `None`: whichever waits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        revision: Option<String>,
    },
    /// The last passes, written to a file in the run folder.
    Recording,
    /// Release held daemons; no name: all of them.
    Release { daemons: Vec<ObjectKey> },
    /// Replace a daemon's running instance with a new one.
    Restart { namespace: String, name: String },
}

impl SocketOperation {
    /// Whether it changes something: whoever was told that it failed must not find it done later.
    pub fn is_order(&self) -> bool {
        match self {
            Self::Status | Self::Plan | Self::Explain { .. } | Self::Recording => false,
            Self::Retry { .. } | Self::Approve { .. } | Self::Release { .. } | Self::Restart { .. } => true,
        }
    }
}

/// When an order has to be under way, as its client gives up soon after: milliseconds of CLOCK_BOOTTIME, which client and
/// agent read alike, and which goes on while either is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OrderDeadline(Span);

impl OrderDeadline {
    /// So long from now.
    pub fn after(span: Span) -> Self {
        Self(clock::uptime() + span)
    }

    pub fn is_past(self) -> bool {
        clock::uptime() >= self.0
    }
}

/// A client's line. Agent and client may be of different versions: what one does not know it passes over.
#[derive(Debug, Serialize, Deserialize)]
pub struct RequestLine {
    #[serde(flatten)]
    pub request: SocketOperation,
    /// An order's; `None`: the agent may carry it out at any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<OrderDeadline>,
}

impl From<SocketOperation> for RequestLine {
    /// Without a deadline.
    fn from(request: SocketOperation) -> Self {
        Self { request, deadline: None }
    }
}

/// A request for the loop.
#[derive(Debug)]
pub struct SocketRequest {
    pub line: RequestLine,
    /// Where the reply goes; closed once the client has gone, which then takes the request for failed.
    pub reply: oneshot::Sender<Value>,
}

/// Why the socket cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The run folder or the socket could not be made.
    #[error("cannot listen on {path}")]
    Listen {
        path: PathBuf,
        /// What went wrong.
        #[source]
        source: io::Error,
    },
}

impl SocketError {
    /// What to do about it, if there is something to do.
    pub fn hint(&self) -> Option<String> {
        let Self::Listen { path, source } = self;
        match source.kind() {
            io::ErrorKind::PermissionDenied => {
                Some("run the agent as root, or name a folder of this user's in run-dir".to_owned())
            }
            // systemd gives a service its folder when it starts.
            io::ErrorKind::ReadOnlyFilesystem => Some(
                "restart the service: systemd makes the folder then; if it stays read-only, `daemonlet generate \
                 unit-dropin` writes what the unit lacks"
                    .to_owned(),
            ),
            // Something else has that name.
            io::ErrorKind::Other => Some(format!(
                "see what {0} is with `ls -l {0}`, then move it away, or name another folder in run-dir",
                path.display()
            )),
            _ => None,
        }
    }
}

/// Whether [`listen`] in `run_dir` would fail for what stands there; it is only looked at.
///
/// # Errors
/// As [`listen`]; what this user may not see is none.
pub fn check(run_dir: &Path) -> Result<(), SocketError> {
    let path = run_dir.join(SOCKET);
    match fsx::is_socket(&path) {
        Err(error) if error.kind() != io::ErrorKind::PermissionDenied => {
            Err(SocketError::Listen { path, source: error })
        }
        _ => Ok(()),
    }
}

/// Makes sure that [`listen`] could take `run_dir`, and leaves nothing there.
///
/// # Errors
/// As [`listen`].
pub fn try_listen(run_dir: &Path) -> Result<(), SocketError> {
    let path = run_dir.join(SOCKET);
    let failed = |source| SocketError::Listen { path: path.clone(), source };
    let (dir, is_new) = Dir::open_or_create(&Real::shared(), run_dir, 0o755).map_err(|error| failed(error.source))?;
    let tried = fsx::try_bind(&path).map_err(failed);
    if is_new {
        let _ = dir.disk().remove_folder(&DiskHandle::Start, run_dir);
    }
    tried
}

/// Accepts connections for ever and passes their requests on. Makes a socket that is gone anew; `renew`: also one whose name
/// another has.
pub async fn serve(mut socket: AgentSocket, asked: mpsc::Sender<SocketRequest>, renew: Arc<Notify>) {
    loop {
        let accepted = tokio::select! {
            accepted = socket.listener.accept() => accepted,
            () = renew.notified() => {
                socket.restore(true);
                continue;
            }
            () = tokio::time::sleep(GONE) => {
                socket.restore(false);
                continue;
            }
        };
        match accepted {
            Ok((stream, _)) => {
                tokio::spawn(converse(stream, asked.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "the agent's socket does not accept connections; retrying in a second");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

/// One connection: a reply line for each request line, until the client disconnects.
async fn converse(stream: UnixStream, asked: mpsc::Sender<SocketRequest>) {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    loop {
        let mut line = String::new();
        let read = tokio::time::timeout(IDLE, (&mut reader).take(LONGEST_REQUEST).read_line(&mut line)).await;
        match read {
            Ok(Ok(length)) if length > 0 => {}
            _ => return,
        }
        let reply = match serde_json::from_str::<RequestLine>(&line) {
            Ok(line) => match answer(line, &asked, &writer).await {
                Some(reply) => reply,
                None => return,
            },
            Err(error) => serde_json::json!({"error": format!("request not understood: {error}")}),
        };
        let mut bytes = reply.to_string().into_bytes();
        bytes.push(b'\n');
        if writer.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

/// The loop's reply; `None`: the client has gone, and the loop skips what it has not begun.
async fn answer(line: RequestLine, asked: &mpsc::Sender<SocketRequest>, client: &OwnedWriteHalf) -> Option<Value> {
    let (reply, mut answer) = oneshot::channel();
    let ending = || serde_json::json!({"error": "the agent is stopping"});
    if is_gone(client).await {
        return None;
    }
    if asked.send(SocketRequest { line, reply }).await.is_err() {
        return Some(ending());
    }
    loop {
        match tokio::time::timeout(LOOK, &mut answer).await {
            Ok(answer) => return Some(answer.unwrap_or_else(|_| ending())),
            Err(_) if is_gone(client).await => return None,
            Err(_) => {}
        }
    }
}

/// Whether the client has closed its connection; one that only sends nothing more still reads.
async fn is_gone(client: &OwnedWriteHalf) -> bool {
    client.ready(Interest::WRITABLE).await.map_or(true, |ready| ready.is_write_closed())
}

/// For fuzz targets and the tests that replay their seeds: what a connection that sends `bytes` and ends gets, if each
/// request is answered with itself.
///
/// # Errors
/// If there can be no connection.
#[cfg(any(fuzzing, debug_assertions))]
pub fn replies(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (client, agent) = UnixStream::pair()?;
        let (sender, mut receiver) = mpsc::channel::<SocketRequest>(1);
        tokio::spawn(converse(agent, sender));
        tokio::spawn(async move {
            while let Some(asked) = receiver.recv().await {
                let _ = asked.reply.send(serde_json::to_value(&asked.line).unwrap_or_default());
            }
        });
        let (mut reader, mut writer) = client.into_split();
        let (mut said, request) = (Vec::new(), bytes.to_vec());
        tokio::spawn(async move {
            // A connection that was ended takes no more.
            let _ = writer.write_all(&request).await;
        });
        let _ = reader.read_to_end(&mut said).await;
        Ok(said)
    })
}

#[cfg(test)]
mod tests;
