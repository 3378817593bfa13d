//! The names of the labels, annotations and taints that are read and written.

/// The label whose value is a [`Mode`](super::Mode).
pub const MODE_LABEL: &str = "daemonlet.dev/mode";
/// The node selector key that keeps the DaemonSet controller away; ignored in placement.
pub const STATIC_GATE: &str = "daemonlet.dev/static";
/// Annotation: with the value `config`, a change of referenced data gives a new instance.
pub const RESTART_ON: &str = "daemonlet.dev/restart-on";
/// Annotation: how long a new instance may take until it is available (a Go duration; default 10m).
pub const PROGRESS_DEADLINE: &str = "daemonlet.dev/progress-deadline";
/// Annotation: `auto` returns to the last good revision once the progress deadline has passed; `off` (the default)
/// only reports the failure.
pub const ROLLBACK: &str = "daemonlet.dev/rollback";
/// Annotation: `true` pauses a rollout.
pub const PAUSED: &str = "daemonlet.dev/paused";
/// Annotation: how many nodes stay on the old revision, as a number or a percentage.
pub const PARTITION: &str = "daemonlet.dev/partition";
/// Annotation: label selector of the canary nodes, which are updated first.
pub const CANARY: &str = "daemonlet.dev/canary";
/// Annotation: how long all canary nodes must be available before the other nodes follow.
pub const CANARY_HOLD: &str = "daemonlet.dev/canary-hold";
/// Annotation: the steps of a rollout, such as `1, 10m; 5%, 30m; 100%`.
pub const STEPS: &str = "daemonlet.dev/steps";
/// Annotation: on how many nodes at a time a DaemonSet that was never released starts, as a number or a percentage.
pub const FIRST_INSTALL: &str = "daemonlet.dev/first-install";
/// Annotation: label of Nodes; the nodes of one of its values after the other are updated.
pub const TOPOLOGY_KEY: &str = "daemonlet.dev/topology-key";
/// Annotation: label of Nodes; those that are updated are spread over its values.
pub const SPREAD_KEY: &str = "daemonlet.dev/spread-key";
/// Annotation: when nodes are approved, such as `Mon-Fri 02:00-04:00 Europe/Berlin`.
pub const WINDOW: &str = "daemonlet.dev/window";
/// Annotation: what an approved replacement waits for on its node: `drain`, `boot` or `manual`.
pub const UPDATE: &str = "daemonlet.dev/update";
/// Annotation: the ControllerRevision and the step, or `canary`, whose hold was ended by hand.
pub const PROMOTED: &str = "daemonlet.dev/promoted";
/// Annotation: the ControllerRevision whose rollout was taken back by hand.
pub const ABORTED: &str = "daemonlet.dev/aborted";
/// Annotation: the hash of the revision that nodes on which it failed try again, and a mark that is another each time.
pub const RETRY: &str = "daemonlet.dev/retry";
/// Annotation: within which time nodes pull the images of a revision that waits for its approval (a Go duration;
/// default 10m), each at a moment of its own.
pub const PRE_PULL: &str = "daemonlet.dev/pre-pull";
/// Annotation: the daemons, as `namespace/name`, after which its first instance of a boot starts on a node.
pub const AFTER: &str = "daemonlet.dev/after";
/// Annotation: how long it waits for them at most (a Go duration; default 2m).
pub const AFTER_TIMEOUT: &str = "daemonlet.dev/after-timeout";
/// Annotation: `true` keeps workload away from a node by the taint [`STARTING_TAINT`] until the daemon is Ready there.
pub const STARTUP_TAINT: &str = "daemonlet.dev/startup-taint";
/// Annotation: how long a node carries the taint for it at most (a Go duration; default 10m).
pub const STARTUP_TAINT_TIMEOUT: &str = "daemonlet.dev/startup-taint-timeout";
/// Annotation: the name behind `daemonlet.dev/` of the Node condition that says whether the daemon is Ready on a node.
pub const NODE_CONDITION: &str = "daemonlet.dev/node-condition";
/// Key of the taint, with the effect `NoSchedule`, of a node whose daemons are not Ready yet.
pub const STARTING_TAINT: &str = "daemonlet.dev/starting";
/// Annotation: the ConfigMap of its namespace with the overlays: what its pods have otherwise on some nodes.
pub const OVERLAYS: &str = "daemonlet.dev/overlays";
/// Annotation on a rendered pod: the digest of the overlays that were applied.
pub const OVERLAYS_DIGEST: &str = "daemonlet.dev/overlays-digest";
/// Annotation: while so many of its nodes are unreachable, as a number or a percentage, nothing more is approved.
pub const MAX_UNREACHABLE: &str = "daemonlet.dev/max-unreachable";
/// Annotation: `none` ends that the DaemonSet changes only by a coordinator's approval.
pub const COORDINATION: &str = "daemonlet.dev/coordination";
/// Annotation: on how many nodes a revision may fail before the rollout halts.
pub const MAX_FAILED: &str = "daemonlet.dev/max-failed";
/// Annotation of our manifests: `namespace/name` of the DaemonSet. It marks the file as ours.
pub const OWNER_ANNOTATION: &str = "daemonlet.dev/daemonset";
/// Annotation of our manifests: the incarnation number.
pub const INCARNATION_ANNOTATION: &str = "daemonlet.dev/incarnation";
/// Annotation on a rendered pod: containers that the kubelet cannot start until their environment is there.
pub const WAITING_ANNOTATION: &str = "daemonlet.dev/waiting-containers";
/// Label of upstream's daemon pods: the hash of the revision.
pub const HASH_LABEL: &str = "controller-revision-hash";
/// Label of upstream's daemon pods: the template generation.
pub const GENERATION_LABEL: &str = "pod-template-generation";
/// Annotation with the generation of the template, which the API shows on every DaemonSet.
pub const GENERATION_ANNOTATION: &str = "deprecated.daemonset.template.generation";
/// How the names of the priority classes begin that only the cluster's own pods are to have.
pub const SYSTEM_CLASS: &str = "system-";
/// The priority classes of every cluster, each with its value. No other name may begin with [`SYSTEM_CLASS`].
pub const SYSTEM_CLASSES: [(&str, i64); 2] =
    [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];
