//! The kubelet's settings against ours.
//!
//! Owns what of its flags and its configuration file matters to static pods. Flags win over files, as
//! in the kubelet (`cmd/kubelet/app/server.go`).

use std::collections::BTreeMap;

use serde_json::Value;

use super::Finding;
use crate::core::node;

/// The first kubelet that reads a variable from a file (`fileKeyRef` without its gate being set).
const ENV_FILES: (u32, u32) = (1, 35);

/// The kubelet's configuration file, with its drop-ins.
#[derive(Clone, Debug, PartialEq)]
pub enum File {
    /// There is none.
    Missing,
    /// It cannot be read or parsed.
    Unreadable(String),
    /// Its content, and whether others than root may write it.
    Read {
        /// The document, drop-ins merged into it.
        content: Value,
        /// It and its drop-ins, each with its path, in the order in which they count.
        parts: Vec<(String, Value)>,
        /// Those of them that group or others may write to.
        open: Vec<String>,
    },
    /// The kubelet runs without one.
    Unused,
}

impl File {
    /// The file that has the last word on `pointer`.
    fn source(&self, pointer: &str) -> Option<&str> {
        let Self::Read { parts, .. } = self else { return None };
        parts.iter().rfind(|(_, part)| part.pointer(pointer).is_some()).map(|(path, _)| path.as_str())
    }
}

/// What was found of the kubelet.
#[derive(Clone, Debug)]
pub struct KubeletFacts {
    /// Command lines of the processes that are called kubelet.
    pub processes: Vec<Vec<String>>,
    /// Our `kubelet-config`.
    pub configured: String,
    /// The path of the configuration file that was read: the one that the kubelet reads, where one runs.
    pub path: String,
    /// That file.
    pub file: File,
    /// Our `manifest-dir`, links resolved.
    pub manifest_dir: String,
    /// Our `kubelet-root`, links resolved.
    pub kubelet_root: String,
    /// Our `runtime-endpoint`; empty: none.
    pub runtime: String,
    /// Our `node-name`.
    pub node_name: String,
    /// The host's name, in lower case.
    pub host_name: String,
    /// The kubelet's version, if it is known.
    pub version: Option<String>,
    /// Links of the paths in the kubelet's settings, resolved.
    pub resolved: BTreeMap<String, String>,
}

/// The value of a flag on a command line, as pflag reads it: the last one wins.
pub fn flag<'a>(command: &'a [String], name: &str) -> Option<&'a str> {
    let mut found = None;
    let mut words = command.iter().skip(1).peekable();
    while let Some(word) = words.next() {
        let Some(rest) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else { continue };
        match rest.split_once('=') {
            Some((flag, value)) if flag == name => found = Some(value),
            None if rest == name => found = words.peek().map(|value| value.as_str()),
            _ => {}
        }
    }
    found
}

/// A text field of the configuration file that says something.
pub fn field<'a>(content: &'a Value, name: &str) -> Option<&'a str> {
    content.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
}

impl KubeletFacts {
    fn command(&self) -> Option<&[String]> {
        match self.processes.as_slice() {
            [one] => Some(one),
            _ => None,
        }
    }

    /// The flag of the one kubelet that runs, else the field of its file.
    fn setting(&self, name: &str, in_file: &str) -> Option<String> {
        let written = self.command().and_then(|command| flag(command, name));
        let content = match &self.file {
            File::Read { content, .. } => field(content, in_file),
            _ => None,
        };
        written.or(content).map(str::to_owned)
    }

    fn resolve(&self, path: &str) -> String {
        self.resolved.get(path).cloned().unwrap_or_else(|| path.trim_end_matches('/').to_owned())
    }
}

/// All checks of the kubelet.
pub fn examine(facts: &KubeletFacts) -> Vec<Finding> {
    let mut findings = vec![process(facts), file(facts)];
    let known = facts.command().is_some() || matches!(facts.file, File::Read { .. });
    if known {
        findings.push(static_pods(facts));
    }
    findings.extend(root(facts));
    findings.push(name(facts));
    findings.extend(endpoint(facts));
    findings.push(gates(facts));
    findings.push(version(facts));
    findings
}

fn process(facts: &KubeletFacts) -> Finding {
    const CHECK: &str = "kubelet";
    match facts.processes.len() {
        1 => Finding::ok(CHECK, "runs"),
        0 => Finding::warn(CHECK, "no process of that name runs: nobody starts the pods", "systemctl start kubelet"),
        many => Finding::warn(
            CHECK,
            format!("{many} processes of that name run: whose flags count here cannot be told"),
            "compare their --config and --root-dir with kubelet-config and kubelet-root",
        ),
    }
}

fn file(facts: &KubeletFacts) -> Finding {
    const CHECK: &str = "kubelet configuration";
    let path = &facts.path;
    if facts.file != File::Unused && facts.resolve(path) != facts.resolve(&facts.configured) {
        return Finding::bad(
            CHECK,
            format!("the kubelet reads {path}, and kubelet-config is {}", facts.configured),
            format!("set kubelet-config = \"{path}\""),
        );
    }
    match &facts.file {
        File::Missing => Finding::warn(
            CHECK,
            format!("{path} does not exist: nothing tells whether the kubelet reads {}", facts.manifest_dir),
            "set kubelet-config to the file that the kubelet's --config names",
        ),
        File::Unused => Finding::ok(CHECK, "the kubelet runs without --config: its flags alone count"),
        File::Unreadable(why) => Finding::bad(CHECK, format!("{path}: {why}"), "correct it, or set kubelet-config"),
        File::Read { open, .. } if !open.is_empty() => Finding::bad(
            CHECK,
            format!("{} may be written by others than root, who so choose what runs as root", open.join(", ")),
            format!("chmod go-w {}", open.join(" ")),
        ),
        File::Read { .. } => Finding::ok(CHECK, path.clone()),
    }
}

