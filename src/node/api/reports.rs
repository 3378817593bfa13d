//! The kubelet's reports about pods without an object in the API: its events.
//!
//! Owns two lists, requested only when an instance is late. Must not decide what an event means.

use kube::Api;
use kube::api::ListParams;
use serde_json::Value;

use crate::core::json::Json;
use crate::core::time::Timestamp;
use crate::node::api::error::ApiFailure;
use crate::node::api::object;
use crate::node::api::object::RawObject;

/// The most events that are read for one request.
const MOST: u32 = 100;

/// An event, as far as it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodEvent {
    pub warning: bool,
    pub reason: String,
    pub message: String,
    /// The node whose kubelet reported it.
    pub host: String,
    /// When it was last seen.
    pub at: Timestamp,
}

/// Events about the pod with that UID, oldest first.
pub(super) async fn about(client: &kube::Client, namespace: &str, uid: &str) -> Result<Vec<PodEvent>, ApiFailure> {
    let resource = object::api_resource("", "Event", "events");
    let api: Api<RawObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    list(&api, &format!("involvedObject.uid={uid}")).await
}

/// Events about pods that were preempted, oldest first.
pub(super) async fn preemptions(client: &kube::Client) -> Result<Vec<PodEvent>, ApiFailure> {
    let api: Api<RawObject> = Api::all_with(client.clone(), &object::api_resource("", "Event", "events"));
    list(&api, "involvedObject.kind=Pod,reason=Preempting").await
}

async fn list(api: &Api<RawObject>, fields: &str) -> Result<Vec<PodEvent>, ApiFailure> {
    let params = ListParams::default().fields(fields).limit(MOST);
    let found = api.list(&params).await.map_err(|error| ApiFailure::from_kube(&error))?;
    let mut events: Vec<PodEvent> = found.items.iter().map(|item| read(&item.value)).collect();
    events.sort_by_key(|event| event.at);
    Ok(events)
}

fn read(value: &Value) -> PodEvent {
    let last = value.text_at(["series", "lastObservedTime"]).or_else(|| value.text_at("lastTimestamp"));
    let time = last.or_else(|| value.text_at("eventTime")).or_else(|| value.text_at(["metadata", "creationTimestamp"]));
    PodEvent {
        warning: value.str_at("type") == "Warning",
        reason: value.str_at("reason").to_owned(),
        message: value.str_at("message").to_owned(),
        host: value.text_at(["source", "host"]).unwrap_or(value.str_at("reportingInstance")).to_owned(),
        at: time.and_then(|time| time.parse().ok()).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_is_read_with_its_last_time() {
        let event = read(&json!({
            "type": "Warning", "reason": "NodePorts", "message": "no free port", "source": {"host": "n"},
            "lastTimestamp": "1970-01-01T00:00:02Z", "metadata": {"creationTimestamp": "1970-01-01T00:00:01Z"},
            "eventTime": null,
        }));
        assert_eq!(
            (event.warning, event.reason.as_str(), event.host.as_str(), event.at),
            (true, "NodePorts", "n", Timestamp::from_secs(2))
        );
    }
}
