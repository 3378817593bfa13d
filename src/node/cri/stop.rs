//! Stopping a container with its grace period, and whether the runtime has a pod network.

use std::time::Duration;

use prost::Message;

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
}
