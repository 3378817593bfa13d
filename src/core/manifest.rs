//! stub
use crate::core::model::ObjectKey;
pub fn text(_key: &ObjectKey, _revision: &str, pod: &serde_json::Value) -> String {
    pod.to_string()
}
pub fn file_name(namespace: &str, pod_name: &str) -> String {
    format!("{namespace}-{pod_name}.yaml")
}
