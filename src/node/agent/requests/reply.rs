//! Replies to requests.
//!
//! Owns their form: each says what it is about, so that a late or doubled one is recognised.

use crate::core::cluster::node_daemons::LeaseTerm;
use crate::core::cluster::node_daemons::Status;
use crate::core::dry_run::DryRunReply;
use crate::core::dry_run::Question;
use crate::core::health::CrashDiagnosis;
use crate::core::model::ObjectKey;
use crate::core::orders::Survey;
use crate::core::sources::Confirmation;
use crate::node::api::ApiFailure;
use crate::node::api::NodeWriteResult;
use crate::node::api::TaintChange;

use super::acceptance::LateAnswer;
use super::mirror::OwnerResult;

/// What came back.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(in crate::node::agent) enum Reply {
    /// Of [`super::Request::ClusterIdentity`].
    ClusterIdentity { connection: u64, cluster: Result<String, ApiFailure> },
    /// Of [`super::Request::ConfirmRemoval`]; `cluster`: which cluster answered.
    RemovalConfirmed { key: ObjectKey, about: u64, cluster: Option<String>, confirmation: Confirmation },
    /// Of [`super::Request::RelistDaemonSets`]: the list is complete once the snapshot counts more lists than this.
    Relisting { lists: u64 },
    /// Of [`super::Request::Survey`].
    Surveyed { mirror_uid: String, survey: Survey },
    /// Of [`super::Request::DeleteMirrorPod`].
    MirrorPodDeleted { uid: String, result: Result<(), ApiFailure> },
    /// Of [`super::Request::LabelMirrorPod`], when it failed.
    MirrorPodNotLabelled { pod: ObjectKey, failure: ApiFailure },
    /// Of [`super::Request::ChangeOwner`].
    OwnerChanged { mirror_uid: String, result: OwnerResult },
    /// Of [`super::Request::DiagnoseCrash`].
    CrashDiagnosed { uid: String, diagnosis: CrashDiagnosis },
    /// Of [`super::Request::AskAboutLate`].
    LateAnswered(LateAnswer),
    /// Of [`super::Request::DryRun`].
    DryRun { question: Question, reply: DryRunReply },
    /// Of [`super::Request::Publish`] and [`super::Request::CreateNodeDaemons`]; the status that was written, if it is not the one that
    /// was sent.
    Published(Result<Option<Status>, ApiFailure>),
    /// Of [`super::Request::Publish`], when nothing was written: this Lease is held by another, or it cannot be read.
    NotClaimed { lease: LeaseTerm, failure: Option<ApiFailure> },
    /// Of [`super::Request::RenewLease`]: the version of the Lease now.
    LeaseRenewed(Result<String, ApiFailure>),
    /// Of [`super::Request::StartupTaint`].
    StartupTaint { change: TaintChange, result: NodeWriteResult },
    /// Of [`super::Request::NodeConditions`].
    NodeConditions(NodeWriteResult),
    /// Of [`super::Request::StopSandboxes`] and [`super::Request::RestartSandboxes`], when it failed.
    SandboxesNotStopped { pod: String, why: String },
}
