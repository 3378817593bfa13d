//! Everything that leaves the node, and what comes back: one place for each.
//!
//! Owns the tasks of requests that are under way. A request says what it is about (UID, version, number), so that a late
//! or doubled reply is recognised by its receiver. Must not decide when a request is due.

mod acceptance;
mod clients;
mod crash;
mod mirror;
mod reply;
mod sandboxes;
mod survey;

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::Notify;
use tokio::sync::mpsc;

use crate::config::Config;
use crate::core::cluster::node_daemons::ClaimWrite;
use crate::core::cluster::node_daemons::StatusPatch;
use crate::core::dry_run::Question;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;
use crate::core::model::TokenRequest;
use crate::core::node_conditions::ConditionChanges;
use crate::core::policy::Policy;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::node::api::Api;
use crate::node::api::NotWritten;
use crate::node::api::TaintChange;
use crate::node::cri::Cri;
use crate::node::fsx::Shared;
use crate::node::images::CredentialSources;
use crate::node::images::Pins;
use crate::node::images::Puller;
use crate::node::images::PullsInProgress;
use crate::node::images::WantedImages;
use crate::node::kubelet::Kubelet;

pub(super) use acceptance::Late;
pub(super) use acceptance::LateAnswer;
pub(super) use mirror::OwnerChange;
pub(super) use mirror::OwnerResult;
pub(super) use reply::Reply;

use clients::Clients;

/// A question or an instruction to the API server, the container runtime or the kubelet.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) enum Request {
    /// Which cluster answers on connection number `connection`? 0: on the first one, which is yet to be opened.
    ClusterIdentity { connection: u64 },
    /// Is the DaemonSet gone, or not ours any more? `about`: the store's version of it, 0 for an absence.
    ConfirmRemoval { key: ObjectKey, about: u64, api_uid: Option<String>, cluster: Option<String> },
    /// A complete list of the DaemonSets over a new connection.
    RelistDaemonSets,
    /// Discard everything that the API server has shown: list everything over a new connection.
    ForgetApiView,
    /// Watch exactly these objects and hold exactly these tokens.
    Follow { objects: BTreeSet<ObjectRef>, tokens: BTreeSet<TokenRequest> },
    /// Ask for tokens on connection number `connection` only; `None`: on any.
    AskTokensOn { connection: Option<u64> },
    /// Read these DaemonSets, of which no more is known than that they exist.
    ReadDaemonSets(BTreeSet<ObjectKey>),
    /// Watch the pods of exactly these DaemonSets that the scheduler could not bind, by label selector.
    FollowPending(BTreeMap<ObjectKey, String>),
    /// Everything that a deleted or ended mirror pod goes with. `daemon_set`: the UID that is remembered of it.
    Survey { mirror_uid: String, key: ObjectKey, daemon_set: Option<String>, cluster: Option<String> },
    /// Delete the mirror pod `uid`, whose pod has ended or ends.
    DeleteMirrorPod { pod: ObjectKey, uid: String, grace_seconds: u32 },
    /// Correct the labels of the mirror pod `uid`.
    LabelMirrorPod { pod: ObjectKey, uid: String, patch: Value },
    /// Give a mirror pod to its DaemonSet, or back to the Node.
    ChangeOwner(OwnerChange),
    /// End the containers and remove the sandboxes of a pod that no kubelet ends.
    StopSandboxes { pod: String, uid: String, sandboxes: Vec<String>, grace: Span },
    /// Remove the sandboxes of a pod in crash back-off: the kubelet starts it at once.
    RestartSandboxes { pod: String, sandboxes: Vec<String> },
    /// Exit code and last log line of a container that ended.
    DiagnoseCrash { uid: String, container: String },
    /// Whether the kubelet has accepted instances that show nothing.
    AskAboutLate { late: Vec<Late>, ask_api: Vec<Late>, look_for_preemption: bool, at: Timestamp },
    /// Would the API server create the pod of a new instance?
    DryRun(Question),
    /// Write the status of this node's NodeDaemons; where it claims, once it is read that the Leases of the approvals are
    /// held as they are there, and on the next version of the object if another was written meanwhile.
    Publish { patch: StatusPatch, claim: Option<ClaimWrite> },
    /// Make this node's NodeDaemons, owned by the Node of this UID.
    CreateNodeDaemons { node_uid: String },
    /// Renew this node's Lease, owned by the Node of this UID. `version`: that of the Lease, where it is known.
    RenewLease { node_uid: String, version: Option<String>, at: Timestamp },
    /// Set or take away the taint of a node that waits for its daemons. `node_uid`: that of the Node, where it is known.
    StartupTaint { node_uid: Option<String>, change: TaintChange },
    /// Write conditions of this Node; `None`: take all of ours away.
    NodeConditions { node_uid: Option<String>, changes: Option<ConditionChanges>, at: Timestamp },
    /// Have the images of exactly these wishes pulled. `pods`: the pods of this node.
    Pull { wishes: Vec<WantedImages>, pods: BTreeSet<String> },
    /// Keep exactly these images from garbage collection.
    Pin(BTreeSet<String>),
}

