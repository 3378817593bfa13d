//! Container environments: references to ConfigMaps and Secrets become values and file keys.
//!
//! Follows upstream's `makeEnvironmentVariables`: `envFrom` first, where later sources override earlier ones, then
//! `env` in order. `env_file` owns how a Secret's value is passed.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;
use serde_json::json;

use crate::core::json::Json;
use crate::core::model::Kind;
use crate::core::render::Part;
use crate::core::render::containers;
use crate::core::render::context::DataKey;
use crate::core::render::context::RenderContext;
use crate::core::render::env_file::EnvFile;
use crate::core::render::env_file::SecretKey;
use crate::core::render::expansion;
use crate::core::render::json;
use crate::core::render::json::Object;
use crate::core::render::payload;
use crate::core::render::unfolding::Unfolding;
use crate::core::validate;

/// A variable before it is written.
enum Variable<'a> {
    /// Written as it is.
    Ready(Value),
    /// From a Secret; `None`: the value is missing.
    Secret { name: String, value: Option<Cow<'a, [u8]>>, from: SecretKey },
}

impl Variable<'_> {
    fn name(&self) -> &str {
        match self {
            Variable::Ready(variable) => variable.str_at("name"),
            Variable::Secret { name, .. } => name,
        }
    }

    /// The names that its value refers to.
    fn references(&self) -> impl Iterator<Item = &str> {
        let value = match self {
            Variable::Ready(variable) => variable.text_at("value"),
            Variable::Secret { .. } => None,
        };
        value.into_iter().flat_map(expansion::references)
    }

    /// Whether the kubelet may omit it.
    fn is_optional(&self) -> bool {
        let Variable::Ready(variable) = self else { return false };
        variable.at(["valueFrom", "fileKeyRef"]).is_some_and(|reference| reference.flag_at("optional"))
    }
}

/// Resolves the environments of all containers of `spec`.
pub(super) fn resolve(ctx: &mut RenderContext<'_>, account: &str, spec: &mut Object) {
    let mut volumes = json::take_list(spec, "volumes");
    let mut names = volumes.iter().map(|volume| volume.str_at("name").to_owned()).collect();
    containers::for_each_mut(spec, |list, index, container| {
        let field = format!("spec.template.spec.{list}[{index}]");
        let mut file = EnvFile::new(container, &names);
        let part = file.part(ctx, container, list);
        let waits_alone = matches!(part, Part::Environment { waits_alone: true, .. });
        ctx.begin(part);
        let from = env_from(ctx, container, &field);
        let own = env(ctx, account, container, &field);
        let missing = ctx.obstacles.missing_now().first().filter(|_| waits_alone).cloned();
        // First: the kubelet reports the first variable that it cannot resolve.
        let waiting = missing.map(|missing| file.wait_for(&missing));
        let is_there =
            |variable: &Variable<'_>| !waits_alone || !matches!(variable, Variable::Secret { value: None, .. });
        let variables = merge(from, own).filter(is_there);
        let mut unfolding = Unfolding::default();
        let merged: Vec<Value> = variables
            .filter_map(|variable| match variable {
                Variable::Ready(variable) => {
                    unfolding.add_written(ctx, &variable);
                    Some(variable)
                }
                Variable::Secret { name, value, from } => {
                    unfolding.add(&name, value.as_deref().map_or(0, <[u8]>::len));
                    file.carry(ctx, &name, value.as_deref(), &from)
                }
            })
            .collect();
        unfolding.require_room(ctx, container, &field);
        let merged: Vec<Value> = waiting.into_iter().chain(merged).collect();
        if !merged.is_empty() || container.contains_key("env") {
            container.insert("env".to_owned(), Value::Array(merged));
        }
        if let Some(volume) = file.mount(ctx, container) {
            names.insert(volume.str_at("name").to_owned());
            volumes.push(volume);
        }
    });
    ctx.begin(Part::Pod);
    json::put_list(spec, "volumes", volumes);
}

/// The member of `source` that names a ConfigMap or Secret.
fn reference_of<'s>(source: &'s Value, config_map: &str, secret: &str) -> Option<(Kind, &'s Value)> {
    let config_map = source.at(config_map).map(|reference| (Kind::ConfigMap, reference));
    config_map.or_else(|| source.at(secret).map(|reference| (Kind::Secret, reference)))
}

/// The variables of `envFrom`, which is removed.
fn env_from<'a>(ctx: &mut RenderContext<'a>, container: &mut Object, field: &str) -> Vec<Variable<'a>> {
    let Some(Value::Array(sources)) = container.remove("envFrom") else { return Vec::new() };
    let mut variables: Vec<Option<Variable<'a>>> = Vec::new();
    // Where the variable of each name is.
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for (index, source) in sources.iter().enumerate() {
        let field = format!("{field}.envFrom[{index}]");
        let prefix = source.str_at("prefix");
        let Some((kind, reference)) = reference_of(source, "configMapRef", "secretRef") else { continue };
        let object_name = reference.str_at("name");
        let Some(object) = ctx.data_object(kind, object_name, reference.flag_at("optional")) else { continue };
        for key in payload::keys(kind, object, false) {
            let name = format!("{prefix}{key}");
            let from = DataKey { kind, object: object_name, key };
            if !ctx.has_room_for_variable(&field, &from) {
                return Vec::new();
            }
            if !name_is_valid(ctx, &name) {
                let reason =
                    format!("the key {key:?} of {kind} {object_name} is left out: {name:?} is not a variable name");
                ctx.note(&field, reason, "choose another key or prefix, or a kubelet of 1.35 or later");
                // The note takes memory, too.
                if !ctx.spend_on_variable(name.len(), &field, &from) {
                    return Vec::new();
                }
                continue;
            }
            let value = payload::value(kind, object, key);
            ctx.record(kind, object_name, key, value.as_deref());
            if value.is_none() {
                ctx.lack(ctx.namespace(), kind, object_name, key);
            }
            if !ctx.spend_on_variable(name.len() + value.as_deref().map_or(0, <[u8]>::len), &field, &from) {
                return Vec::new();
            }
            if let Some(earlier) = places.insert(name.clone(), variables.len()) {
                variables[earlier] = None;
            }
            let [secret, key] = [object_name, key].map(str::to_owned);
            let from = SecretKey { field: field.clone(), index: None, secret, key };
            variables.push(variable(kind, name, value, from));
        }
    }
    variables.into_iter().flatten().collect()
}

