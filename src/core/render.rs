//! From a DaemonSet to a self-contained static pod: a list of small passes over the pod.
//!
//! Owns what a rendered pod is. Must not do I/O or know time: the same inputs give the same bytes.

mod api_endpoint;
mod containers;
mod context;
mod downward;
mod env;
mod env_file;
mod expansion;
mod gates;
mod host_paths;
mod hostname;
mod images;
mod json;
mod metadata;
mod missing;
mod overlays;
mod part;
mod payload;
mod scheduling;
mod self_check;
mod service_account;
mod start_gate;
mod tokens;
mod unfolding;
mod unknown_fields;
mod volumes;
mod windows;

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;

use crate::core::identity::Identity;
use crate::core::images::PodImage;
use crate::core::json::Json;
use crate::core::model::DaemonSet;
use crate::core::model::FieldError;
use crate::core::model::ObjectRef;
use crate::core::model::ObjectSource;
use crate::core::model::TokenRequest;
use crate::core::model::TokenSource;
use crate::core::policy::PodRules;
use crate::core::render::context::RenderContext;
use crate::core::render::downward::PodView;
use crate::core::render::json::Object;
use crate::core::time::Span;
use crate::core::volume::VolumeData;

pub use missing::Missing;
pub use part::HeldPart;
pub use part::Part;
pub use start_gate::FILE as GATE_FILE;
pub use start_gate::GATE;
pub use start_gate::open as open_gate;
pub use volumes::cannot_mount;

/// Host and port of an API server, as containers shall reach it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Endpoint {
    /// Host name or address, IPv6 without brackets.
    pub host: String,
    pub port: u16,
}

/// What the node's configuration and the node itself determine about rendering.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RenderOptions {
    pub node_name: String,
    /// Major and minor version of the kubelet that reads the manifest; `None`: unknown.
    pub kubelet_version: Option<(u32, u32)>,
    /// The API endpoint for hostNetwork pods; `None`: unknown.
    pub api_endpoint: Option<Endpoint>,
    /// Whether an API server is configured (false: variables that point to it are left out).
    pub has_api: bool,
    /// Whether Secret values that a file cannot carry may be written into the manifest.
    pub inline_secret_env: bool,
    /// Who pulls images.
    pub pulls: PullMode,
    /// The life of the token in the volume that a pod gets if its template has none.
    #[serde(default = "service_account::upstream_expiration")]
    pub token_expiration: Span,
    /// Whose pods are kept away from the host.
    #[serde(default = "PodRules::trusting")]
    pub rules: PodRules,
    /// The Node's labels that its pods have, too (`node::topology`); empty: unknown.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub topology: BTreeMap<String, String>,
}

/// [`RenderOptions::token_expiration`] where no configuration says another.
pub const DEFAULT_TOKEN_EXPIRATION: Span = Span::from_mins(24 * 60);

/// Who pulls a pod's images, and what is written as their pull policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum PullMode {
    /// The agent, before an instance starts: `Always` is written as `IfNotPresent`.
    #[default]
    First,
    /// The agent, before an instance starts; policies stay as they are.
    AsWritten,
    /// Only the kubelet: `Always` stays, because nothing else would pull again.
    ByKubelet,
}

/// Everything one rendering reads.
#[derive(Clone, Copy)]
pub struct RenderInput<'a> {
    /// The DaemonSet whose `template` is rendered (an instance's own revision).
    pub daemon_set: &'a DaemonSet,
    /// Referenced objects.
    pub objects: &'a dyn ObjectSource,
    /// Service-account tokens.
    pub tokens: &'a dyn TokenSource,
    pub options: &'a RenderOptions,
    /// UID and pod name (`identity::identity`).
    pub identity: &'a Identity,
    /// What the instance is current by; its hash is the label `controller-revision-hash`.
    pub revision: &'a str,
    /// The incarnation number, for the annotation.
    pub incarnation: u64,
}

