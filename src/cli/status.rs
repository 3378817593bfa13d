//! `daemonlet status`: the daemons of this node as a table.

mod live;

use std::io::IsTerminal;
use std::thread;
use std::time::Duration;

use clap::Args;
use clap::ValueEnum;

use crate::cli::CommandFailure;
use crate::cli::ConfigArgument;
use crate::cli::Exit;
use crate::cli::ask;
use crate::cli::output;
use crate::cli::output::Colour;
use crate::cli::table;
use crate::clock::now;
use crate::config::Config;
use crate::core::escape;
use crate::core::model::Source;
use crate::core::render::Missing;
use crate::core::status::ApiLink;
use crate::core::status::DaemonStatus;
use crate::core::status::LeftAlone;
use crate::core::status::State;
use crate::core::status::StatusReport;
use crate::core::time::Timestamp;
use crate::node::socket::SocketOperation;

/// How often `--watch` asks.
const PERIOD: Duration = Duration::from_secs(1);

/// Show the daemons of this node
///
/// Exit code: 0 all is well, 1 something is refused, failing, not accepted, held, stale or unknown, or there is a
/// problem, or the configuration is invalid and the agent runs on with the one before it.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
    /// Print JSON (schemaVersion 1); -o json is the same
    #[arg(long)]
    json: bool,
    /// Go on, with the progress of pulls and replacements: on a terminal in place, else printed again
    /// whenever something has changed
    #[arg(long)]
    watch: bool,
    /// wide: whole sources and reasons, also on a terminal, where they are cut to fit 120 columns
    #[arg(short, long, value_enum)]
    output: Option<StatusOutputFormat>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum StatusOutputFormat {
    Wide,
    Json,
}

/// A terminal, on which the table is to fit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Screen {
    width: usize,
    /// How wide SOURCE may be.
    source: usize,
    /// From when SINCE is counted back.
    now: Timestamp,
}

impl Screen {
    fn new(now: Timestamp) -> Self {
        Self { width: output::COLUMNS, source: 20, now }
    }

    /// Whether the table of `report` leaves something out to fit.
    fn cuts(self, report: &StatusReport) -> bool {
        let whole = Self { width: usize::MAX, source: usize::MAX, ..self };
        let [shown, whole] = [self, whole].map(|screen| human(report, Colour::new(&std::io::stdout()), Some(screen)));
        shown != whole
    }
}

impl Arguments {
    fn wants_json(&self) -> bool {
        self.json || self.output == Some(StatusOutputFormat::Json)
    }

    /// The terminal, if the table is to fit one.
    fn screen(&self) -> Option<Screen> {
        (!self.wants_json() && self.output.is_none() && std::io::stdout().is_terminal()).then(|| Screen::new(now()))
    }
}

pub(super) fn run(arguments: &Arguments) -> Result<Exit, CommandFailure> {
    if arguments.watch {
        return watch(&arguments.config.load()?, arguments);
    }
    let answer: ask::Answer<StatusReport> = ask::ask_with(&arguments.config, &SocketOperation::Status)?;
    output::data(&text(&answer.report, arguments)?)?;
    if arguments.screen().is_some_and(|screen| screen.cuts(&answer.report)) {
        output::remarks(output::CUT);
    }
    let exit = exit(&answer.report);
    Ok(answer.end(exit))
}

/// Prints each report that differs from the one before, until the reader closes or the agent ends.
fn watch(config: &Config, arguments: &Arguments) -> Result<Exit, CommandFailure> {
    let json = arguments.wants_json();
    let mut last: Option<StatusReport> = None;
    let in_place = !json && std::io::stdout().is_terminal();
    loop {
        let report: StatusReport = ask::ask(config, &SocketOperation::Status)?;
        if in_place {
            let colour = Colour::new(&std::io::stdout());
            let text = human(&report, colour, arguments.screen()) + &live::lines(&report, Some(now()), colour);
            if !output::as_it_is(&live::redrawn(&text))? {
                return Ok(exit(&report));
            }
        } else if !last.as_ref().is_some_and(|last| says_the_same(last, &report)) {
            let separator = if last.is_some() && !json { "\n" } else { "" };
            let live = if json { String::new() } else { live::lines(&report, None, Colour::new(&std::io::stdout())) };
            let shown = format!("{separator}{}{live}", text(&report, arguments)?);
            if !output::as_it_is(&escape::terminal(&shown))? {
                return Ok(exit(&report));
            }
        }
        if !report.agent.running {
            return Ok(exit(&report));
        }
        last = Some(report);
        thread::sleep(PERIOD);
    }
}

/// Whether two reports differ in nothing but the agent's counters.
fn says_the_same(one: &StatusReport, other: &StatusReport) -> bool {
    let mut one = one.clone();
    one.agent.passes = other.agent.passes;
    one.agent.api_use = other.agent.api_use;
    one == *other
}

fn text(report: &StatusReport, arguments: &Arguments) -> Result<String, CommandFailure> {
    match arguments.wants_json() {
        true => output::json(report),
        false => Ok(human(report, Colour::new(&std::io::stdout()), arguments.screen())),
    }
}

/// Whether anything is refused, failing or unknown: a daemon, a file, the API server.
pub(super) fn exit(report: &StatusReport) -> Exit {
    let bad = !report.problems.is_empty() || report.daemons.iter().any(|daemon| daemon.is_bad());
    if bad { Exit::Refused } else { Exit::Success }
}

