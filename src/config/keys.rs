//! The one table of keys: name, kind, default and meaning.
//!
//! Reading, `--print-config`, the example file and the messages are all made from it.

mod table;

pub use table::KEYS;

/// A key, as code names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Id {
    NodeName,
    Kubeconfig,
    ApiEndpoint,
    Folders,
    Selector,
    DefaultMode,
    ManifestDir,
    KubeletConfig,
    KubeletRoot,
    KubeletEndpoint,
    RuntimeEndpoint,
    StateDir,
    RunDir,
    UpdateJitter,
    MaxRemovals,
    RemovalsDelay,
    OnceTimeout,
    BootGuardMax,
    BootGuard,
    BootKubeconfig,
    NodeLabels,
    NodeTaints,
    KubeletVersion,
    PolicyNamespaces,
    TrustedNamespaces,
    PolicyPrivileged,
    PolicyHostNamespaces,
    PolicyHostPaths,
    PolicyCapabilities,
    PolicyImages,
    PodSecurityDefault,
    DefaultNodeSelector,
    PolicyAdmission,
    InlineSecretEnv,
    PullPolicy,
    RequirePrepull,
    OnPullFailure,
    CredentialProviderConfig,
    CredentialProviderBinDir,
    CheckpointSeal,
    CheckpointKey,
    CoordinatorKubeconfig,
    LeaseNamespace,
    LeaseName,
    ExactRollouts,
    ApproveNodes,
    MetricsListen,
    LogLevel,
    LogTarget,
}

/// What a key takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A node name: a lower-case DNS subdomain.
    NodeName,
    /// An absolute path.
    Path,
    /// An absolute path or `""`.
    PathOrEmpty,
    /// An absolute path, `in-cluster`, with or without `:` and an absolute path, or `""`.
    Credentials,
    /// A list of absolute paths.
    Paths,
    /// `unix://` and an absolute path, or `""`.
    Socket,
    /// An `https://` URL, or `""`.
    Url,
    /// `host:port`, or `""`.
    HostPort,
    /// A label selector as `kubectl -l` takes it.
    Selector,
    /// A duration such as `30s`.
    Duration,
    /// A number, `half` or `off`.
    Removals,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A log level or a filter such as `info,daemonlet=debug`.
    Filter,
    /// A table of labels.
    Labels,
    /// A list of taints, `key=value:Effect`.
    Taints,
    /// A version such as `v1.36.2`, or `""`.
    Version,
    /// A list of namespaces.
    Namespaces,
    /// A loopback address and port, `unix://` and an absolute path, or `""`.
    Listen,
    /// A list of some of these words.
    Words(&'static [&'static str]),
    /// A list of capabilities, such as `NET_ADMIN`.
    Capabilities,
    /// A list of patterns.
    Patterns,
    /// `true` or `false`.
    Bool,
}

/// One key of the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The key, as code names it.
    pub id: Id,
    /// The section; empty at the top of the file.
    pub section: &'static str,
    /// The name within the section.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// The example file's value, in TOML: the default where it is the same on every host.
    pub example: &'static str,
    /// What it means, one line of the example file per line.
    pub doc: &'static str,
}

impl Key {
    /// The key with its section, as messages name it: `policy.namespaces`.
    pub fn path(&self) -> String {
        if self.section.is_empty() { self.name.to_owned() } else { format!("{}.{}", self.section, self.name) }
    }
}

const fn key(
    id: Id,
    section: &'static str,
    name: &'static str,
    kind: Kind,
    example: &'static str,
    doc: &'static str,
) -> Key {
    Key { id, section, name, kind, example, doc }
}
