//! Container environments: what refers to ConfigMaps and Secrets becomes values and file keys.
//!
//! Follows upstream's `makeEnvironmentVariables`: `envFrom` first, later sources over earlier ones, then
//! `env` in order. How a Secret's value is carried is `env_file`'s business.

use serde_json::Value;
use serde_json::json;

use crate::core::model::Kind;
use crate::core::render::containers;
use crate::core::render::context::Context;
use crate::core::render::env_file::EnvFile;
use crate::core::render::env_file::SecretKey;
use crate::core::render::expansion;
use crate::core::render::json;
use crate::core::render::json::Object;
use crate::core::render::payload;

/// Resolves the environments of all containers of `spec`.
pub(super) fn resolve(ctx: &mut Context<'_>, account: &str, spec: &mut Object) {
    let mut volumes = json::take_list(spec, "volumes");
    containers::for_each_mut(spec, |list, index, container| {
        let field = format!("spec.template.spec.{list}[{index}]");
        let mut file = EnvFile::new(container, &volumes);
        let from = env_from(ctx, &mut file, container, &field);
        let own = env(ctx, &mut file, account, container, &field);
        let merged = merge(from, own);
        if !merged.is_empty() || container.contains_key("env") {
            container.insert("env".to_owned(), Value::Array(merged));
        }
        file.mount(ctx, container, &mut volumes);
    });
    json::put_list(spec, "volumes", volumes);
}

/// The variables of `envFrom`, which is taken out.
fn env_from(ctx: &mut Context<'_>, file: &mut EnvFile, container: &mut Object, field: &str) -> Vec<Value> {
    let Some(Value::Array(sources)) = container.shift_remove("envFrom") else { return Vec::new() };
    let mut variables: Vec<Value> = Vec::new();
    for (index, source) in sources.iter().enumerate() {
        let field = format!("{field}.envFrom[{index}]");
        let prefix = json::text(source, "prefix").unwrap_or_default();
        let found = [("configMapRef", Kind::ConfigMap), ("secretRef", Kind::Secret)]
            .into_iter()
            .find_map(|(member, kind)| Some((kind, json::at(source, &[member])?)));
        let Some((kind, reference)) = found else { continue };
        let object_name = json::text(reference, "name").unwrap_or_default();
        let Some(object) = ctx.data_object(kind, object_name, json::flag(reference, "optional")) else { continue };
        for key in payload::keys(kind, object, false) {
            let name = format!("{prefix}{key}");
            if !name_is_valid(ctx, &name) {
                let reason =
                    format!("the key {key:?} of {kind} {object_name} is left out: {name:?} is no variable name");
                ctx.note(&field, reason, "choose another key or prefix, or a kubelet of 1.32 or later");
                continue;
            }
            let Some(data) = payload::value(kind, object, key) else {
                ctx.miss(kind.as_str(), object_name, key);
                continue;
            };
            ctx.record(kind, object_name, key, Some(&data));
            let variable = match kind {
                Kind::Secret => {
                    let at = SecretKey { field: &field, secret: object_name, key };
                    file.carry(ctx, &name, Some(&data), at)
                }
                _ => Some(literal(&name, &String::from_utf8_lossy(&data))),
            };
            if index > 0 {
                variables.retain(|earlier| json::text(earlier, "name") != Some(&name));
            }
            variables.extend(variable);
        }
    }
    variables
}

/// The variables of `env`, which is taken out.
fn env(ctx: &mut Context<'_>, file: &mut EnvFile, account: &str, container: &mut Object, field: &str) -> Vec<Value> {
    let mut variables = Vec::new();
    for (index, variable) in json::take_list(container, "env").into_iter().enumerate() {
        let field = format!("{field}.env[{index}]");
        variables.extend(resolve_one(ctx, file, account, variable, &field));
    }
    variables
}

