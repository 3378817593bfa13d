//! Why a pod is not available, according to the kubelet and the runtime.
//!
//! Owns the reading of both. Must not do I/O or decide what follows. A cause is always something that was reported or
//! observed, never a missing answer.

mod runtime;
mod status;
#[cfg(test)]
mod tests;

use crate::core::time::Timestamp;

pub use runtime::by_runtime;
pub use runtime::crashed;
pub use runtime::steady_since;
pub use status::by_status;
pub use status::crashing;
pub use status::readiness;
pub use status::why_not_ready;

/// The longest line of a container's log that is shown, in characters.
const LONGEST_LINE: usize = 300;

/// A pod as the runtime has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PodFact {
    pub sandboxes: Vec<SandboxFact>,
    /// Includes earlier attempts.
    pub containers: Vec<ContainerFact>,
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SandboxFact {
    pub ready: bool,
    pub made: Timestamp,
}

/// One attempt of a container.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ContainerFact {
    /// Its name in the pod.
    pub name: String,
    /// How often it had been started before.
    pub restarts: u32,
    pub does: Does,
    pub made: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Does {
    /// Running.
    Runs,
    Ended,
    /// Created and not started.
    Else,
    /// The runtime has lost touch with it: it may run.
    Unknown,
}

/// What is known about a container that ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CrashDiagnosis {
    /// The container's name in the pod.
    pub container: String,
    /// Its exit code, if the runtime knows it.
    pub exit_code: Option<i32>,
    /// The runtime's reason, such as `OOMKilled`.
    pub reason: String,
    /// The runtime's message.
    pub message: String,
    /// The last non-empty line of its log.
    pub last_line: String,
}

impl CrashDiagnosis {
    /// A sentence about how `container` ended.
    pub fn words(&self, container: &str) -> String {
        let mut text = match self.exit_code {
            Some(code) => format!("container {container} ends with exit code {code}"),
            None => format!("container {container} ends again and again"),
        };
        if !self.reason.is_empty() && !matches!(self.reason.as_str(), "Error" | "Completed") {
            text.push_str(&format!(" ({})", self.reason));
        }
        match (self.last_line.is_empty(), self.message.is_empty()) {
            (false, _) => text.push_str(&format!(", its last line: {}", one_line(&self.last_line))),
            (true, false) => text.push_str(&format!(": {}", one_line(&self.message))),
            (true, true) => {}
        }
        text
    }
}

/// The last line with text of a container's log in the kubelet's format (`2026-01-01T00:00:00.0Z stderr F text`);
/// partial lines (`P`) are joined.
pub fn last_line(log: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(log);
    let mut line = String::new();
    for entry in text.lines().rev() {
        let mut parts = entry.splitn(4, ' ');
        let (Some(_), Some("stdout" | "stderr"), Some(tag), said) =
            (parts.next(), parts.next(), parts.next(), parts.next().unwrap_or_default())
        else {
            continue;
        };
        let is_partial = tag.split(':').any(|t| t == "P");
        if !line.is_empty() && !is_partial {
            break;
        }
        line = format!("{said}{line}");
    }
    let line = one_line(&line);
    (!line.is_empty()).then_some(line)
}

/// The text on one line, without control characters, cut to a terminal's width.
fn one_line(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let mut line = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = line.char_indices().nth(LONGEST_LINE) {
        line.truncate(end);
        line.push('…');
    }
    line
}