/// The report as people read it: the table, which fits `screen` if there is one, and below it what is wrong beside single
/// daemons.
pub(super) fn human(report: &StatusReport, colour: Colour, screen: Option<Screen>) -> String {
    let report = &output::printable(report);
    let head = ["DAEMONSET", "SOURCE", "REVISION", "POD", "STATE", "READY", "SINCE", "REASON"];
    let rows = report.daemons.iter().map(|daemon| row(daemon, &report.agent.api, colour, screen)).collect::<Vec<_>>();
    let mut text = match screen {
        _ if rows.is_empty() => no_daemons(report, colour),
        Some(screen) => table::fitted(&head, &rows, screen.width),
        None => table::table(&head, &rows),
    };
    if !matches!(report.agent.api, ApiLink::Connected | ApiLink::NotConfigured) {
        let since = report.agent.api_since.as_ref().map(|since| format!(" since {since}")).unwrap_or_default();
        text.push_str(&format!("API: {}{since}\n", report.agent.api));
    }
    for problem in &report.problems {
        text.push_str(&format!("{} {}: {}\n", colour.red("problem:"), problem.object, problem.reason));
        if let Some(hint) = &problem.hint {
            text.push_str(&format!("{} {hint}\n", colour.cyan("hint:")));
        }
    }
    text.extend(report.notes.iter().map(|note| format!("{} {note}\n", colour.cyan("note:"))));
    text.push_str(&left_alone(&report.left_alone, colour));
    for daemon in &report.daemons {
        let name = format!("{}/{}", daemon.namespace, daemon.name);
        text.extend(daemon.notes.iter().map(|note| format!("{} {name}: {note}\n", colour.cyan("note:"))));
        text.extend(daemon.hints.iter().map(|hint| format!("{} {name}: {hint}\n", colour.cyan("hint:"))));
    }
    text
}

/// What stands for an empty table: how to begin, unless another line of the report says what is in the way.
fn no_daemons(report: &StatusReport, colour: Colour) -> String {
    let begin = "put a DaemonSet into a folder of the key `folders` (/etc/daemonlet/daemonsets.d), or give one of the API \
                 the label daemonlet.dev/mode: `daemonlet help sources`";
    let hint = match report.problems.is_empty() && report.left_alone.is_empty() {
        true => format!("{} {begin}\n", colour.cyan("hint:")),
        false => String::new(),
    };
    format!("no daemons on this node\n{hint}")
}

/// The DaemonSets that this node's configuration does not select, a line and a hint for each cause.
pub(super) fn left_alone(groups: &[LeftAlone], colour: Colour) -> String {
    let mut text = String::new();
    for group in groups {
        let LeftAlone { cause, count, daemon_sets, hint } = group;
        let what = if *count == 1 { "DaemonSet" } else { "DaemonSets" };
        let more = match count.saturating_sub(daemon_sets.len()) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let named = daemon_sets.join(", ");
        text.push_str(&output::line(format!(
            "left alone ({}): {count} {what} of the API: {named}{more}",
            cause.as_str()
        )));
        let first = if *count == 1 { String::new() } else { format!("{}: ", daemon_sets.first().map_or("", |s| s)) };
        text.push_str(&format!("{} {}", colour.cyan("hint:"), output::line(format!("{first}{hint}"))));
    }
    text
}

fn row(daemon: &DaemonStatus, api: &ApiLink, colour: Colour, screen: Option<Screen>) -> Vec<table::Cell> {
    let mut source = match &daemon.source {
        // None is configured: it was read when one was.
        Some(Source::Api) if *api == ApiLink::NotConfigured => "API (former)".to_owned(),
        source => source.as_ref().map(Source::to_string).unwrap_or_default(),
    };
    let mut since = daemon.since.clone().unwrap_or_default();
    if let Some(screen) = screen {
        source = table::end_of(&source, screen.source);
        since = since.parse().map_or(since, |then| age(screen.now, then));
    }
    let state = daemon.state.as_str();
    let state = match daemon.state {
        State::Running => table::Cell::painted(state, |state| colour.green(state)),
        bad if bad.is_bad() => table::Cell::painted(state, |state| colour.red(state)),
        idle if idle.is_idle() => state.into(),
        _ => table::Cell::painted(state, |state| colour.yellow(state)),
    };
    let ready = match daemon.ready {
        Some(true) => "yes",
        Some(false) => "no",
        None => "?",
    };
    let dash = |text: &str| table::Cell::from(if text.is_empty() { "-" } else { text });
    vec![
        format!("{}/{}", daemon.namespace, daemon.name).as_str().into(),
        dash(&source),
        dash(&daemon.revision),
        dash(&daemon.pod),
        state,
        if daemon.pod.is_empty() { "-" } else { ready }.into(),
        dash(&since),
        reason(daemon).as_str().into(),
    ]
}

/// How long ago `then` is, in its largest unit, as kubectl has it: `5m ago`.
fn age(now: Timestamp, then: Timestamp) -> String {
    let seconds = (now.as_secs() - then.as_secs()).max(0);
    match seconds {
        0..120 => format!("{seconds}s ago"),
        120..7_200 => format!("{}m ago", seconds / 60),
        7_200..172_800 => format!("{}h ago", seconds / 3_600),
        _ => format!("{}d ago", seconds / 86_400),
    }
}

/// The reason, which names what is waited for; else just that.
fn reason(daemon: &DaemonStatus) -> String {
    if !daemon.reason.is_empty() || daemon.waiting_for.is_empty() {
        return daemon.reason.clone();
    }
    let waiting = daemon.waiting_for.iter().map(Missing::to_string).collect::<Vec<_>>().join(", ");
    format!("waits for {waiting}")
}

#[cfg(test)]
mod tests;
