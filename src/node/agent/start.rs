//! The agent's beginning: what is opened and read before the first pass.
//!
//! Owns what is fatal: another agent on the same state, and a configuration that names something impossible. Everything
//! else, such as a state folder that cannot be used, is a problem that is shown and tried again.

use std::ffi::OsStr;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::clock;
use crate::config::Config;
use crate::core::model::Mode;
use crate::core::model::ObjectKey;
use crate::core::policy::Covered;
use crate::core::record::DaemonRecord;
use crate::core::record::HandOver;
use crate::node::checkpoint::CheckpointError;
use crate::node::checkpoint::Damaged;
use crate::node::checkpoint::Loaded;
use crate::node::cri::Cri;
use crate::node::doctor;
use crate::node::folders::FirstLook;
use crate::node::fsx::Real;
use crate::node::fsx::Shared;
use crate::node::kubelet::Kubelet;
use crate::node::manifests::ManifestDir;
use crate::node::manifests::ManifestError;
use crate::node::notify::Notifier;
use crate::node::volumes::Volumes;
use crate::node::volumes::VolumesRoot;

use super::Agent;
use super::concerns::manifests_lost_at_boot::ManifestsLostAtBoot;
use super::configured;
use super::error::AgentError;
use super::executor;
use super::executor::Executor;
use super::executor::costs::Keeps;
use super::executor::problem;
use super::executor::records::name_of;
use super::executor::records::record_name;
use super::executor::state_folder;
use super::executor::state_folder::StateFolder;
use super::failure;
use super::floor::FLOOR;
use super::floor::Floor;
use super::former_names;
use super::inputs::Inputs;
use super::inputs_on_disk::InputsOnDisk;
use super::kubelet_file;
use super::last_pass::LastPass;
use super::remembered_inputs::INPUTS;
use super::remembered_inputs::RememberedInputs;
use super::remembered_inputs::SavedInputs;
use super::render_cache::RenderCache;
use super::render_cache::VersionedOptions;
use super::report::Reporter;
use super::requests::Requests;
use super::sealing::Opened;
use super::sealing::Sealing;
use super::state::AgentState;
use super::state::FloorSource;
use super::state::Purpose;

impl Agent {
    /// Opens what the agent works on and reads what it remembers. Writes nothing but folders, and what stands for records
    /// that are lost.
    ///
    /// # Errors
    /// When another agent has the state folder, or the configuration names something impossible.
    pub fn new(config: Config, notifier: Arc<Notifier>) -> Result<Self, AgentError> {
        let mut agent = Self::on(Real::shared(), config, notifier)?;
        agent.state.startup_problems.extend(doctor::replaceable(&agent.config));
        Ok(agent)
    }

    /// The same on this disk.
    pub(super) fn on(files: Shared, config: Config, notifier: Arc<Notifier>) -> Result<Self, AgentError> {
        // Before anything in it is touched: another agent may be at work.
        let lock = state_folder::lock(&files, &config, None)?;
        let state = state_folder::open_state(&files, &config).map(Some);
        let mut agent = Self::with(config, files, state, Purpose::Work, notifier)?;
        agent.executor.lock = lock;
        Ok(agent)
    }

    /// An agent for [`Agent::teardown`]: without its state folder it would end nothing.
    ///
    /// # Errors
    /// As [`Agent::new`], and when the state folder cannot be used, or an agent with another one writes manifests.
    pub fn to_tear_down(config: Config, notifier: Arc<Notifier>) -> Result<Self, AgentError> {
        let mut agent = Self::new(config, notifier)?;
        let files = Real::shared();
        state_folder::check_state(&files, &agent.config)?;
        let lock = &mut agent.executor.manifest_lock;
        *lock = match ManifestDir::open(&files, &agent.config.manifest_dir, lock) {
            Err(error @ ManifestError::Locked { .. }) => return Err(error.into()),
            opened => opened.ok().and_then(ManifestDir::into_lock),
        };
        Ok(agent)
    }

