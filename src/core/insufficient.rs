//! What a node has too little of for a pod, and which pods hold it.
//!
//! Owns the kubelet's rules for amounts (k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources: `fitsRequest`;
//! k8s.io/component-helpers/resource: `PodRequests`) and for host ports. Must not decide what follows. What is not
//! counted, such as NUMA nodes and single devices, only the kubelet knows.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Map;
use serde_json::Value;

use crate::core::json::Json;
use crate::core::model::ObjectKey;
use crate::core::ports;
use crate::core::ports::HostPort;
use crate::core::quantity::Quantity;
use crate::core::quantity::parse_json;

/// The resource that counts pods.
const PODS: &str = "pods";
/// How many holders are named.
const NAMED: usize = 5;
const MIB: i128 = 1 << 20;

/// Amounts of resources by their names, in thousandths of a unit; none is negative.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amounts(BTreeMap<String, i128>);

impl Amounts {
    /// What a list such as `status.allocatable` or `resources.requests` says.
    pub fn of_list(list: &Value) -> Self {
        let amount = |(name, value): (&String, &Value)| Some((name.clone(), parse_json(value)?.milli_value().max(0)));
        Self(list.as_object().into_iter().flatten().filter_map(amount).collect())
    }

    /// What a pod or pod template requests, with itself as one of the pods. A limit without a request is a request; that
    /// of the whole pod is one where no container has any (`defaultPodRequests`). What the whole pod requests is at least
    /// what its containers do.
    pub fn requested(pod: &Value) -> Self {
        let mut sum = Self::of_containers(pod, Self::of_resources);
        let [limits, requests] = ["limits", "requests"].map(|list| Self::of_whole(pod, list));
        for (name, amount) in limits.0 {
            if !requests.0.contains_key(&name) {
                sum.0.entry(name).or_insert(amount);
            }
        }
        sum.max(&requests).of_pod(pod)
    }

    /// What a pod may take as far as it has limits, and requests where it has none. A limit of the whole pod stands in
    /// place of those of its containers (`PodLimits`); a request of the whole pod bounds nothing.
    pub fn limited(pod: &Value) -> Self {
        let mut sum = Self::of_containers(pod, Self::of_limits);
        // The kubelet takes 0 for no limit.
        sum.0.extend(Self::of_whole(pod, "limits").0.into_iter().filter(|(_, amount)| *amount > 0));
        sum.of_pod(pod)
    }

    /// Of all containers together, sidecars and the other init containers included.
    fn of_containers(pod: &Value, of_container: fn(&Value) -> Self) -> Self {
        let spec = pod.get("spec").unwrap_or(&Value::Null);
        let sum = spec.list_at("containers").iter().map(of_container).fold(Self::default(), Self::plus);
        let (mut sidecars, mut first) = (Self::default(), Self::default());
        for container in spec.list_at("initContainers") {
            let own = of_container(container);
            match container.str_at("restartPolicy") == "Always" {
                true => {
                    sidecars = sidecars.plus(own);
                    first = first.max(&sidecars);
                }
                false => first = first.max(&sidecars.clone().plus(own)),
            }
        }
        sum.plus(sidecars).max(&first)
    }

    /// What a list of the whole pod's `resources` says of what a whole pod may have (`IsSupportedPodLevelResource`).
    fn of_whole(pod: &Value, list: &str) -> Self {
        let mut all = Self::of_list(pod.at(["spec", "resources", list]).unwrap_or(&Value::Null));
        all.0.retain(|name, _| ["cpu", "memory"].contains(&name.as_str()) || name.starts_with("hugepages-"));
        all
    }

    /// With the pod's overhead, and the pod itself.
    fn of_pod(self, pod: &Value) -> Self {
        let mut all = self.plus(Self::of_list(pod.at(["spec", "overhead"]).unwrap_or(&Value::Null)));
        all.0.insert(PODS.to_owned(), 1000);
        all
    }

    /// What a container requests.
    fn of_resources(value: &Value) -> Self {
        let of = |list: &str| Self::of_list(value.at(["resources", list]).unwrap_or(&Value::Null));
        let mut all = of("limits");
        all.0.extend(of("requests").0);
        all
    }