impl Request {
    /// Whether it describes a desired state rather than an action: sent again, it changes nothing.
    pub(super) fn is_standing(&self) -> bool {
        match self {
            Request::AskTokensOn { .. }
            | Request::Follow { .. }
            | Request::ReadDaemonSets(_)
            | Request::FollowPending(_)
            | Request::Pin(_) => true,
            Request::Pull { wishes, .. } => wishes.is_empty(),
            _ => false,
        }
    }
}

/// Sends requests, and keeps the replies until the next pass takes them.
pub(super) struct Requests {
    clients: Clients,
    puller: Puller,
    pins: Pins,
    wake: Arc<Notify>,
    replies: mpsc::UnboundedSender<Reply>,
    replied: mpsc::UnboundedReceiver<Reply>,
}

impl Requests {
    /// For this node; without an API server until [`Requests::connect`].
    pub(super) fn new(
        config: &Config,
        policy: Policy,
        cri: Option<Arc<Cri>>,
        kubelet: Option<Arc<Kubelet>>,
        files: Shared,
        wake: &Arc<Notify>,
    ) -> Self {
        let provider_config = config.credential_provider_config.as_deref();
        let provider_bin = config.credential_provider_bin_dir.as_deref();
        let credentials =
            CredentialSources::new(Arc::clone(&files), &config.kubelet_root, provider_config, provider_bin);
        let (replies, replied) = mpsc::unbounded_channel();
        Self {
            puller: Puller::new(cri.clone(), credentials, Arc::clone(wake)),
            pins: Pins::new(cri.clone(), Arc::clone(wake)),
            clients: Clients { node: config.node_name.clone(), policy, api: None, cri, kubelet, files },
            wake: Arc::clone(wake),
            replies,
            replied,
        }
    }

    /// From now on there is an API server to ask. The first question is which cluster it is: until that is known, nothing
    /// else that it says counts.
    pub(super) fn connect(&mut self, api: Api) {
        self.clients.api = Some(api);
        self.start(Request::ClusterIdentity { connection: 0 });
    }

    /// What is known of pulls, for an observation.
    pub(super) fn pulls(&self) -> PullsInProgress {
        self.puller.pulls()
    }

    /// Images that the runtime does not keep, for an observation.
    pub(super) fn unpinned(&self) -> Arc<BTreeSet<String>> {
        self.pins.unpinned()
    }

    /// How long a daemon of which nothing runs waits for a pull that it could do without.
    pub(super) fn hurry(&mut self, patience: Span) {
        self.puller.hurry(patience);
    }

    /// Sends what is to be sent; a pass is woken for each reply.
    pub(super) fn send(&mut self, requests: Vec<Request>, now: Timestamp) {
        for request in requests {
            match request {
                Request::Pull { wishes, pods } => self.puller.want(wishes, &pods, now),
                Request::Pin(images) => self.pins.keep(&images, now),
                request => self.start(request),
            }
        }
    }

    /// The replies that have come since this was last asked.
    pub(super) fn take_replies(&mut self) -> Vec<Reply> {
        std::iter::from_fn(|| self.replied.try_recv().ok()).collect()
    }

    /// Sends one request for which no pass follows, and waits for its answer.
    pub(super) async fn last(&self, request: Request) -> Option<Reply> {
        perform(request, &self.clients).await
    }

    fn start(&self, request: Request) {
        let clients = self.clients.clone();
        match request {
            Request::AskTokensOn { connection } => {
                let Some(api) = &clients.api else { return };
                api.tokens().ask_on(connection);
            }
            Request::Follow { objects, tokens } => {
                let Some(api) = &clients.api else { return };
                api.set_wanted(&objects);
                api.tokens().set_wanted(&tokens);
            }
            Request::ReadDaemonSets(daemon_sets) => {
                let Some(api) = &clients.api else { return };
                api.read_daemon_sets(&daemon_sets);
            }
            Request::FollowPending(daemon_sets) => {
                let Some(api) = &clients.api else { return };
                api.set_pending(&daemon_sets);
            }
            Request::RelistDaemonSets => {
                let Some(api) = &clients.api else { return };
                self.reply(Reply::Relisting { lists: api.relist_fresh() });
            }
            Request::ForgetApiView => {
                let Some(api) = &clients.api else { return };
                api.forget_view();
            }
            request => {
                let (replies, wake) = (self.replies.clone(), Arc::clone(&self.wake));
                tokio::spawn(async move {
                    // After the agent's end no pass takes the reply.
                    if let Some(reply) = perform(request, &clients).await
                        && replies.send(reply).is_ok()
                    {
                        wake.notify_one();
                    }
                });
            }
        }
    }

    fn reply(&self, reply: Reply) {
        if self.replies.send(reply).is_ok() {
            self.wake.notify_one();
        }
    }
}

