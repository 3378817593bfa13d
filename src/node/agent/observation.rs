//! What one pass knows of the world: a value, made once at the beginning of the pass.
//!
//! Owns the form of that value. Whatever could not be read is in it as such: "not readable", "not listed yet" and "not
//! there" are three states. Must not read anything: `super::inputs` does.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use crate::core::knowledge::Knowledge;
use crate::core::local_failure::LocalFailure;
use crate::core::model::Source;
use crate::core::model::TokenRequest;
use crate::core::mounts::MountDifference;
use crate::core::render::Endpoint;
use crate::core::set_aside::Spent;
use crate::core::set_aside::SuspectTurn;
use crate::core::status::Problem;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::node::api::IssuedToken;
use crate::node::api::Link;
use crate::node::api::Scope;
use crate::node::api::Sighting;
use crate::node::api::Snapshot;
use crate::node::api::TokenSnapshot;
use crate::node::images::PullsInProgress;
use crate::node::manifests::Scan;

use super::boot::Boot;
use super::observed_folders::ObservedFolders;
use super::remembered_inputs;
use super::remembered_inputs::SavedSecrets;
use super::requests::Reply;
use super::runtime_pods::RuntimePod;

/// Everything that one pass knows of the world.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub(super) struct Observation {
    /// The wall clock, read once, after everything else.
    pub(super) now: Timestamp,
    /// How long the agent runs, by the steady clock.
    pub(super) steady: Span,
    /// A number from 0 to 1, another one in each pass and on each node.
    pub(super) random: f64,
    pub(super) boot: Boot,
    pub(super) folders: ObservedFolders,
    /// `None`: no API server is configured.
    pub(super) api: Option<ObservedApi>,
    pub(super) tokens: ObservedTokens,
    /// The pods of this node as the container runtime, else the kubelet, has them. `Absent`: neither is configured.
    pub(super) runtime: Knowledge<Arc<Vec<RuntimePod>>>,
    /// Nothing in `runtime` is older: it is no evidence about an instance that ended later.
    pub(super) runtime_as_of: Timestamp,
    /// When the youngest kubelet process of this node was started; read only while a stuck sandbox asks for it.
    pub(super) kubelet_started: Option<Timestamp>,
    /// Our manifests in the kubelet's folder.
    pub(super) manifests: Knowledge<Arc<Scan>>,
    /// Whether the manifest folder is watched; else it is polled.
    pub(super) manifests_watched: bool,
    /// How the folders that the agent writes to differ from what the machine has at their paths; `None`: this pass did
    #[serde(default)]
    /// not compare.
    pub(super) mounts: Option<BTreeMap<PathBuf, Option<MountDifference>>>,
    /// Which instances' volume data was checked.
    pub(super) volume_look: VolumeCheckScope,
    /// Volume data that was checked in this pass, by pod UID.
    pub(super) volumes: BTreeMap<String, VolumeDataState>,
    /// Instances of which the kubelet has made something since the machine booted; looked at in the first pass of a boot.
    pub(super) run_in_this_boot: BTreeSet<String>,
    /// Whether the kubelet may have run a pod since the machine booted; looked at until it is known what runs without a
    /// record.
    #[serde(default)]
    pub(super) may_have_run: bool,
    /// Whether no kubelet runs; looked at in the first pass of a boot.
    #[serde(default)]
    pub(super) is_before_kubelet: bool,
    /// The volumes of pods that have no data on this disk, by UID; looked at before a kubelet runs, in the first pass of a
    /// boot, or where no record knows the pods.
    #[serde(default)]
    pub(super) empty_volumes: BTreeMap<String, BTreeSet<String>>,
    /// Why the disk takes no data for them; tried where there are any.
    pub(super) unwritable_volumes: Option<LocalFailure>,
    /// Whether a container runtime is configured, to pull images and look into crashes.
    pub(super) can_ask_runtime: bool,
    pub(super) pulls: PullsInProgress,
    /// Images of staged revisions that the container runtime does not have; asked for in the first pass of a boot.
    #[serde(default)]
    pub(super) missing_images: BTreeSet<String>,
    /// Images that the container runtime does not keep from garbage collection although they were to be kept.
    pub(super) unpinned: Arc<BTreeSet<String>>,
    pub(super) seal: Seal,
    /// What came in for requests of earlier passes.
    pub(super) replies: Vec<Reply>,
    /// What the pass before spent on definitions of tenants, as far as something follows from it.
    #[serde(default)]
    pub(super) spent: Vec<Spent>,
    /// Which of the definitions that an agent may have been killed over this pass works on.
    #[serde(default)]
    pub(super) turn: SuspectTurn,
    /// What failed while inputs were collected: a watch on a folder, opening the state folder.
    pub(super) problems: Vec<Problem>,
}

