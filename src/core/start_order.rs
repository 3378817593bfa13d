//! In which order the daemons of a node start: `daemonlet.dev/after`.
//!
//! Owns the values of the annotations, the order that they make together, and for whom a daemon has to wait. In a circle
//! tenants give way to what is trusted; what is a circle then is broken by name order: of its daemons, each waits only for
//! those whose names come before its own.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::core::dns;
use crate::core::duration;
use crate::core::model::AFTER;
use crate::core::model::AFTER_TIMEOUT;
use crate::core::model::DaemonSet;
use crate::core::model::NODE_CONDITION;
use crate::core::model::ObjectKey;
use crate::core::plan::DaemonPlan;
use crate::core::plan::State;
use crate::core::startup_taint;
use crate::core::time::Span;

mod circles;

/// How long a daemon waits if its DaemonSet does not say.
pub const TIMEOUT: Span = Span::from_mins(2);

/// How many daemons one may name at most: each costs memory and time on every node.
const MOST: usize = 32;

/// The daemons that the annotation names.
///
/// # Errors
/// Why it is not understood.
pub fn daemons(text: &str) -> Result<BTreeSet<ObjectKey>, String> {
    let text = text.trim().trim_end_matches(',');
    let key = |text: &str| {
        let text = text.trim();
        if text.contains(|c: char| c.is_whitespace() || c == ';') {
            return Err(format!("{text:?} is not one name: commas separate names"));
        }
        let Some((namespace, name)) = text.split_once('/') else {
            return Err(format!("{text:?} has no namespace"));
        };
        match dns::label(namespace).or_else(|| dns::subdomain(name)) {
            None => Ok(ObjectKey::new(namespace, name)),
            Some(why) => Err(format!("{text:?} cannot be a DaemonSet: {why}")),
        }
    };
    match text.split(',').count() {
        _ if text.is_empty() => Err("it names no DaemonSet".to_owned()),
        many if many > MOST => Err(format!("it names {many} DaemonSets; at most {MOST} are allowed")),
        _ => text.split(',').map(key).collect(),
    }
}

/// How long the annotation lets a daemon wait; `None`: it is not understood.
pub fn timeout(text: &str) -> Option<Span> {
    duration::parse(text).filter(|span| *span > Span::ZERO)
}

/// The daemons for which one waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct After {
    /// The daemons that start before it; all of them are known here.
    pub daemons: BTreeSet<ObjectKey>,
    /// Those that it names and that this node does not know.
    pub unknown: BTreeSet<ObjectKey>,
    /// The circle that it is in, itself included; else empty. All that are in it share it.
    pub circle: Arc<BTreeSet<ObjectKey>>,
    /// Those that it names and that are trusted, while it is not and makes a circle with them: it does not wait for them.
    pub overruled: BTreeSet<ObjectKey>,
    /// How long it waits at most.
    pub timeout: Span,
}

/// The place of one daemon in the order, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StartTurn<'a> {
    /// What it waits for; `None`: it has no valid annotation.
    pub after: Option<&'a After>,
    /// Those of [`After::daemons`] that have not been Ready in this boot, and still may be.
    pub awaited: &'a [ObjectKey],
    /// Those of [`After::daemons`] that are not for this node now.
    pub absent: &'a [ObjectKey],
    /// Whether another daemon starts after it, or workload, or the Node has a condition of it: it is noted when it is Ready.
    pub is_named: bool,
}

/// The order of all daemons of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StartOrder {
    after: BTreeMap<ObjectKey, After>,
    named: BTreeSet<ObjectKey>,
    /// Those of [`Self::after`], each after all that it starts after.
    sequence: Vec<ObjectKey>,
}

