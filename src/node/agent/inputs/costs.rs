//! What the agent's work on definitions of tenants costs: measured, and marked on disk before it begins.
//!
//! Owns which versions this process has worked on, and whose turn it is. What is measured and found goes into the next
//! Observation as a value; `crate::core::set_aside` says what follows from it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::core::model::DaemonSet;
use crate::core::model::ObjectKey;
use crate::core::policy::Covered;
use crate::core::set_aside::DefinitionVersion;
use crate::core::set_aside::Spent;
use crate::core::set_aside::SuspectTurn;
use crate::core::set_aside::TIME;
use crate::core::time::Span;

use crate::node::agent::observation::Observation;
use crate::node::agent::render_cache::RenderCache;
use crate::node::agent::state::AgentState;
use crate::node::agent::state::set_aside::is_tenants;

/// Work on definitions of tenants.
#[derive(Default)]
pub(in crate::node::agent) struct Costs {
    /// The versions that this process has worked on, each with the definition that it was found in.
    begun: BTreeMap<ObjectKey, (Arc<DaemonSet>, DefinitionVersion)>,
    /// The content of the API server's snapshot that was last looked at.
    content: u64,
    /// What the last pass spent.
    spent: Vec<Spent>,
}

impl Costs {
    /// Adds to `observation` what the last pass spent and whose turn it is. Gives the versions that the pass works on for
    /// the first time in this process.
    pub(in crate::node::agent) fn begin(
        &mut self,
        observation: &mut Observation,
        state: &AgentState,
    ) -> Vec<DefinitionVersion> {
        observation.spent = std::mem::take(&mut self.spent);
        let api = observation.snapshot();
        let content = api.map_or(0, |api| api.content);
        let is_known = self.content == content && state.passes > 0;
        self.content = content;
        if is_known && !state.set_aside.has_suspects() {
            return Vec::new();
        }
        if let Some(api) = api {
            self.begun.retain(|key, _| api.daemon_sets.contains_key(key) || state.records.contains_key(key));
        }
        let of_api = api.into_iter().flat_map(|api| api.daemon_sets.values()).filter_map(|d| d.converted.as_ref().ok());
        let of_api = of_api.filter(|d| matches!(state.policy.covers(d, None), Covered::Yes(_)));
        // The first pass is from disk alone.
        let remembered = state.inputs.daemon_sets.values().chain(state.records.values().filter_map(|r| r.definition()));
        let remembered = remembered.filter(|_| state.passes == 0);
        let (mut begins, mut suspects, mut set_aside) = (Vec::new(), Vec::new(), Vec::new());
        for daemon_set in of_api.chain(remembered).filter(|d| is_tenants(&state.policy, d)) {
            let known = self.begun.get_mut(&daemon_set.key);
            if known.as_ref().is_some_and(|(known, _)| Arc::ptr_eq(known, daemon_set)) {
                continue;
            }
            let version = DefinitionVersion::of(daemon_set);
            match known {
                Some((known, before)) if *before == version => *known = Arc::clone(daemon_set),
                _ if state.set_aside.suspects(&version) => suspects.push((Arc::clone(daemon_set), version)),
                _ if state.set_aside.holds_back(daemon_set, &SuspectTurn::None).is_some() => {
                    set_aside.push((Arc::clone(daemon_set), version));
                }
                _ => begins.push((Arc::clone(daemon_set), version)),
            }
        }
        let turn = match (begins.is_empty(), suspects.pop()) {
            (_, None) => SuspectTurn::None,
            (false, Some(_)) => SuspectTurn::AfterOthers,
            (true, Some((daemon_set, version))) => {
                begins.push((daemon_set, version.clone()));
                SuspectTurn::Of(version)
            }
        };
        observation.turn = turn;
        let versions = begins.iter().map(|(_, version)| version.clone()).collect();
        let known = begins.into_iter().chain(set_aside);
        self.begun.extend(known.map(|(daemon_set, version)| (version.key.clone(), (daemon_set, version))));
        versions
    }

    /// Takes what a pass spent, as far as something follows from it. Gives whether anything does.
    pub(in crate::node::agent) fn end(&mut self, cache: &RenderCache, state: &AgentState) -> bool {
        let mut sums: BTreeMap<ObjectKey, Vec<(Arc<DaemonSet>, Span)>> = BTreeMap::new();
        for (daemon_set, time) in cache.times.take() {
            if is_tenants(&state.policy, &daemon_set) {
                sums.entry(daemon_set.key.clone()).or_default().push((daemon_set, time));
            }
        }
        for (key, parts) in sums {
            let sum = parts.iter().fold(Span::ZERO, |sum, (_, time)| sum + *time);
            if sum <= TIME && !state.set_aside.knows(&key) {
                continue;
            }
            for (daemon_set, time) in parts {
                let version = DefinitionVersion::of(&daemon_set);
                match self.spent.iter_mut().find(|spent| spent.version == version) {
                    Some(spent) => spent.time = spent.time + time,
                    None => self.spent.push(Spent { version, time }),
                }
            }
        }
        !self.spent.is_empty()
    }

    /// The daemon `key` is to be tried again: what is worked on is new.
    pub(in crate::node::agent) fn forget(&mut self, key: &ObjectKey) {
        self.begun.remove(key);
        self.content = 0;
    }
}

#[cfg(test)]
mod tests;
