//! The one table of keys: meaning, name, what it takes, default.
//!
//! [`Config`]'s fields, reading, `--print-config`, the example file, the manual page and the messages are made
//! from it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use toml::Value;
use toml::de::DeValue;

use crate::config::ConfigOrigin;
use crate::config::ConfigProblem;
use crate::config::KubeletFile;
use crate::config::Listen;
use crate::config::LogTarget;
use crate::config::kinds::*;
use crate::core::model::Mode;
use crate::core::model::Taint;
use crate::core::pass::MaxRemovals;
use crate::core::policy::Grant;
use crate::core::policy::Share;
use crate::core::policy::pod_security::PodSecurityLevel;
use crate::core::render::Endpoint;

/// One key of the configuration.
#[derive(Clone, Copy, Debug)]
pub struct ConfigKey {
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

impl ConfigKey {
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
            pub origins: BTreeMap<&'static str, ConfigOrigin>,
            /// What lists and tables of a file lost to those of a later file.
            pub replaced: Vec<ConfigProblem>,
            /// What became of the file of the key kubelet-config.
            pub kubelet_file: KubeletFile,
        }

        /// Every key, in the order of the example file; sections are contiguous.
        pub const KEYS: &[ConfigKey] = &[$(ConfigKey {
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
    /// Default: the host name in lower case. `run --once` needs this key.
    node_name: String = ("node-name", NODE_NAME, r#""node-1.example""#);
    /// How to reach the API server. "": no API; DaemonSets come from folders alone.
    /// Default: /etc/daemonlet/kubeconfig if that file exists when the agent starts or reloads, otherwise "".
    kubeconfig: Option<PathBuf> = ("kubeconfig", Optional(PATH), r#""/etc/daemonlet/kubeconfig""#);
    /// host:port of the API server for pods with hostNetwork (KUBERNETES_SERVICE_HOST and _PORT).
    /// "": the server in the kubeconfig, unless that has a path: then such pods wait for this key.
    api_endpoint: Option<Endpoint> = ("api-endpoint", Optional(HOST_PORT), r#""""#);
    /// Folders with DaemonSets and the objects that they need. A file in a later folder replaces a
    /// file of the same name in an earlier one. A link to /dev/null masks it.
    folders: Vec<PathBuf> = (
        "folders",
        List(PATHS),
        r#"["/usr/lib/daemonlet/daemonsets.d", "/run/daemonlet/daemonsets.d", "/etc/daemonlet/daemonsets.d"]"#
    );
    /// Label selector (as `kubectl -l` takes it) for DaemonSets of the API. "": all.
    selector: String = ("selector", SELECTOR, r#""""#);
    /// Mode of a DaemonSet that only the API has and that has no label daemonlet.dev/mode.
    /// "labelled": leave it alone. "static": run it in place of the DaemonSet controller.
    /// "bootstrap": run it until the DaemonSet controller's pod can run.
    default_mode: Option<Mode> = ("default-mode", MODES, r#""labelled""#);
    /// "auto": once this node has seen NodeDaemons in its cluster, or a DaemonSet has the condition
    /// Released, a changed template of the API waits for the coordinator's approval, whatever becomes
    /// of NodeDaemons. "none": each node follows by itself after update-jitter.
    coordination: bool = ("coordination", COORDINATION, r#""auto""#);
    /// The folder from which the kubelet reads static pods. Default: staticPodPath of the kubelet's
    /// configuration file (key kubelet-config), otherwise /etc/kubernetes/manifests.
    manifest_dir: PathBuf = ("manifest-dir", PATH, r#""/etc/kubernetes/manifests""#);
    /// The kubelet's own configuration file. Defaults of other keys are read from it.
    kubelet_config: PathBuf = ("kubelet-config", PATH, r#""/var/lib/kubelet/config.yaml""#);
    /// The kubelet's root folder (--root-dir). Volume data goes below it.
    kubelet_root: PathBuf = ("kubelet-root", PATH, r#""/var/lib/kubelet""#);
    /// URL of the kubelet's API, such as "https://127.0.0.1:10250". The agent asks it whether daemons
    /// are Ready while the API server does not answer, and what runs if it cannot ask a container
    /// runtime. "": never.
    kubelet_endpoint: Option<String> = ("kubelet-endpoint", Optional(URL), r#""""#);
    /// CRI socket of the container runtime. "": none. Default: containerRuntimeEndpoint of the
    /// kubelet's configuration file; otherwise the socket of containerd, CRI-O or cri-dockerd that
    /// exists; while none does, the agent looks for all three.
    runtime_endpoint: Option<PathBuf> = (
        "runtime-endpoint",
        Optional(SOCKET),
        r#""unix:///run/containerd/containerd.sock""#
    );
    /// The folder of the checkpoint: what the node needs to start again without an API server.
    state_dir: PathBuf = ("state-dir", PATH, r#""/var/lib/daemonlet""#);
    /// The folder of the agent's socket, agent.sock.
    run_dir: PathBuf = ("run-dir", PATH, r#""/run/daemonlet""#);
    /// Longest delay before an API DaemonSet is replaced on this node without an approval: a changed
    /// template that no coordinator approves (see coordination), and changed data. Each node waits its own share.
    /// DaemonSets from folders never wait.
    update_jitter: Duration = ("update-jitter", DURATION, r#""30s""#);
    /// If more DaemonSets than this are missing from a list, nothing is removed until a second list
    /// says the same. "half": more than half and more than two. A number, or "off".
    max_removals: MaxRemovals = ("max-removals", Removals, r#""half""#);
    /// Time between the first and the second list.
    removals_delay: Duration = ("removals-delay", DURATION, r#""30s""#);
    /// How long `run --once` waits for the API server before it uses what is on disk.
    once_timeout: Duration = ("once-timeout", DURATION, r#""10s""#);
    /// Longest time that `daemonlet boot-guard` runs; see [boot].
    boot_guard_max: Duration = ("boot-guard-max", DURATION, r#""5m""#);
    /// Whether the boot guard (daemonlet-boot-guard.service) acts. It refuses connections in the API
    /// server's stead, at boot and only while the API server's address neither answers nor refuses. A
    /// kubelet mounts no volume before one request to the API server has failed: up to 34 s otherwise.
    boot_guard: bool = ("boot.guard", Truth, "true");
    /// The kubelet's kubeconfig (--kubeconfig, --bootstrap-kubeconfig). The first of these files that
    /// exists names the address that the boot guard looks at.
    boot_kubeconfig: Vec<PathBuf> = (
        "boot.kubeconfig",
        List(PATHS),
        r#"["/etc/kubernetes/kubelet.conf", "/etc/kubernetes/bootstrap-kubelet.conf", "/var/lib/kubelet/kubeconfig"]"#
    );
    /// Labels of this node, for placement until the agent has seen the Node object. The kubelet's own
    /// (kubernetes.io/hostname, /os, /arch) need not be written.
    node_labels: BTreeMap<String, String> = ("node.labels", Labels, "{}");
    /// Taints of this node until the agent has seen the Node object, as "key=value:Effect".
    node_taints: Vec<Taint> = ("node.taints", List(TAINTS), "[]");
    /// Version of this node's kubelet, such as "v1.36.2", until the agent has seen the Node object.
    /// Without it, a DaemonSet with a Secret's value in its environment waits: only a kubelet of 1.35
    /// or later reads such a value from a file.
    kubelet_version: Option<String> = ("node.kubelet-version", Optional(VERSION), r#""""#);
    /// Whether the agent keeps workload away from this node until the DaemonSets with the annotation
    /// daemonlet.dev/startup-taint are Ready here, by the taint daemonlet.dev/starting:NoSchedule on
    /// the Node. Needs startup-taint.yaml of /usr/share/daemonlet/k8s.
    startup_taint: bool = ("node.startup-taint", Truth, "false");
    /// Whether the agent says in conditions of the Node, daemonlet.dev/NAME, whether the DaemonSets with
    /// the annotation daemonlet.dev/node-condition are Ready here. Needs node-conditions.yaml of
    /// /usr/share/daemonlet/k8s.
    node_conditions: bool = ("node.conditions", Truth, "false");
    /// Namespaces whose API DaemonSets may run here, with nothing that reaches the host unless they are
    /// among trusted-namespaces, too. ["*"]: all. DaemonSets from folders are not bound by [policy]:
    /// the folders belong to the node's owner.
    policy_namespaces: Vec<String> = ("policy.namespaces", List(NAMESPACES), r#"["kube-system"]"#);
    /// Those of them whose DaemonSets may use the host. ["*"]: all. Whoever may create a DaemonSet in
    /// such a namespace is root on this node, as with the DaemonSet controller.
    trusted_namespaces: Vec<String> = ("policy.trusted-namespaces", List(NAMESPACES), r#"["kube-system"]"#);
    /// The PodSecurity level that the pods of namespaces which are not trusted have to meet at least,
    /// whatever their namespaces' labels say.
    pod_security: PodSecurityLevel = (
        "policy.pod-security",
        Words(&[("baseline", PodSecurityLevel::Baseline), ("restricted", PodSecurityLevel::Restricted)]),
        r#""baseline""#
    );
    /// What a namespace that is not trusted may have of the host all the same, each by its name:
    /// [policy.grants."monitoring"]
    /// host-ports = ["9100", "9200-9210"]
    /// host-paths = ["/var/log"]     # with everything below, to read
    /// volume-types = ["nfs"]
    /// annotations = ["cdi.k8s.io/*"] # which the container runtime obeys
    grants: BTreeMap<String, Grant> = ("policy.grants", Grants, "{}");
    /// Whether pods of namespaces that are not trusted may write to the node's disk: a writable root
    /// file system, and emptyDir volumes that are not in memory or have no sizeLimit. The kubelet
    /// never evicts a static pod that fills the disk.
    local_storage: bool = ("policy.local-storage", Truth, "false");
    /// Whether the agent pulls images with Secrets of namespaces that are not trusted. Once such an
    /// image is on the node, every pod may use it.
    shared_pulls: bool = ("policy.shared-pulls", Truth, "false");
    /// The longest grace period of pods of namespaces that are not trusted: no request can end a static pod
    /// sooner, and until then it keeps its ports, its requests and its place.
    max_grace_period: Duration = ("policy.max-grace-period", DURATION, r#""10m""#);
    /// How much of the node's allocatable cpu, memory and pods all pods of namespaces that are not
    /// trusted may request together: a share such as "10%". Of memory their limits count.
    max_requests: Share = ("policy.max-requests", SHARE, r#""10%""#);
    /// Patterns for the images of DaemonSets of every namespace, compared with the full name, such as
    /// "registry.example/team/daemon:1". * is any text.
    policy_images: Vec<String> = ("policy.images", List(PATTERNS), r#"["*"]"#);
    /// PodSecurity level of a namespace without the label pod-security.kubernetes.io/enforce: the
    /// default of the API server's own PodSecurity configuration.
    pod_security_default: PodSecurityLevel = ("policy.pod-security-default", LEVELS, r#""privileged""#);
    /// The cluster's default node selector, such as OpenShift's. It counts for a namespace without the
    /// annotations scheduler.alpha.kubernetes.io/node-selector and openshift.io/node-selector. An
    /// empty annotation switches it off for its namespace.
    default_node_selector: String = ("policy.default-node-selector", SELECTOR, r#""""#);
    /// What runs here although this node's configuration no longer selects it is held until you let it
    /// go: by `daemonlet release`, or by "namespace/name" or "namespace/*" in this list. A full name
    /// also lets go what stays because its folder or file cannot be looked at.
    policy_release: Vec<String> = ("policy.release", List(RELEASES), "[]");
    /// Whether the agent asks the API server about the pod of each new instance of an API DaemonSet.
    /// "dry-run": it sends the pod that the DaemonSet controller would create, with dryRun=All. What
    /// webhooks and defaults make of it runs; what is refused does not start. Without an answer a
    /// first instance starts all the same. Needs rbac-dry-run.yaml of /usr/share/daemonlet/k8s.
    dry_run_admission: bool = ("policy.admission", Words(&[("off", false), ("dry-run", true)]), r#""off""#);
    /// Whether a Secret's value that no file can carry may stand in the manifest, where the mirror pod
    /// shows it. Otherwise a DaemonSet that needs such a value is refused.
    inline_secret_env: bool = ("policy.inline-secret-env", Truth, "false");
    /// How imagePullPolicy Always is written. "if-not-present": the agent pulls the image for each new
    /// instance, and a node boots without a registry. "as-written": the kubelet asks the registry at
    /// each start. If runtime-endpoint is "", policies stay as written.
    pull_as_written: bool = (
        "images.pull-policy",
        Words(&[("if-not-present", false), ("as-written", true)]),
        r#""if-not-present""#
    );
    /// true: replace an instance only after the agent has pulled the new images. false: if the registry
    /// refuses the agent's credentials, end the old instance and let the kubelet try with its own.
    require_prepull: bool = ("images.require-prepull", Truth, "false");
    /// If an image of a new revision cannot be pulled: "keep" the old instance and try again, or
    /// "go-on" and replace it, as the DaemonSet controller does: the API then shows the new pod and
    /// its error.
    replace_unpulled: bool = ("images.on-pull-failure", Words(&[("keep", false), ("go-on", true)]), r#""keep""#);
    /// The value of the kubelet's --image-credential-provider-config: a file or a folder.
    credential_provider_config: Option<PathBuf> = ("images.credential-provider-config", Optional(PATH), r#""""#);
    /// The value of the kubelet's --image-credential-provider-bin-dir.
    credential_provider_bin_dir: Option<PathBuf> = ("images.credential-provider-bin-dir", Optional(PATH), r#""""#);
    /// The life of the ServiceAccount token in the volume that every pod gets if its template has none:
    /// "600s" to "8760h". The API server may give less, and no longer one than admission-policies.yaml
    /// allows. A token is renewed when 75 to 80 % of its life have passed, and every 24 hours.
    default_token_expiration: Duration = ("tokens.default-expiration", TOKEN_LIFE, r#""24h""#);
    /// How Secrets and tokens lie in the state folder. "none": readable for root. "systemd-creds":
    /// encrypted for this machine. Then their data is also removed from the volumes when the machine
    /// shuts down, and rebuilt when it boots.
    seal: bool = ("checkpoint.seal", Words(&[("none", false), ("systemd-creds", true)]), r#""none""#);
    /// The key of the machine that systemd-creds seals with (its --with-key).
    seal_key: &'static str = (
        "checkpoint.key",
        Words(&[("auto", "auto"), ("host", "host"), ("tpm2", "tpm2"), ("host+tpm2", "host+tpm2")]),
        r#""auto""#
    );
    /// The coordinator's own identity. An agent that has it competes for the Lease. The holder of the
    /// Lease keeps history, status and rollouts of the cluster's DaemonSets. Give it to the
    /// control-plane nodes, or run `daemonlet coordinator` as one Deployment: there "in-cluster" is
    /// the pod's ServiceAccount ("in-cluster:FOLDER": token and ca.crt are in FOLDER).
    coordinator_kubeconfig: Option<PathBuf> = ("coordinator.kubeconfig", Optional(CREDENTIALS), r#""""#);
    /// Namespace of the Lease.
    lease_namespace: String = ("coordinator.lease-namespace", NODE_NAME, r#""kube-system""#);
    /// Name of the Lease.
    lease_name: String = ("coordinator.lease-name", NODE_NAME, r#""daemonlet-coordinator""#);
    /// Upstream's rollout rule to the letter: a node that is unreachable on the old revision takes a
    /// slot of the budget, a replaced node gives its slot back as soon as it is available, a rollout
    /// halts only if `daemonlet.dev/max-failed` is written, and a node is replaced although its images
    /// cannot be pulled.
    exact_rollouts: bool = ("coordinator.exact-rollouts", Truth, "false");
    /// Whether the coordinator approves the certificate requests of `daemonlet enroll` for Nodes that
    /// exist: requests of their kubelets, of their agents, and with a bootstrap token of the group
    /// system:bootstrappers:daemonlet. Needs approver-rbac.yaml of /usr/share/daemonlet/k8s.
    approve_nodes: bool = ("coordinator.approve-nodes", Truth, "false");
    /// Where the coordinator serves its own /metrics and /healthz: as `metrics.listen`, at another address. "": nowhere.
    coordinator_metrics_listen: Option<Listen> = ("coordinator.metrics-listen", Optional(LISTEN), r#""""#);
    /// Where /metrics (Prometheus text) and /healthz are served: a loopback address such as
    /// "127.0.0.1:9465", which every process of this node can read, or a socket such as
    /// "unix:///run/daemonlet/metrics.sock", for root alone. "": nowhere.
    metrics_listen: Option<Listen> = ("metrics.listen", Optional(LISTEN), r#""""#);
    /// What is logged: error, warn, info, debug, trace, or a filter such as
    /// "info,daemonlet::node=debug". The variable DAEMONLET_LOG takes precedence.
    log_level: String = ("log.level", FILTER, r#""info""#);
    /// Where logs go: "journal" (with structured fields), "stderr", or "auto": the journal if standard
    /// error is connected to it.
    log_target: LogTarget = ("log.target", LOG_TARGETS, r#""auto""#);
}
