//! ServiceAccounts: the default token volume, as upstream's admission adds it, and pull secrets.
//!
//! Owns the replacement of `serviceAccountName` and `imagePullSecrets`. `payload` owns the token's file.

use serde_json::Value;
use serde_json::json;

use crate::core::field_filter;
use crate::core::json::Json;
use crate::core::model::Author;
use crate::core::model::Kind;
use crate::core::model::Lookup;
use crate::core::model::ObjectRef;
use crate::core::render::PullMode;
use crate::core::render::context::ROOT_CA;
use crate::core::render::context::RenderContext;
use crate::core::render::json;
use crate::core::render::json::Object;
use crate::core::time::Span;

/// Where containers expect their token.
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The name of the added volume; the API's has a random suffix.
const VOLUME: &str = "kube-api-access";
/// A volume of the template with this prefix counts as the token volume, as upstream.
const VOLUME_PREFIX: &str = "kube-api-access-";
/// The lifetime that admission writes for a pod's token, in seconds. The API server then gives a pod's token a year,
/// but not one that is bound to a Node: so no pod of ours has this life.
const UPSTREAM_EXPIRATION: i64 = 3607;

/// Pull secrets that a note names at most.
const SHOWN: usize = 20;

const CREDENTIALS: &str =
    "give the node the registry's credentials: its docker config or the kubelet's credential-provider configuration";
/// The note about pull secrets, which a static pod cannot name.
const USED_FIRST: &str =
    "used by the agent, which pulls the images before a new instance starts; the kubelet cannot use them";
const USED_IN_VAIN: &str = "used by the agent before a new instance starts, and not by the kubelet, which pulls \
     anew what is Always (images.pull-policy is as-written)";
const NOT_SHARED: &str = "not used: an image that needs one would be every pod's on this node";
const SHARED_PULLS: &str = "set policy.shared-pulls = true (for every namespace that is not trusted), or trust the namespace, where \
     whoever writes DaemonSets is root on the node then";
const NOT_USED: &str = "left out: a static pod cannot name pull secrets, and only the kubelet pulls here";

/// The name of the pod's ServiceAccount.
pub(super) fn name(spec: &Value) -> &str {
    spec.text_at("serviceAccountName").or_else(|| spec.text_at("serviceAccount")).unwrap_or("default")
}

/// Adds the default token volume, and removes names of API objects. Returns the pull secrets.
pub(super) fn apply(ctx: &mut RenderContext<'_>, account: &str, spec: &mut Object) -> Vec<ObjectRef> {
    let object = mount(ctx, account, spec);
    spec.remove("serviceAccountName");
    spec.remove("serviceAccount");
    pull_secrets(ctx, account, object, spec)
}

/// Adds the default token volume. Returns the ServiceAccount, if it is known.
pub(super) fn mount<'a>(ctx: &mut RenderContext<'a>, account: &str, spec: &mut Object) -> Option<&'a Value> {
    let of_pod = spec.at("automountServiceAccountToken").and_then(Value::as_bool);
    let lookup = ctx.look_up(Kind::ServiceAccount, account);
    let object = match lookup {
        Lookup::Present(object) => Some(object),
        Lookup::Absent | Lookup::Deleted(_) | Lookup::Unknown => None,
    };
    if object.is_some_and(field_filter::is_too_large) {
        let reason = format!("ServiceAccount {}/{account} {}", ctx.namespace(), field_filter::too_large());
        ctx.refuse("spec.template.spec.serviceAccountName", reason, "give it fewer imagePullSecrets");
    }
    if of_pod.is_none() && object.is_none() {
        match lookup {
            Lookup::Unknown => ctx.miss(Kind::ServiceAccount.as_str(), account, ""),
            _ => ctx.lack(ctx.namespace(), Kind::ServiceAccount, account, ""),
        }
    }
    let of_account = || object?.get("automountServiceAccountToken")?.as_bool();
    if of_pod.or_else(of_account).unwrap_or(true) {
        mount_token(spec, ctx.input.options.token_expiration);
    }
    object
}

