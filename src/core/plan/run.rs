//! The plan for a wanted daemon: start, refresh, replace, or say why not.

use std::sync::Arc;

use crate::core::model::DaemonSet;
use crate::core::model::Mode;
use crate::core::model::Source;
use crate::core::model::StartGate;
use crate::core::placement::Misfit;
use crate::core::policy::namespace_of;
use crate::core::record::EndConfirmation;
use crate::core::record::Instance;
use crate::core::sources::DesiredNote;
use crate::core::time::Span;

use super::Data;
use super::Facts;
use super::ManifestFact;
use super::Note;
use super::Planner;
use super::Readiness;
use super::Reason;
use super::State;
use super::instance::StartFor;
use super::overlays::is_in_doubt;
use super::progress::Target;
use super::progress::restarts_on_data;
use super::ready::Availability;

/// In so long the kubelet reports that containers run which it could not make before: it tries again after 15 s at most.
const REPORTED_WITHIN: Span = Span::from_secs(20);

impl Planner<'_> {
    /// Plans a daemon that its sources define.
    pub(super) fn wanted(&mut self, daemon_set: &Arc<DaemonSet>, mode: Mode, note: Option<&DesiredNote>) {
        self.plan.summary.source = Some(daemon_set.source.clone());
        self.plan.summary.mode = Some(mode);
        self.plan.summary.notes.extend(note.cloned().map(Note::Desired));
        self.plan.record.released = false;
        if self.plan.record.runs() {
            self.plan.record.bootstrap = mode == Mode::Bootstrap;
        }
        if self.take_definition(daemon_set, false) {
            return;
        }
        match mode {
            Mode::Bootstrap if self.is_handed_over(daemon_set) => return,
            Mode::Bootstrap => {}
            Mode::Static => self.look_for_stock(daemon_set),
        }
        let misplaced = self.misplaced(daemon_set);
        self.run(daemon_set, misplaced.as_ref());
    }

    /// Notes where the definition comes from, and ends what may not stay here. Gives whether that was all. A definition that
    /// `is_held` is the record's own: it may be of the DaemonSet before the one that has adopted what runs.
    pub(super) fn take_definition(&mut self, daemon_set: &Arc<DaemonSet>, is_held: bool) -> bool {
        // The DaemonSet that orphaned its pods (as the checkpoint remembers it) does not adopt them again; a new one
        // of that name does.
        let returns = daemon_set.source == Source::Api && self.plan.record.api_uid == daemon_set.uid;
        if daemon_set.source == Source::Api {
            self.note_released(daemon_set);
            if !is_held || self.plan.record.api_uid.is_none() {
                self.begin_anew(daemon_set);
                self.plan.record.api_uid.clone_from(&daemon_set.uid);
            }
            self.plan.record.ignored_file = None;
        } else if self.plan.record.ignored_file.take().is_some() {
            // The file has changed since the deletion in the API, which is over.
            self.plan.record.api_uid = None;
        }
        for instance in self.plan.record.instances.iter_mut().filter(|_| !returns) {
            instance.orphaned = false;
        }
        self.plan.references.insert(namespace_of(daemon_set));
        let placement = self.placed(daemon_set);
        // A node that is not registered yet has only some of its labels and taints: not enough to start anything,
        // and no evidence against a running instance.
        let Some(misfit) = placement.misfit.filter(|_| !placement.should_continue_running) else { return false };
        let reason = Reason::Misplaced(misfit);
        match (self.context.node.registered, self.awaits_labels_until(daemon_set)) {
            (true, None) => self.unplaced(reason),
            // The owner of a node that asks no API server has written it down.
            (false, None) if self.is_evicted(daemon_set) => self.unplaced(reason),
            _ if self.plan.record.live().next().is_none() => self.show_ended(reason),
            (true, Some(until)) => {
                self.wake(until);
                self.keep(State::Unknown, [reason, Reason::LabelsMayCome(until)]);
            }
            (false, Some(_)) => self.keep(State::Unknown, [reason, Reason::NodeUnread]),
            (false, None) => self.keep(State::Unknown, [reason, Reason::LabelsUnknown]),
        }
        true
    }

    /// A DaemonSet that takes the name of a deleted one, of which nothing stays here, has run nothing yet.
    fn begin_anew(&mut self, daemon_set: &DaemonSet) {
        let record = &mut self.plan.record;
        let is_another = record.api_uid.is_some() && record.api_uid != daemon_set.uid;
        if is_another && record.live().next().is_none() {
            record.forget_revisions();
            self.end_returns();
            self.had_ended = false;
        }
    }

    /// An instance whose manifest was removed from outside ends: the kubelet ends its pod, and its UID is never used
    /// again.
    pub(super) fn end_lost_manifests(&mut self) {
        let gone = |i: &&Instance| self.facts.manifest(&i.uid) == ManifestFact::Missing;
        let lost: Vec<Instance> = self.plan.record.live().filter(gone).cloned().collect();
        for instance in lost {
            self.end_for_restart(&instance, Reason::ManifestRemoved, EndConfirmation::ByTime);
        }
    }

    /// `misplaced`: why no new instance starts here.
    pub(super) fn run(&mut self, daemon_set: &Arc<DaemonSet>, misplaced: Option<&Misfit>) {
        let desired = self.facts.revision(daemon_set);
        self.note_overlays(daemon_set);
        self.follow_definition(daemon_set, &desired);
        self.order_retries();
        self.note_previous(daemon_set, &desired);
        self.judge(daemon_set, &desired);
        let target = match self.taken_back(daemon_set, &desired) {
            Some(target) if self.leaves(&target) => return,
            Some(target) if !self.has_left(&target) => target,
            _ => self.target(daemon_set, &desired),
        };
        let target = self.or_last(target);
        self.plan.record.staged.take_if(|staged| *staged != target.revision && !is_in_doubt(staged, &target));
        let Some(target) = self.or_released(target) else { return };
        let (current, outdated) = self.split(&target);
        let needs_approval = self.needs_approval(&target);
        if outdated.is_empty() && !needs_approval {
            self.plan.record.pending_update = None;
        }
        let outdated = self.worth_keeping_first(outdated, &target);
        match (current.split_last(), outdated.split_first()) {
            (Some((new, older)), Some((old, others))) => {
                self.end_all(older.iter().chain(others), &Reason::NewerHere);
                self.reconcile_two(&target, new, old);
            }
            (Some((new, older)), None) => {
                self.end_all(older.iter(), &Reason::NewerOfRevisionHere);
                self.refresh(new);
                self.show(new);
                self.note_admission(&target.daemon_set);
                self.note_unasked(new);
            }
            (None, Some((old, others))) => {
                self.end_all(others.iter(), &Reason::NewerHere);
                self.plan.summary.wanted_revision = Some(desired.clone());
                let surge = target.daemon_set.allows_surge() && !self.gives_way(old, &target);
                self.replace(&target, old, misplaced, surge);
            }
            (None, None) if misplaced.is_some() => {
                self.plan.summary.state =
                    if self.plan.record.instances.is_empty() { State::NotSelected } else { State::Stopping };
                self.add_reasons(misplaced.cloned().map(Reason::Misplaced));
            }
            (None, None) if self.plan.record.ending().next().is_some() => {
                self.note_claim(&target);
                let prepared = self.prepare(&target, StartFor::Nothing).is_some();
                if prepared {
                    self.plan.summary.state = State::Replacing;
                    self.add_reason(Reason::OldEndsFirst);
                }
            }
            (None, None) => {
                self.note_claim(&target);
                // A daemon that may not start at all does not wait: waiting daemons are counted apart from refused ones.
                if self.is_refused_at_a_port(&target) {
                    self.plan.replacing = None;
                    self.admitted(&target.daemon_set);
                    return;
                }
                if let Some(why) = self.clash_with_others(&target, false) {
                    self.note_needs(&target);
                    self.plan.summary.state = State::Waiting;
                    return self.add_reason(why);
                }
                if needs_approval && self.awaits_first_approval(&target) {
                    return;
                }
                let prepared = self.prepare(&target, StartFor::Nothing);
                let prepared = prepared.and_then(|prepared| Some((prepared, self.start_reason()?)));
                if needs_approval && prepared.is_none() {
                    // Its claim is returned.
                    self.plan.replacing = None;
                }
                if let Some(at) = self.facts.may_run_unrecorded().filter(|_| prepared.is_some()) {
                    self.plan.summary.state = State::Waiting;
                    self.ask_runtime(at);
                    return self.add_reason(Reason::AsksRuntime);
                }
                if let Some((prepared, reason)) = prepared.filter(|_| !needs_approval || !self.claims_approval(&target))
                {
                    self.begin(&target, &prepared, reason);
                }
            }
        }
    }

    fn end_all<'i>(&mut self, instances: impl Iterator<Item = &'i Instance>, reason: &Reason) {
        for instance in instances {
            self.end(&instance.uid, reason.clone());
        }
    }

    /// Of several outdated instances the oldest ready one stays until the new one is ready (upstream keeps the
    /// oldest); without a ready one, the oldest. It comes first. What is returned from is not worth keeping.
    fn worth_keeping_first(&self, mut outdated: Vec<Instance>, target: &Target) -> Vec<Instance> {
        let ready = |i: &Instance| matches!(self.facts.readiness(i), Readiness::Ready { .. });
        if outdated.len() > 1 {
            outdated.sort_by_key(|i| (self.gives_way(i, target), !ready(i), i.incarnation));
        }
        outdated
    }

    /// Whether the instance is what a return to `target` is from: it may do harm, and ends first, also with surge.
    fn gives_way(&self, instance: &Instance, target: &Target) -> bool {
        target.rollback && self.plan.record.failed.as_ref().is_none_or(|failed| failed.revision == instance.revision)
    }

    /// Updates instances of the wanted revision with what is outside the template (ServiceAccounts and policies may
    /// have changed, or the API may have replaced a file as the source). An adopted instance of unknown template takes
    /// the wanted one if its hash matches.
    fn follow_definition(&mut self, daemon_set: &Arc<DaemonSet>, wanted: &str) {
        for instance in &mut self.plan.record.instances {
            let known = instance.daemon_set.as_ref();
            // An adopted instance has name and UID from the other DaemonSet.
            let adopted = known.is_some_and(|d| d.key != daemon_set.key);
            // One that admission changed is compared; any other is shared, so it need not be compared again.
            let follows = |d: &Arc<DaemonSet>| {
                let is_own = d.admitted.is_some() || d.gate != daemon_set.gate;
                Arc::ptr_eq(d, daemon_set) || (is_own && d.defines_the_same(daemon_set))
            };
            // One whose template is unknown, and whose UID another name of the node is in.
            let is_foreign = known.is_none()
                && self.facts.rendering(daemon_set, instance.incarnation, Data::Current).identity.uid != instance.uid;
            if instance.revision == wanted && !adopted && !is_foreign && !known.is_some_and(follows) {
                // What admission returned for the template stays with the instance, and so does its gate.
                let admitted = known.and_then(|d| d.admitted.clone());
                let gate = known.map_or_else(|| gate_on_disk(self.facts, daemon_set, instance), |d| d.gate);
                if known.is_none() {
                    instance.node_name = Some(self.context.node.name.clone());
                }
                instance.daemon_set = Some(daemon_set.with_admitted(admitted.as_ref()).with_gate(gate));
            }
        }
    }

    /// Live instances of the target, and the others, each oldest first. Those of the target use its data from now on.
    fn split(&mut self, target: &Target) -> (Vec<Instance>, Vec<Instance>) {
        let follows_data = target.data == Data::Current && restarts_on_data(&target.daemon_set);
        let mut live: Vec<Instance> = self.plan.record.live().cloned().collect();
        live.sort_by_key(|i| i.incarnation);
        let (mut current, mut outdated) = (Vec::new(), Vec::new());
        for mut instance in live {
            let is_outdated = instance.revision != target.revision
                || self.is_ordered(&instance)
                || self.facts.former_node(&instance).is_some()
                || instance.daemon_set.is_none()
                || (follows_data && self.data_changed(&target.daemon_set, &instance))
                || (target.rollback && self.failed_with(&instance));
            if is_outdated {
                outdated.push(instance);
                continue;
            }
            instance.pinned = target.data == Data::Rollback;
            for known in self.plan.record.instances.iter_mut().filter(|i| i.uid == instance.uid) {
                known.pinned = instance.pinned;
            }
            current.push(instance);
        }
        (current, outdated)
    }

    /// Whether the instance runs a good template with data that failed.
    fn failed_with(&self, instance: &Instance) -> bool {
        let failed = self.plan.record.failed.as_ref();
        failed.is_some_and(|f| {
            f.revision == instance.revision
                && !instance.pinned
                && f.data_version.as_ref() == Some(&instance.data_version)
        })
    }

    fn data_changed(&self, daemon_set: &Arc<DaemonSet>, instance: &Instance) -> bool {
        // What admission added may refer to other data.
        let own = instance.daemon_set.as_ref().filter(|own| own.admitted.is_some());
        let daemon_set = own.unwrap_or(daemon_set);
        match &self.facts.rendering(daemon_set, instance.incarnation, Data::Current).result {
            Ok(rendered) => {
                rendered.pod.waiting_for.is_empty()
                    && !instance.data_version.is_empty()
                    && rendered.pod.data_version != instance.data_version
            }
            Err(_) => false,
        }
    }

    /// Both the old and the new instance are here: a surge that has begun. It ends as one though the strategy has changed: the
    /// old instance serves, and the node keeps its slot meanwhile.
    fn reconcile_two(&mut self, target: &Target, new: &Instance, old: &Instance) {
        self.refresh(new);
        self.show(new);
        if let Some(order) = old.restart.as_ref().filter(|_| self.is_ordered(old)) {
            self.end(&old.uid, Reason::Ordered(order.cause.clone()));
        } else if self.gives_way(old, target)
            || self.availability(&target.daemon_set, new, Span::ZERO) != Availability::No
        {
            self.end(&old.uid, Reason::TookOver);
        } else if self.is_broken(old) && !self.may_be_reported_late(old, new) {
            self.end(&old.uid, Reason::BrokenBesideNew);
        } else {
            self.refresh(old);
            self.add_reason(Reason::OldStays);
            self.wake(self.context.now + Span::from_secs(1));
        }
    }

    /// Whether what is reported of `old` may be from when it waited at its gate, which is open since `new` began.
    fn may_be_reported_late(&mut self, old: &Instance, new: &Instance) -> bool {
        let has_gate = old.daemon_set.as_ref().is_some_and(|daemon_set| daemon_set.gate == StartGate::Has);
        let known_at = new.created + REPORTED_WITHIN;
        let is_late = has_gate && self.context.now < known_at;
        if is_late {
            self.wake(known_at);
        }
        is_late
    }

    /// Not ready, with evidence of what is wrong with it. A Node that is not ready is no such evidence.
    fn is_broken(&self, instance: &Instance) -> bool {
        // One that waits at its gate has not shown anything yet.
        !self.gate.is_closed()
            && matches!(self.facts.readiness(instance), Readiness::NotReady(_))
            && self.facts.failure(instance).is_some_and(|f| f.cause.blames_revision())
    }
}

/// Whether the manifest of an instance whose definition is not remembered has a gate: a running instance neither gets nor loses one.
fn gate_on_disk(facts: &dyn Facts, daemon_set: &Arc<DaemonSet>, instance: &Instance) -> StartGate {
    let ManifestFact::Present(on_disk) = facts.manifest(&instance.uid) else { return StartGate::None };
    let with_gate = facts.rendering(&daemon_set.with_gate(StartGate::Has), instance.incarnation, Data::Current);
    match with_gate.result.as_ref().is_ok_and(|rendered| rendered.pod.has_gate && rendered.digest == on_disk) {
        true => StartGate::Has,
        false => StartGate::None,
    }
}
