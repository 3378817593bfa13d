//! Starting an instance, keeping it up to date, and describing it.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::core::model::DaemonSet;
use crate::core::model::FieldError;
use crate::core::model::Kind;
use crate::core::model::Mode;
use crate::core::model::ObjectRef;
use crate::core::model::StartGate;
use crate::core::record::Instance;
use crate::core::record::WrittenData;
use crate::core::render::HeldPart;
use crate::core::render::Missing;
use crate::core::rendering::RenderResult;
use crate::core::rendering::Rendered;
use crate::core::time::Span;

use super::Action;
use super::Data;
use super::Hint;
use super::Images;
use super::Note;
use super::Planner;
use super::Readiness;
use super::Reason;
use super::State;
use super::progress::Target;
use super::ready::STEADY;
use super::refresh;

/// If an instance takes longer than this from its manifest to its first readiness, it counts as failing.
const STARTUP: Span = Span::from_secs(60);

/// How long a new instance waits for an object that no source has shown yet, before a container waits for it by itself.
const UNCONFIRMED: Span = Span::from_secs(2);

/// How long a first instance waits for the API server's answer about optional objects, before it starts without them.
const UNANSWERED: Span = Span::from_secs(5);

/// Why a new instance starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartFor {
    /// Nothing of the daemon runs.
    Nothing,
    /// An instance of the same revision ends for it.
    Restart,
    /// An instance ends for it, or runs beside it, and stays while something is missing.
    Replacement,
    /// The same at a boot, before anything runs: unless its images are known to be gone, they are here.
    Boot,
}

/// The source of a new instance.
pub(super) struct NewInstance {
    pub(super) rendering: Arc<RenderResult>,
    /// The DaemonSet that was rendered, as admission returned it.
    pub(super) daemon_set: Arc<DaemonSet>,
}

