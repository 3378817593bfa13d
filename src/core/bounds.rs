//! How much one DaemonSet may have of each thing, so that no DaemonSet keeps the agent from the others.
//!
//! Owns the numbers and the wording of a refusal. Nothing is left out to get below a bound.

mod measure;
mod quota;

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;

use crate::core::model::Author;
use crate::core::model::DaemonSet;
use crate::core::model::FieldError;
use crate::core::model::Kind;
use crate::core::model::OVERLAYS;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;
use crate::core::model::TokenRequest;
use crate::core::policy::PodRules;

use measure::size;
pub use measure::values;
pub use quota::Quota;
pub use quota::QuotaUse;

/// What a hint says of trusted namespaces where it proposes to add one to them.
pub const FREE: &str = "which have no such bound, and where whoever writes DaemonSets is root on the node";

/// What one DaemonSet may have at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Containers and init containers.
    pub containers: usize,
    pub volumes: usize,
    /// Mounts and devices of all containers.
    pub mounts: usize,
    /// Sources and items of all volumes.
    pub items: usize,
    /// Folders that the agent, the kubelet or the runtime makes for its paths, in volumes and in the containers' root.
    pub folders: usize,
    /// Entries of `env` and `envFrom` of all containers.
    pub variables: usize,
    /// Parts of the commands of all containers.
    pub arguments: usize,
    /// Ports of all containers.
    pub ports: usize,
    pub tolerations: usize,
    /// Terms of all affinities.
    pub terms: usize,
    /// Values of the template, and entries of its maps and lists.
    pub values: usize,
    /// Names and texts of the template, in bytes.
    pub template: usize,
    /// The patches of its overlays that apply to a node, in bytes as [`object_weight`] counts.
    pub patches: usize,
    /// Its files, and its variables from ConfigMaps and Secrets, in bytes.
    pub data: usize,
    /// These variables alone, in bytes: a manifest or a file of its own has a copy of each, and files share theirs.
    pub environment: usize,
    /// Variables and command of one container once each `$(NAME)` has its value, in bytes: the kubelet holds them in memory.
    pub unfolded: usize,
}

/// DaemonSets of the API in namespaces that are not trusted: ten times what the largest published ones have.
pub const TENANT: Bound = Bound {
    containers: 100,
    volumes: 256,
    mounts: 512,
    items: 256,
    folders: 768,
    variables: 512,
    arguments: 1024,
    ports: 128,
    tolerations: 64,
    terms: 64,
    values: 8192,
    template: 256 << 10,
    patches: SHARE,
    data: 16 << 20,
    environment: SHARE,
    unfolded: 2 << 20,
};

/// How many DaemonSets of the API in one namespace that is not trusted have instances on a node.
pub const DAEMON_SETS: usize = 100;

/// How many selected DaemonSets of such a namespace are known by more than their names, beside those that ran. Each
/// costs memory and time also where it is refused.
pub const KNOWN_DAEMON_SETS: usize = 10 * DAEMON_SETS;

/// How many bytes labels, annotations, finalizers and selector of a DaemonSet of such a namespace have at most.
pub const METADATA: usize = 256 << 10;

/// How much of the DaemonSets of the API in namespaces that are not trusted is kept in memory, as [`weight`] counts; as much
/// again of those that run, which may be older ones.
pub const KEPT: Quota = Quota { each: 16 << 20, all: 32 << 20, share: 1 << 20 };

/// How much of what is rendered for such DaemonSets is in memory at one time. Those without room are rendered in a later pass.
pub const RENDERED: usize = 32 << 20;

/// How much of a further thing each of [`DAEMON_SETS`] may have in memory, so that all of them have no more of it than
/// [`KEPT`]. It is not known when a DaemonSet is read: so each has its share, whatever the others have.
const SHARE: usize = 160 << 10;
const _: () = assert!(SHARE * DAEMON_SETS <= KEPT.each);

/// How much of the DaemonSets of such namespaces a coordinator keeps in memory.
pub const COORDINATED: Quota = Quota { each: 4 << 20, all: 16 << 20, share: 256 << 10 };

/// How many ConfigMaps, Secrets and ControllerRevisions of one namespace that is not trusted are read on a node.
pub const OBJECTS: usize = 512;

/// How many tokens are requested for the DaemonSets of the API in one namespace that is not trusted on a node.
pub const TOKENS: usize = 256;

/// How much of these objects is kept in memory, as [`object_weight`] counts; as much again of what they were
/// beside that, and once more for roll-backs.
pub const OBJECTS_KEPT: Quota = Quota { each: 32 << 20, all: 64 << 20, share: 4 << 20 };