impl StartOrder {
    /// The order of those that `definitions` has, among all that are `known` here. `is_trusted`: whether no tenant wrote
    /// the annotations of one.
    pub fn of<'a>(
        definitions: impl Iterator<Item = &'a DaemonSet>,
        known: &BTreeSet<&ObjectKey>,
        is_trusted: impl Fn(&DaemonSet) -> bool,
    ) -> Self {
        let mut order = Self::default();
        let mut trusted = BTreeSet::new();
        for daemon_set in definitions {
            if startup_taint::is_asked(daemon_set) || daemon_set.annotations.contains_key(NODE_CONDITION) {
                order.named.insert(daemon_set.key.clone());
            }
            let annotation = |name| daemon_set.annotations.get(name).map(String::as_str);
            let Some(named) = annotation(AFTER).and_then(|text| daemons(text).ok()) else { continue };
            let (daemons, unknown) = named.into_iter().partition(|key| known.contains(key));
            let timeout = annotation(AFTER_TIMEOUT).and_then(timeout).unwrap_or(TIMEOUT);
            trusted.extend(is_trusted(daemon_set).then(|| daemon_set.key.clone()));
            order.after.insert(daemon_set.key.clone(), After { daemons, unknown, timeout, ..After::default() });
        }
        order.overrule(&trusted);
        order.break_circles();
        order.named.extend(order.after.values().flat_map(|after| after.daemons.iter().cloned()));
        order
    }

    /// Takes from circles what the others in them name of what is `trusted`. Then no circle has both: it would lead back
    /// by such a name.
    fn overrule(&mut self, trusted: &BTreeSet<ObjectKey>) {
        if trusted.is_empty() || trusted.len() == self.after.len() {
            return;
        }
        for circle in self.sequence_and_circles().1 {
            for key in circle.iter().filter(|key| !trusted.contains(key)) {
                let Some(after) = self.after.get_mut(key) else { continue };
                let named = std::mem::take(&mut after.daemons).into_iter();
                (after.overruled, after.daemons) =
                    named.partition(|other| circle.contains(other) && trusted.contains(other));
            }
        }
    }

    /// Those of [`Self::after`], each after all that it starts after, and the circles among them.
    fn sequence_and_circles(&self) -> (Vec<ObjectKey>, Vec<Arc<BTreeSet<ObjectKey>>>) {
        let keys: Vec<&ObjectKey> = self.after.keys().collect();
        let numbers: BTreeMap<&ObjectKey, usize> = keys.iter().copied().zip(0..).collect();
        let before = |after: &After| after.daemons.iter().filter_map(|key| numbers.get(key).copied()).collect();
        let edges: Vec<Vec<usize>> = self.after.values().map(before).collect();
        let mut circles = Vec::new();
        let mut sequence = Vec::new();
        for mut group in circles::components(&edges) {
            // In a circle each starts after those whose names come before its own.
            group.sort_unstable();
            sequence.extend(group.iter().map(|number| keys[*number].clone()));
            if group.len() > 1 || edges[group[0]].contains(&group[0]) {
                circles.push(Arc::new(group.iter().map(|number| keys[*number].clone()).collect::<BTreeSet<_>>()));
            }
        }
        (sequence, circles)
    }

    fn break_circles(&mut self) {
        let (sequence, circles) = self.sequence_and_circles();
        self.sequence = sequence;
        for circle in circles {
            for key in &*circle {
                if let Some(after) = self.after.get_mut(key) {
                    after.daemons.retain(|other| other < key || !circle.contains(other));
                    after.circle = Arc::clone(&circle);
                }
            }
        }
    }

    /// Whether no daemon waits for another.
    pub fn is_empty(&self) -> bool {
        self.after.is_empty() && self.named.is_empty()
    }

    /// `keys`, each after all that it starts after.
    pub fn sorted<'a>(&'a self, keys: impl Iterator<Item = &'a ObjectKey>) -> Vec<&'a ObjectKey> {
        let (after, mut sorted): (Vec<_>, Vec<_>) = keys.partition(|key| self.after.contains_key(*key));
        let after: BTreeSet<_> = after.into_iter().collect();
        sorted.extend(self.sequence.iter().filter(|key| after.contains(key)));
        sorted
    }

    /// For whom `key` has to wait, by the plans of those before it.
    pub fn awaited(&self, key: &ObjectKey, planned: &BTreeMap<&ObjectKey, DaemonPlan>, boot: &str) -> Vec<ObjectKey> {
        let before = self.after.get(key).into_iter().flat_map(|after| &after.daemons);
        before.filter(|key| planned.get(key).is_some_and(|plan| is_awaited(plan, boot))).cloned().collect()
    }

    /// Those before `key` that are not for this node now, by their plans. One that is here later is not waited for then.
    pub fn absent(&self, key: &ObjectKey, planned: &BTreeMap<&ObjectKey, DaemonPlan>) -> Vec<ObjectKey> {
        let before = self.after.get(key).into_iter().flat_map(|after| &after.daemons);
        let is_absent = |plan: &DaemonPlan| plan.summary.state == State::NotSelected;
        before.filter(|key| planned.get(key).is_some_and(is_absent)).cloned().collect()
    }

    /// The turn of `key`, which has to wait for `awaited` and not for `absent`.
    pub fn turn<'a>(&'a self, key: &ObjectKey, awaited: &'a [ObjectKey], absent: &'a [ObjectKey]) -> StartTurn<'a> {
        StartTurn { after: self.after.get(key), awaited, absent, is_named: self.named.contains(key) }
    }
}

/// Whether a daemon is to be Ready here and has not been in this boot, nor has run steadily where readiness is not reported.
fn is_awaited(plan: &DaemonPlan, boot: &str) -> bool {
    let this_boot = plan.record.this_boot.as_ref().filter(|this| this.boot == boot);
    let was_ready = this_boot.is_some_and(|this| this.ready || this.steady);
    // A daemon that is not installed here yet and needs the coordinator's approval, or its rollout, may come after others.
    let awaits = plan.summary.awaits_approval || plan.summary.awaits_rollout;
    let is_uninvited = awaits && plan.record.live().next().is_none();
    !was_ready
        && !is_uninvited
        && match plan.summary.state {
            State::NotSelected | State::LeftAlone | State::StandingBy => false,
            State::Stopping | State::Orphaned => false,
            // An instance that runs here keeps running.
            State::Refused | State::Held | State::Unknown => plan.record.live().next().is_some(),
            State::Running | State::Stale | State::Starting | State::Waiting | State::Replacing | State::Failing => {
                true
            }
            // A slow kubelet may take it yet.
            State::NotAccepted => true,
        }
}

#[cfg(test)]
mod tests;
