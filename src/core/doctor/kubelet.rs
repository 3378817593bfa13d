//! The kubelet's settings compared with ours.
//!
//! Owns which of its flags and configuration fields matter to static pods. Flags override the file, as in the kubelet
//! (`cmd/kubelet/app/server.go`).

use std::collections::BTreeMap;

use serde_json::Value;

use super::Finding;
use crate::core::json::Json;
use crate::core::json::Path;
use crate::core::node;

/// The first kubelet that reads environment variables from a file (`fileKeyRef`) by default.
const ENV_FILES: (u32, u32) = (1, 35);

/// Static pods need EnvFiles alone.
const GATES_ON: &str = "every feature gate that static pods need is on";

/// The kubelet's configuration file, with its drop-ins.
#[derive(Clone, Debug, PartialEq)]
pub enum KubeletConfigFile {
    /// There is none.
    Missing,
    /// It cannot be read or parsed.
    Unreadable(String),
    /// Its content, and which files others than root may write to.
    Read {
        /// The document, drop-ins merged into it.
        content: Value,
        /// The file and its drop-ins with their paths, in the order in which they apply.
        parts: Vec<(String, Value)>,
        /// Those that group or others may write to.
        open: Vec<String>,
    },
    /// The kubelet runs without one.
    Unused,
}

impl KubeletConfigFile {
    /// The file that sets `path` last.
    fn source(&self, path: impl Path + Copy) -> Option<&str> {
        let Self::Read { parts, .. } = self else { return None };
        parts.iter().rfind(|(_, part)| part.at(path).is_some()).map(|(path, _)| path.as_str())
    }
}

/// What was found of the kubelet.
#[derive(Clone, Debug)]
pub struct KubeletFacts {
    /// Command lines of the running processes called kubelet.
    pub processes: Vec<Vec<String>>,
    /// Our `kubelet-config`.
    pub configured: String,
    /// The configuration file that was read: the running kubelet's, else our `kubelet-config`.
    pub path: String,
    pub file: KubeletConfigFile,
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
    /// Paths in the kubelet's settings, symbolic links resolved.
    pub resolved: BTreeMap<String, String>,
}

/// The value of a flag on a command line, as pflag reads it: the last one counts.
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

/// A non-empty text field of the configuration file.
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

    /// The flag of the only running kubelet, else the field of its file.
    fn setting(&self, name: &str, in_file: &str) -> Option<String> {
        let written = self.command().and_then(|command| flag(command, name));
        let content = match &self.file {
            KubeletConfigFile::Read { content, .. } => content.text_at(in_file),
            _ => None,
        };
        written.or(content).map(str::to_owned)
    }

    /// Why it is unknown what the kubelet's file says; `None`: it was read, or the kubelet has none.
    fn unread(&self) -> Option<String> {
        let path = &self.path;
        match &self.file {
            KubeletConfigFile::Missing => Some(format!("{path} does not exist")),
            KubeletConfigFile::Unreadable(_) => Some(format!("{path} cannot be read")),
            KubeletConfigFile::Read { .. } | KubeletConfigFile::Unused => None,
        }
    }

    fn resolve(&self, path: &str) -> String {
        self.resolved.get(path).cloned().unwrap_or_else(|| path.trim_end_matches('/').to_owned())
    }
}

/// All checks of the kubelet.
pub fn examine(facts: &KubeletFacts) -> Vec<Finding> {
    let mut findings = vec![process(facts), file(facts)];
    let known = facts.command().is_some() || matches!(facts.file, KubeletConfigFile::Read { .. });
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
        0 => Finding::warn(CHECK, "no process called kubelet runs, so no pod is started", "systemctl start kubelet"),
        many => Finding::warn(
            CHECK,
            format!("{many} processes called kubelet run: it is unclear whose flags apply"),
            "compare their --config and --root-dir with kubelet-config and kubelet-root",
        ),
    }
}