/// How much of the pods of a node in namespaces that are not trusted is kept in memory, as [`object_weight`] counts.
pub const PODS_KEPT: Quota = Quota { each: 4 << 20, all: 16 << 20, share: 1 << 20 };

/// How many pods that wait for this node are known of one daemon that hands over to a DaemonSet controller.
pub const PENDING_PODS: usize = 16;

/// What a value takes in memory beside its text, in bytes.
pub const VALUE: usize = 256;

/// All others: of each as much as takes the agent well under a second.
pub const EVERYONE: Bound = Bound {
    containers: 20_000,
    volumes: 20_000,
    mounts: 20_000,
    items: 20_000,
    folders: 100_000,
    variables: 20_000,
    arguments: 20_000,
    ports: 20_000,
    tolerations: 20_000,
    terms: 20_000,
    values: 400_000,
    template: 4 << 20,
    patches: (4 << 20) + 400_000 * VALUE,
    data: 64 << 20,
    environment: 64 << 20,
    unfolded: 64 << 20,
};

/// Those of the DaemonSets, each with whether it runs here, that are beyond [`DAEMON_SETS`] of their namespace: what runs
/// is not, and of the others the first by name are not.
pub fn beyond<'a>(all: impl Iterator<Item = (&'a ObjectKey, bool)>) -> BTreeSet<&'a ObjectKey> {
    let (mut counts, mut others): (BTreeMap<&str, usize>, _) = (BTreeMap::new(), BTreeSet::new());
    for (key, runs) in all {
        match runs {
            true => *counts.entry(&key.namespace).or_default() += 1,
            false => drop(others.insert(key)),
        }
    }
    others.retain(|key| {
        let count = counts.entry(&key.namespace).or_default();
        *count += 1;
        *count > DAEMON_SETS
    });
    others
}

/// Of what daemons name those that are beyond `most` of a namespace. `named`: what each daemon names, those that come first
/// before the others; `bounded`: the namespace of one of them, if that has the bound.
pub fn beyond_in_order<'a, T: Ord>(
    named: impl Iterator<Item = &'a BTreeSet<T>>,
    most: usize,
    bounded: impl Fn(&'a T) -> Option<&'a str>,
) -> BTreeSet<&'a T> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut seen, mut beyond) = (BTreeSet::new(), BTreeSet::new());
    for one in named.flatten() {
        let Some(namespace) = bounded(one).filter(|_| seen.insert(one)) else { continue };
        let count = counts.entry(namespace).or_default();
        *count += 1;
        if *count > most {
            beyond.insert(one);
        }
    }
    beyond
}

pub fn objects_beyond_error(object: &ObjectRef) -> FieldError {
    let namespace = &object.key.namespace;
    FieldError {
        field: object.to_string(),
        reason: format!(
            "it is not read: the DaemonSets of namespace {namespace} name more than {OBJECTS} ConfigMaps, Secrets and ControllerRevisions for \
             this node; those of what runs come first, then the others by the DaemonSet's name"
        ),
        hint: Some(format!("name fewer, or add {namespace:?} to policy.trusted-namespaces, {FREE}")),
    }
}

/// That the `token` for a ServiceAccount is beyond [`TOKENS`].
pub fn tokens_beyond_error(token: &TokenRequest) -> FieldError {
    let namespace = &token.service_account.namespace;
    FieldError {
        field: format!("ServiceAccount {}", token.service_account),
        reason: format!(
            "a token for audience {:?} is not requested: the DaemonSets of namespace {namespace} need more than {TOKENS} \
             tokens on this node; those of what runs come first, then the others by the DaemonSet's name",
            token.audience
        ),
        hint: Some(format!("use fewer, or add {namespace:?} to policy.trusted-namespaces, {FREE}")),
    }
}

/// Whether what is kept of `object` is bounded where its namespace is not trusted ([`OBJECTS`], [`OBJECTS_KEPT`]).
pub fn is_bounded(object: &ObjectRef) -> bool {
    matches!(object.kind, Kind::ConfigMap | Kind::Secret | Kind::ControllerRevision)
}

/// What such an object takes in memory, roughly, in bytes.
pub fn object_weight(object: &Value) -> usize {
    let (values, bytes) = size(object);
    bytes + values * VALUE
}

/// That `object` of `weight` is not read because the others of its namespace leave it no room within [`OBJECTS_KEPT`].
pub fn no_room_for_object(object: &ObjectRef, weight: usize) -> FieldError {
    let namespace = &object.key.namespace;
    let Quota { each, all, .. } = OBJECTS_KEPT;
    FieldError {
        field: object.to_string(),
        reason: format!(
            "it is not read: with its {weight} bytes the ConfigMaps, Secrets and ControllerRevisions of namespace {namespace} would take more \
             than {each} bytes of the agent's memory together, or those of all namespaces that are not trusted \
             more than {all}; what runs keeps the data that it has"
        ),
        hint: Some(format!("make them smaller, or add {namespace:?} to policy.trusted-namespaces, {FREE}")),
    }
}

