//! `daemonlet doctor`: what is wrong with this node and its cluster, and how to fix it.

use clap::Args;

use crate::cli::CommandFailure;
use crate::cli::ConfigArgument;
use crate::cli::Exit;
use crate::cli::JsonArgument;
use crate::cli::ask;
use crate::cli::event_loop;
use crate::cli::output;
use crate::cli::output::Colour;
use crate::cli::table;
use crate::core::doctor::AgentFinding;
use crate::core::doctor::DoctorReport;
use crate::core::doctor::Finding;
use crate::core::doctor::Severity;
use crate::core::status::StatusReport;
use crate::node::doctor;
use crate::node::socket::SocketOperation;

/// Check this node and its cluster, and say how to fix what is wrong
///
/// One line a check: ok, warn, bad or skip, with a hint below. Run it as root, also while the agent runs:
/// another user's checks are skipped where only root may read.
/// Exit code: the number of bad ones, 100 at most (2 is also bad usage); the others do not count.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
    #[command(flatten)]
    json: JsonArgument,
}

pub(super) fn run(arguments: &Arguments) -> Result<Exit, CommandFailure> {
    let report = match arguments.config.load() {
        Ok(config) => report(&config)?,
        Err(_) if doctor::is_closed(arguments.config.path()) => {
            let path = arguments.config.path().display().to_string();
            DoctorReport::new("", vec![Finding::skipped("configuration", &path)])
        }
        Err(failure) => {
            let hint = "see `daemonlet run --print-config`";
            let bad = |(message, known): (String, Option<String>)| {
                Finding::bad("configuration", message, known.unwrap_or_else(|| hint.to_owned()))
            };
            DoctorReport::new("", failure.errors.into_iter().map(bad).collect())
        }
    };
    let text = match arguments.json.is_wanted() {
        true => output::json(&report)?,
        false => human(&report, Colour::new(&std::io::stdout())),
    };
    output::data(&text)?;
    Ok(Exit::Count(report.exit_code()))
}

/// What is found on a node of this configuration.
fn report(config: &crate::config::Config) -> Result<DoctorReport, CommandFailure> {
    report_with(config, ask::try_agent(config, &SocketOperation::Status))
}

/// The same, where the agent was `asked` for its status already; none: no agent runs.
pub(super) fn report_with(
    config: &crate::config::Config,
    asked: Result<Option<StatusReport>, CommandFailure>,
) -> Result<DoctorReport, CommandFailure> {
    let (agent, status) = agent(asked);
    let findings = event_loop()?.block_on(doctor::examine(config, &agent, status.as_ref()));
    Ok(DoctorReport::new(&config.node_name, findings))
}

/// Whether the agent answers, and its answer.
fn agent(asked: Result<Option<StatusReport>, CommandFailure>) -> (AgentFinding, Option<StatusReport>) {
    match asked {
        Ok(Some(status)) => {
            let daemons = status.daemons.iter().filter(|daemon| daemon.is_bad()).count();
            (AgentFinding::Runs { problems: status.problems.len(), daemons }, Some(status))
        }
        Ok(None) => (AgentFinding::Absent, None),
        Err(failure) => (AgentFinding::Unreachable(failure.message()), None),
    }
}

/// The report as people read it.
pub(super) fn human(report: &DoctorReport, colour: Colour) -> String {
    let report = &output::printable(report);
    let row = |finding: &Finding| {
        let word = finding.level.as_str();
        let level = table::Cell::painted(word, |word| match finding.level {
            Severity::Ok => colour.green(word),
            Severity::Warn => colour.yellow(word),
            Severity::Bad => colour.red(word),
            Severity::Skip => colour.yellow(word),
        });
        vec![level, finding.check.as_str().into(), finding.text.as_str().into()]
    };
    let rows: Vec<_> = report.findings.iter().map(row).collect();
    let mut text = String::new();
    for (line, finding) in table::lines(&rows).into_iter().zip(&report.findings) {
        text.push_str(&line);
        // One hint at the end serves all that is skipped.
        if let Some(hint) = finding.hint.as_ref().filter(|_| finding.level != Severity::Skip) {
            text.push_str(&format!("      {} {hint}\n", colour.cyan("hint:")));
        }
    }
    let count = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let (checks, warnings) = (count(report.findings.len(), "check"), count(report.warnings, "warning"));
    text.push_str(&format!("{checks}, {} bad, {warnings}", report.bad));
    text.push_str(&match report.skipped {
        0 => "\n".to_owned(),
        skipped => format!(", {skipped} skipped: run it as root\n"),
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_finding_is_a_line_with_its_hint_below() {
        let findings = vec![
            Finding::ok("kubelet", "runs"),
            Finding::bad("clock", "90 s behind the API server's", "set it"),
            Finding::warn("agent", "not running", "start it"),
            Finding::skipped("API server", "/k"),
        ];
        let report = DoctorReport::new("n1", findings);
        output::assert_unforgeable(&report, |report| human(report, Colour::none()));
        assert_eq!(
            human(&report, Colour::none()),
            "ok    kubelet     runs\n\
             bad   clock       90 s behind the API server's\n      hint: set it\n\
             warn  agent       not running\n      hint: start it\n\
             skip  API server  not checked: this user may not read /k\n\
             4 checks, 1 bad, 1 warning, 1 skipped: run it as root\n"
        );
    }
}
