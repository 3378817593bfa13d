//! The topics of `daemonlet help`: parts of the pages below `docs`.
//!
//! The build script's, too. Must not use anything of this crate.

/// Name, page and heading of each.
pub(crate) const TOPICS: &[(&str, &str, &str)] = &[
    ("annotations", "daemonsets.md", "Annotations and labels"),
    ("boot", "boot-and-outages.md", "A boot"),
    ("bounds", "limits.md", "Bounds"),
    ("changes", "daemonsets.md", "What a change does"),
    ("conditions", "coordinator.md", "Conditions"),
    ("configuration", "configuration.md", "Configuration"),
    ("exit-codes", "cli.md", "Exit codes"),
    ("first-install", "steering.md", "First installs"),
    ("full-node", "daemonsets.md", "On a full node"),
    ("halt", "bad-revision.md", "A halt"),
    ("held", "daemonsets.md", "What is held"),
    ("json", "json.md", "JSON"),
    ("limits", "limits.md", "What a static pod cannot be"),
    ("metrics", "operations.md", "Metrics"),
    ("modes", "daemonsets.md", "Modes"),
    ("night", "operations.md", "What to do at night"),
    ("node-conditions", "node-conditions.md", "Node conditions"),
    ("overlays", "overlays.md", "Overlays"),
    ("policy-keys", "security.md", "Policy: what may run here"),
    ("removal", "daemonsets.md", "What removes a daemon"),
    ("rollouts", "rollouts.md", "Rollouts"),
    ("runbook", "runbook.md", "Runbook"),
    ("sources", "daemonsets.md", "Where DaemonSets come from"),
    ("start-order", "start-order.md", "Start order"),
    ("startup-taint", "startup-taint.md", "Startup taint"),
    ("states", "operations.md", "States"),
    ("steps", "steering.md", "Steps"),
    ("upgrade", "removal.md", "Upgrade"),
    ("windows", "steering.md", "Windows"),
    ("words", "glossary.md", "Glossary"),
];