fn file(facts: &KubeletFacts) -> Finding {
    const CHECK: &str = "kubelet configuration";
    let path = &facts.path;
    if facts.file != KubeletConfigFile::Unused && facts.resolve(path) != facts.resolve(&facts.configured) {
        return Finding::bad(
            CHECK,
            format!("the kubelet reads {path}, and kubelet-config is {}", facts.configured),
            format!("set kubelet-config = \"{path}\""),
        );
    }
    match &facts.file {
        KubeletConfigFile::Missing => Finding::warn(
            CHECK,
            format!("{path} does not exist, so it is unknown whether the kubelet reads {}", facts.manifest_dir),
            "set kubelet-config to the file that the kubelet's --config names",
        ),
        KubeletConfigFile::Unused => Finding::ok(CHECK, "the kubelet runs without --config: only its flags apply"),
        KubeletConfigFile::Unreadable(why) => {
            Finding::bad(CHECK, format!("{path}: {why}"), "correct it, or set kubelet-config")
        }
        KubeletConfigFile::Read { open, .. } if !open.is_empty() => Finding::bad(
            CHECK,
            format!("users other than root may write to {} and so decide what runs as root", open.join(", ")),
            format!("chown root {0}; chmod go-w {0}", open.join(" ")),
        ),
        KubeletConfigFile::Read { .. } => Finding::ok(CHECK, path.clone()),
    }
}

fn static_pods(facts: &KubeletFacts) -> Finding {
    const CHECK: &str = "static pod folder";
    let ours = &facts.manifest_dir;
    let theirs = facts.setting("pod-manifest-path", "staticPodPath");
    if let (None, Some(why)) = (&theirs, facts.unread()) {
        let text = format!("unknown: {why}, and no flag names the folder");
        return Finding::warn(CHECK, text, "see the check `kubelet configuration`");
    }
    match theirs {
        None => Finding::bad(
            CHECK,
            "the kubelet has no staticPodPath: it runs no static pods",
            match facts.file {
                KubeletConfigFile::Unused => format!("start the kubelet with --pod-manifest-path={ours}"),
                _ => {
                    let file = facts.file.source("staticPodPath").unwrap_or(&facts.path);
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
                "the kubelet's is {theirs}, but kubelet-root is {}: pods do not find their data",
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
            format!("the kubelet's is {theirs}, but node-name is {ours}: pod UIDs depend on it"),
            format!("set node-name = \"{theirs}\""),
        ),
        None if facts.host_name != *ours => Finding::warn(
            CHECK,
            format!("{ours}, but the host is called {}, the kubelet's default", facts.host_name),
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
        KubeletConfigFile::Read { content, .. } => content.at(["featureGates", "EnvFiles"]).and_then(Value::as_bool),
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
                    let file = facts.file.source(["featureGates", "EnvFiles"]).unwrap_or(&facts.path);
                    format!("take EnvFiles out of featureGates in {file}, then `systemctl restart kubelet`")
                }
            },
        ),
        Some(true) => Finding::ok(CHECK, GATES_ON),
        None => match facts.unread() {
            None => Finding::ok(CHECK, GATES_ON),
            Some(why) => Finding::warn(
                CHECK,
                format!("unknown whether EnvFiles is on: {why}, and no flag says it"),
                "see the check `kubelet configuration`",
            ),
        },
    }
}

fn version(facts: &KubeletFacts) -> Finding {
    const CHECK: &str = "kubelet version";
    let unknown = |why: String| {
        Finding::warn(CHECK, why, "set node.kubelet-version; until then daemons with Secrets in their environment wait")
    };
    let Some(version) = &facts.version else { return unknown("unknown: the Node has not been read yet".to_owned()) };
    match node::version(version) {
        Some(number) if number >= ENV_FILES => Finding::ok(CHECK, version.clone()),
        Some(_) => Finding::warn(
            CHECK,
            format!("{version} is older than v1.35: daemons with Secrets in their environment are held back"),
            "update the kubelet, or set policy.inline-secret-env",
        ),
        None => unknown(format!("{version:?} is not a version")),
    }
}