impl Planner<'_> {
    /// The next incarnation's rendering if everything that it needs is there; else the summary says what is missing.
    /// Also requests the images that must be pulled first.
    pub(super) fn prepare(&mut self, target: &Target, start_for: StartFor) -> Option<NewInstance> {
        if self.has_overlays_in_bootstrap(&target.daemon_set) {
            return None;
        }
        if !self.admitted(&target.daemon_set) {
            if self.plan.summary.state == State::Waiting {
                self.ask_ahead(target);
            }
            return None;
        }
        // A rendering that waits for something cannot be dry-run yet.
        let as_written = self.rendered(&target.daemon_set, target.data, start_for)?;
        let replaces = matches!(start_for, StartFor::Replacement | StartFor::Boot);
        let daemon_set = self.as_admitted(target, replaces)?;
        let rendering = match Arc::ptr_eq(&daemon_set, &target.daemon_set) {
            true => as_written,
            false => self.rendered(&daemon_set, target.data, start_for)?,
        };
        let rendering = match start_for {
            // The images were here when it was staged; before the kubelet starts, few components answer.
            StartFor::Boot if !matches!(self.facts.images(&rendering, replaces), Images::Failed(_)) => rendering,
            _ => self.with_images(rendering, replaces)?,
        };
        Some(NewInstance { rendering, daemon_set })
    }

    /// Requests the objects that the target waits for besides its Namespace, so that the first daemon of a namespace does not wait
    /// for two answers in sequence. Not for Secrets: the daemon may not be allowed to start.
    fn ask_ahead(&mut self, target: &Target) {
        let (references, tokens) = (self.plan.references.clone(), self.plan.tokens.clone());
        let _ = self.rendered(&target.daemon_set, target.data, StartFor::Replacement);
        let missing = &self.plan.summary.waiting_for;
        let is_wanted = |r: &ObjectRef| r.kind != Kind::Secret && missing.iter().any(|missing| missing.is(r));
        self.plan.references.retain(|reference| references.contains(reference) || is_wanted(reference));
        self.plan.tokens = tokens;
    }

    /// Notes the objects that the target needs, so that they are there when its wait is over, also without an API server.
    pub(super) fn note_needs(&mut self, target: &Target) {
        let before = self.plan.summary.clone();
        let _ = self.rendered(&target.daemon_set, target.data, StartFor::Nothing);
        self.plan.summary = before;
    }

    /// The next incarnation's rendering if it can be written; else the summary says why not.
    fn rendered(&mut self, daemon_set: &Arc<DaemonSet>, data: Data, start_for: StartFor) -> Option<Arc<RenderResult>> {
        let rendering = self.facts.rendering(daemon_set, self.plan.record.next_incarnation, data);
        self.plan.summary.revision.clone_from(&rendering.revision);
        match &rendering.result {
            Err(refused) => {
                self.plan.references.extend(refused.references.iter().cloned());
                self.plan.tokens.extend(refused.tokens.iter().cloned());
                self.refuse(&refused.errors);
                None
            }
            Ok(rendered) => {
                self.note(rendered);
                let can_start = match start_for {
                    StartFor::Nothing if !rendered.pod.can_start() => false,
                    StartFor::Nothing if self.awaits_answer(&rendering) => return None,
                    StartFor::Nothing => self.is_confirmed(&rendered.pod.held),
                    StartFor::Restart | StartFor::Replacement | StartFor::Boot => rendered.pod.waiting_for.is_empty(),
                };
                if can_start {
                    return Some(rendering);
                }
                self.wait_for(&rendered.pod.waiting_for);
                None
            }
        }
    }

    /// Whether missing objects are known not to exist, or have been waited for long enough.
    fn is_confirmed(&mut self, held: &[HeldPart]) -> bool {
        !held.iter().any(|held| held.unconfirmed) || self.is_unconfirmed_for(UNCONFIRMED)
    }

    /// Whether a first instance still waits for the API server's answer about optional objects. What ran returns at once.
    fn awaits_answer(&mut self, rendering: &RenderResult) -> bool {
        let unanswered = if self.had_ended { Vec::new() } else { self.facts.unanswered(rendering) };
        if unanswered.is_empty() || self.is_unconfirmed_for(UNANSWERED) {
            return false;
        }
        self.wait_for(&unanswered);
        true
    }

    /// Whether it has waited for `span` for objects that no source has shown.
    fn is_unconfirmed_for(&mut self, span: Span) -> bool {
        let at = *self.plan.record.unconfirmed_since.get_or_insert(self.context.now) + span;
        if self.context.now < at {
            self.wake(at);
        }
        self.context.now >= at
    }

    /// Says which fields are refused, and how to allow them.
    pub(super) fn refuse(&mut self, errors: &[FieldError]) {
        self.plan.summary.state = State::Refused;
        self.plan.summary.refused_field = errors.first().map(|error| error.field.clone());
        self.add_field_hints(errors);
        self.add_reason(Reason::Refused(errors.to_vec()));
    }

    /// Adds the hints of fields.
    pub(super) fn add_field_hints<'e>(&mut self, errors: impl IntoIterator<Item = &'e FieldError>) {
        self.add_hints(errors.into_iter().filter_map(|error| error.hint.clone()).map(Hint::Field));
    }

    /// Adds hints; each stands there once.
    pub(super) fn add_hints(&mut self, hints: impl IntoIterator<Item = Hint>) {
        let mut seen = BTreeSet::new();
        let all = std::mem::take(&mut self.plan.summary.hints).into_iter().chain(hints);
        self.plan.summary.hints = all.filter(|hint| seen.insert(hint.clone())).collect();
    }

    /// Reports the missing objects.
    pub(super) fn wait_for(&mut self, missing: &[Missing]) {
        self.plan.summary.state = State::Waiting;
        self.plan.summary.waiting_for.extend_from_slice(missing);
        self.add_reason(Reason::WaitsFor(missing.to_vec()));
    }

    /// The rendering once its images are there, or once the kubelet can try by itself.
    fn with_images(&mut self, rendering: Arc<RenderResult>, replaces: bool) -> Option<Arc<RenderResult>> {
        self.plan.pull = Some(Arc::clone(&rendering));
        let images = self.facts.images(&rendering, replaces);
        let is_failed = matches!(images, Images::Failed(_));
        match images {
            Images::Present => Some(rendering),
            Images::Handed(risk) => {
                self.plan.summary.notes.push(Note::Images(risk));
                Some(rendering)
            }
            // The kubelet retries by itself and reports in the API.
            Images::Failed(why) if !replaces => {
                self.plan.summary.notes.push(Note::Images(why));
                Some(rendering)
            }
            Images::Failed(why) | Images::Pulling(why) => {
                self.plan.summary.pull_failed = is_failed.then(|| why.clone());
                self.plan.summary.state = State::Waiting;
                self.add_reason(Reason::Images(why));
                None
            }
        }
    }

    pub(super) fn note(&mut self, rendered: &Rendered) {
        self.plan.references.extend(rendered.pod.references.iter().cloned());
        self.plan.tokens.extend(rendered.pod.tokens.iter().cloned());
        self.note_all(&rendered.pod.notes);
    }

    /// Adds notes to the summary, each once.
    pub(super) fn note_all(&mut self, notes: &[FieldError]) {
        for note in notes.iter().cloned().map(Note::Field) {
            if !self.plan.summary.notes.contains(&note) {
                self.plan.summary.notes.push(note);
            }
        }
    }

    pub(super) fn begin(&mut self, target: &Target, prepared: &NewInstance, reason: Reason) {
        let NewInstance { rendering, daemon_set } = prepared;
        let Ok(rendered) = &rendering.result else { return };
        let incarnation = self.plan.record.next_incarnation;
        self.plan.record.next_incarnation = incarnation.saturating_add(1);
        self.plan.record.pending_update = None;
        self.plan.record.by_hand = None;
        self.plan.record.staged = None;
        (self.plan.record.last, self.plan.record.returns) = (None, false);
        self.plan.record.unconfirmed_since = None;
        self.open_for_new();
        let waiting = refresh::waiting_alone(&rendered.pod.held);
        // Data that starts a waiting container is no change of its data.
        let data_version = if waiting.is_empty() { rendered.pod.data_version.clone() } else { String::new() };
        self.plan.record.bootstrap = self.plan.summary.mode == Some(Mode::Bootstrap);
        let instance = Instance {
            node_name: Some(self.context.node.name.clone()),
            daemon_set: Some(daemon_set.with_gate(match rendered.pod.has_gate {
                true => StartGate::Has,
                false => StartGate::None,
            })),
            data_version,
            waiting,
            data: Some(WrittenData::of(rendering, &BTreeSet::new())),
            pinned: target.data == Data::Rollback,
            ..Instance::new(
                &rendering.identity.uid,
                &rendering.identity.pod_name,
                incarnation,
                &rendering.revision,
                self.context.now,
            )
        };
        self.plan.actions.push(Action::Start { rendering: Arc::clone(rendering), reason });
        self.show_as(&instance, State::Starting, [Reason::ManifestWritten]);
        self.note_waiting(&rendered.pod.held);
        self.plan.record.instances.push(instance);
    }

    /// Describes a live instance in the summary.
    pub(super) fn show(&mut self, instance: &Instance) {
        if let Some(order) = instance.restart.as_ref().filter(|order| order.due > self.context.now) {
            let wait = Span::from_secs((order.due - self.context.now).as_secs_ceil());
            self.plan.summary.ready = Some(false);
            let reasons = [Reason::Ordered(order.cause.clone()), Reason::TriedIn(wait)];
            return self.show_as(instance, State::Failing, reasons);
        }
        if let Some(message) = self.why_not_accepted(instance) {
            self.plan.summary.ready = Some(false);
            let reasons = [Reason::NotAccepted(message), Reason::StaysNotAccepted];
            return self.show_as(instance, State::NotAccepted, reasons);
        }
        if self.has_no_manifest(instance) {
            self.plan.summary.ready = Some(false);
            return self.show_as(instance, State::Waiting, [Reason::ManifestLost]);
        }
        match self.facts.readiness(instance) {
            Readiness::Ready { since } => {
                self.show_as(instance, State::Running, []);
                self.plan.summary.ready = Some(true);
                self.plan.summary.since = Some(since);
            }
            Readiness::NotReady(reason) => {
                let grown = instance.created + STARTUP;
                let state = match instance.started && self.context.now >= grown {
                    true => State::Failing,
                    false => State::Starting,
                };
                if instance.started && state == State::Starting {
                    self.wake(grown);
                }
                self.show_as(instance, state, [Reason::NotReady(reason)]);
                self.plan.summary.ready = Some(false);
            }
            Readiness::Steady { since } => {
                let state = match since + STEADY <= self.context.now {
                    true => State::Running,
                    false => State::Unknown,
                };
                self.show_as(instance, state, [Reason::ReadinessUnreported]);
                self.plan.summary.since = Some(since);
            }
            Readiness::Unknown(why) => self.show_as(instance, State::Unknown, [Reason::ReadinessUnknown(why)]),
        }
        if instance.orphaned {
            self.plan.summary.state = State::Orphaned;
        }
    }

    pub(super) fn show_as(&mut self, instance: &Instance, state: State, reasons: impl IntoIterator<Item = Reason>) {
        self.plan.summary.state = state;
        self.plan.summary.pod.clone_from(&instance.pod_name);
        self.plan.summary.uid.clone_from(&instance.uid);
        self.plan.summary.revision.clone_from(&instance.revision);
        self.plan.summary.since = Some(instance.created);
        if self.plan.summary.source.is_none() {
            self.plan.summary.source = instance.daemon_set.as_ref().map(|d| d.source.clone());
        }
        self.add_reasons(reasons);
    }
}
