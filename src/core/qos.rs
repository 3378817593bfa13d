//! The QoS class of a pod.
//!
//! Follows upstream's `ComputePodQOS` (pkg/apis/core/v1/helper/qos/qos.go), with a limit that has no request as a request.

use serde_json::Value;

use crate::core::json::Json;
use crate::core::quantity::parse_json;

/// How readily the kernel and the kubelet take resources from a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub enum QosClass {
    BestEffort,
    Burstable,
    Guaranteed,
}

impl QosClass {
    /// As `status.qosClass` has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BestEffort => "BestEffort",
            Self::Burstable => "Burstable",
            Self::Guaranteed => "Guaranteed",
        }
    }
}

/// The class of a pod or pod template by the resources of its containers; `None`: the pod has resources of its own, which
/// decide.
pub fn of_containers(pod: &Value) -> Option<QosClass> {
    if pod.at(["spec", "resources"]).is_some_and(|resources| !resources.is_null()) {
        return None;
    }
    let lists = ["containers", "initContainers"];
    let containers = lists.into_iter().flat_map(|list| pod.list_at(["spec", list]));
    let (mut requests, mut limits, mut is_limited) = ([0; 2], [0; 2], true);
    for container in containers {
        for (index, name) in ["cpu", "memory"].into_iter().enumerate() {
            let of = |list| container.at(["resources", list, name]).and_then(parse_json);
            let limit = of("limits").map_or(0, |limit| limit.milli_value());
            requests[index] += of("requests").map_or(limit, |request| request.milli_value());
            limits[index] += limit;
            is_limited &= limit > 0;
        }
    }
    Some(match requests == limits && is_limited {
        _ if requests == [0; 2] && limits == [0; 2] => QosClass::BestEffort,
        true => QosClass::Guaranteed,
        false => QosClass::Burstable,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_class_follows_from_requests_and_limits_of_all_containers() {
        use QosClass::BestEffort;
        use QosClass::Burstable;
        use QosClass::Guaranteed;
        let both = json!({"cpu": "1", "memory": "1Mi"});
        let (requests, limits) = (json!({"requests": both}), json!({"limits": both}));
        let whole = json!({"requests": {"cpu": "1000m"}, "limits": both});
        let zero = json!({"requests": {"cpu": "0", "memory": null}, "limits": {"nvidia.com/gpu": 1}});
        for (containers, class) in [
            (vec![&json!(null)], BestEffort),
            (vec![&zero, &json!({})], BestEffort),
            (vec![&requests], Burstable),
            (vec![&json!({"limits": {"memory": "1Mi"}})], Burstable),
            (vec![&limits, &json!({})], Burstable),
            (vec![&json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Mi"}})], Burstable),
            (vec![&limits, &whole], Guaranteed),
        ] {
            for first in 0..=1.min(containers.len() - 1) {
                let list = |part: &[&Value]| part.iter().map(|r| json!({"resources": r})).collect::<Vec<_>>();
                let (init, main) = containers.split_at(first);
                let pod = json!({"spec": {"initContainers": list(init), "containers": list(main)}});
                assert_eq!(of_containers(&pod), Some(class), "{pod}");
            }
        }
        let own = json!({"spec": {"resources": {"limits": both}, "containers": [{"resources": requests}]}});
        assert_eq!(of_containers(&own), None);
    }
}
