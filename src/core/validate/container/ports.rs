//! `ports` of a container, and the host ports of all of them.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::core::json::Json;
use crate::core::model::FieldError;
use crate::core::validate::rules::POD_SPEC;
use crate::core::validate::rules::PORT_NUMBER;
use crate::core::validate::rules::is_port_number;
use crate::core::validate::rules::no_port_name;
use crate::core::validate::rules::number;
use crate::core::validate::rules::one_of;
use crate::core::validate::wrong;

/// `validateContainerPorts`.
pub(super) fn check(container: &Value, place: &str, errors: &mut Vec<FieldError>) {
    let mut names = BTreeSet::new();
    for (index, port) in container.list_at("ports").iter().enumerate() {
        let place = format!("{place}.ports[{index}]");
        if !is_port_number(number(port, "containerPort")) {
            errors.push(wrong(format!("{place}.containerPort"), PORT_NUMBER));
        }
        let host = number(port, "hostPort");
        if host != 0 && !is_port_number(host) {
            errors.push(wrong(format!("{place}.hostPort"), PORT_NUMBER));
        }
        one_of(port, "protocol", &["TCP", "UDP", "SCTP"], &place, errors);
        let name = port.str_at("name");
        if name.is_empty() {
            continue;
        }
        if let Some(reason) = no_port_name(name) {
            errors.push(wrong(format!("{place}.name"), reason));
        } else if !names.insert(name) {
            errors.push(wrong(format!("{place}.name"), format!("{name} is used twice")));
        }
    }
}

/// `checkHostPortConflicts` and `validatePodHostNetworkDeps`, with the host ports that every port has under hostNetwork.
/// Init containers run one by one, so that only ports of the same one conflict.
pub(in crate::core::validate) fn host_ports(spec: &Value, errors: &mut Vec<FieldError>) {
    let host_network = spec.flag_at("hostNetwork");
    for field in ["initContainers", "containers"] {
        let mut taken = BTreeSet::new();
        for (index, container) in spec.list_at(field).iter().enumerate() {
            if field == "initContainers" {
                taken.clear();
            }
            for (at, port) in container.list_at("ports").iter().enumerate() {
                let place = format!("{POD_SPEC}.{field}[{index}].ports[{at}].hostPort");
                let inner = Some(number(port, "containerPort")).filter(|number| *number != 0);
                let own = Some(number(port, "hostPort")).filter(|number| *number != 0);
                let Some(own) = own.or(inner.filter(|_| host_network)) else { continue };
                if field == "containers" && host_network && inner.is_some_and(|inner| inner != own) {
                    errors.push(wrong(&place, "must be the containerPort with hostNetwork"));
                }
                let protocol = port.text_at("protocol").unwrap_or("TCP");
                if !taken.insert((protocol, port.str_at("hostIP"), own)) {
                    errors.push(wrong(place, format!("host port {own}/{protocol} is used twice in this pod")));
                }
            }
        }
    }
}