    /// What a container may take.
    fn of_limits(value: &Value) -> Self {
        let of = |list: &str| Self::of_list(value.at(["resources", list]).unwrap_or(&Value::Null));
        let mut all = of("requests");
        all.0.extend(of("limits").0);
        all
    }

    /// The amount of a resource, in thousandths of its unit.
    pub fn get(&self, name: &str) -> Option<i128> {
        self.0.get(name).copied()
    }

    /// A list that says this, without the number of pods; `None`: nothing.
    fn list(&self) -> Option<Value> {
        let shown = |amount: i128| match amount % 1000 {
            0 => (amount / 1000).to_string(),
            _ => format!("{amount}m"),
        };
        let known = self.0.iter().filter(|(name, amount)| *name != PODS && **amount > 0);
        let list: Map<String, Value> = known.map(|(name, amount)| (name.clone(), shown(*amount).into())).collect();
        (!list.is_empty()).then_some(Value::Object(list))
    }

    fn plus(mut self, other: Self) -> Self {
        for (name, amount) in other.0 {
            let sum = self.0.entry(name).or_default();
            *sum = sum.saturating_add(amount);
        }
        self
    }

    fn max(mut self, other: &Self) -> Self {
        for (name, amount) in &other.0 {
            let most = self.0.entry(name.clone()).or_default();
            *most = (*most).max(*amount);
        }
        self
    }
}

/// What a pod on the node holds.
#[derive(Clone, Debug)]
pub struct PodResources<'a> {
    key: &'a ObjectKey,
    amounts: Amounts,
    ports: Vec<HostPort>,
}

impl<'a> PodResources<'a> {
    /// What `pod` holds: the object, or what [`kept_spec`] keeps of it.
    pub fn new(key: &'a ObjectKey, pod: &Value) -> Self {
        Self { key, amounts: Amounts::requested(pod), ports: ports::host_ports(pod) }
    }

    pub fn key(&self) -> &'a ObjectKey {
        self.key
    }
}

/// A pod's spec of which nothing is left but its host ports and the sum of its requests; `None`: it has neither.
pub fn kept_spec(pod: &Value) -> Option<Value> {
    let mut container = Map::new();
    container.extend(ports::list(pod).map(|ports| ("ports".to_owned(), ports)));
    let requests = Amounts::requested(pod).list();
    container.extend(requests.map(|requests| ("resources".to_owned(), serde_json::json!({"requests": requests}))));
    (!container.is_empty()).then(|| serde_json::json!({"containers": [container]}))
}

/// Something that a node has too little of for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    scarce: Scarce,
    /// Its holders, the greatest amount first.
    holders: Vec<(ObjectKey, i128)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Scarce {
    HostPort(HostPort),
    Resource { name: String, wanted: i128, held: i128, of: i128 },
}

