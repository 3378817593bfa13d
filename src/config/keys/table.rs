//! The table of keys itself, in the order of the example file.

use super::Id;
use super::Key;
use super::Kind;
use super::key;

/// Every key, in the order of the example file; sections are contiguous.
pub const KEYS: &[Key] = &[
    key(
        Id::NodeName,
        "",
        "node-name",
        Kind::NodeName,
        r#""node-1.example""#,
        "Name of this node in the cluster. It is part of every pod's UID.
Default: the host name in lower case. `run --once` needs it written.",
    ),
    key(
        Id::Kubeconfig,
        "",
        "kubeconfig",
        Kind::PathOrEmpty,
        r#""/etc/daemonlet/kubeconfig""#,
        "How to reach the API server; \"\" is no API: DaemonSets come from folders alone.
Default: /etc/daemonlet/kubeconfig where that file exists when the agent starts, else \"\".",
    ),
    key(
        Id::ApiEndpoint,
        "",
        "api-endpoint",
        Kind::HostPort,
        r#""""#,
        "host:port of the API server as pods with hostNetwork are told it
(KUBERNETES_SERVICE_HOST and _PORT). Default, also for \"\": the kubeconfig's server.",
    ),
    key(
        Id::Folders,
        "",
        "folders",
        Kind::Paths,
        r#"["/usr/lib/daemonlet/daemonsets.d", "/run/daemonlet/daemonsets.d", "/etc/daemonlet/daemonsets.d"]"#,
        "Folders with DaemonSets and what they need. A later folder's file replaces an
earlier folder's file of the same name; an empty file masks it.",
    ),
    key(
        Id::Selector,
        "",
        "selector",
        Kind::Selector,
        r#""""#,
        "Label selector (as `kubectl -l` takes it) for DaemonSets of the API; \"\" is all.",
    ),
    key(
        Id::DefaultMode,
        "",
        "default-mode",
        Kind::Word(&["labelled", "static", "bootstrap"]),
        r#""labelled""#,
        "Mode of a DaemonSet that only the API has and that has no label daemonlet.dev/mode:
\"labelled\" leaves it alone, \"static\" runs it in place of the stock controller,
\"bootstrap\" until the stock controller's pod can run.",
    ),
    key(
        Id::ManifestDir,
        "",
        "manifest-dir",
        Kind::Path,
        r#""/etc/kubernetes/manifests""#,
        "The kubelet's staticPodPath. Default: as the kubelet's own configuration file has it
(key kubelet-config), else /etc/kubernetes/manifests.",
    ),
    key(
        Id::KubeletConfig,
        "",
        "kubelet-config",
        Kind::Path,
        r#""/var/lib/kubelet/config.yaml""#,
        "The kubelet's own configuration file; read for the defaults of other keys.",
    ),
    key(
        Id::KubeletRoot,
        "",
        "kubelet-root",
        Kind::Path,
        r#""/var/lib/kubelet""#,
        "The kubelet's root folder (--root-dir); volume data goes below it.",
    ),
    key(
        Id::KubeletEndpoint,
        "",
        "kubelet-endpoint",
        Kind::Url,
        r#""""#,
        "URL of the kubelet's API, such as \"https://127.0.0.1:10250\", asked what runs where
there is no container runtime to ask; \"\" is never.",
    ),
    key(
        Id::RuntimeEndpoint,
        "",
        "runtime-endpoint",
        Kind::Socket,
        r#""unix:///run/containerd/containerd.sock""#,
        "CRI socket of the container runtime; \"\" is none. Default: containerRuntimeEndpoint of
the kubelet's configuration file, else the socket of containerd, CRI-O or cri-dockerd
that exists when the agent starts, else the kubelet's own default, containerd's.",
    ),
    key(
        Id::StateDir,
        "",
        "state-dir",
        Kind::Path,
        r#""/var/lib/daemonlet""#,
        "Where the checkpoint is kept: what the node needs to start again without an API.",
    ),
    key(Id::RunDir, "", "run-dir", Kind::Path, r#""/run/daemonlet""#, "Where the agent's socket (agent.sock) lives."),
    key(
        Id::UpdateJitter,
        "",
        "update-jitter",
        Kind::Duration,
        r#""30s""#,
        "Longest delay before a changed template of the API replaces what runs. Each node
takes its own share of it. DaemonSets from folders never wait.",
    ),
    key(
        Id::MaxRemovals,
        "",
        "max-removals",
        Kind::Removals,
        r#""half""#,
        "When more DaemonSets than this are missing from a list, nothing is removed until a
second list says the same. \"half\": more than half and more than two; a number; \"off\".",
    ),
    key(
        Id::RemovalsDelay,
        "",
        "removals-delay",
        Kind::Duration,
        r#""30s""#,
        "How long after the first list the second one is asked for.",
    ),
    key(
        Id::OnceTimeout,
        "",
        "once-timeout",
        Kind::Duration,
        r#""10s""#,
        "How long `run --once` waits for the API before it goes on with what is on disk.",
    ),
    key(
        Id::BootGuardMax,
        "",
        "boot-guard-max",
        Kind::Duration,
        r#""5m""#,
        "How long after its start `daemonlet boot-guard` ends at the latest; see [boot].",
    ),
    key(
        Id::BootGuard,
        "boot",
        "guard",
        Kind::Bool,
        "true",
        "Whether, at boot and only while the API server's address neither answers nor refuses,
this node refuses in its stead (daemonlet-boot-guard.service). A kubelet mounts no
volume before one request to the API server has failed, which else takes up to 34 s.",
    ),
    key(
        Id::BootKubeconfig,
        "boot",
        "kubeconfig",
        Kind::Paths,
        r#"["/etc/kubernetes/kubelet.conf", "/etc/kubernetes/bootstrap-kubelet.conf", "/var/lib/kubelet/kubeconfig"]"#,
        "The kubelet's kubeconfig (--kubeconfig, --bootstrap-kubeconfig): the first of these that
exists says which address the boot guard looks at.",
    ),
    key(
        Id::NodeLabels,
        "node",
        "labels",
        Kind::Labels,
        "{}",
        "Labels of this node, for placement until the Node object has been seen. The kubelet's
own (kubernetes.io/hostname, /os, /arch) need not be given.",
    ),
    key(
        Id::NodeTaints,
        "node",
        "taints",
        Kind::Taints,
        "[]",
        "Taints of this node until the Node object has been seen, as \"key=value:Effect\".",
    ),
    key(
        Id::KubeletVersion,
        "node",
        "kubelet-version",
        Kind::Version,
        r#""""#,
        "Version of this node's kubelet, such as \"v1.36.2\", until the Node object has been seen.
Without it a DaemonSet that has a Secret's value in its environment waits: only a
kubelet of 1.35 or newer reads such a value from a file.",
    ),
    key(
        Id::PolicyNamespaces,
        "policy",
        "namespaces",
        Kind::Namespaces,
        r#"["kube-system"]"#,
        "Namespaces whose DaemonSets the API may run here; [\"*\"] is all. Folders are the node
owner's word and not bound by it.",
    ),
    key(
        Id::TrustedNamespaces,
        "policy",
        "trusted-namespaces",
        Kind::Namespaces,
        r#"["kube-system"]"#,
        "Namespaces whose DaemonSets may have the host: privileged, host-namespaces, host-paths
and capabilities do not bind them. [\"*\"] is all. Who may create a DaemonSet in such a
namespace is root on this node, as he is where the stock controller runs it.",
    ),
    key(
        Id::PolicyPrivileged,
        "policy",
        "privileged",
        Kind::Bool,
        "false",
        "Whether DaemonSets of other namespaces may have privileged containers.",
    ),
    key(
        Id::PolicyHostNamespaces,
        "policy",
        "host-namespaces",
        Kind::Words(&["network", "pid", "ipc"]),
        "[]",
        "Which of the host's namespaces they may share: \"network\", \"pid\", \"ipc\".",
    ),
    key(
        Id::PolicyHostPaths,
        "policy",
        "host-paths",
        Kind::Paths,
        "[]",
        "Which paths of the host they may mount, with all that is below; [\"/\"] is all.",
    ),
    key(
        Id::PolicyCapabilities,
        "policy",
        "capabilities",
        Kind::Capabilities,
        r#"["AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"]"#,
        "Which capabilities they may add; [\"*\"] is all. Default: what runtimes give by themselves.",
    ),
    key(
        Id::PolicyImages,
        "policy",
        "images",
        Kind::Patterns,
        r#"["*"]"#,
        "Which images DaemonSets of any namespace may run, written out as in
\"docker.io/library/busybox:1\"; * is any text.",
    ),
    key(
        Id::PodSecurityDefault,
        "policy",
        "pod-security-default",
        Kind::Word(&["privileged", "baseline", "restricted"]),
        r#""privileged""#,
        "PodSecurity level of a namespace without the label pod-security.kubernetes.io/enforce:
what the API server's own PodSecurity configuration has as its default.",
    ),
    key(
        Id::DefaultNodeSelector,
        "policy",
        "default-node-selector",
        Kind::Selector,
        r#""""#,
        "The cluster's default node selector, such as OpenShift's: where pods may run whose namespace
has no annotation scheduler.alpha.kubernetes.io/node-selector or openshift.io/node-selector.
An empty annotation switches it off for its namespace.",
    ),
    key(
        Id::PolicyAdmission,
        "policy",
        "admission",
        Kind::Word(&["off", "dry-run"]),
        r#""off""#,
        "Whether the API server is asked about the pod of each new instance of a DaemonSet that the
API has. \"dry-run\": the pod that the DaemonSet controller would create is sent with dryRun=All;
what webhooks and defaults make of it is what runs, and what is refused does not start. Without
an answer a first instance starts all the same. It needs packaging/k8s/rbac-dry-run.yaml.",
    ),
    key(
        Id::InlineSecretEnv,
        "policy",
        "inline-secret-env",
        Kind::Bool,
        "false",
        "Whether a Secret's value that no file can carry may stand in the manifest, where it
shows in the mirror pod. If not, a DaemonSet that needs one is refused.",
    ),
    key(
        Id::PullPolicy,
        "images",
        "pull-policy",
        Kind::Word(&["if-not-present", "as-written"]),
        r#""if-not-present""#,
        "How an image's policy Always is written. \"if-not-present\": the agent pulls it anew for each
new instance, and what is on the node starts again without a registry. \"as-written\": the
kubelet asks the registry at each start. As written, too, where runtime-endpoint is \"\".",
    ),
    key(
        Id::RequirePrepull,
        "images",
        "require-prepull",
        Kind::Bool,
        "false",
        "Whether an instance is replaced only when the agent could pull the new one's images. If
not, an image that the registry refuses for its credentials is left to the kubelet, which
may know others, after the old instance has ended.",
    ),
    key(
        Id::OnPullFailure,
        "images",
        "on-pull-failure",
        Kind::Word(&["keep", "go-on"]),
        r#""keep""#,
        "When an image of a new revision cannot be pulled: \"keep\" lets the old instance run, and
tries again; \"go-on\" replaces it all the same, as the stock controller does, so that the
new pod and its error show in the API.",
    ),
    key(
        Id::CredentialProviderConfig,
        "images",
        "credential-provider-config",
        Kind::PathOrEmpty,
        r#""""#,
        "What the kubelet has as --image-credential-provider-config: a file or a folder.",
    ),
    key(
        Id::CredentialProviderBinDir,
        "images",
        "credential-provider-bin-dir",
        Kind::PathOrEmpty,
        r#""""#,
        "What the kubelet has as --image-credential-provider-bin-dir.",
    ),
    key(
        Id::CheckpointSeal,
        "checkpoint",
        "seal",
        Kind::Word(&["none", "systemd-creds"]),
        r#""none""#,
        "How Secrets and tokens lie in the state folder: \"none\" is readable for root,
\"systemd-creds\" encrypted for this machine. Then their data is also removed from the
volumes when the machine shuts down, and rebuilt when it boots.",
    ),
    key(
        Id::CheckpointKey,
        "checkpoint",
        "key",
        Kind::Word(&["auto", "host", "tpm2", "host+tpm2"]),
        r#""auto""#,
        "With which of the machine's keys systemd-creds seals (its --with-key).",
    ),
    key(
        Id::CoordinatorKubeconfig,
        "coordinator",
        "kubeconfig",
        Kind::Credentials,
        r#""""#,
        "The coordinator's own identity. An agent that has it stands for the Lease and, when it
holds it, keeps history, status and rollouts of the cluster's DaemonSets. Give it to
the control-plane nodes, or run `daemonlet coordinator` as one Deployment: there
\"in-cluster\" is the pod's ServiceAccount (\"in-cluster:FOLDER\": token and ca.crt lie in FOLDER).",
    ),
    key(
        Id::LeaseNamespace,
        "coordinator",
        "lease-namespace",
        Kind::NodeName,
        r#""kube-system""#,
        "Namespace of the Lease.",
    ),
    key(Id::LeaseName, "coordinator", "lease-name", Kind::NodeName, r#""daemonlet-coordinator""#, "Name of the Lease."),
    key(
        Id::ExactRollouts,
        "coordinator",
        "exact-rollouts",
        Kind::Bool,
        "false",
        "Upstream's rollout rule to the letter: a node that is unreachable on the old revision
takes a slot of the budget, a replaced node gives its slot back as soon as it is available, a rollout
halts only where `daemonlet.dev/max-failed` is written, and a node is replaced although its images cannot
be pulled.",
    ),
    key(
        Id::ApproveNodes,
        "coordinator",
        "approve-nodes",
        Kind::Bool,
        "false",
        "Whether the coordinator approves the certificate requests of `daemonlet enroll`, for nodes
that exist: the kubelet's, the agent's own, and those with a bootstrap token of the group
system:bootstrappers:daemonlet. It needs packaging/k8s/approver-rbac.yaml.",
    ),
    key(
        Id::MetricsListen,
        "metrics",
        "listen",
        Kind::Listen,
        r#""""#,
        "Where /metrics (Prometheus text) and /healthz are served: a loopback address such as
\"127.0.0.1:9465\", which every process of this node can read, or a socket such as
\"unix:///run/daemonlet/metrics.sock\", for root alone. \"\" is nowhere.",
    ),
    key(
        Id::LogLevel,
        "log",
        "level",
        Kind::Filter,
        r#""info""#,
        "What is logged: error, warn, info, debug, trace, or a filter such as
\"info,daemonlet::node=debug\". The variable DAEMONLET_LOG takes precedence.",
    ),
    key(
        Id::LogTarget,
        "log",
        "target",
        Kind::Word(&["auto", "journal", "stderr"]),
        r#""auto""#,
        "Where logs go: \"journal\" (with structured fields), \"stderr\", or \"auto\": the journal
where standard error is connected to it.",
    ),
];
