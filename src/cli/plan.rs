//! `daemonlet plan`: what one pass would change, and why.

use clap::Args;

use crate::cli::CommandFailure;
use crate::cli::ConfigArgument;
use crate::cli::Exit;
use crate::cli::JsonArgument;
use crate::cli::ask;
use crate::cli::output;
use crate::cli::output::Colour;
use crate::cli::status::left_alone;
use crate::core::replies::HeldDaemon;
use crate::core::replies::PlanReport;
use crate::core::status::State;
use crate::node::socket::SocketOperation;

/// Show what the next pass changes on this node; changes nothing that the agent would not
///
/// Exit code: 0 nothing to do, 4 changes pending, also those that wait for something: an image, a Secret, the
/// coordinator, the end of a pause; also if a volume is stale; with none of them 1 if something is refused, failing, not
/// accepted, held or unknown.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
    #[command(flatten)]
    json: JsonArgument,
}

pub(super) fn run(arguments: &Arguments) -> Result<Exit, CommandFailure> {
    let answer: ask::Answer<PlanReport> = ask::ask_with(&arguments.config, &SocketOperation::Plan)?;
    let report = &answer.report;
    output::data(&if arguments.json.is_wanted() { output::json(report)? } else { human(report) })?;
    let exit = exit(report);
    Ok(answer.end(exit))
}

/// The highest that applies: changes, then whatever keeps a daemon from running.
fn exit(report: &PlanReport) -> Exit {
    let bad = !report.problems.is_empty() || report.held.iter().any(|held| held.state.is_bad());
    match (is_empty(report), bad) {
        (false, _) => Exit::Pending,
        (true, true) => Exit::Refused,
        (true, false) => Exit::Success,
    }
}

/// Whether there is nothing to do, and nothing that would be done if something were not missing.
fn is_empty(report: &PlanReport) -> bool {
    report.changes.is_empty() && !report.held.iter().any(waits)
}

fn waits(held: &HeldDaemon) -> bool {
    // A daemon that is refused, or held by the configuration, does not wait: only a person changes that.
    let replaces = held.wanted_revision.is_some() && !matches!(held.state, State::Refused | State::Held);
    held.state == State::Waiting || !held.stale_volumes.is_empty() || replaces
}

/// The report as people read it.
pub(super) fn human(report: &PlanReport) -> String {
    let report = &output::printable(report);
    let mut text = String::new();
    let hint = |text: &mut String, hint: &Option<String>| {
        text.extend(hint.iter().map(|hint| format!("  hint: {hint}\n")));
    };
    if is_empty(report) {
        text.push_str("nothing to do\n");
    }
    for change in &report.changes {
        let reason = if change.reason.is_empty() { String::new() } else { format!(" ({})", change.reason) };
        text.push_str(&format!("{}/{}: {}{reason}\n", change.namespace, change.name, change.action));
    }
    for held in &report.held {
        let reason = if held.reason.is_empty() { String::new() } else { format!(": {}", held.reason) };
        let changes = report.changes.iter().any(|c| (&c.namespace, &c.name) == (&held.namespace, &held.name));
        let state = held.state.as_str();
        let what = match held.state {
            _ if changes => format!("and it is {state}"),
            // The reason says that it waits, and for what.
            _ if !reason.is_empty() && !held.state.is_bad() && waits(held) => "nothing yet".to_owned(),
            _ if waits(held) => format!("nothing yet, it is {state}"),
            _ => format!("nothing, it is {state}"),
        };
        text.push_str(&format!("{}/{}: {what}{reason}\n", held.namespace, held.name));
        hint(&mut text, &held.hint);
    }
    for problem in &report.problems {
        text.push_str(&format!("problem: {}: {}\n", problem.object, problem.reason));
        hint(&mut text, &problem.hint);
    }
    text.extend(report.notes.iter().map(|note| format!("note: {note}\n")));
    text + &left_alone(&report.left_alone, Colour::new(&std::io::stdout()))
}

#[cfg(test)]
mod tests {
    use crate::core::replies::PlannedChange;
    use crate::core::status::Problem;
    use crate::core::status::StaleVolume;

    use super::*;

