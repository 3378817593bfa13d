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
mod images;
mod json;
mod metadata;
mod payload;
mod scheduling;
mod self_check;
mod service_account;
mod volumes;
mod windows;

use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;

use crate::core::identity::Identity;
use crate::core::images::PodImage;
use crate::core::model::DaemonSet;
use crate::core::model::FieldError;
use crate::core::model::ObjectRef;
use crate::core::model::ObjectSource;
use crate::core::model::TokenRequest;
use crate::core::model::TokenSource;
use crate::core::render::context::RenderContext;
use crate::core::render::downward::PodView;
use crate::core::render::json::Object;
use crate::core::volume::VolumeData;

/// Host and port of an API server, as containers shall reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Host name or address, IPv6 without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
}

/// What the node's owner and the node itself say about rendering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderOptions {
    /// The node's name.
    pub node_name: String,
    /// Major and minor version of the kubelet that reads the manifest; `None`: not known.
    pub kubelet_version: Option<(u32, u32)>,
    /// The API endpoint for hostNetwork pods; `None`: not known.
    pub api_endpoint: Option<Endpoint>,
    /// Whether there is an API server at all (false: variables that point to it are left out).
    pub has_api: bool,
    /// Whether Secret values that cannot be carried by a file may stand in the manifest.
    pub inline_secret_env: bool,
    /// Who pulls images.
    pub pulls: Pulls,
}

/// Who pulls a pod's images, and what is written as their pull policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pulls {
    /// The agent, before an instance starts: `Always` is written as `IfNotPresent`.
    #[default]
    First,
    /// The agent, before an instance starts; policies stay as they are.
    AsWritten,
    /// The kubelet alone: nobody else could pull anew what is `Always`, so it stays.
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
    /// Options.
    pub options: &'a RenderOptions,
    /// UID and pod name (`identity::identity`).
    pub identity: &'a Identity,
    /// The revision's hash, for the label `controller-revision-hash`.
    pub revision: &'a str,
    /// The incarnation number, for the annotation.
    pub incarnation: u64,
}

/// Something that has to be there before the pod can start.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Missing {
    /// `ConfigMap`, `Secret`, `ServiceAccount`, `ServiceAccountToken`, `PriorityClass`, `RuntimeClass`, `Service`, `APIEndpoint` or `KubeletVersion`.
    pub kind: String,
    /// Its namespace; empty for cluster-scoped things.
    pub namespace: String,
    /// Its name (for a token, the ServiceAccount's).
    pub name: String,
    /// The key in it that is needed (for a token, the audience), or empty.
    pub key: String,
}

impl Missing {
    /// Whether it is `object` that is missing, or something in it.
    pub fn is(&self, object: &ObjectRef) -> bool {
        (self.kind.as_str(), &self.namespace, &self.name)
            == (object.kind.as_str(), &object.key.namespace, &object.key.name)
    }
}

impl fmt::Display for Missing {
    /// `Secret kube-system/keys (password)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if !self.name.is_empty() {
            let slash = if self.namespace.is_empty() { "" } else { "/" };
            write!(f, " {}{slash}{}", self.namespace, self.name)?;
        }
        if !self.key.is_empty() {
            write!(f, " ({})", self.key)?;
        }
        Ok(())
    }
}

/// A rendered instance.
#[derive(Clone, Debug, PartialEq)]
pub struct RenderedPod {
    /// The static pod.
    pub pod: Value,
    /// The data it mounts, in the order of the pod's volumes.
    pub volumes: Vec<VolumeData>,
    /// What it refers to: what has to be watched.
    pub references: BTreeSet<ObjectRef>,
    /// Tokens it needs.
    pub tokens: BTreeSet<TokenRequest>,
    /// What is not there yet. The agent holds the manifest back while this is not empty.
    pub waiting_for: Vec<Missing>,
    /// Notes for people: what was left out and what to do (such as pull secrets).
    pub notes: Vec<FieldError>,
    /// A hash over the data of every reference (for `restart-on: config`).
    pub data_version: String,
    /// The images that it needs and that may be pulled.
    pub images: Vec<PodImage>,
    /// The Secrets that its images are pulled with.
    pub pull_secrets: Vec<ObjectRef>,
}