/// One variable without references to the API; `None` if it is left out.
fn resolve_one(
    ctx: &mut Context<'_>,
    file: &mut EnvFile,
    account: &str,
    mut variable: Value,
    field: &str,
) -> Option<Value> {
    if json::text(&variable, "value").is_some() {
        if let Some(object) = variable.as_object_mut() {
            object.shift_remove("valueFrom");
        }
        return Some(variable);
    }
    let name = json::text(&variable, "name").unwrap_or_default();
    let Some(from) = json::at(&variable, &["valueFrom"]) else { return Some(variable) };
    if let Some(reference) = json::at(from, &["fieldRef"]) {
        let replaced = json::text(reference, "fieldPath") == Some("spec.serviceAccountName");
        return Some(if replaced { literal(name, account) } else { variable });
    }
    if json::at(from, &["resourceFieldRef"]).is_some() {
        return Some(variable);
    }
    let (kind, reference) = [("configMapKeyRef", Kind::ConfigMap), ("secretKeyRef", Kind::Secret)]
        .into_iter()
        .find_map(|(member, kind)| Some((kind, json::at(from, &[member])?)))
        .unzip();
    let (Some(kind), Some(reference)) = (kind, reference) else { return Some(variable) };
    let object_name = json::text(reference, "name").unwrap_or_default();
    let key = json::text(reference, "key").unwrap_or_default();
    let optional = json::flag(reference, "optional");
    let object = ctx.data_object(kind, object_name, optional);
    let data = object.and_then(|object| {
        let of_data = kind == Kind::Secret || object.get("data").is_some_and(|data| data.get(key).is_some());
        payload::value(kind, object, key).filter(|_| of_data)
    });
    if object.is_some() {
        ctx.record(kind, object_name, key, data.as_deref());
        if data.is_none() && !optional {
            ctx.miss(kind.as_str(), object_name, key);
        }
    }
    if data.is_none() && optional {
        return None;
    }
    match kind {
        Kind::Secret => file.carry(ctx, name, data.as_deref(), SecretKey { field, secret: object_name, key }),
        _ => data.map(|data| literal(name, &String::from_utf8_lossy(&data))),
    }
}

/// A variable whose value the kubelet must not expand.
pub(super) fn literal(name: &str, value: &str) -> Value {
    json!({"name": name, "value": expansion::escape(value)})
}

/// `from` before `own`, without those of `from` that `own` replaces and that nothing refers to.
fn merge(mut from: Vec<Value>, own: Vec<Value>) -> Vec<Value> {
    if !from.is_empty() {
        from.retain(|variable| {
            let name = json::text(variable, "name").unwrap_or_default();
            let replaced = own.iter().any(|own| json::text(own, "name") == Some(name) && !is_optional(own));
            !replaced || own.iter().any(|own| refers_to(own, name))
        });
    }
    from.extend(own);
    from
}

/// Whether the kubelet may leave the variable out.
fn is_optional(variable: &Value) -> bool {
    json::at(variable, &["valueFrom", "fileKeyRef"]).is_some_and(|reference| json::flag(reference, "optional"))
}

/// Whether the value of `variable` refers to `$(name)`.
pub(super) fn refers_to(variable: &Value, name: &str) -> bool {
    json::text(variable, "value").is_some_and(|value| expansion::references(value).any(|found| found == name))
}

/// Whether the kubelet takes `name` for a variable from `envFrom`.
///
/// Since 1.32 any printable ASCII but `=` will do (`IsRelaxedEnvVarName`); before, others were skipped
/// (`IsEnvVarName`).
fn name_is_valid(ctx: &Context<'_>, name: &str) -> bool {
    let relaxed = ctx.input.options.kubelet_version.is_none_or(|version| version >= (1, 32));
    if relaxed {
        return !name.is_empty() && name.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'=');
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    name.bytes().all(plain)
        && name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit())
        && name != "."
        && !name.starts_with("..")
}

#[cfg(test)]
mod tests;