/// A rendered instance.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct RenderedPod {
    /// The static pod. A recording has neither it nor its data.
    #[serde(skip)]
    pub pod: Value,
    /// The data it mounts, in the order of the pod's volumes.
    #[serde(skip)]
    pub volumes: Vec<VolumeData>,
    /// The objects that it refers to, which must be watched.
    pub references: BTreeSet<ObjectRef>,
    /// Tokens it needs.
    pub tokens: BTreeSet<TokenRequest>,
    /// Everything that is missing.
    pub waiting_for: Vec<Missing>,
    /// What of that is known not to exist: API objects and keys in them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<Missing>,
    /// Which parts it holds back.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<HeldPart>,
    /// Notes for users: what was left out and what to do (such as pull secrets).
    pub notes: Vec<FieldError>,
    /// A hash over the data of every reference (for `restart-on: config`).
    pub data_version: String,
    /// The images that it needs and that can be pulled.
    pub images: Vec<PodImage>,
    /// The Secrets with the credentials for its images.
    pub pull_secrets: Vec<ObjectRef>,
    /// Whether it has a gate, and so can start after others at a boot.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub has_gate: bool,
    /// Whether it has a field that the kubelet's version decides on, and the API server has not shown yet which that is.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub guesses_kubelet: bool,
}

impl RenderedPod {
    /// Whether the pod can start: nothing is missing, or each container that lacks its environment waits by itself.
    pub fn can_start(&self) -> bool {
        self.waiting_for.is_empty() || self.held.iter().all(HeldPart::waits_alone)
    }

    /// Without the pod and the contents of its volumes.
    pub fn shrunk(&self) -> Self {
        Self {
            pod: Value::Null,
            volumes: without_files(&self.volumes),
            references: self.references.clone(),
            tokens: self.tokens.clone(),
            waiting_for: self.waiting_for.clone(),
            absent: self.absent.clone(),
            held: self.held.clone(),
            notes: self.notes.clone(),
            data_version: self.data_version.clone(),
            images: self.images.clone(),
            pull_secrets: self.pull_secrets.clone(),
            has_gate: self.has_gate,
            guesses_kubelet: self.guesses_kubelet,
        }
    }
}

/// The names of volumes, without their contents.
fn without_files(volumes: &[VolumeData]) -> Vec<VolumeData> {
    let named = |volume: &VolumeData| {
        let (name, tokens) = (volume.name.clone(), volume.tokens.clone());
        VolumeData { name, tokens, is_environment: volume.is_environment, ..VolumeData::default() }
    };
    volumes.iter().map(named).collect()
}

/// Why a DaemonSet cannot be a static pod: every refused field.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Refused {
    /// The fields, never empty.
    pub errors: Vec<FieldError>,
    /// The volumes of a running instance are still refreshed, but for those that are held back.
    #[serde(skip)]
    pub volumes: Box<[VolumeData]>,
    /// Whether the contents of `volumes` were given up.
    #[serde(skip)]
    pub is_shrunk: bool,
    /// Which parts are refused or lack something.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<HeldPart>,
    /// The objects that were read: if they change, the answer may change.
    pub references: BTreeSet<ObjectRef>,
    /// Tokens that were read.
    pub tokens: BTreeSet<TokenRequest>,
}

impl Refused {
    /// Refuses `pod` as a whole for `error`; its running instance is still refreshed.
    pub fn of(pod: RenderedPod, error: FieldError) -> Self {
        let mut held = pod.held;
        held.push(HeldPart { refused: vec![error.clone()], ..HeldPart::default() });
        Self {
            errors: vec![error],
            volumes: pod.volumes.into(),
            is_shrunk: false,
            held,
            references: pod.references,
            tokens: pod.tokens,
        }
    }

    /// Without the contents of its volumes.
    pub fn shrunk(&self) -> Self {
        Self {
            errors: self.errors.clone(),
            volumes: without_files(&self.volumes).into(),
            is_shrunk: true,
            held: self.held.clone(),
            references: self.references.clone(),
            tokens: self.tokens.clone(),
        }
    }
}

