//! `daemonlet doctor`: judges what was found on this node and in its cluster.
//!
//! Owns the checks: facts in, findings out, each with what to do about it. Must not gather the facts.

pub mod api;
pub mod approvers;
pub mod cluster_policies;
pub mod disk;
pub mod folders;
pub mod kubelet;
pub mod manifests;
pub mod policies;
pub mod policy;
pub mod stock;

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde::Deserialize;
use serde::Serialize;

use crate::core::named::named;
use crate::core::status::DaemonStatus;
use crate::core::status::State;

/// The version of the JSON schema of [`DoctorReport`].
pub const SCHEMA_VERSION: u32 = 1;

/// The highest exit code of `doctor`; shells and systemd use the higher ones for other things.
pub const MOST: usize = 100;

named! {
    /// How a check ended.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub enum Severity {
        /// As it should be.
        Ok = "ok",
        /// It works, but there is something to know.
        Warn = "warn",
        /// It does not work, or will not after the next boot.
        Bad = "bad",
        /// Not checked: this user may not read what the check looks at.
        Skip = "skip",
    }
}

/// What one check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The name of the check; the same in every version.
    pub check: String,
    /// How it ended.
    pub level: Severity,
    /// What was found, in one line.
    pub text: String,
    /// What to do about it, if there is something to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Finding {
    /// All is well.
    pub fn ok(check: &str, text: impl Into<String>) -> Self {
        Self { check: check.to_owned(), level: Severity::Ok, text: text.into(), hint: None }
    }

    /// Something to know.
    pub fn warn(check: &str, text: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { check: check.to_owned(), level: Severity::Warn, text: text.into(), hint: Some(hint.into()) }
    }

    /// Something is wrong.
    pub fn bad(check: &str, text: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { check: check.to_owned(), level: Severity::Bad, text: text.into(), hint: Some(hint.into()) }
    }

    /// Not checked, because this user may not read `path`.
    pub fn skipped(check: &str, path: &str) -> Self {
        let text = format!("not checked: this user may not read {path}");
        let hint = Some("run `daemonlet doctor` as root".to_owned());
        Self { check: check.to_owned(), level: Severity::Skip, text, hint }
    }
}

/// Everything that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DoctorReport {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// The node's name; empty if the configuration cannot be read.
    pub node: String,
    /// How many findings are bad. The exit code, up to [`MOST`].
    pub bad: usize,
    /// How many warn.
    pub warnings: usize,
    /// How many could not be checked by this user.
    #[serde(default)]
    pub skipped: usize,
    /// The findings, in the order of the checks.
    pub findings: Vec<Finding>,
}

impl DoctorReport {
    /// Counts the findings.
    pub fn new(node: &str, findings: Vec<Finding>) -> Self {
        let count = |level| findings.iter().filter(|finding| finding.level == level).count();
        Self {
            schema_version: SCHEMA_VERSION,
            node: node.to_owned(),
            bad: count(Severity::Bad),
            warnings: count(Severity::Warn),
            skipped: count(Severity::Skip),
            findings,
        }
    }

    /// The exit code: the number of bad findings, at most [`MOST`].
    pub fn exit_code(&self) -> u8 {
        u8::try_from(self.bad.min(MOST)).unwrap_or(u8::MAX)
    }
}

/// The agent, as its socket shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentFinding {
    /// It answers, and this is what `status` shows.
    Runs {
        /// Problems beside single daemons.
        problems: usize,
        /// Daemons in a bad state.
        daemons: usize,
    },
    /// Nothing listens on its socket.
    Absent,
    /// It does not answer, or not in a form that is understood.
    Unreachable(String),
}

/// Puts one [`Finding::skipped`] in the place of all that was found by each check in `closed`, which names for a check
/// the path that this user may not read: a judgement on what was not read is a guess, and its hint a danger.
pub fn skip(closed: &BTreeMap<&'static str, String>, findings: Vec<Finding>) -> Vec<Finding> {
    let mut reported = BTreeSet::new();
    let judge = |finding: Finding| match closed.get(finding.check.as_str()) {
        None => Some(finding),
        Some(path) => reported.insert(finding.check.clone()).then(|| Finding::skipped(&finding.check, path)),
    };
    findings.into_iter().filter_map(judge).collect()
}