/// Sends one request and waits for its answer; `None`: there is no answer to give, or no component to ask.
async fn perform(request: Request, clients: &Clients) -> Option<Reply> {
    let Clients { node, api, cri, .. } = clients;
    match request {
        Request::ClusterIdentity { connection } => {
            let api = api.as_ref()?;
            let cluster = api.cluster_uid().await;
            // Asked before there was a connection, it was asked on the first one, unless there are more by now.
            match (connection, api.connector().counters().connections_opened) {
                (0, 1) => Some(Reply::ClusterIdentity { connection: 1, cluster }),
                (0, _) => None,
                _ => Some(Reply::ClusterIdentity { connection, cluster }),
            }
        }
        Request::ConfirmRemoval { key, about, api_uid, cluster } => {
            let of = survey::Removal { key, about, api_uid, cluster };
            Some(survey::confirm_removal(api.as_ref()?, &clients.policy, of).await)
        }
        Request::Survey { mirror_uid, key, daemon_set, cluster } => {
            let survey = survey::survey(api.as_ref()?, node, &key, daemon_set, cluster).await;
            Some(Reply::Surveyed { mirror_uid, survey })
        }
        Request::DeleteMirrorPod { pod, uid, grace_seconds } => {
            let result = api.as_ref()?.delete_pod(&pod, &uid, grace_seconds).await;
            Some(Reply::MirrorPodDeleted { uid, result })
        }
        Request::LabelMirrorPod { pod, patch, .. } => {
            let failure = api.as_ref()?.patch_pod(&pod, &patch).await.err()?;
            Some(Reply::MirrorPodNotLabelled { pod, failure })
        }
        Request::ChangeOwner(change) => {
            let result = mirror::change_owner(api.as_ref()?, &change).await;
            Some(Reply::OwnerChanged { mirror_uid: change.uid, result })
        }
        Request::StopSandboxes { pod, uid, sandboxes, grace } => {
            let stopped = sandboxes::stop(cri.as_ref()?, &uid, &sandboxes, grace).await;
            stopped.err().map(|error| Reply::SandboxesNotStopped { pod, why: error.to_string() })
        }
        Request::RestartSandboxes { pod, sandboxes } => {
            let removed = sandboxes::remove(cri.as_ref()?, &sandboxes).await;
            removed.err().map(|error| Reply::SandboxesNotStopped { pod, why: error.to_string() })
        }
        Request::DiagnoseCrash { uid, container } => {
            // What the runtime does not report is left out: the kubelet's own report has to be enough.
            let diagnosis = crash::diagnose(cri.as_ref()?, Arc::clone(&clients.files), &uid, &container).await;
            let diagnosis = diagnosis.ok().flatten().unwrap_or_default();
            Some(Reply::CrashDiagnosed { uid, diagnosis })
        }
        Request::AskAboutLate { late, ask_api, look_for_preemption, at } => {
            let question = acceptance::AboutLate { late, ask_api, look_for_preemption, at };
            Some(Reply::LateAnswered(acceptance::ask(clients, question).await))
        }
        Request::DryRun(question) => {
            let namespace = &question.daemon_set.key.namespace;
            let reply = api.as_ref()?.dry_run_pod(namespace, question.pod.clone()).await;
            Some(Reply::DryRun { question, reply })
        }
        Request::Publish { patch, claim } => {
            Some(match api.as_ref()?.write_status(node, patch, claim.as_ref()).await {
                Ok(instead) => Reply::Published(Ok(instead)),
                Err(NotWritten::Failed(failure)) => Reply::Published(Err(failure)),
                Err(NotWritten::NotHeld { lease, failure }) => Reply::NotClaimed { lease, failure },
            })
        }
        Request::CreateNodeDaemons { node_uid } => {
            let made = api.as_ref()?.create_node_daemons(node, &node_uid).await;
            Some(Reply::Published(made.map(|()| None)))
        }
        Request::RenewLease { node_uid, version, at } => {
            Some(Reply::LeaseRenewed(api.as_ref()?.renew_lease(node, &node_uid, version, at).await))
        }
        Request::StartupTaint { node_uid, change } => {
            let result = api.as_ref()?.change_taint(node, node_uid.as_deref(), change).await;
            Some(Reply::StartupTaint { change, result })
        }
        Request::NodeConditions { node_uid, changes, at } => Some(Reply::NodeConditions(
            api.as_ref()?.change_conditions(node, node_uid.as_deref(), changes.as_ref(), at).await,
        )),
        // Answered without waiting by [`Requests::start`] and [`Requests::send`].
        Request::RelistDaemonSets
        | Request::ForgetApiView
        | Request::AskTokensOn { .. }
        | Request::Follow { .. }
        | Request::ReadDaemonSets(_)
        | Request::FollowPending(_)
        | Request::Pull { .. }
        | Request::Pin(_) => None,
    }
}