/// Renders one instance: each step is one pass over the pod.
///
/// # Errors
/// Every field that a static pod cannot carry. Something missing is not an error: it is listed in
/// [`RenderedPod::waiting_for`], and the pod is rendered without it.
pub fn render(input: RenderInput<'_>) -> Result<RenderedPod, Refused> {
    let ctx = &mut RenderContext::new(input);
    let template = input.daemon_set.pod_template().at("spec").unwrap_or(&Value::Null);
    let account = service_account::name(template);
    let mut spec = template.as_object().cloned().unwrap_or_default();
    let mut metadata = metadata::build(input);
    let view = PodView::new(input, &metadata, account);

    metadata::refuse_long_name(ctx);
    overlays::require(ctx);
    windows::refuse(ctx, &spec);
    containers::refuse_mounts_above(ctx, &spec);
    let left_out = gates::drop_fields(ctx, &mut spec);
    scheduling::refuse_claims(ctx, &spec);
    host_paths::confine(ctx, &mut spec);
    scheduling::drop_placement(ctx, &mut spec);
    scheduling::tolerate(&mut spec);
    scheduling::priority(ctx, &mut spec);
    scheduling::overhead(ctx, &mut spec);
    hostname::shorten(ctx, &mut spec);
    let pull_secrets = service_account::apply(ctx, account, &mut spec);
    let images = images::write_policies(ctx, &mut spec);
    volumes::convert(ctx, &view, &mut spec);
    env::resolve(ctx, account, &mut spec);
    api_endpoint::add(ctx, &mut spec);
    start_gate::add(ctx, &mut spec);
    volumes::nest(ctx, &spec);
    gates::remove_blanks(&mut spec, &left_out);
    metadata::require_room(ctx, &metadata, &spec);
    metadata::mark_waiting(&mut metadata, ctx.obstacles.held());
    let pod = assemble(metadata, spec);
    self_check::check(ctx, &pod);
    if !ctx.errors.is_empty() {
        return Err(refused(ctx));
    }
    unknown_fields::note(ctx);
    Ok(RenderedPod {
        pod,
        held: std::mem::take(&mut ctx.obstacles).into_held(),
        data_version: ctx.data_version(),
        volumes: std::mem::take(&mut ctx.volumes),
        references: std::mem::take(&mut ctx.references),
        tokens: std::mem::take(&mut ctx.tokens),
        waiting_for: std::mem::take(&mut ctx.waiting_for).into_iter().collect(),
        absent: std::mem::take(&mut ctx.absent).into_iter().collect(),
        notes: std::mem::take(&mut ctx.notes),
        images,
        pull_secrets,
        has_gate: ctx.has_gate,
        guesses_kubelet: ctx.guesses_kubelet,
    })
}

/// The tokens of an instance that runs and whose template is held back because rendering it costs too much.
/// It reads neither ConfigMaps nor Secrets.
pub fn tokens_alone(input: RenderInput<'_>) -> Refused {
    let ctx = &mut RenderContext::new(input);
    tokens::project(ctx, input.daemon_set.pod_template().at("spec").unwrap_or(&Value::Null));
    ctx.begin(Part::Everything);
    ctx.refuse("spec.template", "it is held back for what it costs: only its tokens are kept up to date", "");
    refused(ctx)
}

/// What is known of a template that is refused.
fn refused(ctx: &mut RenderContext<'_>) -> Refused {
    Refused {
        errors: std::mem::take(&mut ctx.errors),
        volumes: std::mem::take(&mut ctx.volumes).into(),
        is_shrunk: false,
        held: std::mem::take(&mut ctx.obstacles).into_held(),
        references: std::mem::take(&mut ctx.references),
        tokens: std::mem::take(&mut ctx.tokens),
    }
}

fn assemble(metadata: Object, spec: Object) -> Value {
    serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests;
