//! Memoised rendering: a pass over daemons with nothing new renders nothing.
//!
//! Owns the cache from inputs to outcomes. Must not change what is computed: an entry counts only
//! while every input has the version it was made from.

mod cached;
mod known_rendering;
mod options;
mod room;
mod times;
mod tokens;
mod whole;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::HashMap;
use std::hash::DefaultHasher;
use std::hash::Hash;
use std::hash::Hasher;
use std::sync::Arc;

use serde_json::Value;

use crate::core::cluster::history;
use crate::core::model::DaemonSet;
use crate::core::model::Lookup;
use crate::core::model::OVERLAYS;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectSource;
use crate::core::overlays;
use crate::core::overlays::LastList;
use crate::core::overlays::ListSource;
use crate::core::overlays::OverlayFacts;
use crate::core::overlays::Overlays;
use crate::core::plan::Data;
use crate::core::policy::Policy;
use crate::core::policy::Verdicts;
use crate::core::record::Instance;
use crate::core::render::RenderOptions;
use crate::core::rendering;
use crate::core::rendering::DataDigests;
use crate::core::rendering::RenderResult;
use crate::core::rendering::Revision;
use crate::core::time::Span;

use super::objects::Objects;
use super::versioned_objects::VersionedObjects;

use cached::CachedRendering;
use cached::Made;
use room::RenderRoom;
use times::Times;

pub(super) use cached::RenderView;
pub(super) use known_rendering::Digests;
pub(super) use known_rendering::KnownRendering;
pub(super) use known_rendering::RenderingKey;
pub(super) use known_rendering::UsedRendering;
pub(super) use options::VersionedOptions;
pub(super) use tokens::VersionedTokens;

/// What is known of a DaemonSet's revision.
struct CachedRevision {
    /// Held so that the address it is found by stays its own.
    daemon_set: Arc<DaemonSet>,
    hash: String,
    /// With the canonical template, which is as large as the pod: until the pass that asked for it ends.
    whole: Option<Revision>,
    used: u64,
}

/// A DaemonSet with the template of another revision of its history.
struct Former {
    /// Held so that the address it is found by stays its own.
    daemon_set: Arc<DaemonSet>,
    /// `None`: the ControllerRevision holds something else.
    former: Option<Arc<DaemonSet>>,
    used: u64,
}

/// A DaemonSet with the overlays that apply to the node.
struct Overlaid {
    /// Held so that the address it is found by stays its own.
    daemon_set: Arc<DaemonSet>,
    /// A hash of what else it was made from.
    made_from: u64,
    overlaid: Arc<DaemonSet>,
    used: u64,
}

/// The cache. Entries that a pass did not use are dropped at its end.
#[derive(Default)]
pub(super) struct RenderCache {
    revisions: RefCell<HashMap<usize, CachedRevision>>,
    renderings: RefCell<HashMap<(usize, u64, RenderView), CachedRendering>>,
    former: RefCell<HashMap<(usize, String), Former>>,
    overlaid: RefCell<HashMap<usize, Overlaid>>,
    last_list: LastList,
    room: RefCell<RenderRoom>,
    /// What the policy has against definitions.
    pub(super) verdicts: Verdicts,
    /// What the work on each definition costs.
    pub(super) times: Times,
    pass: u64,
    /// In a replay: the digests of renderings whose secrets are not in the recording.
    recorded: Option<HashMap<RenderingKey, Option<Digests>>>,
}

/// The inputs of one pass.
#[derive(Clone, Copy)]
pub(super) struct RenderCacheInputs<'a> {
    pub(super) objects: &'a dyn VersionedObjects,
    pub(super) tokens: &'a dyn VersionedTokens,
    pub(super) options: &'a RenderOptions,
    /// Changes whenever `options` does.
    pub(super) options_version: u64,
}

impl RenderCache {
    /// One for a replay: its renderings have these digests in place of their own.
    pub(super) fn with_recorded(recorded: HashMap<RenderingKey, Option<Digests>>) -> Self {
        Self { recorded: Some(recorded), ..Self::default() }
    }

    /// One that measures by `clock` what definitions cost: the processor time of the thread that works.
    pub(super) fn measured(clock: fn() -> Span) -> Self {
        Self { times: Times::measured(clock), ..Self::default() }
    }

    /// `rendering` with the digests that were recorded of it.
    fn as_recorded(
        &self,
        daemon: &ObjectKey,
        incarnation: u64,
        view: RenderView,
        mut rendering: RenderResult,
    ) -> RenderResult {
        let Some(recorded) = &self.recorded else { return rendering };
        let key = (daemon.clone(), rendering.revision.clone(), incarnation, view);
        if let Some(Some(known)) = recorded.get(&key) {
            rendering.data =
                DataDigests { all: known.data.clone(), by_volume: known.volumes.clone(), tokens: known.tokens.clone() };
            if let Ok(rendered) = &mut rendering.result {
                rendered.digest.clone_from(&known.manifest);
                rendered.data_digest.clone_from(&known.data);
                rendered.pod.data_version.clone_from(&known.data_version);
            }
        }
        rendering
    }

