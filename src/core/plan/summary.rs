//! The report on a daemon after a pass.
//!
//! Owns the values, and how long their texts may be. Must not decide anything.

use std::borrow::Cow;

use crate::core::cluster::node_daemons::MissingReport;
use crate::core::escape;
use crate::core::model::Mode;
use crate::core::model::ObjectKey;
use crate::core::model::Source;
use crate::core::record::FailedRevision;
use crate::core::render::Missing;
use crate::core::sources::DesiredReason;
use crate::core::status::StaleVolume;
use crate::core::status::State;
use crate::core::status::WaitingContainer;
use crate::core::time::Timestamp;
use crate::core::update_trigger::UpdateTrigger;

use super::AwaitedTrigger;
use super::Hint;
use super::ImageReason;
use super::Note;
use super::Reason;
use super::Reasons;

/// What to report about a daemon after a pass.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Summary {
    pub state: State,
    #[serde(rename = "reason")]
    pub reasons: Reasons,
    /// Where its definition comes from.
    pub source: Option<Source>,
    pub mode: Option<Mode>,
    /// The revision of the reported instance.
    pub revision: String,
    /// The wanted revision, if it differs.
    pub wanted_revision: Option<String>,
    /// The pod's name without the node's.
    pub pod: String,
    pub uid: String,
    /// Whether it is ready; `None`: unknown.
    pub ready: Option<bool>,
    /// Since when it is in this state, if known.
    pub since: Option<Timestamp>,
    pub waiting_for: Vec<Missing>,
    /// Parts of the instance that keep their last data.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stale: Vec<StaleVolume>,
    /// Containers of the instance that wait for their environment.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting_containers: Vec<WaitingContainer>,
    /// Whether the node is to carry the taint `daemonlet.dev/starting` until it is Ready.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub keeps_workload_away: bool,
    /// Remarks, such as what was left out.
    pub notes: Vec<Note>,
    /// What to do.
    pub hints: Vec<Hint>,
    /// The first field that is refused.
    pub refused_field: Option<String>,
    /// Whether the coordinator withholds its approval.
    pub awaits_approval: bool,
    /// Whether nothing of it starts here before its rollout has come further.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub awaits_rollout: bool,
    /// What its replacement waits for, which nothing else withholds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub awaited: Option<AwaitedTrigger>,
    /// Why an image of the wanted revision cannot be pulled, while the old instance stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_failed: Option<ImageReason>,
    /// The target's missing objects, while an instance of another revision stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<MissingReport>,
    /// The name of a pod of the DaemonSet controller that runs beside a `static` instance.
    pub stock_pod: Option<String>,
    /// The wanted revision, if it failed here.
    pub failed: Option<FailedRevision>,
    /// Whether it is held and `release` ends it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub releasable: bool,
}

/// How many hints about one daemon there are at most.
const HINTS: usize = 20;

impl Summary {
    /// Whether it stays as it is until the labels of the Node are known, which decide which overlays apply.
    pub fn awaits_labels(&self) -> bool {
        let awaits = [DesiredReason::LabelsUnread, DesiredReason::LabelsIncomplete].map(Reason::Desired);
        awaits.iter().any(|reason| self.reasons.contains(reason))
    }

    /// The replacement that waits for `daemonlet approve`.
    pub fn awaits_approve(&self) -> Option<&AwaitedTrigger> {
        self.awaited.as_ref().filter(|awaited| awaited.trigger == UpdateTrigger::Manual)
    }

    /// Says that `release` ends it, and how.
    pub fn let_go(&mut self, key: &ObjectKey) {
        if !self.releasable {
            self.releasable = true;
            self.hints.push(Hint::Release(key.clone()));
        }
    }

    /// What to do, a line each.
    pub fn hint_lines(&self) -> Vec<String> {
        self.hints.iter().map(ToString::to_string).collect()
    }

    /// Bounds the texts, which quote other sources: a template, a registry, a container.
    pub(super) fn shorten(&mut self) {
        let missing = self.missing.as_mut().map(|missing| &mut missing.message);
        let hints = self.hints.iter_mut().filter_map(|hint| match hint {
            Hint::Field(text) => Some(text),
            _ => None,
        });
        for text in missing.into_iter().chain(hints) {
            if let Cow::Owned(short) = escape::short(text, escape::TEXT) {
                *text = short;
            }
        }
        if let Some(why) = &mut self.pull_failed
            && let Cow::Owned(short) = escape::short(&why.to_string(), escape::TEXT)
        {
            *why = ImageReason::Reported(short);
        }
        self.reasons.shorten();
        let more = self.hints.len().saturating_sub(HINTS);
        self.hints.truncate(HINTS);
        self.hints.extend((more > 0).then_some(Hint::More(more)));
    }
}
