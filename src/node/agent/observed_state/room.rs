//! What daemons of namespaces that are not trusted request of this node, and how many they are.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::core::bounds;
use crate::core::bounds::QuotaUse;
use crate::core::json::Json;
use crate::core::model::DaemonSet;
use crate::core::model::FieldError;
use crate::core::model::Kind;
use crate::core::model::Lookup;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;
use crate::core::model::ObjectSource;
use crate::core::pass::Subject;
use crate::core::placement;
use crate::core::plan::Facts;
use crate::core::policy::Admission;
use crate::core::policy::Judge;
use crate::core::policy::Requester;
use crate::core::policy::Resources;
use crate::core::policy::namespace_of;
use crate::core::policy::room;
use crate::core::record::DaemonRecord;
use crate::core::sources::Desired;

use super::ObservedState;

impl ObservedState<'_> {
    /// Whether a new instance of `daemon_set` may start here, as far as this node judges that.
    pub(super) fn admitted(&self, daemon_set: &Arc<DaemonSet>) -> Admission {
        if let Some(error) = self.too_many(daemon_set) {
            return Admission::Refused(vec![error]);
        }
        let namespace = self.objects.lookup(&namespace_of(daemon_set));
        self.judge()
            .admit(daemon_set, namespace)
            .and(|| self.no_room(daemon_set).or_else(|| self.no_memory(daemon_set)))
    }

    /// That what others run, of namespaces that are not trusted, leaves no memory for what an instance of `daemon_set` is
    /// made from: it is kept for as long as the instance runs, whatever the DaemonSet becomes.
    fn no_memory(&self, daemon_set: &Arc<DaemonSet>) -> Option<FieldError> {
        self.state.policy.confines(daemon_set)?;
        let weight = self.judge().weight(daemon_set);
        let (each, all) = self.definitions_that_run();
        let own = each.get(&daemon_set.key).copied().unwrap_or(0);
        let has_room = weight <= all.left_beside(own, bounds::KEPT, &daemon_set.key.namespace);
        (!has_room).then(|| bounds::no_room(&daemon_set.key.namespace, weight))
    }

    /// What the definitions take that instances of namespaces that are not trusted were made from, for each of their daemons.
    fn definitions_that_run(&self) -> &(BTreeMap<&ObjectKey, usize>, QuotaUse) {
        self.tenants.running_weights.get_or_init(|| {
            let of = |record: &DaemonRecord| -> usize {
                let confined = record.definitions().filter(|d| self.state.policy.confines(d).is_some());
                confined.map(|d| self.judge().weight(d)).sum()
            };
            let (mut each, mut all) = (BTreeMap::new(), QuotaUse::default());
            for record in self.subjects.iter().map(|subject| subject.record) {
                let weight = of(record);
                all.add(&record.key.namespace, weight);
                each.insert(&record.key, weight);
            }
            (each, all)
        })
    }

    fn judge(&self) -> Judge<'_> {
        Judge::new(&self.state.policy, &self.render_cache.verdicts)
    }

    /// That the namespace of `daemon_set`, which is not trusted, has too many DaemonSets to start this one.
    fn too_many(&self, daemon_set: &DaemonSet) -> Option<FieldError> {
        let policy = &self.state.policy;
        policy.confines(daemon_set)?;
        let beyond = self.tenants.beyond.get_or_init(|| {
            let counted = |subject: &&Subject<'_>| {
                let runs = subject.record.definition().filter(|_| subject.record.runs());
                subject.desired.definition().or(runs).is_some_and(|d| policy.confines(d).is_some())
            };
            bounds::beyond(self.subjects.iter().filter(counted).map(|s| (&s.record.key, s.record.runs())))
        });
        beyond.contains(&daemon_set.key).then(|| bounds::beyond_error(&daemon_set.key))
    }

    /// Why a new instance of `daemon_set` has no room among those of namespaces that are not trusted.
    fn no_room(&self, daemon_set: &DaemonSet) -> Option<FieldError> {
        self.state.policy.confines(daemon_set)?;
        let own = self.requested(daemon_set);
        let requesters =
            self.tenants.requesters.get_or_init(|| self.subjects.iter().filter_map(|s| self.requester(s)).collect());
        match self.state.node.allocatable {
            Some(allocatable) => {
                let own = (own, daemon_set.allows_surge());
                room::refusal(self.config.max_requests, allocatable, requesters, &daemon_set.key, own)
            }
            None if requesters
                .iter()
                .any(|requester| *requester.key == daemon_set.key && requester.running.is_some()) =>
            {
                None
            }
            None => Some(FieldError {
                field: format!("Node {}", self.state.node.name),
                reason: "its allocatable cpu and memory are not known yet: policy.max-requests is a share of them"
                    .to_owned(),
                hint: None,
            }),
        }
    }

    /// What a pod of `daemon_set` requests. Nothing starts before its RuntimeClass is known.
    fn requested(&self, daemon_set: &DaemonSet) -> Resources {
        let template = daemon_set.pod_template();
        let class = template.str_at(["spec", "runtimeClassName"]);
        let class = match self.objects.lookup(&ObjectRef::new(Kind::RuntimeClass, "", class)) {
            Lookup::Present(class) | Lookup::Deleted(class) => Some(class),
            Lookup::Absent | Lookup::Unknown => None,
        };
        Resources::requested(template, class)
    }

    /// What a daemon of a namespace that is not trusted requests here, or would; `None` for any other.
    fn requester<'s>(&self, subject: &'s Subject<'_>) -> Option<Requester<'s>> {
        let policy = &self.state.policy;
        let record = subject.record;
        let is_confined = |d: &&Arc<DaemonSet>| policy.confines(d).is_some();
        let instances = record.instances.iter().filter_map(|instance| instance.daemon_set.as_ref()).filter(is_confined);
        // What ended to return keeps its room.
        let is_over = record.instances.is_empty();
        let may_return = is_over && matches!(subject.desired, Desired::Wanted { .. } | Desired::Held { .. });
        let returning = record.definition().filter(|d| may_return && is_confined(d));
        let each = instances.chain(returning).map(|d| self.requested(d));
        let (running, largest) = (each.clone().reduce(Resources::plus), each.reduce(Resources::max));
        let asked = match &subject.desired {
            Desired::Wanted { daemon_set, .. } if policy.confines(daemon_set).is_some() => {
                let selector = self.namespace_selector(daemon_set);
                let placement = placement::should_run(&self.state.node, daemon_set, selector.as_ref());
                (placement.should_run && self.judge().allows(daemon_set)).then(|| self.requested(daemon_set))
            }
            _ => None,
        };
        (running.is_some() || asked.is_some()).then_some(Requester {
            key: &subject.record.key,
            running,
            largest,
            asked,
        })
    }
}