/// That the DaemonSet `key` is one of those [`beyond`].
pub fn beyond_error(key: &ObjectKey) -> FieldError {
    let namespace = &key.namespace;
    FieldError {
        field: "metadata.namespace".to_owned(),
        reason: format!(
            "namespace {namespace} has more than {DAEMON_SETS} DaemonSets for this node; those that run come first, then \
             the others by name"
        ),
        hint: Some(format!("delete some, or add {namespace:?} to policy.trusted-namespaces, {FREE}")),
    }
}

/// How many bytes labels, annotations, finalizers and selector of `daemon_set` have, and how many values they are.
fn metadata(daemon_set: &DaemonSet) -> (usize, usize) {
    let pairs = daemon_set.labels.iter().chain(&daemon_set.annotations).map(|(name, text)| name.len() + text.len());
    let texts = pairs.chain(daemon_set.finalizers.iter().map(String::len));
    let (values, bytes) = size(&daemon_set.selector);
    texts.fold((bytes, values), |(bytes, values), text| (bytes + text, values + 1))
}

/// What `daemon_set` takes in memory at most, roughly, in bytes. Of overlays, which it is not known to have yet, the patches
/// and what they add to its template count as much as they may have.
pub fn weight(daemon_set: &DaemonSet) -> usize {
    let ((values, bytes), (more_bytes, more_values)) = (size(&daemon_set.template), metadata(daemon_set));
    let overlaid = match daemon_set.annotations.contains_key(OVERLAYS) {
        true => bytes + values * VALUE + 2 * TENANT.patches,
        false => 0,
    };
    bytes + more_bytes + (values + more_values) * VALUE + overlaid
}

/// Everything of which `daemon_set`, of a namespace that is not trusted, has more than may be kept of it.
pub fn too_much_to_keep(daemon_set: &DaemonSet) -> Vec<FieldError> {
    let mut over = TENANT.exceeded_by(&daemon_set.template);
    let (bytes, _) = metadata(daemon_set);
    over.extend((bytes > METADATA).then(|| FieldError {
        field: "metadata".to_owned(),
        reason: format!(
            "labels, annotations, finalizers and selector have {bytes} bytes; at most {METADATA} are allowed"
        ),
        hint: Some(TENANT.hint()),
    }));
    over
}

/// That `count` DaemonSets of a namespace are known by their names alone.
pub fn too_many_to_know(count: usize) -> String {
    format!(
        "it has more than {KNOWN_DAEMON_SETS} DaemonSets for the agents: {count} of them are not read and do not run"
    )
}

/// That a DaemonSet of `weight` is not kept because the others leave it no room within [`KEPT`].
pub fn no_room(namespace: &str, weight: usize) -> FieldError {
    let Quota { each, all, share } = KEPT;
    FieldError {
        field: "metadata.namespace".to_owned(),
        reason: format!(
            "the DaemonSets of namespace {namespace} take more than {each} bytes of the agent's memory together, or those of \
             all namespaces that are not trusted more than {all} (each may have {share}), this one {weight}; those that run \
             come first"
        ),
        hint: Some(format!("delete some, or add {namespace:?} to policy.trusted-namespaces, {FREE}")),
    }
}

/// That a DaemonSet of `weight` is not coordinated because those that are leave it no room within [`COORDINATED`].
pub fn no_room_to_coordinate(namespace: &str, weight: usize) -> FieldError {
    let Quota { each, all, share } = COORDINATED;
    FieldError {
        field: "metadata.namespace".to_owned(),
        reason: format!(
            "with the {weight} bytes of this one the DaemonSets of namespace {namespace} would take more than {each} bytes \
             of the coordinator's memory together, or those of all namespaces that are not trusted more than {all} (each \
             may have {share}); those that it knew first come first"
        ),
        hint: Some(format!(
            "delete some, make them smaller, or add {namespace:?} to policy.trusted-namespaces of the coordinator"
        )),
    }
}

/// The bound of a DaemonSet of `namespace` under `rules`. `author`: who writes what its pods are made from.
pub fn of(namespace: &str, author: Author, rules: &PodRules) -> &'static Bound {
    match author {
        Author::ApiUser if !rules.trusts(namespace) => &TENANT,
        Author::ApiUser | Author::NodeOwner => &EVERYONE,
    }
}

#[cfg(test)]
mod tests;