impl RenderedPod {
    /// Itself without the pod, and without what is in the volumes.
    pub fn shrunk(&self) -> Self {
        let named = |volume: &VolumeData| VolumeData { name: volume.name.clone(), ..VolumeData::default() };
        Self {
            pod: Value::Null,
            volumes: self.volumes.iter().map(named).collect(),
            references: self.references.clone(),
            tokens: self.tokens.clone(),
            waiting_for: self.waiting_for.clone(),
            notes: self.notes.clone(),
            data_version: self.data_version.clone(),
            images: self.images.clone(),
            pull_secrets: self.pull_secrets.clone(),
        }
    }
}

/// Why a DaemonSet cannot be a static pod: every refused field.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    /// The fields, never empty.
    pub errors: Vec<FieldError>,
    /// What was looked at: a change of it may change the answer.
    pub references: BTreeSet<ObjectRef>,
    /// Tokens that were looked at.
    pub tokens: BTreeSet<TokenRequest>,
}

/// Renders one instance: each step is one pass over the pod.
///
/// # Errors
/// Every field that a static pod cannot carry. What is merely not there yet is no error: it is named
/// in [`RenderedPod::waiting_for`], and the pod is rendered with what there is.
pub fn render(input: RenderInput<'_>) -> Result<RenderedPod, Refused> {
    let ctx = &mut RenderContext::new(input);
    let template = json::at(input.daemon_set.pod_template(), &["spec"]).unwrap_or(&Value::Null);
    let account = service_account::name(template);
    let mut spec = template.as_object().cloned().unwrap_or_default();
    let metadata = metadata::build(input);
    let pod = PodView::new(input, &metadata, account);

    refuse_long_name(ctx);
    windows::refuse(ctx, &spec);
    scheduling::refuse_claims(ctx, &spec);
    scheduling::drop_placement(&mut spec);
    scheduling::tolerate(&mut spec);
    scheduling::priority(ctx, &mut spec);
    scheduling::overhead(ctx, &mut spec);
    let pull_secrets = service_account::apply(ctx, account, &mut spec);
    let images = images::write_policies(ctx, &mut spec);
    volumes::convert(ctx, &pod, &mut spec);
    env::resolve(ctx, account, &mut spec);
    api_endpoint::add(ctx, &mut spec);
    volumes::nest(ctx, &spec);
    if ctx.errors.is_empty() {
        self_check::check(ctx, &spec);
    }
    if !ctx.errors.is_empty() {
        return Err(Refused {
            errors: std::mem::take(&mut ctx.errors),
            references: std::mem::take(&mut ctx.references),
            tokens: std::mem::take(&mut ctx.tokens),
        });
    }
    Ok(RenderedPod {
        pod: assemble(metadata, spec),
        data_version: ctx.data_version(),
        volumes: std::mem::take(&mut ctx.volumes),
        references: std::mem::take(&mut ctx.references),
        tokens: std::mem::take(&mut ctx.tokens),
        waiting_for: std::mem::take(&mut ctx.waiting_for).into_iter().collect(),
        notes: std::mem::take(&mut ctx.notes),
        images,
        pull_secrets,
    })
}

/// The kubelet appends the node's name: past 253 bytes no name of a pod is left.
fn refuse_long_name(ctx: &mut RenderContext<'_>) {
    let length = ctx.input.identity.pod_name.len() + 1 + ctx.input.options.node_name.len();
    if length > 253 {
        let reason = format!("the pod's name with the node's would have {length} bytes, more than 253");
        ctx.refuse("metadata.name", reason, "give the node a shorter name");
    }
}

fn assemble(metadata: Object, spec: Object) -> Value {
    let mut pod = Object::new();
    pod.insert("apiVersion".to_owned(), "v1".into());
    pod.insert("kind".to_owned(), "Pod".into());
    pod.insert("metadata".to_owned(), metadata.into());
    pod.insert("spec".to_owned(), spec.into());
    Value::Object(pod)
}

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests;
