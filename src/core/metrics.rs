//! What the agent and the coordinator count and measure, in one table, and the text that Prometheus reads.
//!
//! Owns names, units, labels and meaning: the exposition, `docs/metrics.md` and the checks of
//! dashboard and rules are made from it. Must not measure anything. The names are a contract: they are only
//! added, and none changes its meaning.

use crate::core::named::named;

mod coordinator;
mod exposition;
mod text;

pub use coordinator::CoordinatorFacts;
pub use coordinator::CoordinatorWatch;
pub use coordinator::DaemonSetCondition;
pub use coordinator::coordinator;
pub use exposition::AgentCounters;
pub use exposition::Approvals;
pub use exposition::MetricFacts;
pub use exposition::ProcessFact;
pub use exposition::TokenFact;
pub use exposition::WatchFact;
pub use exposition::exposition;
pub use text::Exposition;

named! {
    /// What a metric is to Prometheus.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Type {
        /// Only grows while the process lives.
        Counter = "counter",
        /// Goes up and down.
        Gauge = "gauge",
        /// Counts by upper bounds.
        Histogram = "histogram",
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Metric {
    pub id: Id,
    /// Its name; it ends with the unit, by Prometheus' convention.
    pub name: &'static str,
    pub kind: Type,
    /// Its unit, for people.
    pub unit: &'static str,
    /// Its labels, in the order in which they are written. The agent's have `node`, too.
    pub labels: &'static [&'static str],
    /// What it means.
    pub help: &'static str,
}

/// Upper bounds of the histogram of passes, in seconds.
pub const PASS_BOUNDS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0];

const DAEMON: &[&str] = &["namespace", "daemonset"];
const ACCOUNT: &[&str] = &["namespace", "serviceaccount"];

