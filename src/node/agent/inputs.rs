//! Where observations come from: the one place of the agent that reads the world.
//!
//! Owns the sources and what they keep to read only what may have changed. [`Inputs::collect`] has the only `await` of a
//! pass. Must not decide: whatever could not be read is in the observation as such.

mod api_view;
mod costs;
pub(super) mod folders;
mod manifests;
mod mounts;
mod node;
mod pod_status_source;
mod runtime;

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::clock;
use crate::config::Config;
use crate::core::model::ObjectKey;
use crate::core::placement;
use crate::core::record::DaemonRecord;
use crate::core::set_aside::DefinitionVersion;
use crate::core::set_aside::SuspectTurn;
use crate::core::time::Timestamp;
use crate::node::api::Api;
use crate::node::api::IssuedToken;
use crate::node::api::Tokens;
use crate::node::api::random;
use crate::node::cri::Cri;
use crate::node::folders::FirstLook;
use crate::node::fsx::Shared;
use crate::node::kubelet::Kubelet;
use crate::node::manifests::ManifestDir;

use super::boot::Boot;
use super::executor::Executor;
use super::failure;
use super::observation::Observation;
use super::observation::ObservedTokens;
use super::observation::Seal;
use super::observation::VolumeCheckScope;
use super::observation::VolumeDataState;
use super::remembered_files::RememberedFiles;
use super::render_cache::RenderCache;
use super::requests::Requests;
use super::sealing::Opened;
use super::state::AgentState;
use super::state::Purpose;
use api_view::ApiView;
use costs::Costs;
use folders::FolderReader;
use runtime::RuntimeReader;

/// The sources of observations.
pub(super) struct Inputs {
    folders: FolderReader,
    runtime: RuntimeReader,
    api: Option<Api>,
    tokens: Tokens,
    issued: (u64, Arc<Vec<IssuedToken>>),
    api_view: ApiView,
    boot: Boot,
    started: Instant,
    can_ask_runtime: bool,
    /// Whether the agent is a service of systemd's: then its mounts may differ from the machine's.
    pub(super) is_service: bool,
    /// What the work on definitions of tenants costs.
    pub(super) costs: Costs,
    files: Shared,
    /// Wakes the loop.
    wake: Arc<Notify>,
}

impl Inputs {
    /// For this node; without an API server until [`Inputs::connect`].
    pub(super) fn new(
        config: &Config,
        cri: Option<Arc<Cri>>,
        kubelet: Option<Arc<Kubelet>>,
        files: Shared,
        wake: &Arc<Notify>,
    ) -> Self {
        Self {
            folders: FolderReader::new(Arc::clone(&files), config.folders.clone()),
            can_ask_runtime: cri.is_some(),
            is_service: false,
            costs: Costs::default(),
            runtime: RuntimeReader::new(cri, kubelet),
            api: None,
            tokens: Tokens::default(),
            issued: (0, Arc::default()),
            api_view: ApiView::default(),
            boot: Boot::new(files.boot_id().unwrap_or_default(), clock::now() - clock::uptime()),
            started: Instant::now(),
            files,
            wake: Arc::clone(wake),
        }
    }

    /// The API server, once there is one.
    pub(super) fn api(&self) -> Option<&Api> {
        self.api.as_ref()
    }

    /// Waits until something wakes the loop.
    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// The kernel's name of this boot.
    pub(super) fn boot_id(&self) -> &str {
        &self.boot.id
    }

    /// Takes from `state` what the clock has been in this boot, and notes there that it is this one. Gives the boot in which
    /// an agent last ran.
    pub(super) fn go_on_in_boot(&mut self, state: &mut AgentState) -> Option<String> {
        let last = state.inputs.boot.replace(self.boot.id.clone());
        let is_same = last.as_deref() == Some(&*self.boot.id);
        // An agent of this boot that could not write may have seen its clocks alone.
        if state.inputs.clocks.id == self.boot.id && (is_same || !self.boot.id.is_empty()) {
            self.boot.clone_from(&state.inputs.clocks);
        }
        if !is_same {
            // The kubelet may use another runtime in this boot.
            state.records.values_mut().flat_map(|record| &mut record.instances).for_each(|i| i.listed = false);
            // Nor does the kubelet of the boot before say how this one is. A daemon may be what makes it Ready.
            state
                .inputs
                .node
                .iter_mut()
                .for_each(|node| node.taints.retain(|taint| !placement::tells_readiness(taint)));
        }
        state.inputs.clocks.clone_from(&self.boot);
        last
    }

