//! What the agent counts and measures, in one table, and the text that Prometheus reads.
//!
//! Owns names, units, labels and meaning: the exposition, `packaging/monitoring/METRICS.md` and the checks of
//! dashboard and rules are made from it. Must not measure anything. The names are a contract: they are only
//! added, and none changes its meaning.

mod exposition;
mod text;

pub use exposition::Approvals;
pub use exposition::Counts;
pub use exposition::MetricFacts;
pub use exposition::ProcessFact;
pub use exposition::TokenFact;
pub use exposition::WatchFact;
pub use exposition::exposition;
pub use text::Exposition;

/// What a metric is to Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Only grows while the process lives.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts by upper bounds.
    Histogram,
}

impl Type {
    /// As the exposition has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A metric, as code names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Id {
    BuildInfo,
    Passes,
    PassDuration,
    LastPass,
    Daemons,
    DaemonState,
    DaemonReady,
    Refusals,
    FailedRevisions,
    Starts,
    Ends,
    Refreshes,
    ApplyFailures,
    Problems,
    Pulls,
    ApiConnected,
    ApiWatchUp,
    ApiWatchLists,
    ApiConnections,
    ApiConnectionsOpened,
    ApiRequests,
    ApiStreams,
    TokenExpiry,
    TokenFailures,
    Approvals,
    ProcessStart,
    ProcessCpu,
    ProcessMemory,
    ProcessFds,
}

/// One metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// The metric, as code names it.
    pub id: Id,
    /// Its name; the unit is its ending, as Prometheus wants it.
    pub name: &'static str,
    /// What it is.
    pub kind: Type,
    /// Its unit, for people.
    pub unit: &'static str,
    /// Its labels, in the order in which they are written.
    pub labels: &'static [&'static str],
    /// What it means.
    pub help: &'static str,
}

const fn metric(
    id: Id,
    name: &'static str,
    kind: Type,
    unit: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    Metric { id, name, kind, unit, labels, help }
}

/// Upper bounds of the histogram of passes, in seconds.
pub const PASS_BOUNDS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0];

const DAEMON: &[&str] = &["namespace", "daemonset"];