    /// Starts a pass, in which so many bytes of tenants' renderings may be whole; what the last one did not use is dropped.
    pub(super) fn begin(&mut self, most: usize) {
        let last = self.pass;
        self.renderings.get_mut().retain(|_, entry| entry.used == last);
        self.revisions.get_mut().retain(|_, known| known.used == last);
        self.former.get_mut().retain(|_, former| former.used == last);
        self.overlaid.get_mut().retain(|_, overlaid| overlaid.used == last);
        self.last_list.clear();
        self.room.get_mut().count(most, self.renderings.get_mut().values());
        self.pass += 1;
    }

    /// The hash of the revision that `daemon_set` defines.
    pub(super) fn revision(&self, daemon_set: &Arc<DaemonSet>) -> String {
        let mut revisions = self.revisions.borrow_mut();
        let known =
            |revisions: &mut HashMap<usize, CachedRevision>| known(revisions, daemon_set, self.pass).hash.clone();
        match revisions.contains_key(&address(daemon_set)) {
            true => known(&mut revisions),
            false => self.times.of(daemon_set, || known(&mut revisions)),
        }
    }

    /// `daemon_set` with the overlays that apply to a Node with `labels`, and whether these are all that it has; `last`:
    /// those of what last ran here.
    pub(super) fn overlaid(
        &self,
        daemon_set: &Arc<DaemonSet>,
        (labels, registered): (&BTreeMap<String, String>, bool),
        (objects, policy): (&Objects<'_>, &Policy),
        last: Option<&Overlays>,
    ) -> Arc<DaemonSet> {
        if !daemon_set.annotations.contains_key(OVERLAYS) {
            return overlays::with(daemon_set, None);
        }
        let config_map = overlays::config_map(daemon_set);
        let list = match config_map.as_ref().is_some_and(|config_map| objects.is_folders(config_map)) {
            true => ListSource::Folder,
            false => ListSource::Api,
        };
        let is_trusted = policy.rules().trusts(&daemon_set.key.namespace);
        let version = config_map.as_ref().map_or(0, |config_map| objects.version(config_map));
        let mut hasher = DefaultHasher::new();
        let of_last = last.map(|last| (&last.config_map, &last.digest, last.list));
        (version, list, is_trusted, labels, registered, of_last).hash(&mut hasher);
        let made_from = hasher.finish();
        let mut known = self.overlaid.borrow_mut();
        if let Some(entry) = known.get_mut(&address(daemon_set)).filter(|entry| entry.made_from == made_from) {
            entry.used = self.pass;
            return Arc::clone(&entry.overlaid);
        }
        let overlaid = self.times.of(daemon_set, || {
            let found = config_map.as_ref().map_or(Lookup::Absent, |config_map| objects.lookup(config_map));
            let facts = OverlayFacts { found, list, rules: policy.rules(), labels, registered, last };
            overlays::resolve_after(daemon_set, &facts, &self.last_list)
        });
        let (daemon_set, used) = (Arc::clone(daemon_set), self.pass);
        let entry = Overlaid { daemon_set, made_from, overlaid: Arc::clone(&overlaid), used };
        known.insert(address(&entry.daemon_set), entry);
        overlaid
    }

    /// `daemon_set` with the template of the ControllerRevision `revision`, if that has this hash.
    pub(super) fn with_revision(
        &self,
        daemon_set: &Arc<DaemonSet>,
        hash: &str,
        revision: &Value,
    ) -> Option<Arc<DaemonSet>> {
        let mut known = self.former.borrow_mut();
        let entry = known.entry((address(daemon_set), hash.to_owned())).or_insert_with(|| {
            let template = revision.get("data").and_then(history::template);
            let former = template.map(|template| DaemonSet {
                template,
                admitted: None,
                overlays: None,
                ..DaemonSet::clone(daemon_set)
            });
            let former = former.map(Arc::new).filter(|former| Revision::of(former).hash == hash);
            let former = former.map(|former| overlays::as_in(&former, daemon_set));
            Former { daemon_set: Arc::clone(daemon_set), former, used: self.pass }
        });
        checked!(address(&entry.daemon_set) == address(daemon_set));
        entry.used = self.pass;
        entry.former.clone()
    }

    /// Gives up what is only needed to write, for every outcome. A plan that writes one all the same
    /// is made again after [`RenderCache::make_whole`].
    pub(super) fn shrink(&mut self) {
        self.revisions.get_mut().values_mut().for_each(|known| known.whole = None);
        for entry in self.renderings.get_mut().values_mut().filter(|entry| entry.rendering.is_whole()) {
            entry.rendering = Arc::new(entry.rendering.shrunk());
        }
        self.room.get_mut().clear();
    }

    /// What rendering `incarnation` of `daemon_set` gives; `view` tells views of objects apart.
    pub(super) fn rendering(
        &self,
        daemon_set: &Arc<DaemonSet>,
        incarnation: u64,
        view: RenderView,
        inputs: RenderCacheInputs<'_>,
    ) -> Arc<RenderResult> {
        self.known_or(daemon_set, incarnation, view, inputs, || {
            self.times.of(daemon_set, || {
                let mut revisions = self.revisions.borrow_mut();
                let known = known(&mut revisions, daemon_set, self.pass);
                let revision = known.whole.take().unwrap_or_else(|| Revision::of(daemon_set));
                let RenderCacheInputs { objects, tokens, options, .. } = inputs;
                let rendering = rendering::render(daemon_set, &revision, incarnation, objects, tokens, options);
                known.whole = Some(revision).filter(|_| !RenderRoom::bounds(daemon_set, options));
                rendering
            })
        })
    }

    /// The tokens of `instance`, which runs, while `daemon_set`, its definition, is not rendered. That is not counted
    /// among what the definition costs: it would be taken for a rendering that is cheap.
    pub(super) fn tokens_alone(
        &self,
        daemon_set: &Arc<DaemonSet>,
        instance: &Instance,
        inputs: RenderCacheInputs<'_>,
    ) -> Arc<RenderResult> {
        self.known_or(daemon_set, instance.incarnation, (true, Data::TokensAlone), inputs, || {
            RenderResult::tokens_alone(instance, daemon_set, inputs.objects, inputs.tokens, inputs.options)
        })
    }

    /// What is known of a rendering, if it was made from `inputs`, or else what `render` gives.
    fn known_or(
        &self,
        daemon_set: &Arc<DaemonSet>,
        incarnation: u64,
        view: RenderView,
        inputs: RenderCacheInputs<'_>,
        render: impl FnOnce() -> RenderResult,
    ) -> Arc<RenderResult> {
        let key = (address(daemon_set), incarnation, view);
        if let Some(entry) = self.renderings.borrow_mut().get_mut(&key)
            && entry.made.holds(inputs)
        {
            entry.used = self.pass;
            return Arc::clone(&entry.rendering);
        }
        let rendering = self.as_recorded(&daemon_set.key, incarnation, view, render());
        let weight = if RenderRoom::bounds(daemon_set, inputs.options) { rendering.weight() } else { 0 };
        let rendering = Arc::new(match self.room.borrow_mut().take(&daemon_set.key, weight) {
            true => rendering,
            false => rendering.shrunk(),
        });
        let entry = CachedRendering {
            daemon_set: Arc::clone(daemon_set),
            made: Made::from(&rendering, inputs),
            rendering: Arc::clone(&rendering),
            weight,
            used: self.pass,
        };
        checked!(address(&entry.daemon_set) == key.0);
        self.renderings.borrow_mut().insert(key, entry);
        rendering
    }
}

impl Made {
    fn from(rendering: &RenderResult, inputs: RenderCacheInputs<'_>) -> Self {
        let (objects, tokens) = match &rendering.result {
            Ok(rendered) => (rendered.pod.references.iter(), rendered.pod.tokens.iter()),
            Err(refused) => (refused.references.iter(), refused.tokens.iter()),
        };
        Self {
            epoch: 0,
            options: inputs.options_version,
            objects: objects.map(|r| (r.clone(), inputs.objects.version(r))).collect(),
            tokens: tokens.map(|t| (t.clone(), inputs.tokens.version(t))).collect(),
        }
    }