/// Removes the pull secrets, notes how they are used, and returns those for pulling: the pod's, else the
/// ServiceAccount's, as upstream's admission does.
fn pull_secrets(
    ctx: &mut RenderContext<'_>,
    account: &str,
    object: Option<&Value>,
    spec: &mut Object,
) -> Vec<ObjectRef> {
    let names = |list: &[Value]| -> Vec<String> {
        list.iter().filter_map(|secret| secret.text_at("name")).map(str::to_owned).collect()
    };
    let own = names(spec.list_at("imagePullSecrets"));
    spec.remove("imagePullSecrets");
    let (secrets, field, of) = if own.is_empty() {
        let inherited = names(object.map_or(&[], |object| object.list_at("imagePullSecrets")));
        let of = format!(" of ServiceAccount {}/{account}", ctx.namespace());
        (inherited, "spec.template.spec.serviceAccountName", of)
    } else {
        (own, "spec.template.spec.imagePullSecrets", String::new())
    };
    if secrets.is_empty() {
        return Vec::new();
    }
    let rules = &ctx.input.options.rules;
    let is_bound = ctx.input.daemon_set.author() == Author::ApiUser;
    if is_bound && !rules.trusts(ctx.namespace()) && !rules.shared_pulls {
        ctx.note(field, format!("pull secrets{of} ({}): {NOT_SHARED}", shown(&secrets)), SHARED_PULLS);
        return Vec::new();
    }
    let what = match ctx.input.options.pulls {
        PullMode::First => USED_FIRST,
        PullMode::AsWritten => USED_IN_VAIN,
        PullMode::ByKubelet => NOT_USED,
    };
    ctx.note(field, format!("pull secrets{of} ({}): {what}", shown(&secrets)), CREDENTIALS);
    if ctx.input.options.pulls == PullMode::ByKubelet {
        return Vec::new();
    }
    for secret in &secrets {
        ctx.look_up(Kind::Secret, secret);
    }
    secrets.iter().map(|secret| ObjectRef::new(Kind::Secret, ctx.namespace(), secret)).collect()
}

/// The first of these names.
fn shown(secrets: &[String]) -> String {
    let (shown, more) = secrets.split_at(secrets.len().min(SHOWN));
    let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    format!("{}{more}", shown.join(", "))
}

/// Upstream's `mountServiceAccountToken`.
fn mount_token(spec: &mut Object, expiration: Span) {
    let names = || spec.list_at("volumes").iter().filter_map(|volume| volume.text_at("name"));
    let own = names().find(|name| name.starts_with(VOLUME_PREFIX)).map(str::to_owned);
    let taken = own.is_none() && names().any(|name| name == VOLUME);
    let volume = match &own {
        Some(own) => own.clone(),
        None if taken => format!("{VOLUME_PREFIX}token"),
        None => VOLUME.to_owned(),
    };
    let mut needed = false;
    for list in ["initContainers", "containers"] {
        let Some(containers) = spec.get_mut(list).and_then(Value::as_array_mut) else { continue };
        for container in containers.iter_mut().filter_map(Value::as_object_mut) {
            let Some(mounts) = json::list_mut(container, "volumeMounts") else { continue };
            if !mounts.iter().any(|mount| mount.text_at("mountPath") == Some(MOUNT_PATH)) {
                mounts.push(json!({"name": volume, "mountPath": MOUNT_PATH, "readOnly": true}));
                needed = true;
            }
        }
    }
    if needed
        && own.is_none()
        && let Some(volumes) = json::list_mut(spec, "volumes")
    {
        volumes.push(token_volume(&volume));
    }
    prolong(spec, expiration);
}

/// Gives the token that admission added, or [`token_volume`], its life.
fn prolong(spec: &mut Object, expiration: Span) {
    let volumes = spec.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten();
    for volume in volumes.filter(|volume| volume.str_at("name").starts_with(VOLUME)) {
        let sources = volume.pointer_mut("/projected/sources").and_then(Value::as_array_mut).into_iter().flatten();
        for source in sources {
            let life = source.pointer_mut("/serviceAccountToken/expirationSeconds");
            if let Some(life) = life.filter(|life| life.as_i64() == Some(UPSTREAM_EXPIRATION)) {
                *life = expiration.as_secs().into();
            }
        }
    }
}

/// The life of tokens in recordings that do not name it.
pub(super) fn upstream_expiration() -> Span {
    Span::from_secs(UPSTREAM_EXPIRATION)
}

/// Upstream's `TokenVolumeSource`.
fn token_volume(name: &str) -> Value {
    json!({"name": name, "projected": {"defaultMode": 0o644, "sources": [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": UPSTREAM_EXPIRATION}},
        {"configMap": {"name": ROOT_CA, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]}})
}

#[cfg(test)]
mod tests;