/// Every metric, in the order of the exposition.
pub const METRICS: &[Metric] = &[
    metric(
        Id::BuildInfo,
        "daemonlet_build_info",
        Type::Gauge,
        "always 1",
        &["version", "node"],
        "Version and node name.",
    ),
    metric(
        Id::Passes,
        "daemonlet_passes_total",
        Type::Counter,
        "passes",
        &[],
        "Passes over all daemons since the start.",
    ),
    metric(
        Id::PassDuration,
        "daemonlet_pass_duration_seconds",
        Type::Histogram,
        "seconds",
        &[],
        "How long passes took.",
    ),
    metric(
        Id::LastPass,
        "daemonlet_last_pass_timestamp_seconds",
        Type::Gauge,
        "seconds since 1970",
        &[],
        "When the last pass ended. One is made every 60 s at least.",
    ),
    metric(Id::Daemons, "daemonlet_daemons", Type::Gauge, "daemons", &["state"], "Daemons of this node in each state."),
    metric(
        Id::DaemonState,
        "daemonlet_daemon_state",
        Type::Gauge,
        "always 1",
        &["namespace", "daemonset", "state", "revision"],
        "The state of each daemon and the revision that runs or is to run.",
    ),
    metric(
        Id::DaemonReady,
        "daemonlet_daemon_ready",
        Type::Gauge,
        "0 or 1",
        DAEMON,
        "Whether each daemon is ready. Left out where nobody can say.",
    ),
    metric(
        Id::Refusals,
        "daemonlet_refused_daemons",
        Type::Gauge,
        "daemons",
        &["reason"],
        "Daemons that are refused, by the field or rule that refuses them.",
    ),
    metric(
        Id::FailedRevisions,
        "daemonlet_failed_revision",
        Type::Gauge,
        "always 1",
        &["namespace", "daemonset", "revision", "cause"],
        "Wanted revisions that did not become available on this node in time.",
    ),
    metric(
        Id::Starts,
        "daemonlet_starts_total",
        Type::Counter,
        "instances",
        &[],
        "Instances whose manifest was written.",
    ),
    metric(Id::Ends, "daemonlet_ends_total", Type::Counter, "instances", &[], "Instances whose manifest was removed."),
    metric(
        Id::Refreshes,
        "daemonlet_refreshes_total",
        Type::Counter,
        "instances",
        &[],
        "Instances whose data or manifest was brought up to date in place.",
    ),
    metric(
        Id::ApplyFailures,
        "daemonlet_apply_failures_total",
        Type::Counter,
        "failures",
        &[],
        "Changes to this node's disk that failed; each is tried again.",
    ),
    metric(
        Id::Problems,
        "daemonlet_problems",
        Type::Gauge,
        "problems",
        &[],
        "What is wrong beside single daemons, as `daemonlet status` lists it.",
    ),
    metric(
        Id::Pulls,
        "daemonlet_image_pulls",
        Type::Gauge,
        "instances",
        &[],
        "Instances whose images the agent is pulling or looking for.",
    ),
    metric(
        Id::ApiConnected,
        "daemonlet_api_connected",
        Type::Gauge,
        "0 or 1",
        &[],
        "Whether the API server answers and every watch works. Left out where none is configured.",
    ),
    metric(
        Id::ApiWatchUp,
        "daemonlet_api_watch_up",
        Type::Gauge,
        "0 or 1",
        &["watch"],
        "Whether each watch has been listed and works.",
    ),
    metric(
        Id::ApiWatchLists,
        "daemonlet_api_watch_lists_total",
        Type::Counter,
        "lists",
        &["watch"],
        "Complete lists of each watch since it was opened.",
    ),
    metric(
        Id::ApiConnections,
        "daemonlet_api_connections",
        Type::Gauge,
        "connections",
        &[],
        "Connections to the API server.",
    ),
    metric(
        Id::ApiConnectionsOpened,
        "daemonlet_api_connections_opened_total",
        Type::Counter,
        "connections",
        &[],
        "Connections to the API server that were opened since the start.",
    ),
    metric(
        Id::ApiRequests,
        "daemonlet_api_requests_total",
        Type::Counter,
        "requests",
        &[],
        "Requests to the API server since the start, each watch counted when it is opened.",
    ),
    metric(
        Id::ApiStreams,
        "daemonlet_api_streams",
        Type::Gauge,
        "streams",
        &[],
        "Requests to the API server that are open: watches, mostly.",
    ),
    metric(
        Id::TokenExpiry,
        "daemonlet_token_expiry_timestamp_seconds",
        Type::Gauge,
        "seconds since 1970",
        &["namespace", "serviceaccount"],
        "When the token of each service account that daemons use expires; the first one, if there are several.",
    ),
    metric(
        Id::TokenFailures,
        "daemonlet_token_problems",
        Type::Gauge,
        "tokens",
        &["namespace", "serviceaccount"],
        "Tokens that are missing, or not renewed, because the last request for them failed.",
    ),
    metric(
        Id::Approvals,
        "daemonlet_approvals",
        Type::Gauge,
        "daemons",
        &["state"],
        "Replacements: approved and not claimed yet, claimed (under way), or withheld by the coordinator.",
    ),
    metric(
        Id::ProcessStart,
        "process_start_time_seconds",
        Type::Gauge,
        "seconds since 1970",
        &[],
        "When the agent started.",
    ),
    metric(Id::ProcessCpu, "process_cpu_seconds_total", Type::Counter, "seconds", &[], "CPU time of the agent."),
    metric(
        Id::ProcessMemory,
        "process_resident_memory_bytes",
        Type::Gauge,
        "bytes",
        &[],
        "Resident memory of the agent.",
    ),
    metric(Id::ProcessFds, "process_open_fds", Type::Gauge, "files", &[], "Files that the agent has open."),
];

/// The metric `id`.
pub fn of(id: Id) -> &'static Metric {
    // A test holds that each has its entry.
    METRICS.iter().find(|metric| metric.id == id).unwrap_or(&METRICS[0])
}

/// The field or rule that a refusal begins with, without what differs from one daemon to the next: a label
/// must not have a thousand values.
pub fn refusal(reason: &str) -> String {
    let (field, _) = reason.split_once(": ").unwrap_or_default();
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
