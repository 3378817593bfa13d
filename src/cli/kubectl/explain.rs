//! One node: what runs there, and why what could run does not.

use serde::Serialize;

use crate::cli::CommandFailure;
use crate::cli::Exit;
use crate::cli::explain;
use crate::cli::output;
use crate::cli::output::Colour;
use crate::cli::table;
use crate::cli::table::Cell;
use crate::core;
use crate::core::cluster::node_daemons::DaemonReport;
use crate::core::cluster::overview::ClusterOverview;
use crate::core::cluster::overview::DaemonOnNode;
use crate::core::cluster::overview::OverviewNode;
use crate::core::escape;
use crate::core::model::ObjectKey;
use crate::core::model::Source;
use crate::core::policy;
use crate::core::policy::Admission;
use crate::core::policy::Covered;
use crate::core::policy::NotCovered;
use crate::core::record::Cause;
use crate::core::replies::ExplainReport;
use crate::core::status::DaemonStatus;
use crate::core::status::FailedStatus;
use crate::core::status::SCHEMA_VERSION;
use crate::core::status::State;

/// One node, as JSON.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ExplainedNode {
    schema_version: u32,
    node: String,
    ready: bool,
    agent_version: Option<String>,
    daemons: Vec<ExplainedDaemon>,
    /// DaemonSets of ours that do not belong on this node.
    absent: Vec<Absent>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ExplainedDaemon {
    namespace: String,
    name: String,
    #[serde(flatten)]
    place: DaemonOnNode,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Absent {
    namespace: String,
    name: String,
    reason: String,
}

fn find<'a>(cluster: &'a ClusterOverview, name: &str) -> Result<&'a OverviewNode, CommandFailure> {
    cluster.nodes.get(name).ok_or_else(|| {
        CommandFailure::new(Exit::Refused, format!("there is no node {name}")).hint("see `kubectl get nodes`")
    })
}

/// All DaemonSets on one node.
pub(super) fn all(
    cluster: &ClusterOverview,
    name: &str,
    namespace: Option<&str>,
    (json, width): (bool, usize),
) -> Result<Exit, CommandFailure> {
    let node = find(cluster, name)?;
    let (mut daemons, mut absent) = (Vec::new(), Vec::new());
    for key in cluster.keys().into_iter().filter(|key| namespace.is_none_or(|wanted| key.namespace == wanted)) {
        let placement = || cluster.placement(node, &key);
        let ObjectKey { namespace, name } = key.clone();
        match cluster.place(node, &key) {
            Some(place) => daemons.push(ExplainedDaemon { namespace, name, place }),
            // Daemons that only other nodes have in their folders do not concern this one.
            None => absent.extend(placement().map(|placement| {
                let reason = placement.misfit.map(|misfit| misfit.to_string()).unwrap_or_default();
                Absent { namespace, name, reason }
            })),
        }
    }
    let report = ExplainedNode {
        schema_version: SCHEMA_VERSION,
        node: name.to_owned(),
        ready: node.ready,
        agent_version: node.report.as_ref().map(|report| report.agent_version.clone()),
        daemons,
        absent,
    };
    let human = |width: usize| human(&report, Colour::new(&std::io::stdout()), width);
    let text = if json { output::json(&report)? } else { human(width) };
    output::data(&text)?;
    if !json && text != human(usize::MAX) {
        output::remarks(output::CUT);
    }
    let bad = report.daemons.iter().any(|entry| entry.place.is_bad());
    Ok(if bad { Exit::Refused } else { Exit::Success })
}

