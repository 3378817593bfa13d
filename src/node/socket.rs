//! The agent's socket: `<run-dir>/agent.sock`, one JSON request and one JSON reply per line.
//!
//! Owns the listener and the line protocol. Must not answer requests itself: they go to the loop.

use std::io;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;
use tokio::io::AsyncBufReadExt;
use tokio::io::AsyncReadExt;
use tokio::io::AsyncWriteExt;
use tokio::io::BufReader;
use tokio::io::Interest;
use tokio::net::UnixListener;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::mpsc;
use tokio::sync::oneshot;

use crate::clock;
use crate::core::model::ObjectKey;
use crate::core::time::Span;
use crate::node::fsx;
use crate::node::fsx::Dir;
use crate::node::fsx::DiskHandle;
use crate::node::fsx::Real;

/// The socket's file name in the run folder.
pub const SOCKET: &str = "agent.sock";
/// The longest request line, in bytes.
const LONGEST_REQUEST: u64 = 64 * 1024;
/// How long a client may stay connected without a request.
const IDLE: Duration = Duration::from_secs(60);
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
            // Something else has that name.
            io::ErrorKind::Other => Some(format!(
                "see what {0} is with `ls -l {0}`, then move it away, or name another folder in run-dir",
                path.display()
            )),
            _ => None,
        }
    }
}

/// Listens on the socket in `run_dir`, mode 0600; replaces the socket of an earlier agent.
///
/// # Errors
/// If the folder cannot be created or the socket cannot be bound.
pub fn listen(run_dir: &Path) -> Result<UnixListener, SocketError> {
    let path = run_dir.join(SOCKET);
    let failed = |source| SocketError::Listen { path: path.clone(), source };
    Dir::open_or_create(&Real::shared(), run_dir, 0o755).map_err(|error| failed(error.source))?;
    fsx::bind(&path).map_err(failed)
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

/// Accepts connections for ever and passes their requests on.
pub async fn serve(listener: UnixListener, asked: mpsc::Sender<SocketRequest>) {
    loop {
        match listener.accept().await {
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
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn a_request_of_a_client_that_has_gone_is_dropped() {
        let order = b"{\"op\":\"retry\",\"namespace\":\"a\",\"name\":\"b\"}\n";
        let (mut client, agent) = UnixStream::pair().unwrap();
        let (sender, mut receiver) = mpsc::channel::<SocketRequest>(1);
        client.write_all(order).await.unwrap();
        drop(client);
        tokio::time::timeout(LOOK * 20, converse(agent, sender.clone())).await.expect("it ends with its client");
        assert!(receiver.try_recv().is_err(), "it has gone before the agent reads");
        let (mut client, agent) = UnixStream::pair().unwrap();
        client.write_all(order).await.unwrap();
        tokio::spawn(converse(agent, sender.clone()));
        let mut asked = receiver.recv().await.unwrap();
        drop(client);
        tokio::time::timeout(LOOK * 20, asked.reply.closed()).await.expect("it has gone while it waits");
        let (mut client, agent) = UnixStream::pair().unwrap();
        client.write_all(order).await.unwrap();
        client.shutdown().await.unwrap();
        tokio::spawn(converse(agent, sender));
        let asked = receiver.recv().await.unwrap();
        tokio::time::sleep(LOOK * 2).await;
        asked.reply.send(serde_json::json!("done")).expect("it still reads");
        let mut reply = String::new();
        client.read_to_string(&mut reply).await.unwrap();
        assert_eq!(reply, "\"done\"\n");
    }

    #[test]
    fn agents_and_clients_of_other_versions_pass_over_what_they_do_not_know() {
        let request = SocketOperation::Approve {
            namespace: "a".to_owned(),
            name: "b".to_owned(),
            revision: Some("r".to_owned()),
        };
        let line = RequestLine { request: request.clone(), deadline: Some(OrderDeadline(Span::from_secs(7))) };
        let text = serde_json::to_string(&line).unwrap();
        assert_eq!(serde_json::from_str::<SocketOperation>(&text).unwrap(), request, "an agent that knows no deadline");
        let sent: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&sent["op"], &sent["deadline"]), (&serde_json::json!("approve"), &serde_json::json!(7_000)));
        let read: RequestLine = serde_json::from_str(&text).unwrap();
        assert!(read.deadline == line.deadline && read.request == request && read.request.is_order());
        let bare: RequestLine =
            serde_json::from_str("{\"op\":\"approve\",\"namespace\":\"a\",\"name\":\"b\",\"later\":1}").unwrap();
        let any = SocketOperation::Approve { namespace: "a".to_owned(), name: "b".to_owned(), revision: None };
        assert!(bare.request == any && bare.deadline.is_none());
        assert!(OrderDeadline::after(Span::ZERO).is_past() && !OrderDeadline::after(Span::from_mins(1)).is_past());
    }

    #[tokio::test]
    async fn a_request_line_gets_one_reply_line_and_nonsense_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let listener = listen(folder.path()).unwrap();
        let mode = std::fs::metadata(folder.path().join(SOCKET)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let (sender, mut receiver) = mpsc::channel::<SocketRequest>(1);
        tokio::spawn(serve(listener, sender));
        tokio::spawn(async move {
            while let Some(asked) = receiver.recv().await {
                let _ = asked.reply.send(serde_json::to_value(&asked.line).unwrap());
            }
        });
        let mut stream = BufReader::new(UnixStream::connect(folder.path().join(SOCKET)).await.unwrap());
        for (request, reply) in [
            ("{\"op\":\"status\"}\n", "{\"op\":\"status\"}\n"),
            (
                "{\"op\":\"explain\",\"namespace\":\"a\",\"name\":\"b\"}\n",
                "{\"name\":\"b\",\"namespace\":\"a\",\"op\":\"explain\"}\n",
            ),
            ("nonsense\n", ""),
        ] {
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut line = String::new();
            stream.read_line(&mut line).await.unwrap();
            if reply.is_empty() {
                assert!(line.starts_with("{\"error\":\"request not understood"), "{line}");
            } else {
                let (got, want): (Value, Value) =
                    (serde_json::from_str(&line).unwrap(), serde_json::from_str(reply).unwrap());
                assert_eq!(got, want);
            }
        }
    }
}
