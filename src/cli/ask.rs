//! Asks the running agent, and handles that none runs.

use std::io;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::cli::CommandFailure;
use crate::cli::ConfigArgument;
use crate::cli::Exit;
use crate::cli::offline;
use crate::cli::output;
use crate::config;
use crate::config::Config;
use crate::core::model::ObjectKey;
use crate::core::time::Span;
use crate::node::agent;
use crate::node::socket::OrderDeadline;
use crate::node::socket::RequestLine;
use crate::node::socket::SocketOperation;

/// How long the agent may take for an answer: a pass that hangs must not hang its observers too.
const PATIENCE: Duration = Duration::from_secs(10);
/// An order that is not under way by then is refused: what is left of [`PATIENCE`] is for carrying it out.
const UNDER_WAY: Span = Span::from_secs(9);

/// The answer to `request`: the agent's, or without an agent the one from checkpoint and folders.
pub(super) fn ask<T: DeserializeOwned>(config: &Config, request: &SocketOperation) -> Result<T, CommandFailure> {
    let path = config.socket();
    let line = match converse(&path, request) {
        Ok(line) => line,
        Err(error) if is_absence(&error) => {
            let answer = offline::answer(config, request);
            let what = match agent::offline::worker(config) {
                Some(worker) => deaf(worker),
                None => "agent not running".to_owned(),
            };
            super::output::remarks(&output::line(match answer {
                Ok(_) => {
                    format!("{what}: this is what the first pass of a starting agent finds in checkpoint and folders")
                }
                Err(_) => format!("{what}, and checkpoint and folders do not say enough"),
            }));
            answer?.to_string()
        }
        Err(error) => {
            return Err(silence(&path, &error));
        }
    };
    understood(&path, &line)
}

/// An answer, and what is wrong with the configuration, if it is invalid: the agent that runs goes on with the one before.
pub(super) struct Answer<T> {
    pub(super) report: T,
    invalid: Option<CommandFailure>,
}

impl<T> Answer<T> {
    /// Ends a command that has shown the report: `exit`, unless the configuration is invalid.
    pub(super) fn end(self, exit: Exit) -> Exit {
        let Some(failure) = self.invalid else { return exit };
        output::errors(&failure.errors);
        output::remarks("the agent runs on with the configuration before it\n");
        if exit == Exit::Success { Exit::Refused } else { exit }
    }
}

/// As [`ask`]. Where the configuration is invalid, the agent that runs is asked all the same.
pub(super) fn ask_with<T: DeserializeOwned>(
    argument: &ConfigArgument,
    request: &SocketOperation,
) -> Result<Answer<T>, CommandFailure> {
    let failure = match argument.load() {
        Ok(config) => return Ok(Answer { report: ask(&config, request)?, invalid: None }),
        Err(failure) => failure,
    };
    let path = config::socket_of_invalid(argument.config.as_deref());
    let answer = converse(&path, request).ok().and_then(|line| understood(&path, &line).ok());
    match answer {
        Some(report) => Ok(Answer { report, invalid: Some(failure) }),
        None => Err(failure),
    }
}

/// The running agent's answer to `request`; none if no agent runs.
pub(super) fn try_agent<T: DeserializeOwned>(
    config: &Config,
    request: &SocketOperation,
) -> Result<Option<T>, CommandFailure> {
    let path = config.socket();
    match converse(&path, request) {
        Ok(line) => understood(&path, &line).map(Some),
        Err(error) if is_absence(&error) => match agent::offline::worker(config) {
            Some(worker) => Err(unreached(&path, worker)),
            None => Ok(None),
        },
        Err(error) => Err(silence(&path, &error)),
    }
}

/// The running agent's answer to `request`: an order, or what is asked for one. Only a running agent can give it.
pub(super) fn running<T: DeserializeOwned>(config: &Config, request: &SocketOperation) -> Result<T, CommandFailure> {
    let path = config.socket();
    let line =
        converse(&path, request).map_err(|error| match (is_absence(&error), agent::offline::worker(config)) {
            (true, None) => failure(&path, "no agent is running here").hint("start it: systemctl start daemonlet"),
            (true, Some(worker)) => unreached(&path, worker),
            (false, _) => silence(&path, &error),
        })?;
    understood(&path, &line)
}

/// A release while no agent runs: its next start carries it out.
pub(super) fn release_offline<T: DeserializeOwned>(config: &Config, keys: &[ObjectKey]) -> Result<T, CommandFailure> {
    let answer = agent::offline::release_offline(config.clone(), &keys.iter().cloned().collect())?;
    understood(&config.socket(), &answer.to_string())
}

fn understood<T: DeserializeOwned>(path: &std::path::Path, line: &str) -> Result<T, CommandFailure> {
    let unknown = |why: String| {
        failure(path, &format!("the agent's answer is not understood: {why}"))
            .hint("the agent may be of another version than this program; restart it: systemctl restart daemonlet")
    };
    let answer: Value = serde_json::from_str(line).map_err(|error| unknown(error.to_string()))?;
    match answer.get("error").and_then(Value::as_str) {
        Some(error) => Err(CommandFailure::new(Exit::Refused, error.to_owned())),
        None => T::deserialize(answer).map_err(|error| unknown(error.to_string())),
    }
}

fn failure(path: &std::path::Path, why: &str) -> CommandFailure {
    CommandFailure::new(Exit::Refused, format!("{}: {why}", path.display()))
}

/// An agent that may run and gives no answer.
fn silence(path: &std::path::Path, error: &io::Error) -> CommandFailure {
    let failure = failure(path, &format!("the agent cannot be asked: {}", config::io_reason(error)));
    match error.kind() {
        io::ErrorKind::PermissionDenied => failure.hint("run this as root"),
        io::ErrorKind::Other => failure.hint(
            "its daemons run on, and systemd restarts an agent that hangs for a minute; journalctl -u daemonlet says why",
        ),
        _ => failure,
    }
}

/// An agent that works and has no socket.
fn unreached(path: &std::path::Path, worker: u32) -> CommandFailure {
    failure(path, &deaf(worker)).hint(
        "an agent that runs makes its socket anew within 10 s, or at `systemctl reload daemonlet`; \
         journalctl -u daemonlet says why it cannot",
    )
}

fn deaf(worker: u32) -> String {
    format!("the agent (process {worker}) works and does not listen here")
}

/// No agent listens: there is no socket, or one that an agent left behind.
fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

fn converse(path: &PathBuf, request: &SocketOperation) -> io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let deadline = request.is_order().then(|| OrderDeadline::after(UNDER_WAY));
    let mut line = serde_json::to_string(&RequestLine { request: request.clone(), deadline })?;
    line.push('\n');
    stream.write_all(line.as_bytes())?;
    let mut reply = String::new();
    match BufReader::new(stream).read_line(&mut reply) {
        Ok(0) => Err(io::Error::other("it closed the connection")),
        Ok(_) => Ok(reply),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(io::Error::other(format!("no answer within {} s", PATIENCE.as_secs())))
        }
        Err(error) => Err(error),
    }
}
