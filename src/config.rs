//! What the node's owner says: TOML files in systemd's order, every key documented.
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
use std::time::Duration;

use crate::core::model::Mode;
use crate::core::model::NodeView;
use crate::core::model::Taint;
use crate::core::pass::MaxRemovals;
use crate::core::policy::Rules;
use crate::core::policy::pod_security::Level;
use crate::core::render::Endpoint;

mod check;
mod host;
pub mod keys;
mod listen;
mod print;
mod read;
mod resolve;
mod value;

pub(crate) use check::endpoint;
pub(crate) use check::node_name;
pub use host::Host;
pub use host::RealHost;
pub use keys::Id;
pub use listen::Listen;
pub use print::example;
pub(crate) use read::reason as io_reason;

/// The file that is read when no `--config` is given.
pub const MAIN_FILE: &str = "/etc/daemonlet/daemonlet.toml";

/// The resolved configuration: every key has a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Name of this node (`node-name`).
    pub node_name: String,
    /// Whether `node-name` was written (false: it is the host name). UIDs contain it, so `run --once` insists.
    pub node_name_explicit: bool,
    /// Kubeconfig for the API server; `None`: there is no API.
    pub kubeconfig: Option<PathBuf>,
    /// The kubelet's `staticPodPath`.
    pub manifest_dir: PathBuf,
    /// The kubelet's own configuration file, read for defaults.
    pub kubelet_config: PathBuf,
    /// The kubelet's root folder.
    pub kubelet_root: PathBuf,
    /// Where checkpoints live.
    pub state_dir: PathBuf,
    /// Socket of the container runtime (a path, without `unix://`); `None`: not asked.
    pub runtime_endpoint: Option<PathBuf>,
    /// URL of the kubelet's own API; `None`: not asked.
    pub kubelet_endpoint: Option<String>,
    /// Where `agent.sock` lives.
    pub run_dir: PathBuf,
    /// Folders with DaemonSets, the weakest first.
    pub folders: Vec<PathBuf>,
    /// Label selector for DaemonSets of the API; empty: all.
    pub selector: String,
    /// Mode of an API DaemonSet without the mode label; `None`: it is left alone.
    pub default_mode: Option<Mode>,
    /// The API endpoint that pods are told; `None`: the kubeconfig's server.
    pub api_endpoint: Option<Endpoint>,
    /// Longest delay before a changed template of the API replaces an instance.
    pub update_jitter: Duration,
    /// How many instances one pass may remove because a list did not have them.
    pub max_removals: MaxRemovals,
    /// How long such removals wait for a second list.
    pub removals_delay: Duration,
    /// How long `run --once` waits for the API.
    pub once_timeout: Duration,
    /// Whether the boot guard acts.
    pub boot_guard: bool,
    /// How long the boot guard acts at most.
    pub boot_guard_max: Duration,
    /// The kubelet's kubeconfig: the first that exists.
    pub boot_kubeconfig: Vec<PathBuf>,
    /// Labels of the node before it is registered.
    pub node_labels: BTreeMap<String, String>,
    /// Taints of the node before it is registered.
    pub node_taints: Vec<Taint>,
    /// Version of the kubelet before the node is registered, such as `v1.36.2`; `None`: not known.
    pub kubelet_version: Option<String>,
    /// Namespaces whose API DaemonSets may run here; `*` is all.
    pub policy_namespaces: Vec<String>,
    /// What pods of the API may do to the node (`[policy]`).
    pub policy_rules: Rules,
    /// PodSecurity level of a namespace without the label.
    pub pod_security_default: Level,
    /// The cluster's default node selector; empty: none.
    pub default_node_selector: String,
    /// Whether the API server is asked about the pod of each new instance (`policy.admission`).
    pub dry_run_admission: bool,
    /// Whether Secret values that no file can carry may stand in a manifest.
    pub inline_secret_env: bool,
    /// Whether `Always` stays as it is written (`images.pull-policy`).
    pub pull_as_written: bool,
    /// Whether nothing is replaced before its images were pulled by the agent.
    pub require_prepull: bool,
    /// Whether an instance is replaced although an image of the new one cannot be pulled.
    pub replace_unpulled: bool,
    /// The kubelet's credential-provider configuration, a file or a folder.
    pub credential_provider_config: Option<PathBuf>,
    /// Where the kubelet's credential providers lie.
    pub credential_provider_bin_dir: Option<PathBuf>,
    /// With which of the machine's keys secrets are sealed on disk; `None`: they are not.
    pub seal_with: Option<String>,
    /// The key that is configured, whether anything is sealed or not.
    pub seal_key: String,
    /// The coordinator's own kubeconfig; `None`: this process does not stand for the Lease.
    pub coordinator_kubeconfig: Option<PathBuf>,
    /// Namespace of the coordinator's Lease.
    pub lease_namespace: String,
    /// Name of the coordinator's Lease.
    pub lease_name: String,
    /// Upstream's rollout rule to the letter.
    pub exact_rollouts: bool,
    /// Where metrics are served; `None`: nowhere.
    pub metrics_listen: Option<Listen>,
    /// Whether the coordinator approves the requests of nodes for their identities.
    pub approve_nodes: bool,
    /// What is logged.
    pub log_level: String,
    /// Where logs go.
    pub log_target: LogTarget,
    /// Where each value came from.
    pub origins: BTreeMap<Id, Origin>,
}

/// `log.target`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// The journal where stderr is connected to it, else stderr.
    Auto,
    /// The journal.
    Journal,
    /// Standard error.
    Stderr,
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Written in a file.
    File {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// Nothing was written; the text says what the default rests on.
    Default(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::Default(why) => f.write_str(why),
        }
    }
}

/// One thing that is wrong with the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
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
    pub problems: Vec<Problem>,
}

/// Reads `file` and its drop-ins, or the system's files, and fills in defaults from this host.
///
/// # Errors
/// Every problem of every file at once.
pub fn load(file: Option<&Path>) -> Result<Config, ConfigError> {
    load_from(file, Path::new("/"), &RealHost)
}

/// [`load`] with the system's files below `root`, and a host of the caller's.
///
/// # Errors
/// As [`load`].
pub fn load_from(file: Option<&Path>, root: &Path, host: &dyn Host) -> Result<Config, ConfigError> {
    let files = match file {
        Some(file) => read::own_files(file)?,
        None => read::system_files(root)?,
    };
    resolve::resolve(&read::merge(&files)?, host)
}

impl Config {
    /// The configuration as TOML, each key with a comment that says where its value came from.
    pub fn print(&self) -> String {
        print::config(self)
    }

    /// The socket that `status`, `plan` and `explain` ask.
    pub fn socket(&self) -> PathBuf {
        self.run_dir.join("agent.sock")
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