fn human(report: &ExplainedNode, colour: Colour, width: usize) -> String {
    let ready = if report.ready { colour.green("Ready") } else { colour.red("not Ready") };
    let agent = match &report.agent_version {
        Some(version) => escape::line(&format!("agent {version}")).into_owned(),
        None => colour.yellow("no agent"),
    };
    let mut text = format!("{}: {ready}, {agent}\n", escape::line(&report.node));
    let dash = |text: &str| Cell::from(if text.is_empty() { "-" } else { text });
    let yes = |entry: &ExplainedDaemon, is_so: bool| match (entry.place.stands_by(), is_so) {
        (true, _) => "-".into(),
        (false, true) => "yes".into(),
        (false, false) => "no".into(),
    };
    let row = |entry: &ExplainedDaemon| {
        vec![
            format!("{}/{}", entry.namespace, entry.name).as_str().into(),
            dash(&entry.place.revision),
            dash(&entry.place.pod),
            super::overview::state(&entry.place, colour),
            yes(entry, entry.place.ready),
            yes(entry, entry.place.updated),
            entry.place.reason.as_str().into(),
        ]
    };
    let rows: Vec<Vec<Cell>> = report.daemons.iter().map(row).collect();
    if !rows.is_empty() {
        let head = ["DAEMONSET", "REVISION", "POD", "STATE", "READY", "UPDATED", "REASON"];
        text.push_str(&table::fitted(&head, &rows, width));
    }
    for absent in &report.absent {
        text.push_str(&output::line(format!("not here: {}/{}: {}", absent.namespace, absent.name, absent.reason)));
    }
    text
}

/// One DaemonSet on one node, term by term, as `daemonlet explain` shows it there.
pub(super) fn one(cluster: &ClusterOverview, name: &str, key: &ObjectKey, json: bool) -> Result<Exit, CommandFailure> {
    let node = find(cluster, name)?;
    let from_agent = cluster.report(node, key);
    let mut hints = Vec::new();
    let terms = cluster.daemons.get(key).map(|daemon| {
        let covered = match from_agent.and_then(|from_agent| from_agent.mode).or_else(|| cluster.mode(key)) {
            Some(mode) => Covered::Yes(mode),
            None if policy::is_mistyped(&daemon.daemon_set.labels) => {
                hints.push(policy::respelt(key));
                Covered::No(policy::mistyped(&daemon.daemon_set.labels))
            }
            None => Covered::No(NotCovered::Unreported),
        };
        // The agent's report has what the node's owner forbids.
        let rules = core::explain::ExplainRules {
            covered: &covered,
            admission: &Admission::FREE,
            namespace_selector: cluster.selector(&key.namespace),
        };
        core::explain::explain(&daemon.daemon_set, &node.view, &rules)
    });
    let place = cluster.place(node, key);
    let known = terms.is_some() || from_agent.is_some();
    let report = ExplainReport {
        schema_version: SCHEMA_VERSION,
        node: name.to_owned(),
        agent_running: node.report.is_some(),
        terms: terms.unwrap_or_default(),
        status: known.then(|| DaemonStatus { hints, ..status(key, place.as_ref(), from_agent) }),
        problems: Vec::new(),
    };
    let text = match json {
        true => output::json(&report)?,
        false => {
            let elsewhere = format!("`kubectl daemonlet explain {name}` lists what runs there");
            explain::human(&report, key, &elsewhere, Colour::new(&std::io::stdout()))
        }
    };
    output::data(&text)?;
    let good = report.status.is_some_and(|status| !status.is_bad());
    Ok(if good { Exit::Success } else { Exit::Refused })
}

/// The daemon's status as far as the cluster knows it.
fn status(key: &ObjectKey, place: Option<&DaemonOnNode>, from_agent: Option<&DaemonReport>) -> DaemonStatus {
    let cause = |name: &str| {
        use Cause::*;
        [Image, CrashLoop, Container, Probe, Admission, Sandbox, KubeletNotResponding]
            .into_iter()
            .find(|c| c.as_str() == name)
    };
    let failed = from_agent.and_then(|from_agent| from_agent.failed.as_ref()).and_then(|failed| {
        Some(FailedStatus {
            revision: failed.revision.clone(),
            cause: cause(&failed.cause)?,
            message: failed.message.clone(),
            since: String::new(),
        })
    });
    let status = DaemonStatus {
        mode: from_agent.and_then(|from_agent| from_agent.mode),
        failed,
        ..DaemonStatus::bare(key, Some(Source::Api), State::NotSelected, "")
    };
    match place {
        Some(place) => DaemonStatus {
            revision: place.revision.clone(),
            pod: place.pod.clone(),
            state: place.state.unwrap_or(State::Unknown),
            ready: Some(place.ready),
            reason: place.reason.clone(),
            ..status
        },
        None => status,
    }
}
