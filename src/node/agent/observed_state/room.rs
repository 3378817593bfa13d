//! What daemons of namespaces that are not trusted request of this node.

use crate::core::model::DaemonSet;
use crate::core::model::FieldError;
use crate::core::pass::Subject;
use crate::core::placement;
use crate::core::plan::Facts;
use crate::core::policy::Asker;
use crate::core::policy::Resources;
use crate::core::policy::room;
use crate::core::sources::Desired;

use super::ObservedState;

impl ObservedState<'_> {
    /// Why a new instance of `daemon_set` has no room among those of namespaces that are not trusted.
    pub(super) fn no_room(&self, daemon_set: &DaemonSet) -> Option<FieldError> {
        self.state.policy.confines(daemon_set)?;
        let own = Resources::requested(daemon_set.pod_template());
        let Some(allocatable) = self.state.node.allocatable else {
            return Some(FieldError {
                field: format!("Node {}", self.state.node.name),
                reason: "its allocatable cpu and memory are not known yet: policy.max-requests is a share of them"
                    .to_owned(),
                hint: None,
            });
        };
        let askers = self.askers.get_or_init(|| self.subjects.iter().filter_map(|s| self.asker(s)).collect());
        room::refusal(self.config.max_requests, allocatable, askers, &daemon_set.key, own)
    }

    /// What a daemon of a namespace that is not trusted requests here, or would; `None` for any other.
    fn asker<'s>(&self, subject: &'s Subject<'_>) -> Option<Asker<'s>> {
        let policy = &self.state.policy;
        let of = |daemon_set: &DaemonSet| Resources::requested(daemon_set.pod_template());
        let live = subject.record.live().filter_map(|instance| instance.daemon_set.as_ref());
        let running = live.filter(|d| policy.confines(d).is_some()).map(|d| of(d)).reduce(Resources::max);
        let asked = match &subject.desired {
            Desired::Wanted { daemon_set, .. } if policy.confines(daemon_set).is_some() => {
                let selector = self.namespace_selector(daemon_set);
                let placement = placement::should_run(&self.state.node, daemon_set, selector.as_ref());
                (placement.should_run && policy.forbids(daemon_set).is_none()).then(|| of(daemon_set))
            }
            _ => None,
        };
        (running.is_some() || asked.is_some()).then_some(Asker { key: &subject.record.key, running, asked })
    }
}