    /// Tokens of a checkpoint.
    pub(super) fn import_tokens(&self, tokens: Vec<IssuedToken>) {
        self.tokens.import(tokens, &self.boot.id);
    }

    /// What a checkpoint says of the folders' files: their reader goes on with it.
    pub(super) fn recall_files(&mut self, files: &RememberedFiles) {
        self.folders.recall(files);
    }

    /// Says what the folders held before they are first read.
    pub(super) fn begin_folders(&mut self, first: FirstLook) {
        self.folders.begin(first);
    }

    /// The tokens that are held.
    pub(super) fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// From now on there is an API server. Its tokens are renewed by it.
    pub(super) fn connect(&mut self, api: &Api) {
        api.tokens().import(self.tokens.export(&self.boot.id), &self.boot.id);
        self.tokens = api.tokens().clone();
        // A lost or new connection is worth a pass, though no object changed.
        let (mut link, wake) = (api.connector().link(), Arc::clone(&self.wake));
        tokio::spawn(async move {
            while link.changed().await.is_ok() {
                wake.notify_one();
            }
        });
        self.api = Some(api.clone());
    }

    /// Changes with everything that the API server says.
    pub(super) fn api_changes(&self) -> Option<watch::Receiver<u64>> {
        self.api.as_ref().map(|api| api.store().changed())
    }

    /// Wakes the loop whenever a folder may have changed.
    pub(super) fn watch_folders(&mut self) {
        self.folders.watch(Arc::clone(&self.wake));
    }

    /// The next pass reads folders again, and the API's objects by fresh lists. `is_foreign`: what the API server has shown
    /// may be of another cluster, and nothing of it counts any more.
    pub(super) fn reread(&mut self, is_foreign: bool) {
        self.folders.reread();
        match &self.api {
            Some(api) if is_foreign => api.forget_view(),
            Some(api) => drop(api.relist_fresh()),
            None => {}
        }
    }

    /// The next pass reads the folders again.
    pub(super) fn reread_folders(&mut self) {
        self.folders.reread();
    }

    /// The folders' files that are not there define these daemons no more.
    pub(super) fn forget_vanished(&mut self, daemons: &BTreeSet<ObjectKey>) {
        self.folders.forget_vanished(daemons);
    }

    /// Everything that a pass of an agent in `state` knows, and the versions that are to be marked before it works on them.
    /// The disk is read through `executor`, which writes it.
    pub(super) async fn collect(
        &mut self,
        state: &AgentState,
        config: &Config,
        executor: &mut Executor,
        requests: &mut Requests,
    ) -> (Observation, Vec<DefinitionVersion>) {
        let asked = clock::now();
        let asks_runtime = self.asks_runtime(state, config, asked);
        // The only wait: nothing that follows is older than what it gives.
        let (runtime, missing_images) = self.runtime.look(state, asks_runtime, asked).await;
        let (now, steady) = (clock::now(), self.started.elapsed());
        self.boot.follow(now, clock::uptime());
        let mut problems = Vec::new();
        let manifests = self.read_manifests(state, config, (executor, now), &mut problems);
        let volume_look = state.concerns.volume_checks.look(now);
        // Before the folders: Secrets of files that are not there may be in it.
        let seal = self.read_seal(executor, now);
        let replies = requests.take_replies();
        let empty_volumes = match manifests.current().filter(|_| state.passes == 0) {
            Some(scan) => node::empty_volumes(&self.files, &config.kubelet_root, scan, state, &executor.volumes),
            None => BTreeMap::new(),
        };
        let mut observation = Observation {
            now,
            steady: steady.into(),
            random: random(),
            boot: self.boot.clone(),
            folders: self.folders.read(now, steady, &mut problems),
            api: config.kubeconfig.is_some().then(|| self.api_view.read(self.api.as_ref(), state, &replies)),
            tokens: self.read_tokens(),
            kubelet_started: state
                .concerns
                .stuck_sandboxes
                .asks_for_kubelet_start(&state.records)
                .then(|| node::kubelet_started(&self.files, self.boot.at))
                .flatten(),
            volumes: volumes(state, executor, volume_look),
            volume_look,
            run_in_this_boot: match state.concerns.manifests_lost_at_boot.asks() {
                true => node::run_in_this_boot(&self.files, &config.kubelet_root, &state.records),
                false => BTreeSet::new(),
            },
            may_have_run: state.may_run_unrecorded && node::may_have_run(&self.files, &config.kubelet_root),
            is_before_kubelet: state.concerns.manifests_lost_at_boot.asks() && !node::has_kubelet(&self.files),
            unwritable_volumes: match empty_volumes.keys().next().filter(|_| state.purpose == Purpose::Work) {
                Some(uid) => executor.volumes.try_disk(uid).err().map(|error| failure::of(&error, None).cause),
                None => None,
            },
            empty_volumes,
            manifests_watched: executor.manifests.as_ref().is_some_and(ManifestDir::is_watched),
            mounts: (self.is_service && state.passes > 0 && state.concerns.mount_namespace.is_due(now))
                .then(|| mounts::compare(&self.files, config)),
            seal,
            can_ask_runtime: self.can_ask_runtime,
            pulls: requests.pulls(),
            missing_images,
            unpinned: requests.unpinned(),
            replies,
            // What the work costs follows from the rest.
            spent: Vec::new(),
            turn: SuspectTurn::None,
            runtime: runtime.pods,
            runtime_as_of: runtime.as_of,
            manifests,
            problems,
        };
        let begins = self.costs.begin(&mut observation, state);
        (observation, if state.purpose == Purpose::Work { begins } else { Vec::new() })
    }

