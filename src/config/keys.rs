//! The one table of keys: meaning, name, what it takes, default.
//!
//! [`Config`]'s fields, reading, `--print-config`, the example file, the manual page and the messages are made
//! from it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use toml::Value;
use toml::de::DeValue;

use crate::config::Listen;
use crate::config::LogTarget;
use crate::config::Origin;
use crate::config::kinds::*;
use crate::core::model::Mode;
use crate::core::model::Taint;
use crate::core::pass::MaxRemovals;
use crate::core::policy::HostNamespace;
use crate::core::policy::pod_security::Level;
use crate::core::render::Endpoint;

/// One key of the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The key with its section, as messages name it: `policy.namespaces`.
    pub path: &'static str,
    /// The example file's value, in TOML: the default where it is the same on every host.
    pub example: &'static str,
    /// What it takes, for people.
    pub takes: fn() -> String,
    doc: &'static [&'static str],
    /// Puts a value into the configuration, or says why it cannot be one.
    pub(super) set: fn(&mut Config, &DeValue<'_>) -> Result<(), String>,
    /// The value as the file would have it.
    pub(super) get: fn(&Config) -> Value,
}

impl Key {
    /// The section; empty at the top of the file.
    pub fn section(&self) -> &'static str {
        self.path.split_once('.').map_or("", |(section, _)| section)
    }

    /// The name within the section.
    pub fn name(&self) -> &'static str {
        self.path.split_once('.').map_or(self.path, |(_, name)| name)
    }

    /// What it means, one line of the example file per line.
    pub fn doc(&self) -> impl Iterator<Item = &'static str> {
        self.doc.iter().map(|line| line.strip_prefix(' ').unwrap_or(line))
    }
}

