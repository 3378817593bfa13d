//! How much of a node the pods of namespaces that are not trusted may request together.
//!
//! Owns the sum and the order: running daemons first, then by name. The kubelet treats every static pod as critical: it
//! preempts ordinary pods for it.

use std::fmt;
use std::str::FromStr;

use serde_json::Value;

use crate::core::insufficient::Amounts;
use crate::core::json::Json;
use crate::core::model::FieldError;
use crate::core::model::ObjectKey;
use crate::core::quantity::parse_json;

use super::trusting;

/// A share of something, in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share(u8);

impl FromStr for Share {
    type Err = ();

    /// `10%`.
    fn from_str(text: &str) -> Result<Self, ()> {
        let number = text.strip_suffix('%').and_then(|number| number.parse().ok());
        number.filter(|percent| *percent <= 100).map(Self).ok_or(())
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

/// An amount of a node's resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Resources {
    /// Thousandths of a core.
    pub cpu: u64,
    /// Bytes.
    pub memory: u64,
    #[serde(default)]
    pub pods: u64,
}

impl Resources {
    /// What a list such as `status.allocatable` or `resources.requests` says; a resource that it does not name is 0.
    pub fn of_list(list: &Value) -> Self {
        let of = |name: &str| list.get(name).and_then(parse_json);
        Self {
            cpu: of("cpu").map_or(0, |amount| saturated(amount.milli_value())),
            memory: of("memory").map_or(0, |amount| saturated(amount.value())),
            pods: of("pods").map_or(0, |amount| saturated(amount.value())),
        }
    }

    /// What the pod of `template` requests, as [`Amounts::requested`] has it, with the overhead of `runtime_class`, the
    /// object that it names, if it is known. Of memory it is what its limits allow: nothing evicts a static pod that takes
    /// more than it requests, and others are evicted for it.
    pub fn requested(template: &Value, runtime_class: Option<&Value>) -> Self {
        let overhead = runtime_class.and_then(|class| class.at(["overhead", "podFixed"])).unwrap_or(&Value::Null);
        let (all, limits) = (Amounts::requested(template), Amounts::limited(template));
        let of = |name: &str| all.get(name).unwrap_or_default();
        let whole = |amount: i128| saturated(amount.saturating_add(999) / 1000);
        let memory = of("memory").max(limits.get("memory").unwrap_or_default());
        let own = Self { cpu: saturated(of("cpu")), memory: whole(memory), pods: whole(of("pods")) };
        own.plus(Self { pods: 0, ..Self::of_list(overhead) })
    }

    /// The larger one of each.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { cpu: self.cpu.max(other.cpu), memory: self.memory.max(other.memory), pods: self.pods.max(other.pods) }
    }

    /// The sum of each.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_add(other.cpu),
            memory: self.memory.saturating_add(other.memory),
            pods: self.pods.saturating_add(other.pods),
        }
    }

    fn is_within(self, bound: Self) -> bool {
        self.cpu <= bound.cpu && self.memory <= bound.memory && self.pods <= bound.pods
    }

    fn share(self, share: Share) -> Self {
        let of = |amount: u64| u64::try_from(u128::from(amount) * u128::from(share.0) / 100).unwrap_or(u64::MAX);
        Self { cpu: of(self.cpu), memory: of(self.memory), pods: of(self.pods) }
    }
}

impl fmt::Display for Resources {
    /// `cpu 250m, memory 64 MiB, pods 1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cpu {}m, memory {} MiB, pods {}", self.cpu, self.memory.div_ceil(1 << 20), self.pods)
    }
}

fn saturated(amount: i128) -> u64 {
    u64::try_from(amount.max(0)).unwrap_or(u64::MAX)
}

/// A daemon of a namespace that is not trusted.
#[derive(Clone, Debug)]
pub struct Requester<'a> {
    /// Its DaemonSet.
    pub key: &'a ObjectKey,
    /// What its instances on this node request, also those that end; `None`: there are none, and none returns.
    pub running: Option<Resources>,
    /// The most that a single one of them requests.
    pub largest: Option<Resources>,
    /// What a first instance would request, where one may start here.
    pub asked: Option<Resources>,
}