fn static_pods(facts: &KubeletFacts) -> Finding {
    const CHECK: &str = "static pod folder";
    let ours = &facts.manifest_dir;
    match facts.setting("pod-manifest-path", "staticPodPath") {
        None => Finding::bad(
            CHECK,
            "the kubelet has no staticPodPath: it runs no static pods",
            match facts.file {
                File::Unused => format!("start the kubelet with --pod-manifest-path={ours}"),
                _ => {
                    let file = facts.file.source("/staticPodPath").unwrap_or(&facts.path);
                    format!("write `staticPodPath: {ours}` into {file}, then `systemctl restart kubelet`")
                }
            },
        ),
        Some(theirs) if facts.resolve(&theirs) != facts.resolve(ours) => Finding::bad(
            CHECK,
            format!("the kubelet reads {theirs}, and manifest-dir is {ours}"),
            format!("set manifest-dir = \"{theirs}\""),
        ),
        Some(_) => Finding::ok(CHECK, format!("the kubelet reads {ours}")),
    }
}

fn root(facts: &KubeletFacts) -> Option<Finding> {
    const CHECK: &str = "kubelet root";
    let command = facts.command()?;
    let theirs = flag(command, "root-dir").unwrap_or("/var/lib/kubelet");
    Some(match facts.resolve(theirs) == facts.resolve(&facts.kubelet_root) {
        true => Finding::ok(CHECK, facts.kubelet_root.clone()),
        false => Finding::bad(
            CHECK,
            format!(
                "the kubelet's is {theirs}, and kubelet-root is {}: pods find none of their data",
                facts.kubelet_root
            ),
            format!("set kubelet-root = \"{theirs}\""),
        ),
    })
}

fn name(facts: &KubeletFacts) -> Finding {
    const CHECK: &str = "node name";
    let ours = &facts.node_name;
    let written = facts.command().and_then(|command| flag(command, "hostname-override")).map(str::to_lowercase);
    match written {
        Some(theirs) if theirs != *ours => Finding::bad(
            CHECK,
            format!("the kubelet's is {theirs}, and node-name is {ours}: every pod's UID contains it"),
            format!("set node-name = \"{theirs}\""),
        ),
        None if facts.host_name != *ours => Finding::warn(
            CHECK,
            format!("{ours}, while the host is called {}, as the kubelet calls itself by default", facts.host_name),
            "set node-name to the name that `kubectl get nodes` shows",
        ),
        _ => Finding::ok(CHECK, ours.clone()),
    }
}

fn endpoint(facts: &KubeletFacts) -> Option<Finding> {
    const CHECK: &str = "runtime endpoint";
    let theirs = facts.setting("container-runtime-endpoint", "containerRuntimeEndpoint")?;
    let path = |url: &str| facts.resolve(url.strip_prefix("unix://").unwrap_or(url));
    let differs = !facts.runtime.is_empty() && path(&theirs) != path(&facts.runtime);
    differs.then(|| {
        Finding::bad(
            CHECK,
            format!("the kubelet's is {theirs}, and runtime-endpoint is {}", facts.runtime),
            format!("set runtime-endpoint = \"{theirs}\""),
        )
    })
}

fn gates(facts: &KubeletFacts) -> Finding {
    const CHECK: &str = "feature gates";
    let flags = facts.command().and_then(|command| flag(command, "feature-gates")).unwrap_or_default();
    let by_flag = flags.split(',').filter_map(|gate| gate.split_once('=')).find(|(gate, _)| *gate == "EnvFiles");
    let by_file = match &facts.file {
        File::Read { content, .. } => content.pointer("/featureGates/EnvFiles").and_then(Value::as_bool),
        _ => None,
    };
    let env_files = by_flag.map(|(_, value)| value == "true").or(by_file);
    match env_files {
        Some(false) => Finding::bad(
            CHECK,
            "EnvFiles is off: the kubelet refuses every pod that has a Secret's value in its environment",
            match by_flag {
                Some(_) => "take EnvFiles out of the kubelet's --feature-gates and restart it".to_owned(),
                None => {
                    let file = facts.file.source("/featureGates/EnvFiles").unwrap_or(&facts.path);
                    format!("take EnvFiles out of featureGates in {file}, then `systemctl restart kubelet`")
                }
            },
        ),
        _ => Finding::ok(CHECK, "none that static pods need is off"),
    }
}

fn version(facts: &KubeletFacts) -> Finding {
    const CHECK: &str = "kubelet version";
    let unknown = |why: String| {
        Finding::warn(CHECK, why, "set node.kubelet-version; until then daemons with Secrets in their environment wait")
    };
    let Some(version) = &facts.version else { return unknown("not known: no Node has been seen".to_owned()) };
    match node::version(version) {
        Some(number) if number >= ENV_FILES => Finding::ok(CHECK, version.clone()),
        Some(_) => Finding::warn(
            CHECK,
            format!("{version} is older than v1.35: daemons with Secrets in their environment are held back"),
            "update the kubelet, or set policy.inline-secret-env",
        ),
        None => unknown(format!("{version:?} is no version")),
    }
}
