//! Stopping a container with its grace period, and what the runtime says of itself: whether it has a pod network, and what it
//! makes of the volumes of images.

use std::collections::HashMap;
use std::time::Duration;

use prost::Message;
use serde_json::Value;

use super::ASK;
use super::CHANGE;
use super::Cri;
use super::CriError;
use super::messages::Empty;

#[derive(Clone, PartialEq, Message)]
struct StopContainerRequest {
    #[prost(string, tag = "1")]
    container_id: String,
    #[prost(int64, tag = "2")]
    timeout: i64,
}

#[derive(Clone, PartialEq, Message)]
struct StatusRequest {
    #[prost(bool, tag = "1")]
    verbose: bool,
}

#[derive(Clone, PartialEq, Message)]
struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    status: Option<RuntimeStatus>,
    /// Each a text of the runtime's own form.
    #[prost(map = "string, string", tag = "2")]
    info: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
struct RuntimeStatus {
    #[prost(message, repeated, tag = "1")]
    conditions: Vec<RuntimeCondition>,
}

#[derive(Clone, PartialEq, Message)]
struct RuntimeCondition {
    #[prost(string, tag = "1")]
    r#type: String,
    #[prost(bool, tag = "2")]
    status: bool,
}

impl Cri {
    /// Stops the container `id`: terminated, and killed after `grace`. A stopped or missing one is no error. Only the
    /// kubelet runs hooks: no preStop hook runs here.
    pub async fn stop_container(&self, id: &str, grace: Duration) -> Result<(), CriError> {
        let timeout = i64::try_from(grace.as_secs()).unwrap_or(i64::MAX);
        let request = StopContainerRequest { container_id: id.to_owned(), timeout };
        match self.channel.call::<_, Empty>("StopContainer", &request, grace.saturating_add(CHANGE)).await {
            Ok(Empty {}) => Ok(()),
            Err(e) if e.is_not_found() => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Whether the runtime reports that the pod network is ready.
    pub async fn network_ready(&self) -> Result<bool, CriError> {
        let reply: StatusResponse = self.channel.call("Status", &StatusRequest { verbose: false }, ASK).await?;
        let conditions = reply.status.unwrap_or_default().conditions;
        Ok(conditions.iter().any(|c| c.r#type == "NetworkReady" && c.status))
    }

    /// Whether the runtime gives a container a writable folder of the node's disk for each `VOLUME` of its image; `None`: it
    /// does not say.
    pub async fn makes_image_volumes(&self) -> Result<Option<bool>, CriError> {
        let reply: StatusResponse = self.channel.call("Status", &StatusRequest { verbose: true }, ASK).await?;
        Ok(reply.info.get("config").and_then(|config| makes_image_volumes(config)))
    }
}

/// By the configuration of containerd's CRI plugin, as JSON.
fn makes_image_volumes(config: &str) -> Option<bool> {
    let config: Value = serde_json::from_str(config).ok()?;
    config.get("ignoreImageDefinedVolumes")?.as_bool().map(|is_ignored| !is_ignored)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containerd_says_what_becomes_of_volumes_of_images_and_others_do_not() {
        for (config, makes) in [
            (r#"{"ignoreImageDefinedVolumes": false, "x": {}}"#, Some(true)),
            (r#"{"ignoreImageDefinedVolumes": true}"#, Some(false)),
            (r#"{"ignoreImageDefinedVolumes": "true"}"#, None),
            ("{}", None),
            ("[crio]\nroot = 1", None),
        ] {
            assert_eq!(makes_image_volumes(config), makes, "{config}");
        }
    }
}