/// What the node has too little of for `pod` beside `others`. A resource that `allocatable` does not name is not
/// counted: the kubelet does not look at it either.
pub fn lacks(pod: &Value, allocatable: &Amounts, others: &[&PodResources<'_>]) -> Vec<Lack> {
    let mut lacks = Vec::new();
    for port in ports::host_ports(pod) {
        let holds = |other: &&&PodResources<'_>| other.ports.iter().any(|held| held.clashes(&port));
        let holders: Vec<_> = others.iter().filter(holds).map(|other| (other.key.clone(), 1)).collect();
        if !holders.is_empty() {
            lacks.push(Lack { scarce: Scarce::HostPort(port), holders });
        }
    }
    for (name, wanted) in Amounts::requested(pod).0.into_iter().filter(|(_, wanted)| *wanted > 0) {
        let Some(of) = allocatable.get(&name) else { continue };
        let holds =
            |other: &&PodResources<'_>| Some((other.key.clone(), other.amounts.get(&name).filter(|held| *held > 0)?));
        let mut holders: Vec<_> = others.iter().filter_map(holds).collect();
        let held = holders.iter().fold(0_i128, |sum, (_, held)| sum.saturating_add(*held));
        if held.saturating_add(wanted) > of {
            holders.sort_by(|(a, most), (b, more)| more.cmp(most).then_with(|| a.cmp(b)));
            lacks.push(Lack { scarce: Scarce::Resource { name, wanted, held, of }, holders });
        }
    }
    lacks
}

impl Lack {
    /// The scarce resources, without amounts and holders.
    pub fn name(&self) -> String {
        match &self.scarce {
            Scarce::HostPort(port) => port.to_string(),
            Scarce::Resource { name, .. } => name.clone(),
        }
    }
}

impl fmt::Display for Lack {
    /// `host port TCP 80 is held by pod a/b`, or `cpu: it requests 500m, and 200m of 2 are free; held by pods a/b (1500m),
    /// a/c (300m)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = self.holders.iter().take(NAMED).map(|(key, held)| match &self.scarce {
            Scarce::Resource { name, .. } if name != PODS => format!("{key} ({})", shown(name, *held)),
            _ => key.to_string(),
        });
        let mut holders = named.collect::<Vec<_>>().join(", ");
        if self.holders.len() > NAMED {
            holders.push_str(&format!(" and {} others", self.holders.len() - NAMED));
        }
        let pods = if self.holders.len() == 1 { "pod" } else { "pods" };
        match &self.scarce {
            Scarce::HostPort(port) => return write!(f, "host port {port} is held by {pods} {holders}"),
            Scarce::Resource { name, of, .. } if name == PODS => write!(f, "the node takes {} pods", shown(name, *of))?,
            Scarce::Resource { name, wanted, of, .. } if wanted > of => {
                let (wanted, of) = (shown(name, *wanted), shown(name, *of));
                return write!(f, "{name}: it requests {wanted}, and the node has {of}");
            }
            Scarce::Resource { name, wanted, held, of } => {
                let [wanted, free, of] = [*wanted, (of - held).max(0), *of].map(|amount| shown(name, amount));
                write!(f, "{name}: it requests {wanted}, and {free} of {of} are free")?;
            }
        }
        if self.holders.is_empty() { Ok(()) } else { write!(f, "; held by {pods} {holders}") }
    }
}

