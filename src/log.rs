//! Where log records go: the journal, with structured fields, or one line on standard error.
//!
//! Owns the two sinks and the choice between them. Must not be used by `core`, which returns notes.
//!
//! Every field of an event (`daemonset`, `revision`, `pod`, …) reaches the journal as a field of
//! its own with an upper-case name, so that `journalctl DAEMONSET=kube-system/cni` works. `journalctl` shows messages without
//! their fields: one with a `daemonset` begins with it.

use std::fmt;
use std::io::IsTerminal;
use std::io::Write;
use std::os::fd::AsFd;

use systemd_journal_logger::JournalLog;
use tracing::Event;
use tracing::Level;
use tracing::Subscriber;
use tracing::field::Field;
use tracing::field::Visit;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::Context;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::LogTarget;
use crate::core::escape;

/// The target of lines about the state of daemons and the node, as opposed to actions.
pub const STATE: &str = "daemonlet::node::agent::report::news::state";

/// Where lines about the state of daemons and the node go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateOutput {
    InLog,
    /// The command, when it ends: on standard error, which may be the same terminal, the log leaves it out.
    AtEnd,
}

/// Logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter does not parse.
    #[error("log filter \"{filter}\": expected a level such as \"info\" or \"info,daemonlet::node=debug\"")]
    Filter { filter: String },
    /// The journal was asked for and cannot be reached.
    #[error("log.target: the journal cannot be reached")]
    Journal {
        #[source]
        source: std::io::Error,
    },
    /// Logging was set up before.
    #[error("logging is set up twice")]
    Twice {
        #[source]
        source: tracing_subscriber::util::TryInitError,
    },
}

/// Starts logging for the process: `filter` is a level or a filter. The journal gets every line, also those that a
/// command prints at its end.
///
/// # Errors
/// A filter that does not parse, and a journal that was demanded and is not there; with
/// [`LogTarget::Auto`] standard error takes its place.
pub fn init(filter: &str, target: LogTarget, state: StateOutput) -> Result<(), LogError> {
    let targets: Targets = filter.parse().map_err(|_| LogError::Filter { filter: filter.to_owned() })?;
    // It logs bodies that it cannot read, and such a body may be that of a Secret.
    // kube's watcher dumps the same failures that the agent tells in words.
    let targets = targets.with_target("kube_client", LevelFilter::OFF).with_target("kube_runtime", LevelFilter::OFF);
    let journal = match target {
        LogTarget::Stderr => None,
        LogTarget::Journal => Some(journal().map_err(|source| LogError::Journal { source })?),
        LogTarget::Auto if stderr_is_the_journal() => journal().ok(),
        LogTarget::Auto => None,
    };
    let colour = has_colours(&std::io::stderr());
    let stderr = journal.is_none().then_some(StderrLayer { colour, state });
    tracing_subscriber::registry()
        .with(journal.with_filter(targets.clone()))
        .with(stderr.with_filter(targets))
        .try_init()
        .map_err(|source| LogError::Twice { source })
}

/// Whether text for `stream` may be coloured: it is a terminal, which `TERM` does not call dumb, and `NO_COLOR` is not set
/// to anything.
pub fn has_colours(stream: &impl IsTerminal) -> bool {
    let is_dumb = || std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
    let is_unwanted = || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    stream.is_terminal() && !is_dumb() && !is_unwanted()
}

fn journal() -> std::io::Result<JournalLayer> {
    let journal = JournalLog::empty()?.with_syslog_identifier("daemonlet".to_owned());
    Ok(JournalLayer { journal })
}

/// Whether standard error is the stream that `JOURNAL_STREAM` names (systemd.exec(5)).
fn stderr_is_the_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    let stat = nix::sys::stat::fstat(std::io::stderr().as_fd());
    stat.is_ok_and(|stat| stream == format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// Sends every event to the journal.
struct JournalLayer {
    journal: JournalLog,
}

impl<S: Subscriber> Layer<S> for JournalLayer {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        // An event that the journal does not take is lost: there is no other place to log it.
        as_record(event, |record| drop(self.journal.journal_send(record)));
    }
}

/// Gives `event` to `send` as a record of the `log` crate, its fields as key values.
fn as_record(event: &Event<'_>, send: impl FnOnce(&::log::Record<'_>)) {
    let mut fields = LogFields::default();
    event.record(&mut fields);
    let pairs: Vec<(&str, _)> = fields.pairs.iter().map(|(name, value)| (*name, escape::line(value))).collect();
    let pairs: Vec<(&str, &str)> = pairs.iter().map(|(name, value)| (*name, &**value)).collect();
    let message = match fields.pairs.iter().find(|(name, _)| *name == "daemonset") {
        Some((_, daemonset)) => format!("{daemonset}: {}", fields.message),
        None => fields.message,
    };
    let metadata = event.metadata();
    let level = match *metadata.level() {
        Level::ERROR => ::log::Level::Error,
        Level::WARN => ::log::Level::Warn,
        Level::INFO => ::log::Level::Info,
        Level::DEBUG => ::log::Level::Debug,
        Level::TRACE => ::log::Level::Trace,
    };
    send(
        &::log::Record::builder()
            .level(level)
            .target(metadata.target())
            .module_path(metadata.module_path())
            .file(metadata.file())
            .line(metadata.line())
            .key_values(&pairs.as_slice())
            .args(format_args!("{}", escape::line(&message)))
            .build(),
    );
}

/// Writes every event as one line to standard error.
struct StderrLayer {
    colour: bool,
    state: StateOutput,
}

impl<S: Subscriber> Layer<S> for StderrLayer {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        if self.state == StateOutput::AtEnd && event.metadata().target() == STATE {
            return;
        }
        let mut fields = LogFields::default();
        event.record(&mut fields);
        let line = line(&crate::clock::exact(), *event.metadata().level(), &fields, self.colour);
        // Standard error may be closed: that must not end the agent.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

/// `2026-11-21T09:30:00.123Z info  message key=value`.
fn line(now: &jiff::Timestamp, level: Level, fields: &LogFields, colour: bool) -> String {
    let (name, code) = match level {
        Level::ERROR => ("error", "31"),
        Level::WARN => ("warn ", "33"),
        Level::INFO => ("info ", "32"),
        Level::DEBUG => ("debug", "34"),
        Level::TRACE => ("trace", "35"),
    };
    let level = if colour { format!("\x1b[{code}m{name}\x1b[0m") } else { name.to_owned() };
    let mut line = format!("{now:.3} {level} {}", escape::line(&fields.message));
    for (name, value) in &fields.pairs {
        let is_safe = matches!(escape::line(value), std::borrow::Cow::Borrowed(_));
        let plain = is_safe && !value.is_empty() && !value.contains(|c: char| c.is_whitespace() || c == '"');
        if plain {
            line.push_str(&format!(" {name}={value}"));
        } else {
            line.push_str(&format!(" {name}={value:?}"));
        }
    }
    line.push('\n');
    line
}

/// Message and fields of an event as text.
#[derive(Default)]
struct LogFields {
    message: String,
    pairs: Vec<(&'static str, String)>,
}

impl LogFields {
    fn put(&mut self, field: &Field, value: String) {
        if field.name() == "message" {
            self.message = value;
        } else {
            self.pairs.push((field.name(), value));
        }
    }
}

impl Visit for LogFields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.to_owned());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        // The whole chain: messages leave their source out.
        let mut text = value.to_string();
        let mut next = value.source();
        while let Some(source) = next {
            text.push_str(&format!(": {source}"));
            next = source.source();
        }
        self.put(field, text);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests;
