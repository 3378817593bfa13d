//! What a recording has of a rendering.
//!
//! Owns its form. Must not hold anything secret: digests stand for data.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serializer;

use crate::core::model::DaemonSet;
use crate::core::model::Kind;
use crate::core::model::ObjectKey;
use crate::core::rendering::RenderResult;

use super::cached::RenderView;

/// A rendering that a pass used, and what it is of. Nothing is copied of it until it is recorded.
#[derive(Clone, Debug)]
pub(in crate::node::agent) struct UsedRendering {
    pub(super) daemon_set: Arc<DaemonSet>,
    pub(super) incarnation: u64,
    pub(super) view: RenderView,
    pub(super) rendering: Arc<RenderResult>,
}

impl UsedRendering {
    pub(super) fn name(&self) -> (&ObjectKey, &str, u64) {
        (&self.daemon_set.key, &self.rendering.revision, self.incarnation)
    }

    pub(in crate::node::agent) fn known(&self) -> KnownRendering {
        KnownRendering::of(&self.daemon_set.key, self.incarnation, self.view, &self.rendering)
    }
}

impl serde::Serialize for UsedRendering {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.known().serialize(serializer)
    }
}

/// What a pass knew of a rendering: what a replay cannot compute without what was secret in it.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(in crate::node::agent) struct KnownRendering {
    pub(super) daemon: ObjectKey,
    pub(super) revision: String,
    pub(super) incarnation: u64,
    view: RenderView,
    digests: Option<Digests>,
    /// Whether a Secret or a token is in it.
    pub(in crate::node::agent) is_secret: bool,
}

#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(in crate::node::agent) struct Digests {
    pub(super) manifest: String,
    pub(super) data: String,
    #[serde(default)]
    pub(super) volumes: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) tokens: BTreeMap<String, String>,
    pub(super) data_version: String,
}

/// What a recorded rendering is found by.
pub(in crate::node::agent) type RenderingKey = (ObjectKey, String, u64, RenderView);

impl KnownRendering {
    fn of(daemon: &ObjectKey, incarnation: u64, view: RenderView, rendering: &RenderResult) -> Self {
        let (references, tokens) = match &rendering.result {
            Ok(rendered) => (&rendered.pod.references, &rendered.pod.tokens),
            Err(refused) => (&refused.references, &refused.tokens),
        };
        let rendered = rendering.result.as_ref().ok();
        let digests = Some(Digests {
            manifest: rendered.map(|rendered| rendered.digest.clone()).unwrap_or_default(),
            data: rendering.data.all.clone(),
            volumes: rendering.data.by_volume.clone(),
            tokens: rendering.data.tokens.clone(),
            data_version: rendered.map(|rendered| rendered.pod.data_version.clone()).unwrap_or_default(),
        });
        let is_secret = !tokens.is_empty() || references.iter().any(|reference| reference.kind == Kind::Secret);
        Self { daemon: daemon.clone(), revision: rendering.revision.clone(), incarnation, view, digests, is_secret }
    }

    pub(in crate::node::agent) fn digests(&self) -> impl Iterator<Item = String> {
        self.digests.clone().into_iter().flat_map(|known| {
            [known.manifest, known.data, known.data_version]
                .into_iter()
                .chain(known.volumes.into_values())
                .chain(known.tokens.into_values())
        })
    }

    /// By what it is found, and its digests.
    pub(in crate::node::agent) fn into_entry(self) -> (RenderingKey, Option<Digests>) {
        ((self.daemon, self.revision, self.incarnation, self.view), self.digests)
    }
}