    /// An agent that makes no pass and may write records, while no other works.
    ///
    /// # Errors
    /// When the state folder cannot be used or another agent has it, or the configuration names something impossible.
    pub(super) fn to_mark(config: Config) -> Result<Self, AgentError> {
        let files = Real::shared();
        let lock = state_folder::lock(&files, &config, None)?;
        let state = state_folder::open_state(&files, &config)?;
        let notifier = Arc::new(Notifier::from_environment());
        let mut agent = Self::with(config, files, Ok(Some(state)), Purpose::Answer, notifier)?;
        agent.executor.lock = lock;
        Ok(agent)
    }

    /// An agent that answers questions and changes nothing: it may run beside the one that works.
    ///
    /// # Errors
    /// When the state folder cannot be read, or the configuration names something impossible.
    pub(super) fn to_answer(config: Config) -> Result<Self, AgentError> {
        let files = Real::shared();
        let state = match state_folder::look_at_state(&files, &config) {
            // The asking process is not the agent: this says nothing about the agent.
            Err(error @ CheckpointError::Folder { .. }) => return Err(error.into()),
            Err(error) if !nix::unistd::geteuid().is_root() => return Err(error.into()),
            state => state,
        };
        Self::with(config, files, state, Purpose::Answer, Arc::new(Notifier::from_environment()))
    }

    fn with(
        mut config: Config,
        files: Shared,
        folder: Result<Option<StateFolder>, CheckpointError>,
        purpose: Purpose,
        notifier: Arc<Notifier>,
    ) -> Result<Self, AgentError> {
        let cri = match &config.runtime_endpoint {
            Some(endpoint) => {
                let cri = Cri::connect(&endpoint.to_string_lossy())?;
                Some(Arc::new(cri.or_at(config.other_runtime_sockets())))
            }
            None => None,
        };
        let kubelet = match (&config.kubelet_endpoint, &config.kubeconfig) {
            (Some(endpoint), Some(kubeconfig)) => Some(Arc::new(Kubelet::new(endpoint, kubeconfig)?)),
            _ => None,
        };
        let policy = configured::policy(&config)?;
        let options = VersionedOptions::new(configured::render_options(&config, cri.is_some()));
        let wake = Arc::new(Notify::new());
        let volumes = Volumes::new(Arc::clone(&files), VolumesRoot::kubelet(&config.kubelet_root));
        let sealing = Sealing::new(config.seal_with().map(str::to_owned));
        let mut executor = Executor::new(Arc::clone(&files), volumes, None, sealing);
        let mut inputs = Inputs::new(&config, cri.clone(), kubelet.clone(), Arc::clone(&files), &wake);
        let requests = Requests::new(&config, policy.clone(), cri, kubelet, Arc::clone(&files), &wake);
        let mut state = AgentState::new(&config, policy, options, clock::now(), purpose);
        inputs.is_service = notifier.is_active() && purpose == Purpose::Work;
        recall(&mut state, &mut executor, &mut inputs, folder, &config.node_name);
        state.startup_problems.extend(kubelet_file::find_manifest_dir(&mut config, &mut state.inputs)?);
        let reporter = Reporter::new(&config, notifier);
        Ok(Self {
            config,
            inputs,
            state,
            render_cache: RenderCache::measured(clock::thread_time),
            executor,
            requests,
            reporter,
            last: LastPass::default(),
        })
    }
}

