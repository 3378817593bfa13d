//! The configuration of the node's owner: TOML files in systemd's order, every key documented.
//!
//! ```text
//!  files ──> settings, each with file and line ──> Config: defaults filled in from the host
//!  (read)    (a later file replaces a key)         (resolve)
//! ```
//!
//! Owns the keys ([`keys`]), their messages, and where each value came from. Must not start
//! anything, and must not look at the manifest folder: whether that is safe is the disk's to judge.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::path::PathBuf;

use crate::config::keys::ConfigKey;
use crate::config::keys::KEYS;
use crate::core::model::NodeView;
use crate::core::policy::PodRules;

mod check;
mod host;
pub mod keys;
mod kinds;
mod listen;
mod read;
mod resolve;

pub(crate) use check::endpoint;
pub(crate) use check::namespace;
pub(crate) use check::node_name;
pub(crate) use check::path;
pub use host::Host;
pub use host::RealHost;
pub use keys::Config;
pub use listen::Listen;
pub(crate) use read::reason as io_reason;

/// Where the agent has its socket unless the configuration says otherwise.
pub const DEFAULT_RUN_DIR: &str = "/run/daemonlet";

/// The agent's socket there.
const SOCKET: &str = "agent.sock";

/// The file that is read when no `--config` is given.
pub const MAIN_FILE: &str = "/etc/daemonlet/daemonlet.toml";

/// The environment variable that takes precedence over `log.level`.
const LOG_VARIABLE: &str = "DAEMONLET_LOG";

/// `log.target`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogTarget {
    /// The journal where stderr is connected to it, else stderr.
    #[default]
    Auto,
    Journal,
    /// Standard error.
    Stderr,
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigOrigin {
    /// Written in a file.
    File {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// A variable of the environment has it.
    Environment(&'static str),
    /// Nothing was written; the text says what the default rests on.
    Default(String),
    /// Nothing was written, nor does the kubelet's configuration say anything: a guess, and what it rests on.
    Guessed(&'static str),
    /// Nothing was written: the host's name when the agent started, which the host, now named so, has no more.
    FormerHostName(String),
}

impl fmt::Display for ConfigOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigOrigin::File { path, line } => write!(f, "{}:{line}", path.display()),
            ConfigOrigin::Environment(variable) => write!(f, "the variable {variable}"),
            ConfigOrigin::Default(why) => f.write_str(why),
            ConfigOrigin::Guessed(why) => write!(f, "default: {why}"),
            ConfigOrigin::FormerHostName(now) => {
                write!(f, "default: the host name when the agent started; it is {now} now")
            }
        }
    }
}

/// The kubelet's own configuration file, as the source of defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KubeletFile {
    /// All that it could say is written.
    #[default]
    NotNeeded,
    Read,
    Missing,
    /// It is there and cannot be used, and says nothing.
    Unusable(ConfigProblem),
}

/// One thing that is wrong with the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// What is wrong: names file, line and key.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// The configuration cannot be used: every problem of every file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .problems.iter().map(|p| p.message.as_str()).collect::<Vec<_>>().join("\n"))]
pub struct ConfigError {
    /// The problems, in the order of files and lines; never empty.
    pub problems: Vec<ConfigProblem>,
}

/// Reads `file` and its drop-ins, or the system's files, fills in defaults from this host, and lets the
/// environment take precedence.
///
/// # Errors
/// Every problem of every file at once.
pub fn load(file: Option<&Path>) -> Result<Config, ConfigError> {
    usable(load_to_start(file)?)
}

/// As [`load`], for an agent that starts and may remember what the kubelet's file said: such a file that cannot be used is
/// no error here.
///
/// # Errors
/// As [`load`].
pub fn load_to_start(file: Option<&Path>) -> Result<Config, ConfigError> {
    let mut config = resolved(&files_of(file, Path::new("/"))?, &RealHost)?;
    if let Some(filter) = std::env::var(LOG_VARIABLE).ok().filter(|filter| !filter.is_empty()) {
        config.log_level = filter;
        config.origins.insert("log.level", ConfigOrigin::Environment(LOG_VARIABLE));
    }
    Ok(config)
}

/// [`load`] with the system's files below `root`, and a host of the caller's.
///
/// # Errors
/// As [`load`].
pub fn load_from(file: Option<&Path>, root: &Path, host: &dyn Host) -> Result<Config, ConfigError> {
    usable(resolved(&files_of(file, root)?, host)?)
}

fn files_of(file: Option<&Path>, root: &Path) -> Result<Vec<read::SourceFile>, ConfigError> {
    match file {
        Some(file) => read::own_files(file),
        None => read::system_files(root),
    }
}

/// Refuses a configuration whose defaults rest on a kubelet's file that cannot be used.
fn usable(config: Config) -> Result<Config, ConfigError> {
    match &config.kubelet_file {
        KubeletFile::Unusable(problem) => Err(ConfigError { problems: vec![problem.clone()] }),
        _ => Ok(config),
    }
}

/// The socket of the agent that runs by the configuration that was in force before `file` became invalid, as far as that
/// is known.
pub fn socket_of_invalid(file: Option<&Path>) -> PathBuf {
    let run_dir = read::run_dir(file, Path::new("/")).unwrap_or_else(|| PathBuf::from(DEFAULT_RUN_DIR));
    run_dir.join(SOCKET)
}

