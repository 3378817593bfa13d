//! Which data of an instance is in doubt when an agent starts.
//!
//! Owns which objects are. Must not decide what follows: planning keeps instances as they are.

use crate::core::knowledge::Knowledge;
use crate::core::model::Kind;
use crate::core::model::Lookup;
use crate::core::model::ObjectRef;
use crate::core::model::ObjectSource;
use crate::core::model::Source;
use crate::core::node;
use crate::core::record::DaemonRecord;
use crate::core::record::Instance;
use crate::core::record::WrittenData;
use crate::core::render::Missing;
use crate::core::rendering::RenderResult;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::node::agent::ending;
use crate::node::agent::state::Goal;

use super::ObservedState;

/// When a runtime that did not answer, or is not believed, is asked again while something waits for its answer.
const RUNTIME_AGAIN: Span = Span::from_secs(1);
/// How long a process that has started holds back changes for a file that it has not read yet because the file does not rest.
pub(in crate::node::agent) const READ_WITHIN: Span = Span::from_secs(10);
/// How long an agent that starts beside a kubelet waits for the API server before what only bridges starts.
const API_WITHIN: Span = Span::from_secs(5);

impl ObservedState<'_> {
    /// An object that no source has shown yet.
    pub(super) fn missing_object(reference: &ObjectRef) -> Missing {
        Missing {
            kind: reference.kind.as_str().to_owned(),
            namespace: reference.key.namespace.clone(),
            name: reference.key.name.clone(),
            key: String::new(),
        }
    }

    /// Until when the API server may still show what the kubelet runs. Before there is a kubelet, nothing runs; and a process
    /// that makes only one pass has no later one.
    pub(super) fn api_awaited_until(&self) -> Option<Timestamp> {
        let left = API_WITHIN - self.observation.steady;
        let is_configured = self.observation.api.is_some() && self.state.goal != Goal::Once;
        (is_configured && !self.observation.is_before_kubelet && left > Span::ZERO).then(|| self.observation.now + left)
    }

    /// The optional objects of a rendering that count as absent only because the API server has not answered yet. Before there
    /// is a kubelet nothing waits for that, nor where there is no connection and has been none for some time.
    pub(super) fn unanswered_objects(&self, rendering: &RenderResult) -> Vec<Missing> {
        let is_asked =
            !self.observation.is_before_kubelet && self.state.goal != Goal::Once && self.observation.is_linked();
        let (Some(api), Ok(rendered)) = (self.observation.snapshot(), &rendering.result) else { return Vec::new() };
        if !is_asked && self.api_awaited_until().is_none() {
            return Vec::new();
        }
        let refused = api.refused();
        let is_unanswered = |object: &&ObjectRef| {
            matches!(object.kind, Kind::ConfigMap | Kind::Secret)
                && matches!(self.objects.lookup(object), Lookup::Unknown)
                && self.objects.is_unlisted(object)
                && !refused.contains_key(object)
        };
        let missing = rendered.pod.references.iter().filter(is_unanswered).map(Self::missing_object);
        missing.filter(|missing| !rendered.pod.waiting_for.contains(missing)).collect()
    }

    /// Until when the Node may lack labels that it gets from others.
    pub(super) fn labels_awaited_until(&self) -> Option<Timestamp> {
        let (now, since) = (self.observation.now, self.state.inputs.node_since);
        // Without an API server the Node gets no labels.
        let has_all = self.observation.api.is_none() || node::has_its_labels(&self.state.node, since);
        (!has_all).then(|| node::labels_due(since, now).unwrap_or(now + node::LABELS_AGAIN))
    }

    /// When the runtime is to be asked again while something waits for its answer.
    pub(super) fn runtime_due(&self) -> Timestamp {
        let again = match self.observation.runtime {
            Knowledge::Unreadable(_) | Knowledge::Current(_) => RUNTIME_AGAIN,
            _ => Span::ZERO,
        };
        self.observation.now + again
    }

    /// Whether another runtime than the kubelet's answers.
    pub(super) fn has_lost_all(&self) -> bool {
        let instances = self.instances.values().map(|(_, instance)| *instance);
        ending::has_lost_all(self.observation, instances, self.state.runtime_has_lost_all)
            || ending::has_lost_others(self.observation, self.state.runtime_runs_others)
    }

    /// Whether nothing remembers what the folders had, and a part of them cannot be read or is not there. `source`: of the
    /// daemon whose objects are looked up.
    pub(super) fn are_folders_unread(&self, source: &Source) -> bool {
        self.state.inputs.incomplete && self.observation.folders.may_define_more(Some(source))
    }

    /// Whether all is remembered that the instance of this number was made with. One that waits for something may have been
    /// made before anything was known of that.
    pub(super) fn had_all(&self, record: &DaemonRecord, incarnation: u64) -> bool {
        let waits = |i: &Instance| i.incarnation == incarnation && !i.waiting.is_empty();
        !self.state.inputs.incomplete && !record.live().any(waits)
    }

    /// The objects of a rendering that the folders define, while another version may count than the one that is known:
    /// what an agent before this one wrote stays, until this one has written all volumes. The file is being changed, or
    /// what was remembered cannot be read and the API server has not listed the object yet. So is the API's own Service,
    /// whose address the manifest may have. Where no data is left to keep, what is known counts, as at a first start.
    pub(super) fn doubtful<'r>(&self, rendering: &'r RenderResult) -> Vec<&'r ObjectRef> {
        let Ok(rendered) = &rendering.result else { return Vec::new() };
        let uid = rendering.identity.uid.as_str();
        let written = self.instances.get(uid).and_then(|(_, instance)| instance.data.as_ref());
        let is_whole =
            |data: &WrittenData| rendering.volumes().iter().all(|volume| data.volumes.contains(&volume.name));
        if self.state.written.contains_key(uid) && written.is_some_and(is_whole) {
            return Vec::new();
        }
        let is_incomplete = self.state.inputs.incomplete && !self.observation.empty_volumes.contains_key(uid);
        let is_doubtful = |reference: &&ObjectRef| {
            if reference.kind == Kind::Service && matches!(self.objects.lookup(reference), Lookup::Unknown) {
                return is_incomplete;
            }
            self.objects.is_folders(reference)
                && (self.observation.folders.is_restless(reference)
                    || is_incomplete && self.objects.is_unlisted(reference))
        };
        rendered.pod.references.iter().filter(is_doubtful).collect()
    }

    /// The objects of a rendering of what returns that the folders define, while a change of their file waits to be read by
    /// this process: what ran may have had more than what an earlier process remembered.
    pub(super) fn unread<'r>(&self, rendering: &'r RenderResult, has_run: bool) -> Vec<&'r ObjectRef> {
        let Ok(rendered) = &rendering.result else { return Vec::new() };
        let is_waited_for = has_run && self.observation.steady < READ_WITHIN;
        let is_unread = |reference: &&ObjectRef| {
            self.objects.is_folders(reference) && self.observation.folders.is_unread_change(reference)
        };
        rendered.pod.references.iter().filter(|_| is_waited_for).filter(is_unread).collect()
    }
}