/// Judges the agent; `ours`: how many of its static pods are in the manifest folder. They run without it, but unattended.
pub fn agent(agent: &AgentFinding, ours: usize) -> Finding {
    const CHECK: &str = "agent";
    match agent {
        AgentFinding::Runs { problems: 0, daemons: 0 } => Finding::ok(CHECK, "runs and reports no problems"),
        AgentFinding::Runs { problems, daemons } => {
            let what = [
                (*problems, ["problem", "problems"]),
                (*daemons, ["daemon that needs a look", "daemons that need a look"]),
            ];
            let counted = what.iter().filter(|(count, _)| *count > 0);
            let words: Vec<String> = counted
                .map(|(count, [one, more])| format!("{count} {}", if *count == 1 { one } else { more }))
                .collect();
            Finding::warn(CHECK, format!("runs, and reports {}", words.join(" and ")), "see `daemonlet status -o wide`")
        }
        AgentFinding::Absent if ours > 0 => Finding::bad(
            CHECK,
            format!(
                "not running, and {ours} static pod{} here need{} it: their tokens expire, their data stays as it is",
                if ours == 1 { "" } else { "s" },
                if ours == 1 { "s" } else { "" },
            ),
            "see why with `journalctl -u daemonlet`, and start it: systemctl enable --now daemonlet",
        ),
        AgentFinding::Absent => Finding::warn(CHECK, "not running", "start it: systemctl enable --now daemonlet"),
        AgentFinding::Unreachable(why) => {
            Finding::bad(CHECK, why.clone(), "see `journalctl -u daemonlet`, and restart it")
        }
    }
}

/// Names what runs and what the configuration no longer lets start; the reason says what would let it.
pub fn held(daemons: &[DaemonStatus]) -> Vec<Finding> {
    let held = daemons.iter().filter(|daemon| daemon.state == State::Held);
    let finding = |daemon: &DaemonStatus| {
        let text = format!("{}/{} is held: {}", daemon.namespace, daemon.name, daemon.reason);
        Finding::warn("held daemons", text, daemon.hints.join("; "))
    };
    held.map(finding).collect()
}

/// The container runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuntimeFinding {
    /// `runtime-endpoint = ""`.
    NotConfigured,
    /// It answers with its name and version.
    Answers(String),
    /// It does not answer; and what to do.
    Unreachable(String, Option<String>),
}

/// Judges the container runtime's socket.
pub fn runtime(runtime: &RuntimeFinding) -> Finding {
    const CHECK: &str = "container runtime";
    match runtime {
        RuntimeFinding::Answers(who) => Finding::ok(CHECK, format!("{who} answers")),
        RuntimeFinding::NotConfigured => Finding::warn(
            CHECK,
            "none is configured: the end of a pod is inferred from its grace period, and images are not pulled in advance",
            "set runtime-endpoint to the runtime's socket",
        ),
        RuntimeFinding::Unreachable(why, hint) => {
            let hint = hint.as_deref().unwrap_or("start the runtime, or correct runtime-endpoint");
            Finding::bad(CHECK, why.clone(), hint)
        }
    }
}

/// Names what a container of a namespace that is not trusted can fill the disk with: volumes of its image, if the runtime `makes`
/// them.
pub fn image_volumes(makes: Option<bool>) -> Option<Finding> {
    makes.filter(|makes| *makes)?;
    Some(Finding::warn(
        "volumes of images",
        "the runtime makes a writable folder on this node's disk for each VOLUME of an image, which has no bound: pods of \
         namespaces that are not trusted can fill the disk, although policy.local-storage is false",
        "set ignore_image_defined_volumes = true in the configuration of containerd's CRI plugin, or name in policy.images \
         only images that have no VOLUME",
    ))
}

/// A folder of the agent's, as its path and attributes show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FolderFinding {
    /// Only root may write to it.
    Good,
    /// There is none yet.
    Absent,
    /// This user may not look at it.
    Closed,
    /// The agent would not use it; and what to do.
    Bad(String, Option<String>),
}

/// Judges the state folder at `path`.
pub fn state_folder(path: &str, folder: &FolderFinding) -> Finding {
    const CHECK: &str = "state folder";
    match folder {
        FolderFinding::Good => Finding::ok(CHECK, format!("only root may write to {path}")),
        FolderFinding::Absent => Finding::ok(CHECK, format!("{path} does not exist; the agent creates it")),
        FolderFinding::Closed => Finding::skipped(CHECK, path),
        FolderFinding::Bad(why, hint) => {
            Finding::bad(CHECK, why.clone(), hint.as_deref().unwrap_or("see tmpfiles.d/daemonlet.conf"))
        }
    }
}

/// Names files of the state folder that agents could not use and set aside.
pub fn set_aside(files: &[String]) -> Option<Finding> {
    let (first, more) = files.split_first()?;
    let more = match more.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(Finding::warn(
        "checkpoint",
        format!("an agent could not use a file of its state, and set it aside: {first}{more}"),
        "journalctl -u daemonlet says what is wrong with it; remove it then: no agent reads it",
    ))
}

/// Judges how Secrets are stored on disk; `sealed`: the key that seals them, if they are.
pub fn secrets(sealed: Option<&str>, state_dir: &str) -> Finding {
    const CHECK: &str = "secrets at rest";
    match sealed {
        Some(key) => Finding::ok(
            CHECK,
            format!("sealed in {state_dir} with the key {key}; readable by root in the volumes while the machine runs"),
        ),
        None => Finding::warn(
            CHECK,
            format!("Secrets and tokens are readable by root in {state_dir} and in the volumes"),
            "seal them: [checkpoint] seal = \"systemd-creds\"",
        ),
    }
}

#[cfg(test)]
mod tests;