/// Whether [`load_from`] reads no file, and gives the defaults.
pub fn is_without_file(file: Option<&Path>, root: &Path) -> bool {
    file.is_none() && read::system_files(root).is_ok_and(|files| files.is_empty())
}

/// The configuration that `path` alone would be if it held `text`.
///
/// # Errors
/// Every problem of the text.
pub fn read_text(path: &Path, text: String) -> Result<Config, ConfigError> {
    usable(resolved(&[(path.to_owned(), text)], &RealHost)?)
}

/// Whether the agent reads `path` without an option that names it.
pub fn is_system_file(path: &Path) -> bool {
    path == Path::new(MAIN_FILE) || read::DROP_INS.iter().any(|folder| path.parent() == Some(Path::new(folder)))
}

fn resolved(files: &[read::SourceFile], host: &dyn Host) -> Result<Config, ConfigError> {
    let mut config = read::merge(files)?;
    let mut problems = resolve::resolve(&mut config, host);
    if problems.is_empty() {
        return Ok(config);
    }
    problems.extend(usable(config).err().into_iter().flat_map(|error| error.problems));
    Err(ConfigError { problems })
}

/// The example file: every key with its meaning, commented out.
pub fn example() -> String {
    let lines = |key: &ConfigKey| {
        let doc: String = key.doc().map(|line| format!("# {line}\n")).collect();
        format!("\n{doc}#{} = {}\n", key.name(), key.example)
    };
    EXAMPLE_HEAD.to_owned() + &sections(lines)
}

const EXAMPLE_HEAD: &str = "# The configuration of daemonlet. Every key is commented out and shows its default,
# or an example where the default depends on the host.
#
# Files are read in this order, and a later one's keys replace an earlier one's:
# this file, then /usr/lib/daemonlet/daemonlet.d/*.toml, /run/daemonlet/daemonlet.d/*.toml
# and /etc/daemonlet/daemonlet.d/*.toml by name. Of files with the same name only the last
# counts, and an empty one masks the others. A list or a table is one key: it is replaced as a whole.
# `daemonlet run --print-config` shows the result.
";

/// The `lines` of each key below their sections.
fn sections(lines: impl Fn(&ConfigKey) -> String) -> String {
    let mut text = String::new();
    let mut section = "";
    for key in KEYS {
        if key.section() != section {
            section = key.section();
            text.push_str(&format!("\n[{section}]\n"));
        }
        text.push_str(&lines(key));
    }
    text
}

impl Config {
    /// The configuration as TOML, each key with a comment that says where its value came from.
    pub fn print(&self) -> String {
        sections(|key| {
            let origin = self.origins.get(key.path).map(ToString::to_string).unwrap_or_default();
            format!("# {origin}\n{} = {}\n", key.name(), (key.get)(self))
        })
    }

    /// The configuration as TOML, without the origins of its values: as a recording has it.
    pub fn to_toml(&self) -> String {
        sections(|key| format!("{} = {}\n", key.name(), (key.get)(self)))
    }

    /// The configuration that [`Config::to_toml`] wrote, perhaps that of another version: a key that this one does not
    /// have is left out.
    ///
    /// # Errors
    /// Every key that has another value than it takes.
    pub fn from_toml(text: String) -> Result<Self, ConfigError> {
        read::merge_knowing(&[(PathBuf::from("config.toml"), text)], read::UnknownKeys::Foreign)
    }

    /// Whether the key `path` is written in a file.
    pub fn is_written(&self, path: &str) -> bool {
        matches!(self.origins.get(path), Some(ConfigOrigin::File { .. }))
    }

    /// With which of the machine's keys secrets are sealed on disk; `None`: they are not.
    pub fn seal_with(&self) -> Option<&'static str> {
        self.seal.then_some(self.seal_key)
    }

    /// What `[policy]` says about pods.
    pub fn policy_rules(&self) -> PodRules {
        PodRules {
            trusted_namespaces: self.trusted_namespaces.clone(),
            pod_security: self.pod_security,
            grants: self.grants.clone(),
            local_storage: self.local_storage,
            shared_pulls: self.shared_pulls,
            max_grace_period: self.max_grace_period,
            images: self.policy_images.clone(),
        }
    }

    /// The socket that `status`, `plan` and `explain` ask.
    pub fn socket(&self) -> PathBuf {
        self.run_dir.join(SOCKET)
    }

    /// The node as decisions see it before it is registered: configured labels and taints, and
    /// the labels that a kubelet sets itself (`kubelet_node_status.go`, `initialNode`).
    pub fn node_view(&self) -> NodeView {
        let arch = goarch(std::env::consts::ARCH);
        let own = [
            ("kubernetes.io/hostname", self.node_name.as_str()),
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", arch),
            ("beta.kubernetes.io/os", "linux"),
            ("beta.kubernetes.io/arch", arch),
        ];
        let mut labels: BTreeMap<String, String> = own.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        labels.extend(self.node_labels.clone());
        NodeView {
            name: self.node_name.clone(),
            uid: None,
            labels,
            taints: self.node_taints.clone(),
            kubelet_version: self.kubelet_version.clone(),
            allocatable: None,
            unschedulable: false,
            registered: false,
        }
    }
}

/// Go's name of an architecture, as Kubernetes labels have it.
fn goarch(rust: &str) -> &str {
    match rust {
        "x86_64" => "amd64",
        "x86" => "386",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64le",
        "loongarch64" => "loong64",
        other => other,
    }
}

#[cfg(test)]
mod tests;
