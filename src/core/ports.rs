//! Host ports of pods, and which of them conflict on one node.
//!
//! Owns the rule of the scheduler's and the kubelet's NodePorts (k8s.io/kubernetes/pkg/scheduler: `GetHostPorts`,
//! `HostPortInfo.CheckConflict`). Ports that a process opens without declaring them are unknown.

use std::fmt;

use serde_json::Value;
use serde_json::json;

use crate::core::json::Json;

/// Every address of the node.
const ANY: &str = "0.0.0.0";

/// A port of the node that a pod requests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    /// The address; `0.0.0.0`: all of them.
    pub address: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    pub port: u64,
}

impl HostPort {
    /// Whether both conflict.
    pub fn clashes(&self, other: &Self) -> bool {
        let addresses = self.address == ANY || other.address == ANY || self.address == other.address;
        self.port == other.port && self.protocol == other.protocol && addresses
    }
}

impl fmt::Display for HostPort {
    /// `TCP 9100`, or `TCP 10.0.0.1:9100`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address.as_str() {
            ANY => write!(f, "{} {}", self.protocol, self.port),
            address => write!(f, "{} {address}:{}", self.protocol, self.port),
        }
    }
}

/// The host ports of a pod or pod template: of its containers and its sidecars. With `hostNetwork` each container port
/// is a host port, as in the API's defaults.
pub fn host_ports(pod: &Value) -> Vec<HostPort> {
    let on_host = pod.flag_at(["spec", "hostNetwork"]);
    let list = |field: &str| pod.list_at(["spec", field]).iter();
    let stays = |c: &&Value| c.get("restartPolicy").is_some_and(|policy| policy == "Always");
    let containers = list("initContainers").filter(stays).chain(list("containers"));
    let ports = containers.flat_map(|container| container.list_at("ports"));
    let text = |port: &Value, field: &str, default: &str| port.text_at(field).unwrap_or(default).to_owned();
    let number = |port: &Value, field: &str| port.get(field).and_then(Value::as_u64).filter(|number| *number > 0);
    let of = |port: &Value| {
        let number = number(port, "hostPort").or_else(|| number(port, "containerPort").filter(|_| on_host))?;
        Some(HostPort { address: text(port, "hostIP", ANY), protocol: text(port, "protocol", "TCP"), port: number })
    };
    ports.filter_map(of).collect()
}

/// The host ports of a pod as the `ports` of a container; `None`: it has none.
pub fn list(pod: &Value) -> Option<Value> {
    let port = |port: &HostPort| json!({"hostIP": port.address, "protocol": port.protocol, "hostPort": port.port});
    let ports: Vec<Value> = host_ports(pod).iter().map(port).collect();
    (!ports.is_empty()).then_some(Value::Array(ports))
}

/// The first port of `wanted` that conflicts with `held`.
pub fn clash<'a>(wanted: &'a [HostPort], held: &[HostPort]) -> Option<&'a HostPort> {
    wanted.iter().find(|port| held.iter().any(|other| port.clashes(other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(address: &str, protocol: &str, port: u64) -> HostPort {
        HostPort { address: address.into(), protocol: protocol.into(), port }
    }

    #[test]
    fn ports_clash_as_the_kubelet_has_it() {
        let any = port(ANY, "TCP", 80);
        for (other, expected) in [
            (port(ANY, "TCP", 80), true),
            (port("10.0.0.1", "TCP", 80), true),
            (port(ANY, "UDP", 80), false),
            (port(ANY, "TCP", 81), false),
        ] {
            assert_eq!((any.clashes(&other), other.clashes(&any)), (expected, expected), "{other}");
        }
        let one = port("10.0.0.1", "TCP", 80);
        assert!(one.clashes(&one.clone()) && !one.clashes(&port("10.0.0.2", "TCP", 80)));
        assert_eq!((any.to_string(), one.to_string()), ("TCP 80".to_owned(), "TCP 10.0.0.1:80".to_owned()));
    }

    #[test]
    fn host_ports_are_those_of_containers_that_stay() {
        let spec = |host: bool| {
            json!({"spec": {
                "hostNetwork": host,
                "initContainers": [
                    {"name": "once", "ports": [{"containerPort": 1, "hostPort": 1}]},
                    {"name": "side", "restartPolicy": "Always", "ports": [{"containerPort": 2, "hostPort": 2, "protocol": "UDP"}]}
                ],
                "containers": [
                    {"name": "a", "ports": [{"containerPort": 3}, {"containerPort": 4, "hostPort": 5, "hostIP": "10.0.0.1"}]},
                    {"name": "b", "ports": [{"containerPort": 6, "hostPort": 0, "hostIP": ""}]},
                    {"name": "c"}
                ]
            }})
        };
        let texts = |host| host_ports(&spec(host)).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(texts(false), ["UDP 2", "TCP 10.0.0.1:5"]);
        assert_eq!(texts(true), ["UDP 2", "TCP 3", "TCP 10.0.0.1:5", "TCP 6"]);
        assert_eq!(host_ports(&json!({"spec": {"containers": "?"}})), []);
    }

    #[test]
    fn the_first_clash_is_named() {
        let wanted = [port(ANY, "TCP", 1), port(ANY, "TCP", 2)];
        assert_eq!(clash(&wanted, &[port("::1", "TCP", 2), port(ANY, "TCP", 3)]), Some(&wanted[1]));
        assert_eq!(clash(&wanted, &[]), None);
    }
}
