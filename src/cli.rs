//! The command line: arguments in, text and an exit code out.
//!
//! Owns the command line and its output. Must not decide: it asks `core` or the running agent.
//! Data goes to standard output, everything else to standard error.

use std::ffi::OsString;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::Parser;
use clap::Subcommand;
use clap::ValueEnum;

use crate::config;
use crate::config::Config;
use crate::config::ConfigError;
use crate::core::time::Span;
use crate::log;
use crate::log::LogError;
use crate::log::StateOutput;
use crate::node::agent::AgentError;
use crate::node::api::words;

mod approve;
mod ask;
mod boot_guard;
mod completion;
mod coordinator;
mod doctor;
mod enroll;
mod examples;
mod explain;
mod generate;
mod help;
mod init;
mod install;
mod kubectl;
mod offline;
mod order;
mod output;
mod plan;
mod policy;
mod release;
mod render;
mod replay;
mod restart;
mod retry;
mod run;
mod status;
mod support_bundle;
mod table;
mod teardown;

/// How a command ends. The numbers are a contract; the highest that applies wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// Done, nothing to report.
    Success,
    /// Something is refused, failing or unknown.
    Refused,
    /// The command line cannot be understood.
    Usage,
    /// A path cannot be read, or a document or the configuration is invalid.
    Unreadable,
    /// `plan`: changes are pending.
    Pending,
    /// `doctor`: so many checks were bad.
    Count(u8),
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Success => 0,
            Exit::Refused => 1,
            Exit::Usage => 2,
            Exit::Unreadable => 3,
            Exit::Pending => 4,
            Exit::Count(count) => count,
        })
    }
}

/// A command that could not do its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandFailure {
    /// The exit code.
    pub exit: Exit,
    /// The errors, each as what went wrong (file, object, field: reason) and what to do.
    pub errors: Vec<(String, Option<String>)>,
}

impl CommandFailure {
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, errors: vec![(message.into(), None)] }
    }

    /// The first of what went wrong.
    fn message(self) -> String {
        self.errors.into_iter().next().map(|(message, _)| message).unwrap_or_default()
    }

    /// The first of what went wrong and what to do about it, for the middle of a line.
    fn line(&self) -> String {
        match self.errors.first() {
            Some((message, Some(hint))) => format!("{message}; hint: {hint}"),
            Some((message, None)) => message.clone(),
            None => String::new(),
        }
    }

    /// The same with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        if let Some(last) = self.errors.last_mut() {
            last.1 = Some(hint.into());
        }
        self
    }
}

impl From<ConfigError> for CommandFailure {
    fn from(error: ConfigError) -> Self {
        let errors = error.problems.into_iter().map(|problem| (problem.message, problem.hint)).collect();
        Self { exit: Exit::Unreadable, errors }
    }
}

impl From<AgentError> for CommandFailure {
    fn from(error: AgentError) -> Self {
        let exit = match error {
            AgentError::State(_) | AgentError::Lock { .. } | AgentError::Config(_) => Exit::Unreadable,
            _ => Exit::Refused,
        };
        let failure = Self::new(exit, words(&error));
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

/// Runs DaemonSets as static pods of this node's kubelet
#[derive(Debug, Parser)]
#[command(name = "daemonlet", version, propagate_version = true, disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Init(init::Arguments),
    Install(install::Arguments),
    Run(run::Arguments),
    Coordinator(coordinator::Arguments),
    Enroll(enroll::Arguments),
    Render(render::Arguments),
    Plan(plan::Arguments),
    Policy(policy::Arguments),
    Status(status::Arguments),
    Explain(explain::Arguments),
    Doctor(doctor::Arguments),
    Restart(restart::Arguments),
    BootGuard(boot_guard::Arguments),
    Generate(generate::Arguments),
    Retry(retry::Arguments),
    Approve(approve::Arguments),
    Release(release::Arguments),
    SupportBundle(support_bundle::Arguments),
    Replay(replay::Arguments),
    Teardown(teardown::Arguments),
    Completion(completion::Arguments),
    Help(help::Arguments),
}

/// The configuration to use.
#[derive(Debug, Args)]
struct ConfigArgument {
    /// Configuration file; its drop-ins are *.toml in the folder <stem>.d beside it
    /// [default: /etc/daemonlet/daemonlet.toml and its drop-ins]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ConfigArgument {
    fn load(&self) -> Result<Config, CommandFailure> {
        Ok(config::load(self.config.as_deref())?)
    }

    /// As [`config::load_to_start`].
    fn load_to_start(&self) -> Result<Config, CommandFailure> {
        Ok(config::load_to_start(self.config.as_deref())?)
    }

