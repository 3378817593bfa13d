//! One complete pass: what the sources say of every daemon, and the resulting plans.
//!
//! Owns the bound on removals: if too many daemons are missing at once, nothing is removed until a second complete
//! list confirms it. A tenant cannot cause that for another namespace. Must not do I/O.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::core::model::DaemonSet;
use crate::core::model::NodeView;
use crate::core::model::ObjectKey;
use crate::core::node_conditions::NodeConditions;
use crate::core::plan;
use crate::core::plan::Action;
use crate::core::plan::DaemonPlan;
use crate::core::plan::Facts;
use crate::core::plan::PlanContext;
use crate::core::record::DaemonRecord;
use crate::core::record::Instance;
use crate::core::sources::Desired;
use crate::core::start_order::StartOrder;
use crate::core::start_order::StartTurn;
use crate::core::startup_taint::StartupTaint;
use crate::core::time::Span;
use crate::core::time::Timestamp;

/// How many removals may follow in one pass because a list no longer contains the DaemonSets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MaxRemovals {
    /// More than half of what runs, and more than two, are held back.
    #[default]
    HalfAndTwo,
    /// More than this many are held back.
    Count(usize),
    /// Nothing is held back.
    Off,
}

/// The same for all daemons.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PassContext<'a> {
    pub now: Timestamp,
    pub node: &'a NodeView,
    /// Upper bound of the per-node delay of an unapproved template change.
    pub update_jitter: Span,
    /// The bound on removals.
    pub max_removals: MaxRemovals,
    /// Whether a second complete list, over a new connection, has confirmed the first.
    pub second_list: bool,
    /// Which boot of the node this is.
    pub boot: &'a str,
    /// When the node booted.
    pub booted: Timestamp,
    /// Whether this is the only pass: nothing that waits would get its turn.
    pub is_only: bool,
}

/// The plan of one pass: a value that can be printed, compared and executed.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Plan {
    /// One plan for each daemon, in the order of their names.
    pub daemons: Vec<DaemonPlan>,
    /// Whether removals are held back until a second complete list.
    pub removals_held: bool,
    /// For whom workload waits on this node.
    pub startup_taint: StartupTaint,
    /// The conditions that say of this node's daemons whether they are Ready.
    pub node_conditions: NodeConditions,
}

/// One daemon before planning.
#[derive(Clone, Debug, PartialEq)]
pub struct Subject<'a> {
    /// What the sources say.
    pub desired: Desired,
    /// What the node remembers.
    pub record: &'a DaemonRecord,
    /// Whether the only evidence against it is that a list does not contain it, confirmed by a GET or not.
    /// Confirmations arrive one at a time, but the bound applies to all of them together.
    pub unlisted: bool,
}

