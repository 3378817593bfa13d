//! What a request is sent with.
//!
//! Owns no connection: each client has its own.

use std::sync::Arc;

use crate::core::policy::Policy;
use crate::node::api::Api;
use crate::node::cri::Cri;
use crate::node::fsx::Shared;
use crate::node::kubelet::Kubelet;

/// What a request is sent with.
#[derive(Clone)]
pub(super) struct Clients {
    pub(super) node: String,
    pub(super) policy: Policy,
    pub(super) api: Option<Api>,
    pub(super) cri: Option<Arc<Cri>>,
    pub(super) kubelet: Option<Arc<Kubelet>>,
    pub(super) files: Shared,
}
