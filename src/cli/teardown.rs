//! `daemonlet teardown`: takes everything of ours off this node.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use crate::cli::CommandFailure;
use crate::cli::ConfigArgument;
use crate::cli::Exit;
use crate::cli::duration;
use crate::cli::event_loop;
use crate::cli::output;
use crate::cli::start_log;
use crate::config::Config;
use crate::core::model::STARTING_TAINT;
use crate::core::status::Problem;
use crate::log::StateOutput;
use crate::node::agent;
use crate::node::agent::Agent;
use crate::node::agent::AgentError;
use crate::node::agent::Leftover;
use crate::node::agent::Teardown;
use crate::node::notify::Notifier;

/// Tear down this node: end every daemon that daemonlet runs here, and remove what it wrote for them
///
/// The manifests of the agent go, the kubelet ends their pods with their grace periods, and when the
/// runtime says that nothing of them runs any more their folders are cleared. Other files in the
/// manifest folder stay. The agent must not run (`systemctl disable --now daemonlet`): it would
/// start everything again, and does so when it is started later. Needs root and a running kubelet.
/// The state folder stays: it remembers which pod UIDs are used up. Exit code: 0 nothing of them is left, 1 something is.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
    /// Print what would be removed, and change nothing; the agent may run
    #[arg(long)]
    dry_run: bool,
    /// How long to wait for the pods' end; what is left then is printed, and another run goes on with it
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    timeout: Duration,
}

pub(super) fn run(arguments: &Arguments) -> Result<Exit, CommandFailure> {
    let config = arguments.config.load()?;
    if arguments.dry_run {
        let drain = agent::offline::teardown_offline(config.clone())?;
        output::lines(would(&config, &drain))?;
        return Ok(if drain.problems.is_empty() { Exit::Success } else { Exit::Refused });
    }
    start_log(&config, StateOutput::InLog)?;
    let runtime = event_loop()?;
    let drain = runtime.block_on(async {
        let agent = Agent::to_tear_down(config.clone(), Arc::new(Notifier::from_environment())).map_err(refusal)?;
        Ok::<Teardown, CommandFailure>(agent.teardown(arguments.timeout).await)
    })?;
    output::lines(done(&config, &drain))?;
    Ok(if drain.is_complete() { Exit::Success } else { Exit::Refused })
}

fn refusal(error: AgentError) -> CommandFailure {
    let is_running = matches!(error, AgentError::Locked { .. } | AgentError::ManifestFolder(_));
    let failure = CommandFailure::from(error);
    match is_running {
        true => {
            failure.hint("stop the agent first, it would start everything again: systemctl disable --now daemonlet")
        }
        false => failure,
    }
}

/// The output of a dry run.
fn would(config: &Config, drain: &Teardown) -> Vec<String> {
    let mut lines = Vec::new();
    for one in &drain.found {
        let Leftover { daemon, pod, uid, manifest, .. } = one;
        lines.push(match manifest {
            _ if pod.is_empty() => format!("would clear what is left of pod {uid} of {daemon}"),
            Some(file) => format!("would end {pod} of {daemon}: {}", config.manifest_dir.join(file).display()),
            None => format!("would wait until {pod} of {daemon} has ended: its manifest is gone already"),
        });
    }
    if config.startup_taint {
        lines.push(format!("would take the taint {STARTING_TAINT} off the Node"));
    }
    match (drain.found.is_empty(), drain.problems.is_empty()) {
        (true, true) => lines.push(format!("nothing of daemonlet is on {}", drain.node)),
        (true, false) if drain.is_unread => lines.push(format!("what is of daemonlet on {} is not known:", drain.node)),
        (true, false) => lines.push(format!("nothing of daemonlet was found on {}, but:", drain.node)),
        (false, _) => {}
    }
    lines.extend(problems(drain));
    lines
}

/// The output at the end.
fn done(config: &Config, drain: &Teardown) -> Vec<String> {
    let folder = config.manifest_dir.display();
    if drain.left.is_empty() && !drain.is_unread {
        let count = drain.found.len();
        let pods = if count == 1 { "pod" } else { "pods" };
        let node = &drain.node;
        let done = format!("{node} is torn down: {count} {pods} ended, no manifest of daemonlet is left in {folder}");
        return [vec![done], on_node(drain)].concat();
    }
    let mut lines = vec![format!("{} is not torn down yet; run `daemonlet teardown` again to continue", drain.node)];
    for Leftover { daemon, pod, uid, what, .. } in &drain.left {
        let name = if pod.is_empty() { uid } else { pod };
        lines.push(format!("  {daemon} {name}: {what}"));
    }
    lines.extend(on_node(drain));
    lines.extend(problems(drain));
    lines
}