/// Why a new instance of `key` that requests `own` has no room among `requesters` (by key) on a node with `allocatable`.
/// One that requests no more than one that runs of it has room. If it `surges`, one that runs stays beside it.
pub fn refusal(
    share: Share,
    allocatable: Resources,
    requesters: &[Requester<'_>],
    key: &ObjectKey,
    (own, surges): (Resources, bool),
) -> Option<FieldError> {
    let requester = requesters.iter().find(|requester| requester.key == key);
    let largest = requester.and_then(|requester| requester.largest);
    if largest.is_some_and(|largest| own.is_within(largest)) {
        return None;
    }
    let running = requester.and_then(|requester| requester.running);
    let stays = largest.filter(|_| surges).unwrap_or_default();
    let bound = allocatable.share(share);
    let others = || requesters.iter().filter(|requester| requester.key != key);
    let mut taken = others().filter_map(|requester| requester.running).fold(stays, Resources::plus);
    let firsts = others().filter(|requester| requester.running.is_none() && (running.is_some() || requester.key < key));
    for first in firsts.filter_map(|requester| requester.asked) {
        let with = taken.plus(first);
        taken = if with.is_within(bound) { with } else { taken };
    }
    (!taken.plus(own).is_within(bound)).then(|| FieldError {
        field: "spec.template.spec.containers".to_owned(),
        reason: format!(
            "requests {own} (of memory its limits count); of policy.max-requests = \"{share}\" ({bound} on this node) \
             {taken} are taken by other {}",
            if stays == Resources::default() {
                "daemons"
            } else {
                "daemons and its own pod that stays beside a new one (maxSurge)"
            }
        ),
        hint: Some(format!(
            "request less, raise policy.max-requests (for all namespaces that are not trusted together), or {}",
            trusting(&key.namespace)
        )),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn mem(mib: u64) -> Resources {
        Resources { cpu: 0, memory: mib * MIB, pods: 0 }
    }

    #[test]
    fn requests_are_summed_as_the_scheduler_sums_them() {
        let container = |cpu: &str, memory: &str| json!({"resources": {"requests": {"cpu": cpu, "memory": memory}}});
        let mut sidecar = container("100m", "10Mi");
        sidecar["restartPolicy"] = "Always".into();
        let template = json!({"spec": {
            "containers": [container("250m", "64Mi"), {"resources": {"limits": {"cpu": 1, "memory": "1Mi"}}}, {}],
            "initContainers": [container("3", "1Mi"), sidecar],
        }});
        assert_eq!(Resources::requested(&template, None), Resources { cpu: 3000, memory: 75 * MIB, pods: 1 });
        let whole = json!({"spec": {"resources": {"requests": {"cpu": "2"}}, "containers": [container("1", "1Mi")]}});
        assert_eq!(Resources::requested(&whole, None), Resources { cpu: 2000, memory: MIB, pods: 1 });
        assert_eq!(
            Resources::requested(&json!({"spec": {"containers": "?"}}), None),
            Resources { pods: 1, ..Resources::default() }
        );
        let huge = json!({"spec": {"containers": [container("9e18", "9e18"), container("9e18", "9e18"), container("-1", "x")]}});
        assert!(Resources::requested(&huge, None).cpu > 0, "nothing overflows");
    }

    #[test]
    fn memory_counts_as_what_the_limits_allow_however_little_is_requested() {
        let of = |requested: &str, limit: &str| {
            let resources =
                json!({"requests": {"cpu": "1m", "memory": requested}, "limits": {"cpu": "2", "memory": limit}});
            Resources::requested(&json!({"spec": {"containers": [{"resources": resources}]}}), None)
        };
        assert_eq!(of("0", "64Mi"), Resources { cpu: 1, memory: 64 * MIB, pods: 1 });
        assert_eq!(of("80Mi", "64Mi").memory, 80 * MIB, "the API server refuses that");
        let huge = of("0", "1Ei");
        assert!(refusal(Share(10), mem(1 << 20), &[], &ObjectKey::new("t", "a"), (huge, false)).is_some());
        let whole = json!({"spec": {"resources": {"limits": {"memory": "9Mi"}}, "containers": [
            {"resources": {"requests": {"memory": "1Mi"}, "limits": {"memory": "1Ei"}}},
        ]}});
        assert_eq!(Resources::requested(&whole, None).memory, 9 * MIB, "the pod's bound holds its containers");
        let whole = json!({"spec": {"resources": {"requests": {"memory": "16Mi"}}, "containers": [
            {"resources": {"requests": {"memory": "1Mi"}, "limits": {"memory": "64Gi"}}},
        ]}});
        assert_eq!(Resources::requested(&whole, None).memory, 64 << 30, "a request of the pod bounds nothing");
    }

    #[test]
    fn what_runs_comes_first_then_the_first_by_name() {
        let keys: Vec<ObjectKey> = ["a", "b", "c", "d"].iter().map(|name| ObjectKey::new("t", *name)).collect();
        let requester = |at: usize, running: Option<u64>, asked: Option<u64>| Requester {
            key: &keys[at],
            running: running.map(mem),
            largest: running.map(mem),
            asked: asked.map(mem),
        };
        let requesters = [
            requester(0, None, Some(70)),
            requester(1, None, Some(40)),
            requester(2, Some(50), None),
            requester(3, None, Some(10)),
        ];
        let fits =
            |at: usize, own: u64| refusal(Share(10), mem(1000), &requesters, &keys[at], (mem(own), false)).is_none();
        assert!(!fits(0, 70), "50 are taken by what runs");
        assert!(fits(1, 40), "what has no room takes none");
        assert!(fits(2, 50) && fits(2, 20), "what runs stays");
        assert!(!fits(2, 51), "it may not grow into what others were given");
        assert!(fits(3, 10) && !fits(3, 11));
        let said = refusal(Share(10), mem(1000), &requesters, &keys[3], (mem(11), false)).unwrap();
        assert_eq!(
            said.reason,
            "requests cpu 0m, memory 11 MiB, pods 0 (of memory its limits count); of policy.max-requests = \"10%\" (cpu 0m, \
             memory 100 MiB, pods 0 on this node) cpu 0m, memory 90 MiB, pods 0 are taken by other daemons"
        );
    }

    #[test]
    fn however_often_a_surge_begins_anew_all_that_runs_stays_within_the_share() {
        let key = ObjectKey::new("t", "a");
        let refused = |instances: &[u64], own: u64| {
            let each = || instances.iter().copied().map(mem);
            let requester = Requester {
                key: &key,
                running: each().reduce(Resources::plus),
                largest: each().reduce(Resources::max),
                asked: None,
            };
            refusal(Share(10), mem(1000), &[requester], &key, (mem(own), true))
        };
        // One instance stays, and the other is replaced by the next template again and again.
        let mut instances = vec![40];
        for own in (41..1000).step_by(7) {
            if refused(&instances, own).is_none() {
                instances = vec![40, own];
            }
            assert!(instances.iter().sum::<u64>() <= 100, "{instances:?}");
        }
        assert_eq!(instances, [40, 48]);
        assert!(refused(&[60], 60).is_none() && refused(&[60], 61).is_some(), "no more than what runs, it surges once");
        let said = refused(&[60], 61).unwrap().reason;
        assert!(
            said.ends_with("are taken by other daemons and its own pod that stays beside a new one (maxSurge)"),
            "{said}"
        );
    }

    #[test]
    fn the_overhead_of_a_runtime_class_is_requested_too() {
        let template = json!({"spec": {"containers": [{"resources": {"requests": {"cpu": "1", "memory": "1Mi"}}}]}});
        let class = json!({"overhead": {"podFixed": {"cpu": "250m", "memory": "120Mi"}}});
        let with = Resources::requested(&template, Some(&class));
        assert_eq!(with, Resources { cpu: 1250, memory: 121 * MIB, pods: 1 });
        assert_eq!(Resources::requested(&template, Some(&json!({}))), Resources::requested(&template, None));
    }

    #[test]
    fn shares() {
        assert_eq!("10%".parse(), Ok(Share(10)));
        for none in ["", "10", "%", "101%", "-1%", "1.5%"] {
            assert_eq!(none.parse::<Share>(), Err(()), "{none}");
        }
    }
}
