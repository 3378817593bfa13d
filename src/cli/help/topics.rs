//! The topics of `daemonlet help`: parts of the pages below `docs`.
//!
//! The build script's, too. Must not use anything of this crate.

/// Name, page and heading of each.
pub(crate) const TOPICS: &[(&str, &str, &str)] = &[
    ("annotations", "daemonsets.md", "Annotations and labels"),
    ("boot", "boot-and-outages.md", "A boot"),
    ("changes", "daemonsets.md", "What a change does"),
    ("conditions", "rollouts.md", "Conditions"),
    ("configuration", "configuration.md", "Files"),
    ("exit-codes", "cli.md", "Exit codes"),
    ("first-install", "rollouts.md", "First installs"),
    ("full-node", "daemonsets.md", "On a full node"),
    ("halt", "rollouts.md", "A halt"),
    ("held", "daemonsets.md", "What is held"),
    ("json", "cli.md", "JSON"),
    ("limits", "limits.md", "What a static pod cannot be"),
    ("modes", "daemonsets.md", "Modes"),
    ("night", "operations.md", "What to do at night"),
    ("node-conditions", "daemonsets.md", "Node conditions"),
    ("overlays", "daemonsets.md", "One DaemonSet, different nodes"),
    ("policy-keys", "security.md", "Policy: what may run here"),
    ("removal", "daemonsets.md", "What removes a daemon"),
    ("rollouts", "rollouts.md", "How a rollout goes"),
    ("sources", "daemonsets.md", "Where DaemonSets come from"),
    ("start-order", "daemonsets.md", "Start order"),
    ("startup-taint", "daemonsets.md", "No workload before its daemons"),
    ("states", "operations.md", "States"),
    ("steps", "rollouts.md", "Steps"),
    ("windows", "rollouts.md", "Windows"),
    ("words", "glossary.md", "Glossary"),
];