/// The hint about the taint and conditions that are left on the Node.
fn on_node(drain: &Teardown) -> Vec<String> {
    drain.on_node.iter().flat_map(|problem| with_hint(problem.reason.clone(), problem)).collect()
}

fn problems(drain: &Teardown) -> Vec<String> {
    let lines = |problem: &Problem| with_hint(format!("{}: {}", problem.object, problem.reason), problem);
    drain.problems.iter().flat_map(lines).collect()
}

fn with_hint(said: String, problem: &Problem) -> Vec<String> {
    let hint = problem.hint.iter().map(|hint| format!("  hint: {hint}"));
    std::iter::once(format!("  {said}")).chain(hint).collect()
}

#[cfg(test)]
mod tests {
    use crate::core::model::ObjectKey;

    use super::*;

    fn config() -> Config {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("c.toml");
        std::fs::write(&file, "node-name = \"n1\"\nmanifest-dir = \"/m\"\n").unwrap();
        crate::config::load(Some(&file)).unwrap()
    }

    fn pod(pod: &str, what: &str) -> Leftover {
        let manifest = Some(format!("a_{pod}.yaml"));
        Leftover { daemon: ObjectKey::new("a", "b"), pod: pod.into(), uid: "u".into(), manifest, what: what.into() }
    }

    #[test]
    fn a_dry_run_names_files_and_folders() {
        let ends = Leftover { manifest: None, ..pod("b-0", "") };
        let found = vec![pod("b-1", ""), ends, pod("", "")];
        let text = would(&config(), &Teardown { node: "n1".into(), found, ..Teardown::default() });
        let lines = [
            "would end b-1 of a/b: /m/a_b-1.yaml",
            "would wait until b-0 of a/b has ended: its manifest is gone already",
            "would clear what is left of pod u of a/b",
        ];
        assert_eq!(text, lines);
        let text = would(&config(), &Teardown { node: "n1".into(), ..Teardown::default() });
        assert_eq!(text, ["nothing of daemonlet is on n1"]);
        let [object, reason, hint] = ["checkpoint", "/s is a link", "remove it"].map(str::to_owned);
        let problems = vec![Problem { object, reason, hint: Some(hint) }];
        let text = would(&config(), &Teardown { node: "n1".into(), problems, ..Teardown::default() });
        let what_is_not_read =
            ["nothing of daemonlet was found on n1, but:", "  checkpoint: /s is a link", "  hint: remove it"];
        assert_eq!(text, what_is_not_read);
        let problems = vec![Problem { object: "manifest folder".into(), reason: "/m is a link".into(), hint: None }];
        let unread = Teardown { node: "n1".into(), problems, is_unread: true, ..Teardown::default() };
        assert_eq!(
            would(&config(), &unread),
            ["what is of daemonlet on n1 is not known:", "  manifest folder: /m is a link"]
        );
    }

    #[test]
    fn the_end_says_what_is_left_and_why() {
        let drain = Teardown { node: "n1".into(), found: vec![pod("b-1", "")], ..Teardown::default() };
        assert_eq!(done(&config(), &drain), ["n1 is torn down: 1 pod ended, no manifest of daemonlet is left in /m"]);
        let drain = Teardown { left: vec![pod("b-1", "the runtime is silent")], ..drain };
        let lines = done(&config(), &drain);
        assert!(lines[0].ends_with("run `daemonlet teardown` again to continue"), "{lines:?}");
        assert_eq!(lines[1..], ["  a/b b-1: the runtime is silent"]);
        let [object, reason] = ["manifest folder", "/m is a link"].map(str::to_owned);
        let problems = vec![Problem { object, reason, hint: None }];
        let unread = Teardown { node: "n1".into(), is_unread: true, problems, ..Teardown::default() };
        assert!(!unread.is_complete(), "nothing is known to run, and what does is not seen");
        let lines = done(&config(), &unread);
        assert!(lines[0].starts_with("n1 is not torn down yet"), "{lines:?}");
        assert_eq!(lines[1..], ["  manifest folder: /m is a link"]);
    }

    #[test]
    fn a_timeout_is_a_duration() {
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        assert!(duration("soon").is_err() && duration("-1s").is_err());
    }
}