/// The API server.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct ObservedApi {
    /// Empty before the first answer.
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) link: Link,
    /// The server that the newest connection leads to; before the first one, the server that the kubeconfig names, once
    /// that was read.
    pub(super) endpoint: Option<Endpoint>,
    /// How many connections have been opened: behind a new one there may be another cluster.
    pub(super) connections_opened: u64,
    /// What happened to mirror pods since the last pass.
    pub(super) sightings: Vec<Sighting>,
    /// Whether the snapshot is from before this connection, whose cluster has yet to identify itself.
    #[serde(default)]
    pub(super) is_former: bool,
    /// Whether the API server has shown more since a cluster last identified itself.
    #[serde(default)]
    pub(super) has_news: bool,
}

/// The ServiceAccount tokens that the agent holds.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub(super) struct ObservedTokens {
    pub(super) held: TokenSnapshot,
    /// All of them, for a checkpoint. No decision reads them, and no recording has them.
    #[serde(skip)]
    pub(super) issued: Arc<Vec<IssuedToken>>,
    /// Changes whenever what a checkpoint would hold of them does.
    pub(super) fingerprint: u64,
    /// Tokens that the API server does not give, and why.
    pub(super) refused: BTreeMap<TokenRequest, LocalFailure>,
}

/// Secrets that are sealed on disk.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub(super) struct Seal {
    /// Whether they could not be opened yet.
    pub(super) is_closed: bool,
    /// What was opened in this pass.
    #[serde(with = "remembered_inputs::opened")]
    pub(super) opened: Option<Arc<SavedSecrets>>,
    /// Whether saving them failed and is to be tried again now.
    pub(super) retry: bool,
    /// When what failed is tried again.
    pub(super) again_at: Option<Timestamp>,
}

/// Which instances' volume data a pass checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub(super) enum VolumeCheckScope {
    #[default]
    None,
    /// That of instances which the kubelet may not know yet.
    NotStarted,
    All,
}

/// The volume data of one instance on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) enum VolumeDataState {
    /// As this process last wrote it.
    Intact,
    /// Touched since, or gone.
    Touched,
    /// This process has not written it yet, and every volume has data.
    Unverified,
}

/// Observations of tests.
#[cfg(test)]
impl Observation {
    /// At `millis`, with an API server that answers and shows `api`, if any, and with what the runtime has.
    pub(super) fn of(api: Option<Snapshot>, runtime: Knowledge<Arc<Vec<RuntimePod>>>, millis: i64) -> Self {
        let now = Timestamp::from_millis(millis);
        let mut observation = Self { runtime, runtime_as_of: now, now, ..Self::default() };
        observation.api = api.map(|mut snapshot| {
            snapshot.scopes.entry(Scope::Pods).or_default().lists += 1;
            ObservedApi {
                snapshot: Arc::new(snapshot),
                link: Link::Up,
                endpoint: None,
                connections_opened: 1,
                sightings: Vec::new(),
                is_former: false,
                has_news: true,
            }
        });
        observation
    }
}

impl Observation {
    /// The same, as if the API server had listed nothing yet.
    pub(super) fn without_api_view(&self) -> Self {
        let mut unlisted = self.clone();
        if let Some(api) = &mut unlisted.api {
            (api.snapshot, api.sightings) = (Arc::default(), Vec::new());
        }
        unlisted
    }

    /// The API server's snapshot; `None` without an API server.
    pub(super) fn snapshot(&self) -> Option<&Snapshot> {
        self.api.as_ref().map(|api| &*api.snapshot)
    }

    /// Whether what the API server shows of this node's pods is current.
    pub(super) fn api_answers(&self) -> bool {
        let Some(api) = &self.api else { return false };
        api.link == Link::Up && api.snapshot.is_current(&Scope::Pods)
    }

    /// Whether what `source` defines is only remembered: no API server has shown its DaemonSets.
    pub(super) fn is_remembered(&self, source: &Source) -> bool {
        let is_listed = self.snapshot().is_some_and(|api| api.lists(&Scope::DaemonSets) > 0);
        *source == Source::Api && !is_listed
    }

    /// Whether there is a connection to the API server.
    pub(super) fn is_linked(&self) -> bool {
        self.api.as_ref().is_some_and(|api| api.link == Link::Up)
    }

    /// The pod with this UID as the runtime has it.
    pub(super) fn runtime_pod(&self, uid: &str) -> Option<&RuntimePod> {
        self.runtime_pods().iter().find(|pod| pod.uid == uid)
    }

    /// Whether the container runtime does not keep an image from garbage collection although it was to be kept.
    pub(super) fn is_unpinned(&self, image: &str) -> bool {
        self.unpinned.contains(image)
    }

    /// The pods that the runtime has; none where it does not answer.
    pub(super) fn runtime_pods(&self) -> &[RuntimePod] {
        match &self.runtime {
            Knowledge::Current(pods) => pods,
            _ => &[],
        }
    }
}
