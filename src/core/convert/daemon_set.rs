//! DaemonSets of old API versions as apps/v1, with the defaults that those versions had.

use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use super::checks::wrong;
use crate::core::json::Json;
use crate::core::model::FieldError;

/// Makes `object`, a DaemonSet of `api_version`, one of apps/v1.
pub(super) fn convert(object: &mut Value, api_version: &str) -> Result<(), FieldError> {
    match api_version {
        "apps/v1" => return Ok(()),
        "extensions/v1beta1" | "apps/v1beta2" => {}
        _ => {
            return Err(FieldError {
                field: "apiVersion".to_owned(),
                reason: format!("{api_version} never had DaemonSets"),
                hint: Some("write apps/v1".to_owned()),
            });
        }
    }
    let Value::Object(object) = object else { return Ok(()) };
    object.insert("apiVersion".to_owned(), "apps/v1".into());
    let template_labels = object
        .get("spec")
        .and_then(|spec| spec.at(["template", "metadata", "labels"]))
        .filter(|labels| !labels.is_null())
        .cloned();
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return Ok(());
    };
    let generation = spec.remove("templateGeneration").filter(|generation| !generation.is_null());
    if generation.is_some_and(|generation| !generation.is_i64()) {
        return Err(wrong("spec.templateGeneration", "must be an integer"));
    }
    if api_version == "extensions/v1beta1" {
        old_defaults(spec, template_labels.as_ref());
        if let Some(labels) = template_labels {
            label(object, labels);
        }
    }
    Ok(())
}

/// `SetDefaults_DaemonSet` of extensions/v1beta1, as far as it differs from apps/v1.
fn old_defaults(spec: &mut Map<String, Value>, template_labels: Option<&Value>) {
    if let Some(labels) = template_labels
        && spec.get("selector").is_none_or(Value::is_null)
    {
        spec.insert("selector".to_owned(), json!({ "matchLabels": labels }));
    }
    let strategy = spec.entry("updateStrategy").or_insert(Value::Null);
    if strategy.is_null() {
        *strategy = json!({});
    }
    if let Value::Object(strategy) = strategy
        && strategy.get("type").is_none_or(|kind| kind.is_null() || kind == "")
    {
        strategy.insert("type".to_owned(), "OnDelete".into());
    }
}

fn label(object: &mut Map<String, Value>, labels: Value) {
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    if let Value::Object(metadata) = metadata
        && metadata.get("labels").and_then(Value::as_object).is_none_or(Map::is_empty)
    {
        metadata.insert("labels".to_owned(), labels);
    }
}