/// Plans one pass over all daemons.
pub fn plan(subjects: &[Subject<'_>], context: &PassContext<'_>, facts: &dyn Facts) -> Plan {
    let is_only = context.is_only;
    let held = match context.second_list {
        true => HeldRemovals::default(),
        false => HeldRemovals::of(subjects, context.max_removals, facts),
    };
    let removals_held = held != HeldRemovals::default();
    let context = PlanContext {
        now: context.now,
        node: context.node,
        update_jitter: context.update_jitter,
        removals_held,
        boot: context.boot,
        booted: context.booted,
        turn: StartTurn::default(),
    };
    let known = subjects.iter().map(|subject| &subject.record.key).collect();
    let order = match is_only {
        true => StartOrder::default(),
        false => {
            let is_trusted = |daemon_set: &DaemonSet| facts.trusts_annotations(daemon_set);
            StartOrder::of(subjects.iter().filter_map(ordered_by), &known, is_trusted)
        }
    };
    let daemons = match order.is_empty() {
        true => {
            let context_of = |s: &Subject<'_>| PlanContext { removals_held: held.holds(s, facts), ..context };
            subjects.iter().map(|s| plan::plan_daemon(&s.desired, s.record, &context_of(s), facts)).collect()
        }
        false => in_order(subjects, &order, &held, &context, facts),
    };
    Plan { daemons, removals_held, startup_taint: StartupTaint::default(), node_conditions: NodeConditions::new() }
}

/// The definition that says after whom a daemon starts: the one that is to run; while that is in doubt, the one that its
/// instance was made from.
fn ordered_by<'a>(subject: &'a Subject<'_>) -> Option<&'a DaemonSet> {
    let of_instance = || subject.record.live().last()?.daemon_set.as_ref();
    subject.desired.definition().or_else(of_instance).map(Arc::as_ref)
}

/// Plans every daemon after those that it starts after.
fn in_order(
    subjects: &[Subject<'_>],
    order: &StartOrder,
    held: &HeldRemovals,
    context: &PlanContext<'_>,
    facts: &dyn Facts,
) -> Vec<DaemonPlan> {
    let mut planned = BTreeMap::new();
    let by_key: BTreeMap<&ObjectKey, &Subject<'_>> = subjects.iter().map(|s| (&s.record.key, s)).collect();
    for key in order.sorted(by_key.keys().copied()) {
        let Some(subject) = by_key.get(key) else { continue };
        let awaited = order.awaited(key, &planned, context.boot);
        let absent = order.absent(key, &planned);
        let (turn, removals_held) = (order.turn(key, &awaited, &absent), held.holds(subject, facts));
        let context = PlanContext { turn, removals_held, ..*context };
        planned.insert(key, plan::plan_daemon(&subject.desired, subject.record, &context, facts));
    }
    planned.into_values().collect()
}

/// Whose removals are held back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct HeldRemovals {
    /// Everybody's: too many of the daemons are missing that no tenant may define.
    all: bool,
    /// Those of these namespaces, which are not trusted.
    namespaces: BTreeSet<String>,
}

impl HeldRemovals {
    fn of(subjects: &[Subject<'_>], bound: MaxRemovals, facts: &dyn Facts) -> Self {
        let (mut trusted, mut tenants): (Vec<_>, BTreeMap<&str, Vec<_>>) = (Vec::new(), BTreeMap::new());
        for subject in subjects {
            match is_tenants(subject, facts) {
                true => tenants.entry(&subject.record.key.namespace).or_default().push(subject),
                false => trusted.push(subject),
            }
        }
        let namespaces = tenants.into_iter().filter(|(_, own)| too_many(own, bound));
        Self { all: too_many(&trusted, bound), namespaces: namespaces.map(|(name, _)| name.to_owned()).collect() }
    }

    fn holds(&self, subject: &Subject<'_>, facts: &dyn Facts) -> bool {
        self.all || self.namespaces.contains(&subject.record.key.namespace) && is_tenants(subject, facts)
    }
}

/// Whether who may write DaemonSets of a namespace that is not trusted defines it.
fn is_tenants(subject: &Subject<'_>, facts: &dyn Facts) -> bool {
    ordered_by(subject).is_some_and(|daemon_set| !facts.trusts_annotations(daemon_set))
}

/// Whether more daemons are missing from lists than the bound allows to remove.
fn too_many(subjects: &[&Subject<'_>], bound: MaxRemovals) -> bool {
    let runs = |s: &&&Subject<'_>| s.record.live().any(|i| !i.orphaned);
    let running = subjects.iter().filter(runs).count();
    let unlisted = subjects.iter().filter(runs).filter(|s| s.unlisted).count();
    match bound {
        MaxRemovals::HalfAndTwo => unlisted > 2 && unlisted * 2 > running,
        MaxRemovals::Count(count) => unlisted > count,
        MaxRemovals::Off => false,
    }
}

impl Plan {
    /// Whether there is nothing to do.
    pub fn is_quiet(&self) -> bool {
        self.daemons.iter().all(|d| d.actions.is_empty())
    }

    /// The instances that end and whose manifests are gone, with their daemons.
    pub fn ended_manifests(&self) -> impl Iterator<Item = (&DaemonPlan, &Instance)> {
        let ends = |daemon: &DaemonPlan, instance: &Instance| {
            daemon.actions.iter().any(|action| matches!(action, Action::End { uid, .. } if *uid == instance.uid))
        };
        let ending = self.daemons.iter().flat_map(|daemon| daemon.record.ending().map(move |i| (daemon, i)));
        ending.filter(move |(daemon, instance)| !ends(daemon, instance))
    }

    /// Whether it still has what is only needed to write.
    pub fn is_whole(&self) -> bool {
        self.daemons.iter().flat_map(|daemon| &daemon.actions).any(|action| match action {
            Action::Start { rendering, .. } | Action::Refresh { rendering, .. } | Action::Verify { rendering, .. } => {
                rendering.is_whole()
            }
            _ => false,
        })
    }

    /// Gives up what is only needed to write.
    pub fn shrink(&mut self) {
        for action in self.daemons.iter_mut().flat_map(|daemon| &mut daemon.actions) {
            if let Action::End { successor, .. } = action {
                *successor = None;
            } else if let Action::Start { rendering, .. }
            | Action::Refresh { rendering, .. }
            | Action::Verify { rendering, .. } = action
            {
                *rendering = Arc::new(rendering.shrunk());
            }
        }
    }

    /// When to look again even if nothing happens.
    pub fn wake_at(&self) -> Option<Timestamp> {
        self.daemons.iter().filter_map(|d| d.wake_at).min()
    }
}

#[cfg(test)]
mod tests {
    use crate::core::record::Instance;
    use crate::core::sources::DesiredReason;
    use crate::core::time::at;

    use super::*;

    fn record(name: &str) -> DaemonRecord {
        let mut record = DaemonRecord::new(ObjectKey::new("a", name), 0);
        record.instances.push(Instance { started: true, ..Instance::new(name, name, 0, "r", at(0)) });
        record
    }

    fn subjects(records: &[DaemonRecord], gone: usize) -> Vec<Subject<'_>> {
        let desired = || Desired::Unsure { reason: DesiredReason::Unanswered };
        records
            .iter()
            .enumerate()
            .map(|(i, record)| Subject { desired: desired(), record, unlisted: i < gone })
            .collect()
    }

    #[test]
    fn more_than_half_and_more_than_two_are_too_many() {
        let records: Vec<DaemonRecord> = (0..6).map(|i| record(&i.to_string())).collect();
        for (running, gone, held) in
            [(6, 4, true), (6, 3, false), (3, 3, true), (2, 2, false), (4, 3, true), (1, 1, false), (6, 0, false)]
        {
            let subjects = subjects(&records[..running], gone);
            let subjects: Vec<&Subject<'_>> = subjects.iter().collect();
            assert_eq!(too_many(&subjects, MaxRemovals::HalfAndTwo), held, "{gone} of {running}");
        }
        let all = subjects(&records, 6);
        let all: Vec<&Subject<'_>> = all.iter().collect();
        assert!(too_many(&all, MaxRemovals::Count(5)) && !too_many(&all, MaxRemovals::Count(6)));
        assert!(!too_many(&all, MaxRemovals::Off));
    }

    #[test]
    fn what_is_orphaned_is_not_counted() {
        let mut records: Vec<DaemonRecord> = (0..3).map(|i| record(&i.to_string())).collect();
        records[0].instances[0].orphaned = true;
        let all = subjects(&records, 3);
        assert!(!too_many(&all.iter().collect::<Vec<_>>(), MaxRemovals::HalfAndTwo));
    }
}