    #[test]
    fn it_ends_with_1_only_where_nothing_is_to_do_and_something_is_wrong() {
        let mut report = PlanReport {
            schema_version: 1,
            node: "n".to_owned(),
            agent_running: true,
            changes: Vec::new(),
            held: Vec::new(),
            problems: Vec::new(),
            notes: Vec::new(),
            left_alone: Vec::new(),
        };
        let held = |state| {
            let [namespace, name, reason] = ["a", "b", ""].map(str::to_owned);
            vec![HeldDaemon {
                namespace,
                name,
                state,
                reason,
                stale_volumes: Vec::new(),
                hint: None,
                wanted_revision: None,
            }]
        };
        assert_eq!(exit(&report), Exit::Success);
        for (state, expected) in [
            (State::Waiting, Exit::Pending),
            (State::Running, Exit::Success),
            (State::Refused, Exit::Refused),
            (State::Failing, Exit::Refused),
            (State::Unknown, Exit::Refused),
        ] {
            report.held = held(state);
            assert_eq!(exit(&report), expected, "{state:?}");
        }
        report.held = held(State::Running);
        report.held[0].wanted_revision = Some("r2".to_owned());
        assert_eq!(exit(&report), Exit::Pending, "a revision waits, such as for the end of a pause");
        for (state, expected) in [
            (State::Failing, Exit::Pending),
            (State::NotAccepted, Exit::Pending),
            (State::Unknown, Exit::Pending),
            (State::Refused, Exit::Refused),
            (State::Held, Exit::Refused),
        ] {
            report.held[0].state = state;
            assert_eq!(exit(&report), expected, "{state:?}, and a revision waits");
        }
        report.held = [held(State::Failing), held(State::Waiting)].concat();
        assert_eq!(exit(&report), Exit::Pending, "the highest code counts");
        assert_eq!(human(&report), "a/b: nothing, it is failing\na/b: nothing yet, it is waiting\n");
        report.held[0].wanted_revision = Some("r2".to_owned());
        assert!(human(&report).starts_with("a/b: nothing yet, it is failing\n"));
        report.held = held(State::Waiting);
        let [pod, volume, since, reason] = ["p", "v", "2026-01-01T00:00:00Z", "missing x"].map(str::to_owned);
        report.held[0].stale_volumes.push(StaleVolume { pod, volume, since, missing: Vec::new(), reason });
        assert_eq!(exit(&report), Exit::Pending, "it would be changed if nothing were missing");
        assert!(!human(&report).contains("nothing to do"));
        report.held.clear();
        let [object, reason] = ["f.yaml:1:4", "unclosed bracket"].map(str::to_owned);
        report.problems.push(Problem { object, reason, hint: Some("close it".to_owned()) });
        assert_eq!(exit(&report), Exit::Refused);
        assert_eq!(human(&report), "nothing to do\nproblem: f.yaml:1:4: unclosed bracket\n  hint: close it\n");
        let [namespace, name, action] = ["a", "d", "write manifest x"].map(str::to_owned);
        report.changes.push(PlannedChange { namespace, name, action, reason: String::new() });
        assert_eq!(exit(&report), Exit::Pending);
    }

    #[test]
    fn what_is_held_is_said_whether_there_is_something_to_do_or_not() {
        let held = |name: &str, state, reason: &str| HeldDaemon {
            namespace: "a".to_owned(),
            name: name.to_owned(),
            state,
            reason: reason.to_owned(),
            stale_volumes: Vec::new(),
            hint: (state == State::Refused).then(|| "do it".to_owned()),
            wanted_revision: (state == State::Running).then(|| "r2".to_owned()),
        };
        let mut report = PlanReport {
            schema_version: 1,
            node: "n".to_owned(),
            agent_running: true,
            changes: Vec::new(),
            held: vec![
                held("b", State::Refused, "spec: no"),
                held("c", State::Waiting, "waits for Secret a/s"),
                held("p", State::Running, "updates are paused"),
            ],
            problems: Vec::new(),
            notes: Vec::new(),
            left_alone: Vec::new(),
        };
        let lines = "a/b: nothing, it is refused: spec: no\n  hint: do it\n\
                     a/c: nothing yet: waits for Secret a/s\n\
                     a/p: nothing yet: updates are paused\n";
        assert_eq!(human(&report), lines);
        let [namespace, name, action] = ["a", "d", "write manifest x"].map(str::to_owned);
        report.changes.push(PlannedChange { namespace, name, action, reason: String::new() });
        assert_eq!(human(&report), format!("a/d: write manifest x\n{lines}"));
        report.changes[0].name = "b".to_owned();
        let beside = lines.replacen("nothing, it", "and it", 1);
        assert_eq!(human(&report), format!("a/b: write manifest x\n{beside}"));
        output::assert_unforgeable(&report, human);
    }
}