    /// The work of a pass is done: what it cost is part of the next Observation, which then is made at once.
    pub(super) fn end_work(&mut self, cache: &mut RenderCache, state: &AgentState) {
        cache.shrink();
        if self.costs.end(cache, state) {
            self.wake.notify_one();
        }
    }

    /// Whether the runtime's pods matter to the coming pass: something ends, or the API server does not tell readiness.
    fn asks_runtime(&self, state: &AgentState, config: &Config, now: Timestamp) -> bool {
        let snapshot = self.api.as_ref().map(|api| api.store().snapshot());
        let is_fresh = self.runtime.is_fresh(now);
        self.runtime.is_to_be_tried(now)
            || runtime::matter(state, snapshot.as_deref(), now, &self.boot.id, &config.node_name, is_fresh)
    }

    fn read_tokens(&mut self) -> ObservedTokens {
        let fingerprint = self.tokens.fingerprint();
        if self.issued.0 != fingerprint {
            self.issued = (fingerprint, Arc::new(self.tokens.export(&self.boot.id)));
        }
        let refused = self.tokens.problems().into_iter().map(|(request, (why, _))| (request, why)).collect();
        ObservedTokens { held: self.tokens.snapshot(), issued: Arc::clone(&self.issued.1), fingerprint, refused }
    }

    fn read_seal(&mut self, executor: &mut Executor, now: Timestamp) -> Seal {
        let sealing = &mut executor.sealing;
        let is_due = sealing.is_due(now);
        // Sealed data that cannot be opened may have been superseded.
        let mut seal = Seal { retry: is_due, ..Seal::default() };
        if let Some(state) = executor.state.as_ref().filter(|_| is_due && sealing.is_closed())
            && let Opened::Secrets(secrets) = sealing.load(&state.inputs, now)
        {
            // Sealed data is opened before it is sealed anew.
            self.tokens.import(secrets.tokens.clone(), &self.boot.id);
            self.folders.recall(&RememberedFiles::restore(secrets.files.clone()));
            seal.opened = Some(Arc::new(secrets));
        }
        seal.is_closed = sealing.is_closed();
        seal.again_at = sealing.again_at();
        seal
    }
}

/// The volume data that this pass looks at.
fn volumes(state: &AgentState, executor: &Executor, look: VolumeCheckScope) -> BTreeMap<String, VolumeDataState> {
    let looks_at = |started: bool| look == VolumeCheckScope::All || look == VolumeCheckScope::NotStarted && !started;
    let live = state.records.values().flat_map(DaemonRecord::live).filter(|i| looks_at(i.started));
    let data = live.map(|instance| {
        let uid = &instance.uid;
        let data = match state.written.contains_key(uid) {
            true if executor.volumes.intact(uid) => VolumeDataState::Intact,
            true => VolumeDataState::Touched,
            false => match &instance.data {
                Some(data) if !executor.volumes.has_data(uid, &data.volumes) => VolumeDataState::Touched,
                _ => VolumeDataState::Unverified,
            },
        };
        (uid.clone(), data)
    });
    data.collect()
}
