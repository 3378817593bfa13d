//! One dry run: when it is sent, when it is sent again, and the answer meanwhile.
//!
//! Owns the pace. A question is put once for an instance; what was refused or not answered is asked again ever more
//! rarely, at times that differ from node to node. Must not read a clock.

use std::sync::Arc;

use serde_json::Value;

use crate::core::knowledge::Unlinked;
use crate::core::plan::jitter;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::core::time::doubled;

use super::DryRunVerdict;
use super::Unanswered;

/// How long a new instance waits for an answer; a webhook may take ten seconds by default.
const PATIENCE: Span = Span::from_secs(12);
/// How long an answer counts for an instance that has not been made meanwhile.
pub const FRESH: Span = Span::from_mins(10);
/// Before a refusal is asked about again, first and at most.
const REFUSED: (Span, Span) = (Span::from_secs(5), Span::from_mins(10));
/// The same where no verdict came.
const UNANSWERED: (Span, Span) = (Span::from_secs(1), Span::from_secs(60));

/// Where a question stands.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestState {
    /// What is known.
    pub answer: DryRunAnswer,
    /// Whether it is to be put now.
    pub due: bool,
    /// When to look again if nothing happens.
    pub again: Option<Timestamp>,
}

/// What is known of a question.
#[derive(Clone, Debug, PartialEq)]
pub enum DryRunAnswer {
    /// The answer may still come in time.
    Open,
    /// The pod would be created; what a new instance is made from.
    Admitted(Arc<Value>),
    /// It would not, in the API server's words.
    Refused(String),
    /// The API server gave no verdict on it.
    Unanswered(Unanswered),
}

/// A question and its answers.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct AdmissionDryRun {
    about: String,
    /// When it was first put.
    since: Timestamp,
    /// When it was put, if the answer is outstanding.
    open: Option<Timestamp>,
    /// How often in a row it was refused or not answered.
    tries: u32,
    last: Option<(Timestamp, DryRunVerdict)>,
}

impl AdmissionDryRun {
    /// A question that has not been put.
    pub fn new(about: &str, now: Timestamp) -> Self {
        Self { about: about.to_owned(), since: now, open: None, tries: 0, last: None }
    }

    pub fn about(&self) -> &str {
        &self.about
    }

    /// Whether an answer is outstanding.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    pub fn put(&mut self, now: Timestamp) {
        self.open = Some(now);
    }

    /// The answer has come.
    pub fn answered(&mut self, verdict: DryRunVerdict, now: Timestamp) {
        self.open = None;
        self.tries = if matches!(verdict, DryRunVerdict::Admitted(_)) { 0 } else { self.tries.saturating_add(1) };
        self.last = Some((now, verdict));
    }

    /// Where it stands now, on `node`; `link`: why there is no connection, if so.
    pub fn request_state(&self, now: Timestamp, node: &str, link: Option<Unlinked>) -> RequestState {
        let due_at = self.due_at(node);
        let due = self.open.is_none() && due_at.is_none_or(|at| at <= now || at - now > FRESH * 2);
        let in_time = now - self.since < PATIENCE && now >= self.since;
        let answer = match (&self.last, link) {
            (Some((at, DryRunVerdict::Admitted(template))), _) if now - *at < FRESH => {
                DryRunAnswer::Admitted(Arc::clone(template))
            }
            (Some((_, DryRunVerdict::Refused(words))), _) => DryRunAnswer::Refused(words.clone()),
            (_, Some(why)) => DryRunAnswer::Unanswered(Unanswered::passing(why.to_string())),
            (Some((_, DryRunVerdict::Unanswered(why))), _) if !(why.passing && in_time) => {
                DryRunAnswer::Unanswered(why.clone())
            }
            (Some((_, DryRunVerdict::Unanswered(_))) | None, _) if in_time => DryRunAnswer::Open,
            (None, _) => {
                DryRunAnswer::Unanswered(Unanswered::passing(format!("no answer within {} s", PATIENCE.as_secs())))
            }
            // It was admitted a while ago, and is asked anew.
            _ => DryRunAnswer::Open,
        };
        let patience = (answer == DryRunAnswer::Open).then_some(self.since + PATIENCE);
        let again = due_at.filter(|_| self.open.is_none()).into_iter().chain(patience).filter(|at| *at > now).min();
        RequestState { answer, due: due && link.is_none(), again: if link.is_some() { None } else { again } }
    }

    /// When it is put again; `None`: at once.
    fn due_at(&self, node: &str) -> Option<Timestamp> {
        let (at, verdict) = self.last.as_ref()?;
        let (first, most) = match verdict {
            DryRunVerdict::Admitted(_) => return Some(*at + FRESH),
            DryRunVerdict::Refused(_) => REFUSED,
            DryRunVerdict::Unanswered(_) => UNANSWERED,
        };
        let wait = doubled(first, self.tries.saturating_sub(1), most);
        Some(*at + wait + jitter(node, &self.about, wait / 2))
    }
}