/// Reads records and inputs; what cannot be trusted is set aside, and reported for as long as the agent runs.
fn recall(
    state: &mut AgentState,
    executor: &mut Executor,
    inputs: &mut Inputs,
    folder: Result<Option<StateFolder>, CheckpointError>,
    node_name: &str,
) {
    let (mut damaged, mut rewrite) = (Vec::new(), false);
    let listed = folder.and_then(|folder| {
        let records = folder.as_ref().map(|folder| folder.records.load_all(name_of)).transpose()?;
        Ok((folder, records.unwrap_or_default()))
    });
    match listed {
        Ok((Some(folder), records)) => {
            recall_records(state, executor, &folder, records, &mut damaged);
            recall_set_aside(state, executor, &folder, &mut damaged);
            rewrite = recall_inputs(state, executor, inputs, &folder, &mut damaged);
            let lost = add_lost_records(state, executor.floor.bound);
            note_lost_hand_overs(state, &lost, &damaged, inputs.boot_id());
            executor.state = Some(folder);
        }
        Ok((None, _)) => {}
        Err(error) => {
            state.floor_source = FloorSource::NoStateFolder;
            state.inputs.lost();
            executor.is_recalled = false;
            if state.purpose == Purpose::Answer {
                state.startup_problems.push(executor::unused(&error, error.hint()));
            }
        }
    }
    former_names::follow(state, node_name);
    let released = state.records.values().filter(|record| record.released).map(|record| &record.key);
    state.inputs.files.forget(&released.collect());
    inputs.recall_files(&state.inputs.files);
    inputs.begin_folders(match state.purpose {
        Purpose::Answer => FirstLook::Only,
        Purpose::Work if state.inputs.boot.as_deref() == Some(inputs.boot_id()) => FirstLook::OfProcess,
        Purpose::Work => FirstLook::OfBoot,
    });
    let tokens = inputs.tokens().fingerprint();
    let fingerprint = |state: &AgentState| state.inputs.fingerprint(tokens);
    let saved = if rewrite { 0 } else { fingerprint(state) };
    let last_boot = inputs.go_on_in_boot(state);
    state.concerns.manifests_lost_at_boot = ManifestsLostAtBoot::new(last_boot.as_deref(), inputs.boot_id());
    let saved_but_for_boot = (!rewrite).then(|| fingerprint(state));
    let due = rewrite.then_some(state.started);
    state.inputs_on_disk = InputsOnDisk { saved, saved_but_for_boot, due, ..InputsOnDisk::default() };
    state.startup_problems.extend(damaged.iter().map(|why| problem("checkpoint", failure::of(why, why.hint()))));
}

/// Takes the records, and the floor that stands for those that are lost. It is on disk before they are set aside: the
/// next agent would not know of them.
fn recall_records(
    state: &mut AgentState,
    executor: &mut Executor,
    folder: &StateFolder,
    records: Vec<Loaded<DaemonRecord>>,
    damaged: &mut Vec<Damaged>,
) {
    for loaded in records {
        match loaded {
            Loaded::Present(record) => drop(state.records.insert(record.key.clone(), record)),
            Loaded::Damaged(why) => damaged.push(why),
            Loaded::Absent => {}
        }
    }
    let is_new = state.records.is_empty() && damaged.is_empty() && !folder.inputs.has(INPUTS);
    let are_lost = !damaged.is_empty();
    (state.floor_source, executor.floor) = match folder.inputs.load::<Floor>(FLOOR) {
        Loaded::Present(floor) if are_lost && floor.bound == 0 => (FloorSource::Lost, floor),
        Loaded::Present(floor) => (FloorSource::Disk, floor),
        Loaded::Absent if is_new => (FloorSource::New, Floor::default()),
        Loaded::Absent => (FloorSource::Lost, Floor::default()),
        Loaded::Damaged(why) => {
            damaged.insert(0, why);
            (FloorSource::Lost, Floor::default())
        }
    };
    let highest = state.records.values().map(|record| record.next_incarnation).max().unwrap_or(0);
    let floor = &executor.floor;
    state.floor = match state.floor_source {
        FloorSource::Disk if are_lost => floor.bound.max(highest),
        FloorSource::Lost => Floor::above(highest),
        _ => floor.next_incarnation,
    };
    if state.purpose == Purpose::Answer || !are_lost {
        return;
    }
    let cluster = executor.floor.cluster_uid.clone();
    match executor.floor.raise(&folder.inputs, state.floor, highest, cluster.as_ref()) {
        Ok(()) => damaged.iter_mut().for_each(|record| folder.records.set_aside(record)),
        Err(error) => state.startup_problems.push(problem("checkpoint", failure::of(&error, error.hint()))),
    }
}