    fn holds(&mut self, inputs: RenderCacheInputs<'_>) -> bool {
        self.options == inputs.options_version
            && self.objects_hold(inputs.objects)
            && self.tokens.iter().all(|(t, version)| inputs.tokens.version(t) == *version)
    }
}

impl Made {
    fn objects_hold(&mut self, objects: &dyn VersionedObjects) -> bool {
        let epoch = objects.epoch();
        if epoch != 0 && epoch == self.epoch {
            return true;
        }
        let hold = self.objects.iter().all(|(r, version)| objects.version(r) == *version);
        let follow = hold && self.objects.iter().all(|(_, version)| objects.follows_epoch(*version));
        self.epoch = if follow { epoch } else { 0 };
        hold
    }
}

/// What is known of the revision of `daemon_set`, made if it is not there.
fn known<'r>(
    revisions: &'r mut HashMap<usize, CachedRevision>,
    daemon_set: &Arc<DaemonSet>,
    pass: u64,
) -> &'r mut CachedRevision {
    let known = revisions.entry(address(daemon_set)).or_insert_with(|| {
        let revision = Revision::of(daemon_set);
        let (daemon_set, hash) = (Arc::clone(daemon_set), revision.hash.clone());
        CachedRevision { daemon_set, hash, whole: Some(revision), used: pass }
    });
    checked!(address(&known.daemon_set) == address(daemon_set));
    known.used = pass;
    known
}

fn address(daemon_set: &Arc<DaemonSet>) -> usize {
    Arc::as_ptr(daemon_set).addr()
}

#[cfg(test)]
mod tests;