    /// The file that is read.
    fn path(&self) -> &Path {
        self.config.as_deref().unwrap_or(Path::new(config::MAIN_FILE))
    }
}

/// Whether JSON is printed.
#[derive(Debug, Args)]
struct JsonArgument {
    /// Print JSON (schemaVersion 1); -o json, as kubectl takes it, is the same
    #[arg(long)]
    json: bool,
    #[arg(short, long, value_enum, hide = true)]
    output: Option<JsonOutputFormat>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum JsonOutputFormat {
    /// JSON (schemaVersion 1)
    Json,
}

impl JsonArgument {
    fn is_wanted(&self) -> bool {
        self.json || self.output.is_some()
    }
}

/// The runtime of the program's asynchronous part.
fn event_loop() -> Result<tokio::runtime::Runtime, CommandFailure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CommandFailure::new(Exit::Refused, format!("cannot start the event loop: {error}")))
}

/// A duration as an argument.
fn duration(text: &str) -> Result<Duration, String> {
    let span = crate::core::duration::parse(text).map(Span::to_duration);
    span.ok_or_else(|| format!("expected a duration such as 5m, not \"{text}\""))
}

/// Starts logging as the configuration says.
fn start_log(config: &Config, state: StateOutput) -> Result<(), CommandFailure> {
    log::init(&config.log_level, config.log_target, state).map_err(|error| {
        let source = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
        let failure = |message: String| CommandFailure::new(Exit::Unreadable, message);
        let origin = config.origins.get("log.target").filter(|_| matches!(error, LogError::Journal { .. }));
        match origin {
            Some(origin) => failure(format!("{origin}: {error}{source}")).hint("set log.target = \"stderr\""),
            None => failure(format!("{error}{source}")),
        }
    })
}

/// The command line as a value: manual pages and completions are made from it.
pub fn command() -> clap::Command {
    readable(examples::of_daemonlet(<Arguments as clap::CommandFactory>::command()))
}

/// The command line of `kubectl daemonlet` as a value.
pub fn plugin() -> clap::Command {
    readable(examples::of_plugin(kubectl::command()))
}

/// The same with lines of a width that can be read, whatever the environment says of the terminal.
fn readable(command: clap::Command) -> clap::Command {
    let said = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse::<usize>().ok());
    match said.is_some_and(|columns| columns < output::NARROWEST) {
        true => command.term_width(output::COLUMNS),
        false => command.max_term_width(output::COLUMNS),
    }
}

/// Parses `arguments` by `command`; else the exit code, and help, version or error are printed.
fn parse<T: clap::FromArgMatches>(mut command: clap::Command, arguments: Vec<OsString>) -> Result<T, Exit> {
    let matches = command.try_get_matches_from_mut(arguments);
    matches.and_then(|matches| T::from_arg_matches(&matches)).map_err(|error| {
        // Help and version are errors to clap; a closed pipe is no error here.
        match (error.print(), error.use_stderr()) {
            (_, true) => Exit::Usage,
            (Err(why), false) if why.kind() != std::io::ErrorKind::BrokenPipe => {
                let failure = output::unwritten(&why);
                output::errors(&failure.errors);
                failure.exit
            }
            (_, false) => Exit::Success,
        }
    })
}

/// Runs the command line `arguments` (the program's name first).
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    // A container that sees the host's processes and has no fewer rights would reach our root folder and our memory by
    // /proc otherwise. Where it fails all is as before.
    let _ = nix::sys::prctl::set_dumpable(false);
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    if arguments.first().is_some_and(|program| kubectl::is_called(program)) {
        return kubectl::main(arguments);
    }
    // As the packages' `kubectl-daemonlet` calls it, which is a script: one package format knows no links.
    if arguments.get(1).is_some_and(|word| kubectl::is_called(word)) {
        return kubectl::main(arguments.into_iter().skip(1).collect());
    }
    let arguments: Arguments = match parse(command(), arguments) {
        Ok(arguments) => arguments,
        Err(exit) => return exit,
    };
    let result = match arguments.command {
        Command::Init(arguments) => init::run(&arguments),
        Command::Install(arguments) => install::run(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Coordinator(arguments) => coordinator::run(&arguments),
        Command::Enroll(arguments) => enroll::run(&arguments),
        Command::Render(arguments) => render::run(&arguments),
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Policy(arguments) => policy::run(&arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Retry(arguments) => retry::run(&arguments),
        Command::Approve(arguments) => approve::run(&arguments),
        Command::Release(arguments) => release::run(&arguments),
        Command::SupportBundle(arguments) => support_bundle::run(&arguments),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Teardown(arguments) => teardown::run(&arguments),
        Command::Restart(arguments) => restart::run(&arguments),
        Command::BootGuard(arguments) => boot_guard::run(&arguments),
        Command::Generate(arguments) => generate::run(&arguments),
        Command::Completion(arguments) => completion::run(&arguments),
        Command::Help(arguments) => help::run(&arguments),
    };
    result.unwrap_or_else(|failure| {
        output::errors(&failure.errors);
        failure.exit
    })
}