/// Makes [`Id`] and [`METRICS`] of one declaration a metric: `Id: Type = (name, unit, labels);`, its help above it.
macro_rules! metrics {
    ($(#[doc = $help:literal] $id:ident: $type:ident = ($name:literal, $unit:literal, $labels:expr);)+) => {
        /// A metric, as code names it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Id {
            $(#[doc = $help] $id,)+
        }

        /// Every metric, in the order of the exposition.
        pub const METRICS: &[Metric] = &[$(Metric {
            id: Id::$id,
            name: $name,
            kind: Type::$type,
            unit: $unit,
            labels: $labels,
            help: $help.trim_ascii_start(),
        },)+];
    };
}

metrics! {
    /// The agent's version.
    BuildInfo: Gauge = ("daemonlet_build_info", "always 1", &["version"]);
    /// Passes over all daemons since the start.
    Passes: Counter = ("daemonlet_passes_total", "passes", &[]);
    /// How long passes took.
    PassDuration: Histogram = ("daemonlet_pass_duration_seconds", "seconds", &[]);
    /// When the last pass ended. There is at least one every 60 s.
    LastPass: Gauge = ("daemonlet_last_pass_timestamp_seconds", "seconds since 1970", &[]);
    /// Daemons of this node in each state.
    Daemons: Gauge = ("daemonlet_daemons", "daemons", &["state"]);
    /// State and revision of each daemon; in namespaces that are not trusted, only of those that have a pod.
    DaemonState: Gauge = ("daemonlet_daemon_state", "always 1", &["namespace", "daemonset", "state", "revision"]);
    /// Whether each daemon that has a pod here is ready. Missing without a pod, and while its readiness is unknown.
    DaemonReady: Gauge = ("daemonlet_daemon_ready", "0 or 1", DAEMON);
    /// Daemons that are refused, by the field or rule that refuses them.
    Refusals: Gauge = ("daemonlet_refused_daemons", "daemons", &["reason"]);
    /// Volumes of running instances that keep their last data because something that they need is missing or refused.
    VolumeRefreshBlocked: Gauge =
        ("daemonlet_volume_refresh_blocked", "always 1", &["namespace", "daemonset", "pod", "volume"]);
    /// Daemons whose first start in this boot waits for others, by `daemonlet.dev/after`.
    StartOrderWaiting: Gauge = ("daemonlet_start_order_waiting", "always 1", DAEMON);
    /// Daemons whose next instance waits for the coordinator's approval or for their rollout.
    RolloutWaiting: Gauge = ("daemonlet_rollout_waiting", "always 1", DAEMON);
    /// Daemons until whose readiness the node is to keep workload away, by the taint `daemonlet.dev/starting`.
    StartupTaintAwaited: Gauge = ("daemonlet_startup_taint_awaited", "always 1", DAEMON);
    /// Wanted revisions that did not become available on this node in time.
    FailedRevisions: Gauge =
        ("daemonlet_failed_revision", "always 1", &["namespace", "daemonset", "revision", "cause"]);
    /// Instances whose manifest was written.
    Starts: Counter = ("daemonlet_starts_total", "instances", &[]);
    /// Instances whose manifest was removed.
    Ends: Counter = ("daemonlet_ends_total", "instances", &[]);
    /// Instances whose data or manifest was brought up to date in place.
    Refreshes: Counter = ("daemonlet_refreshes_total", "instances", &[]);
    /// Writes to this node's disk that failed; each is retried.
    ApplyFailures: Counter = ("daemonlet_apply_failures_total", "failures", &[]);
    /// Problems that do not concern a single daemon, as `daemonlet status` lists them.
    Problems: Gauge = ("daemonlet_problems", "problems", &[]);
    /// Instances whose images the agent is pulling or looking for.
    Pulls: Gauge = ("daemonlet_image_pulls", "instances", &[]);
    /// Whether the API server answers and the agent's own watches work. Missing if no API server is configured.
    ApiConnected: Gauge = ("daemonlet_api_connected", "0 or 1", &[]);
    /// Whether each watch has its first list and works; those of the objects of one kind that daemons name are one.
    ApiWatchUp: Gauge = ("daemonlet_api_watch_up", "0 or 1", &["watch"]);
    /// Complete lists of each watch that the agent has whatever the daemons are.
    ApiWatchLists: Counter = ("daemonlet_api_watch_lists_total", "lists", &["watch"]);
    /// Connections to the API server.
    ApiConnections: Gauge = ("daemonlet_api_connections", "connections", &[]);
    /// Connections to the API server that were opened since the start.
    ApiConnectionsOpened: Counter = ("daemonlet_api_connections_opened_total", "connections", &[]);
    /// Requests to the API server since the start, each watch counted when it is opened.
    ApiRequests: Counter = ("daemonlet_api_requests_total", "requests", &[]);
    /// Requests to the API server that are open: watches, mostly.
    ApiStreams: Gauge = ("daemonlet_api_streams", "streams", &[]);
    /// When the token of each service account that daemons use expires; the first one, if there are several.
    TokenExpiry: Gauge = ("daemonlet_token_expiry_timestamp_seconds", "seconds since 1970", ACCOUNT);
    /// Tokens that are missing, or not renewed, because the last request for them failed.
    TokenFailures: Gauge = ("daemonlet_token_problems", "tokens", ACCOUNT);
    /// When the agent's own certificate expires. Missing if its kubeconfig has none that the agent renews.
    CertificateExpiry: Gauge = ("daemonlet_certificate_expiry_timestamp_seconds", "seconds since 1970", &[]);
    /// Replacements by `state`: `approved` (not claimed yet), `claimed` (under way), or `withheld` by the coordinator.
    Approvals: Gauge = ("daemonlet_approvals", "daemons", &["state"]);
    /// Whether this coordinator holds the Lease. While the sum over all is 0, no rollout goes on and each status is old.
    CoordinatorLeads: Gauge = ("daemonlet_coordinator_leads", "0 or 1", &["identity"]);
    /// Passes of this coordinator since the start.
    CoordinatorPasses: Counter = ("daemonlet_coordinator_passes_total", "passes", &[]);
    /// When the last pass of this coordinator ended. There is at least one every 30 s.
    CoordinatorLastPass: Gauge = ("daemonlet_coordinator_last_pass_timestamp_seconds", "seconds since 1970", &[]);
    /// Whether each watch of the coordinator that holds the Lease has its list and works; leases are the agents'.
    CoordinatorWatchUp: Gauge = ("daemonlet_coordinator_watch_up", "0 or 1", &["watch"]);
    /// When each watch last delivered an event. Namespaces may rest for days, NodeDaemons hardly while something runs.
    CoordinatorWatchLastEvent: Gauge =
        ("daemonlet_coordinator_watch_last_event_timestamp_seconds", "seconds since 1970", &["watch"]);
    /// Writes since the start by `outcome`: `written`, `outdated`, `refused`, `unanswered`, `not sent` (without the Lease).
    CoordinatorWrites: Counter = ("daemonlet_coordinator_writes_total", "writes", &["outcome"]);
    /// Nodes by their `agent`: it `reports`, is `dead`, or never reported (`absent`).
    CoordinatorNodes: Gauge = ("daemonlet_coordinator_nodes", "nodes", &["agent"]);
    /// The coordinator's conditions of each DaemonSet, by the coordinator that holds the Lease.
    DaemonSetConditions: Gauge =
        ("daemonlet_daemonset_condition", "always 1", &["namespace", "daemonset", "condition", "status", "reason"]);
    /// When the coordinator's client certificate expires; nothing renews it. Missing where it has a token instead.
    CoordinatorCertificateExpiry: Gauge =
        ("daemonlet_coordinator_certificate_expiry_timestamp_seconds", "seconds since 1970", &[]);
    // These help texts are client_golang's: node-exporter takes no family of its own with another one.
    /// Start time of the process since unix epoch in seconds.
    ProcessStart: Gauge = ("process_start_time_seconds", "seconds since 1970", &[]);
    /// Total user and system CPU time spent in seconds.
    ProcessCpu: Counter = ("process_cpu_seconds_total", "seconds", &[]);
    /// Resident memory size in bytes.
    ProcessMemory: Gauge = ("process_resident_memory_bytes", "bytes", &[]);
    /// Number of open file descriptors.
    ProcessFds: Gauge = ("process_open_fds", "files", &[]);
}

pub fn of(id: Id) -> &'static Metric {
    // A test holds that each has its entry.
    METRICS.iter().find(|metric| metric.id == id).unwrap_or(&METRICS[0])
}

/// A word of the program as a label's value.
pub fn label_value(word: &str) -> String {
    word.replace(' ', "_")
}

/// The refused field or rule, without what differs from one daemon to the next: a label must not have a thousand
/// values.
pub fn refusal(field: &str) -> String {
    if field.is_empty() || field.len() > 100 || field.contains(char::is_whitespace) {
        return "other".to_owned();
    }
    let mut depth = 0_u32;
    let plain = field.chars().filter(|c| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => return depth == 0,
        }
        false
    });
    plain.collect()
}

/// The table of all metrics for people, in Markdown.
pub fn table() -> String {
    let mut text = String::from("| name | type | unit | labels | meaning |\n| --- | --- | --- | --- | --- |\n");
    for metric in METRICS {
        let labels = metric.labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(" ");
        let (name, kind, unit, help) = (metric.name, metric.kind.as_str(), metric.unit, metric.help);
        text.push_str(&format!("| `{name}` | {kind} | {unit} | {labels} | {help} |\n"));
    }
    text
}

#[cfg(test)]
mod tests;