/// An amount as people write it.
fn shown(name: &str, amount: i128) -> String {
    let is_bytes = ["memory", "ephemeral-storage"].contains(&name) || name.starts_with("hugepages-");
    match is_bytes && amount > 0 {
        true => format!("{}Mi", (amount / 1000).div_euclid(MIB)),
        false => format!("{amount}m").parse::<Quantity>().map_or_else(|_| amount.to_string(), |q| q.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(requests: Value) -> Value {
        json!({"spec": {"containers": [{"resources": {"requests": requests}}]}})
    }

    fn said(wanted: Value, pods: &[(&ObjectKey, Value)]) -> Vec<String> {
        let allocatable = json!({"cpu": "2", "memory": "1Gi", "pods": "3", "example.org/dongle": "1"});
        let holders: Vec<PodResources<'_>> = pods.iter().map(|(key, pod)| PodResources::new(key, pod)).collect();
        let lacks = lacks(&wanted, &Amounts::of_list(&allocatable), &holders.iter().collect::<Vec<_>>());
        lacks.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_resource_that_does_not_suffice_is_named_with_its_holders() {
        let [a, b, c] = ["a", "b", "c"].map(|name| ObjectKey::new("k", name));
        let held = [
            (&a, pod(json!({"cpu": "300m", "memory": "256Mi"}))),
            (&b, pod(json!({"cpu": "1500m", "example.org/dongle": 1}))),
        ];
        assert_eq!(said(pod(json!({"cpu": "200m", "memory": "768Mi"})), &held), Vec::<String>::new(), "all fit");
        assert_eq!(
            said(pod(json!({"cpu": "201m"})), &held),
            ["cpu: it requests 201m, and 200m of 2 are free; held by pods k/b (1500m), k/a (300m)"]
        );
        assert_eq!(
            said(pod(json!({"memory": "769Mi", "example.org/dongle": "1"})), &held),
            [
                "example.org/dongle: it requests 1, and 0 of 1 are free; held by pod k/b (1)",
                "memory: it requests 769Mi, and 768Mi of 1024Mi are free; held by pod k/a (256Mi)",
            ]
        );
        assert_eq!(said(pod(json!({"cpu": 3})), &[]), ["cpu: it requests 3, and the node has 2"]);
        assert_eq!(
            said(pod(json!({"example.org/other": 1})), &held),
            Vec::<String>::new(),
            "the node does not count it"
        );
        let third = [(&a, json!({})), (&b, json!({})), (&c, json!({}))];
        assert_eq!(said(json!({}), &third), ["the node takes 3 pods; held by pods k/a, k/b, k/c"]);
    }

    #[test]
    fn a_host_port_is_named_with_its_holder() {
        let ported = json!({"spec": {"containers": [{"ports": [{"hostPort": 80}]}]}});
        let key = ObjectKey::new("k", "a");
        let held = [(&key, ported.clone())];
        assert_eq!(said(ported, &held), ["host port TCP 80 is held by pod k/a"]);
    }

    #[test]
    fn a_request_of_the_whole_pod_bounds_nothing_and_lowers_nothing() {
        let amounts = |memory: &str| json!({"cpu": "1", "memory": memory});
        let pod = |whole: Value| {
            let container = json!({"resources": {"requests": amounts("1Mi"), "limits": amounts("64Mi")}});
            let mut sidecar = container.clone();
            sidecar["restartPolicy"] = "Always".into();
            json!({"spec": {"containers": [container], "initContainers": [sidecar], "resources": whole, "overhead": {"memory": "1Mi"}}})
        };
        let mebibytes = |amounts: Amounts| amounts.get("memory").unwrap_or_default() / 1000 / MIB;
        for (whole, requested, limited) in [
            (Value::Null, 3, 129),
            (json!({"requests": {"memory": "16Mi"}}), 17, 129),
            (json!({"requests": {"memory": "1Mi"}}), 3, 129),
            (json!({"requests": {"memory": "16Mi"}, "limits": {"memory": "70Mi"}}), 17, 71),
            (json!({"limits": {"memory": "70Mi"}}), 3, 71),
            (json!({"limits": {"memory": "0"}}), 3, 129),
            (json!({"limits": {"cpu": "9"}, "requests": {"cpu": "9"}}), 3, 129),
        ] {
            let pod = pod(whole.clone());
            let found = (mebibytes(Amounts::requested(&pod)), mebibytes(Amounts::limited(&pod)));
            assert_eq!(found, (requested, limited), "{whole}");
        }
        let alone =
            json!({"spec": {"containers": [{}], "resources": {"limits": {"memory": "5Mi", "example.org/x": 7}}}});
        assert_eq!(mebibytes(Amounts::requested(&alone)), 5, "no container requests any");
        assert_eq!(Amounts::limited(&alone).get("example.org/x"), None, "a whole pod has none");
    }

    #[test]
    fn of_a_pod_its_ports_and_the_sum_of_its_requests_are_kept() {
        let container =
            json!({"ports": [{"hostPort": 80}], "resources": {"limits": {"cpu": "1500m", "memory": "64Mi"}}});
        let whole = json!({"spec": {"overhead": {"memory": "1Mi"}, "containers": [container, {"resources": {"requests": {"cpu": 1}}}]}});
        let spec = kept_spec(&whole).unwrap();
        let ports = json!([{"hostIP": "0.0.0.0", "protocol": "TCP", "hostPort": 80}]);
        let requests = json!({"cpu": "2500m", "memory": (65 << 20).to_string()});
        assert_eq!(spec, json!({"containers": [{"ports": ports, "resources": {"requests": requests}}]}));
        let kept = json!({"spec": spec});
        assert_eq!(Amounts::requested(&kept), Amounts::requested(&whole), "nothing is lost");
        assert_eq!(kept_spec(&json!({"spec": {"containers": [{}]}})), None);
    }
}