/// Makes [`Config`] and [`KEYS`] of one declaration a key: `field: Type = (key, kind, example);`.
macro_rules! keys {
    ($($(#[doc = $doc:literal])+ $field:ident: $type:ty = ($path:literal, $kind:expr, $example:literal);)+) => {
        /// The resolved configuration: every key has a value.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Config {
            $($(#[doc = $doc])+ pub $field: $type,)+
            /// Where the value of each key came from.
            pub origins: BTreeMap<&'static str, Origin>,
        }

        /// Every key, in the order of the example file; sections are contiguous.
        pub const KEYS: &[Key] = &[$(Key {
            path: $path,
            example: $example,
            takes: || $kind.takes(),
            doc: &[$($doc),+],
            set: |config, value| $kind.read(value).map(|value| config.$field = value),
            get: |config| $kind.print(&config.$field),
        },)+];
    };
}

keys! {
    /// Name of this node in the cluster. It is part of every pod's UID.
    /// Default: the host name in lower case. `run --once` needs it written.
    node_name: String = ("node-name", NODE_NAME, r#""node-1.example""#);
    /// How to reach the API server; "" is no API: DaemonSets come from folders alone.
    /// Default: /etc/daemonlet/kubeconfig where that file exists when the agent starts, else "".
    kubeconfig: Option<PathBuf> = ("kubeconfig", Optional(PATH), r#""/etc/daemonlet/kubeconfig""#);
    /// host:port of the API server as pods with hostNetwork are told it
    /// (KUBERNETES_SERVICE_HOST and _PORT). Default, also for "": the kubeconfig's server.
    api_endpoint: Option<Endpoint> = ("api-endpoint", Optional(HOST_PORT), r#""""#);
    /// Folders with DaemonSets and what they need. A later folder's file replaces an
    /// earlier folder's file of the same name; an empty file masks it.
    folders: Vec<PathBuf> = (
        "folders",
        List(PATHS),
        r#"["/usr/lib/daemonlet/daemonsets.d", "/run/daemonlet/daemonsets.d", "/etc/daemonlet/daemonsets.d"]"#
    );
    /// Label selector (as `kubectl -l` takes it) for DaemonSets of the API; "" is all.
    selector: String = ("selector", SELECTOR, r#""""#);
    /// Mode of a DaemonSet that only the API has and that has no label daemonlet.dev/mode:
    /// "labelled" leaves it alone, "static" runs it in place of the stock controller,
    /// "bootstrap" until the stock controller's pod can run.
    default_mode: Option<Mode> = ("default-mode", MODES, r#""labelled""#);
    /// The kubelet's staticPodPath. Default: as the kubelet's own configuration file has it
    /// (key kubelet-config), else /etc/kubernetes/manifests.
    manifest_dir: PathBuf = ("manifest-dir", PATH, r#""/etc/kubernetes/manifests""#);
    /// The kubelet's own configuration file; read for the defaults of other keys.
    kubelet_config: PathBuf = ("kubelet-config", PATH, r#""/var/lib/kubelet/config.yaml""#);
    /// The kubelet's root folder (--root-dir); volume data goes below it.
    kubelet_root: PathBuf = ("kubelet-root", PATH, r#""/var/lib/kubelet""#);
    /// URL of the kubelet's API, such as "https://127.0.0.1:10250", asked what runs where
    /// there is no container runtime to ask; "" is never.
    kubelet_endpoint: Option<String> = ("kubelet-endpoint", Optional(URL), r#""""#);
    /// CRI socket of the container runtime; "" is none. Default: containerRuntimeEndpoint of
    /// the kubelet's configuration file, else the socket of containerd, CRI-O or cri-dockerd
    /// that exists when the agent starts, else the kubelet's own default, containerd's.
    runtime_endpoint: Option<PathBuf> = (
        "runtime-endpoint",
        Optional(SOCKET),
        r#""unix:///run/containerd/containerd.sock""#
    );
    /// Where the checkpoint is kept: what the node needs to start again without an API.
    state_dir: PathBuf = ("state-dir", PATH, r#""/var/lib/daemonlet""#);
    /// Where the agent's socket (agent.sock) lives.
    run_dir: PathBuf = ("run-dir", PATH, r#""/run/daemonlet""#);
    /// Longest delay before a changed template of the API replaces what runs. Each node
    /// takes its own share of it. DaemonSets from folders never wait.
    update_jitter: Duration = ("update-jitter", DURATION, r#""30s""#);
    /// When more DaemonSets than this are missing from a list, nothing is removed until a
    /// second list says the same. "half": more than half and more than two; a number; "off".
    max_removals: MaxRemovals = ("max-removals", Removals, r#""half""#);
    /// How long after the first list the second one is asked for.
    removals_delay: Duration = ("removals-delay", DURATION, r#""30s""#);
    /// How long `run --once` waits for the API before it goes on with what is on disk.
    once_timeout: Duration = ("once-timeout", DURATION, r#""10s""#);
    /// How long after its start `daemonlet boot-guard` ends at the latest; see [boot].
    boot_guard_max: Duration = ("boot-guard-max", DURATION, r#""5m""#);
    /// Whether, at boot and only while the API server's address neither answers nor refuses,
    /// this node refuses in its stead (daemonlet-boot-guard.service). A kubelet mounts no
    /// volume before one request to the API server has failed, which else takes up to 34 s.
    boot_guard: bool = ("boot.guard", Truth, "true");
    /// The kubelet's kubeconfig (--kubeconfig, --bootstrap-kubeconfig): the first of these that
    /// exists says which address the boot guard looks at.
    boot_kubeconfig: Vec<PathBuf> = (
        "boot.kubeconfig",
        List(PATHS),
        r#"["/etc/kubernetes/kubelet.conf", "/etc/kubernetes/bootstrap-kubelet.conf", "/var/lib/kubelet/kubeconfig"]"#
    );
    /// Labels of this node, for placement until the Node object has been seen. The kubelet's
    /// own (kubernetes.io/hostname, /os, /arch) need not be given.
    node_labels: BTreeMap<String, String> = ("node.labels", Labels, "{}");
    /// Taints of this node until the Node object has been seen, as "key=value:Effect".
    node_taints: Vec<Taint> = ("node.taints", List(TAINTS), "[]");
    /// Version of this node's kubelet, such as "v1.36.2", until the Node object has been seen.
    /// Without it a DaemonSet that has a Secret's value in its environment waits: only a
    /// kubelet of 1.35 or newer reads such a value from a file.
    kubelet_version: Option<String> = ("node.kubelet-version", Optional(VERSION), r#""""#);
    /// Namespaces whose DaemonSets the API may run here; ["*"] is all. Folders are the node
    /// owner's word and not bound by it.
    policy_namespaces: Vec<String> = ("policy.namespaces", List(NAMESPACES), r#"["kube-system"]"#);
    /// Namespaces whose DaemonSets may have the host: privileged, host-namespaces, host-paths
    /// and capabilities do not bind them. ["*"] is all. Who may create a DaemonSet in such a
    /// namespace is root on this node, as he is where the stock controller runs it.
    trusted_namespaces: Vec<String> = ("policy.trusted-namespaces", List(NAMESPACES), r#"["kube-system"]"#);
    /// Whether DaemonSets of other namespaces may have privileged containers.
    policy_privileged: bool = ("policy.privileged", Truth, "false");
    /// Which of the host's namespaces they may share: "network", "pid", "ipc".
    policy_host_namespaces: Vec<HostNamespace> = ("policy.host-namespaces", List(HOST_NAMESPACES), "[]");
    /// Which paths of the host they may mount, with all that is below; ["/"] is all.
    policy_host_paths: Vec<String> = ("policy.host-paths", List(HOST_PATHS), "[]");
    /// Which capabilities they may add; ["*"] is all. Default: what runtimes give by themselves.
    policy_capabilities: Vec<String> = (
        "policy.capabilities",
        List(CAPABILITIES),
        r#"["AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"]"#
    );
    /// Which images DaemonSets of any namespace may run, written out as in
    /// "docker.io/library/busybox:1"; * is any text.
    policy_images: Vec<String> = ("policy.images", List(PATTERNS), r#"["*"]"#);
    /// PodSecurity level of a namespace without the label pod-security.kubernetes.io/enforce:
    /// what the API server's own PodSecurity configuration has as its default.
    pod_security_default: Level = ("policy.pod-security-default", LEVELS, r#""privileged""#);
    /// The cluster's default node selector, such as OpenShift's: where pods may run whose namespace
    /// has no annotation scheduler.alpha.kubernetes.io/node-selector or openshift.io/node-selector.
    /// An empty annotation switches it off for its namespace.
    default_node_selector: String = ("policy.default-node-selector", SELECTOR, r#""""#);
    /// Whether the API server is asked about the pod of each new instance of a DaemonSet that the
    /// API has. "dry-run": the pod that the DaemonSet controller would create is sent with dryRun=All;
    /// what webhooks and defaults make of it is what runs, and what is refused does not start. Without
    /// an answer a first instance starts all the same. It needs rbac-dry-run.yaml of /usr/share/daemonlet/k8s.
    dry_run_admission: bool = ("policy.admission", Words(&[("off", false), ("dry-run", true)]), r#""off""#);
    /// Whether a Secret's value that no file can carry may stand in the manifest, where it
    /// shows in the mirror pod. If not, a DaemonSet that needs one is refused.
    inline_secret_env: bool = ("policy.inline-secret-env", Truth, "false");
    /// How an image's policy Always is written. "if-not-present": the agent pulls it anew for each
    /// new instance, and what is on the node starts again without a registry. "as-written": the
    /// kubelet asks the registry at each start. As written, too, where runtime-endpoint is "".
    pull_as_written: bool = (
        "images.pull-policy",
        Words(&[("if-not-present", false), ("as-written", true)]),
        r#""if-not-present""#
    );
    /// Whether an instance is replaced only when the agent could pull the new one's images. If
    /// not, an image that the registry refuses for its credentials is left to the kubelet, which
    /// may know others, after the old instance has ended.
    require_prepull: bool = ("images.require-prepull", Truth, "false");
    /// When an image of a new revision cannot be pulled: "keep" lets the old instance run, and
    /// tries again; "go-on" replaces it all the same, as the stock controller does, so that the
    /// new pod and its error show in the API.
    replace_unpulled: bool = ("images.on-pull-failure", Words(&[("keep", false), ("go-on", true)]), r#""keep""#);
    /// What the kubelet has as --image-credential-provider-config: a file or a folder.
    credential_provider_config: Option<PathBuf> = ("images.credential-provider-config", Optional(PATH), r#""""#);
    /// What the kubelet has as --image-credential-provider-bin-dir.
    credential_provider_bin_dir: Option<PathBuf> = ("images.credential-provider-bin-dir", Optional(PATH), r#""""#);
    /// How Secrets and tokens lie in the state folder: "none" is readable for root,
    /// "systemd-creds" encrypted for this machine. Then their data is also removed from the
    /// volumes when the machine shuts down, and rebuilt when it boots.
    seal: bool = ("checkpoint.seal", Words(&[("none", false), ("systemd-creds", true)]), r#""none""#);
    /// With which of the machine's keys systemd-creds seals (its --with-key).
    seal_key: &'static str = (
        "checkpoint.key",
        Words(&[("auto", "auto"), ("host", "host"), ("tpm2", "tpm2"), ("host+tpm2", "host+tpm2")]),
        r#""auto""#
    );
    /// The coordinator's own identity. An agent that has it stands for the Lease and, when it
    /// holds it, keeps history, status and rollouts of the cluster's DaemonSets. Give it to
    /// the control-plane nodes, or run `daemonlet coordinator` as one Deployment: there
    /// "in-cluster" is the pod's ServiceAccount ("in-cluster:FOLDER": token and ca.crt lie in FOLDER).
    coordinator_kubeconfig: Option<PathBuf> = ("coordinator.kubeconfig", Optional(CREDENTIALS), r#""""#);
    /// Namespace of the Lease.
    lease_namespace: String = ("coordinator.lease-namespace", NODE_NAME, r#""kube-system""#);
    /// Name of the Lease.
    lease_name: String = ("coordinator.lease-name", NODE_NAME, r#""daemonlet-coordinator""#);
    /// Upstream's rollout rule to the letter: a node that is unreachable on the old revision
    /// takes a slot of the budget, a replaced node gives its slot back as soon as it is available, a rollout
    /// halts only where `daemonlet.dev/max-failed` is written, and a node is replaced although its images cannot
    /// be pulled.
    exact_rollouts: bool = ("coordinator.exact-rollouts", Truth, "false");
    /// Whether the coordinator approves the certificate requests of `daemonlet enroll`, for nodes
    /// that exist: the kubelet's, the agent's own, and those with a bootstrap token of the group
    /// system:bootstrappers:daemonlet. It needs approver-rbac.yaml of /usr/share/daemonlet/k8s.
    approve_nodes: bool = ("coordinator.approve-nodes", Truth, "false");
    /// Where /metrics (Prometheus text) and /healthz are served: a loopback address such as
    /// "127.0.0.1:9465", which every process of this node can read, or a socket such as
    /// "unix:///run/daemonlet/metrics.sock", for root alone. "" is nowhere.
    metrics_listen: Option<Listen> = ("metrics.listen", Optional(LISTEN), r#""""#);
    /// What is logged: error, warn, info, debug, trace, or a filter such as
    /// "info,daemonlet::node=debug". The variable DAEMONLET_LOG takes precedence.
    log_level: String = ("log.level", FILTER, r#""info""#);
    /// Where logs go: "journal" (with structured fields), "stderr", or "auto": the journal
    /// where standard error is connected to it.
    log_target: LogTarget = ("log.target", LOG_TARGETS, r#""auto""#);
}