/// The variables of `env`, which is removed.
fn env<'a>(ctx: &mut RenderContext<'a>, account: &str, container: &mut Object, field: &str) -> Vec<Variable<'a>> {
    let own = json::take_list(container, "env").into_iter().enumerate();
    own.filter_map(|(index, variable)| resolve_one(ctx, account, variable, index, field)).collect()
}

/// The variable at `index` of the `env` of `container` without references to the API; `None` if it is omitted.
fn resolve_one<'a>(
    ctx: &mut RenderContext<'a>,
    account: &str,
    mut own: Value,
    index: usize,
    container: &str,
) -> Option<Variable<'a>> {
    let field = || format!("{container}.env[{index}]");
    if own.text_at("value").is_some() {
        if let Some(object) = own.as_object_mut() {
            object.remove("valueFrom");
        }
        return Some(Variable::Ready(own));
    }
    let name = own.str_at("name");
    let Some(from) = own.at("valueFrom") else { return Some(Variable::Ready(own)) };
    if from.as_object().is_some_and(|from| from.values().filter(|source| !source.is_null()).count() > 1) {
        ctx.refuse(
            format!("{}.valueFrom", field()),
            "the variable has more than one source",
            "name one source, as the API requires",
        );
        return None;
    }
    if let Some(reference) = from.at("fieldRef") {
        let replaced = reference.text_at("fieldPath") == Some("spec.serviceAccountName");
        return Some(Variable::Ready(if replaced { literal(name, account) } else { own }));
    }
    let reference = reference_of(from, "configMapKeyRef", "secretKeyRef");
    let Some((kind, reference)) = reference else { return Some(Variable::Ready(own)) };
    let object_name = reference.str_at("name");
    let key = reference.str_at("key");
    let optional = reference.flag_at("optional");
    let object = ctx.data_object(kind, object_name, optional);
    let (field, from) = (field(), DataKey { kind, object: object_name, key });
    if object.is_some() && !ctx.has_room_for_variable(&field, &from) {
        return None;
    }
    // `binaryData` is not used in environments.
    let counts = |object: &Value| kind == Kind::Secret || object.at(["data", key]).is_some();
    let value = object.filter(|object| counts(object)).and_then(|object| payload::value(kind, object, key));
    if object.is_some() {
        ctx.record(kind, object_name, key, value.as_deref());
        if value.is_none() && !optional {
            ctx.lack(ctx.namespace(), kind, object_name, key);
        }
    }
    if value.is_none() && optional {
        return None;
    }
    if !ctx.spend_on_variable(name.len() + value.as_deref().map_or(0, <[u8]>::len), &field, &from) {
        return None;
    }
    let [secret, key] = [object_name, key].map(str::to_owned);
    let from = SecretKey { field, index: Some(index), secret, key };
    variable(kind, name.to_owned(), value, from)
}

/// The variable `name` from a ConfigMap or Secret; `None` for an absent value of a ConfigMap.
fn variable(kind: Kind, name: String, value: Option<Cow<'_, [u8]>>, from: SecretKey) -> Option<Variable<'_>> {
    match kind {
        Kind::Secret => Some(Variable::Secret { name, value, from }),
        _ => value.map(|value| Variable::Ready(literal(&name, &String::from_utf8_lossy(&value)))),
    }
}

/// A variable whose value the kubelet must not expand.
pub(super) fn literal(name: &str, value: &str) -> Value {
    json!({"name": name, "value": expansion::escape(value)})
}

/// `from` followed by `own`, without the variables of `from` that `own` overrides and nothing refers to.
fn merge<'a>(mut from: Vec<Variable<'a>>, own: Vec<Variable<'a>>) -> impl Iterator<Item = Variable<'a>> {
    if !from.is_empty() {
        let replaced: BTreeSet<&str> = own.iter().filter(|own| !own.is_optional()).map(Variable::name).collect();
        let used: BTreeSet<&str> = own.iter().flat_map(Variable::references).collect();
        from.retain(|variable| !replaced.contains(variable.name()) || used.contains(variable.name()));
    }
    from.into_iter().chain(own)
}

/// The names that the value of `variable` refers to.
pub(super) fn references(variable: &Value) -> impl Iterator<Item = &str> {
    variable.text_at("value").into_iter().flat_map(expansion::references)
}

/// Whether the kubelet accepts `name` as a variable of a static pod (`IsRelaxedEnvVarName`, before 1.35 `IsEnvVarName`).
fn name_is_valid(ctx: &RenderContext<'_>, name: &str) -> bool {
    match ctx.input.options.kubelet_version {
        Some(version) if version < validate::AS_THE_API => validate::is_env_var_name(name),
        _ => !name.is_empty() && name.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'='),
    }
}

#[cfg(test)]
mod tests;
