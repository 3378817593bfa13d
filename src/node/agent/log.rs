//! Log lines of a pass, as values: deciding does not log.

use crate::core::model::ObjectKey;
use crate::core::record::DaemonRecord;

use super::records::Records;

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub(super) enum LogLevel {
    Debug,
    Info,
    Warn,
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(super) struct LogLine {
    pub(super) level: LogLevel,
    pub(super) text: String,
    pub(super) daemonset: Option<String>,
    pub(super) pod: Option<String>,
    pub(super) hint: Option<String>,
}

/// The lines of a pass, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(super) struct Log(pub(super) Vec<LogLine>);

impl LogLine {
    pub(super) fn daemonset(&mut self, key: &ObjectKey) -> &mut Self {
        self.daemonset = Some(key.to_string());
        self
    }

    /// Of the DaemonSet that has such a record, if one has.
    pub(super) fn daemonset_of(&mut self, records: &Records, is_it: impl Fn(&DaemonRecord) -> bool) -> &mut Self {
        match records.values().find(|record| is_it(record)) {
            Some(record) => self.daemonset(&record.key),
            None => self,
        }
    }

    pub(super) fn pod(&mut self, pod: &str) -> &mut Self {
        self.pod = Some(pod.to_owned());
        self
    }

    /// What to do about it.
    pub(super) fn hint(&mut self, hint: Option<&str>) -> &mut Self {
        self.hint = hint.map(str::to_owned);
        self
    }

    /// Writes it to the log.
    pub(super) fn write(&self) {
        let Self { level, text, daemonset, pod, hint } = self;
        let (daemonset, pod, hint) = (daemonset.as_deref(), pod.as_deref(), hint.as_deref());
        match level {
            LogLevel::Debug => tracing::debug!(daemonset, pod, hint, "{text}"),
            LogLevel::Info => tracing::info!(daemonset, pod, hint, "{text}"),
            LogLevel::Warn => tracing::warn!(daemonset, pod, hint, "{text}"),
        }
    }
}

impl Log {
    /// Adds a line.
    pub(super) fn line(&mut self, level: LogLevel, text: impl Into<String>) -> &mut LogLine {
        self.0.push(LogLine { level, text: text.into(), daemonset: None, pod: None, hint: None });
        let last = self.0.len() - 1;
        &mut self.0[last]
    }

    pub(super) fn debug(&mut self, text: impl Into<String>) -> &mut LogLine {
        self.line(LogLevel::Debug, text)
    }

    pub(super) fn info(&mut self, text: impl Into<String>) -> &mut LogLine {
        self.line(LogLevel::Info, text)
    }

    pub(super) fn warn(&mut self, text: impl Into<String>) -> &mut LogLine {
        self.line(LogLevel::Warn, text)
    }
}