/// Takes what is set aside.
fn recall_set_aside(state: &mut AgentState, executor: &mut Executor, folder: &StateFolder, damaged: &mut Vec<Damaged>) {
    let keeps = if state.purpose == Purpose::Work { Keeps::OnDisk } else { Keeps::Nothing };
    match executor.recall_set_aside(&folder.inputs, damaged, keeps) {
        Ok(set_aside) => state.set_aside = set_aside,
        Err(error) => state.startup_problems.push(problem("checkpoint", failure::of(&error, error.hint()))),
    }
}

/// A daemon that the inputs remember and that has no record may have lost it: its numbers begin above all that were in
/// use. Gives those daemons.
fn add_lost_records(state: &mut AgentState, bound: u64) -> Vec<ObjectKey> {
    let remembered = state.inputs.daemon_sets.keys().chain(state.inputs.origins.keys());
    let lost: Vec<ObjectKey> = remembered.filter(|key| !state.records.contains_key(key)).cloned().collect();
    let number = state.floor.max(bound);
    state.records.extend(lost.iter().map(|key| (key.clone(), DaemonRecord::new(key.clone(), number))));
    lost
}

/// In the boot of the agent before this one, a daemon whose record is damaged may have been handed over.
fn note_lost_hand_overs(state: &mut AgentState, lost: &[ObjectKey], damaged: &[Damaged], boot: &str) {
    if state.inputs.boot.as_deref() != Some(boot) {
        return;
    }
    let is_damaged =
        |key: &ObjectKey| damaged.iter().any(|why| why.path.file_stem() == Some(OsStr::new(&record_name(key))));
    let is_bootstrap = |key: &ObjectKey| {
        let known = state.inputs.daemon_sets.get(key);
        known.is_some_and(|known| state.policy.covers(known, None) == Covered::Yes(Mode::Bootstrap))
    };
    let lost: Vec<ObjectKey> = lost.iter().filter(|key| is_damaged(key) && is_bootstrap(key)).cloned().collect();
    for key in lost {
        if let Some(record) = state.records.get_mut(&key) {
            record.hand_over = Some(HandOver::unknown(boot));
            state.unsaved.insert(key);
        }
    }
}

/// Takes the remembered inputs. Gives whether they are to be written again at once.
fn recall_inputs(
    state: &mut AgentState,
    executor: &mut Executor,
    inputs: &mut Inputs,
    folder: &StateFolder,
    damaged: &mut Vec<Damaged>,
) -> bool {
    let mut saved = match folder.inputs.load::<SavedInputs>(INPUTS) {
        Loaded::Present(saved) => saved,
        Loaded::Damaged(why) => {
            damaged.push(why);
            state.inputs.lost();
            state.inputs.cluster_uid.clone_from(&executor.floor.cluster_uid);
            return true;
        }
        // Who removed them says that the node belongs to the cluster that answers first.
        Loaded::Absent => {
            // Manifests alone may tell, too.
            state.has_no_inputs = true;
            if !state.records.is_empty() {
                state.inputs.lost();
            }
            return false;
        }
    };
    let (sealed, is_plain) = (saved.sealed, saved.has_secrets());
    inputs.import_tokens(std::mem::take(&mut saved.tokens));
    state.inputs = RememberedInputs::restore(saved, &state.records);
    let sealing = &mut executor.sealing;
    let opened = if sealed { sealing.load(&folder.inputs, state.started) } else { Opened::Nothing };
    // A folder's Secret may be older than what was sealed.
    state.inputs.incomplete |= matches!(opened, Opened::Damaged(_));
    match opened {
        Opened::Secrets(mut secrets) => {
            inputs.import_tokens(std::mem::take(&mut secrets.tokens));
            state.inputs.files.add(std::mem::take(&mut secrets.files));
            state.inputs.take(secrets, &state.records);
        }
        Opened::Damaged(why) => damaged.push(why),
        Opened::Nothing => {}
    }
    // Sealing was switched on or off: what is on disk is to be as the owner says.
    sealed != sealing.is_on() || sealed && is_plain
}

#[cfg(test)]
mod tests;
