//! What the agent takes over from an observation: clock, Node, inputs, starts and ends.
//!
//! Must not decide what follows from it.

use std::collections::BTreeSet;

use crate::config::Config;
use crate::core::json::Json;
use crate::core::node;
use crate::core::record::DaemonRecord;
use crate::core::render::Endpoint;
use crate::core::time::Span;
use crate::node::agent::ending;
use crate::node::agent::evidence;
use crate::node::agent::log::Log;
use crate::node::agent::objects;
use crate::node::agent::observation::Observation;
use crate::node::agent::remembered_inputs;

use super::AgentState;

/// A clock that has gone this much further than the steady clock was set.
const CLOCK_JUMP: Span = Span::from_secs(60);

impl AgentState {
    /// A clock that was set forward makes nothing older: deadlines and back-offs go on where they were. A clock that was
    /// set back takes every time that is remembered along: nothing waits until it gets there again.
    pub(super) fn follow_clock(&mut self, observation: &Observation, config: &Config, log: &mut Log) {
        let (now, steady) = (observation.now, observation.steady);
        let set_forward = observation.boot.set_forward_since(&self.inputs.clocks);
        self.inputs.clocks.clone_from(&observation.boot);
        let jump = match self.clock.last.replace((now, steady)) {
            Some((last, last_steady)) => {
                if now < last {
                    self.inputs_on_disk.due = self.inputs_on_disk.due.map(|due| due.min(now));
                    self.clear_again.clear();
                    self.concerns.removal_guard.clock_set_back(now, config.removals_delay.into());
                }
                now - (last + (steady - last_steady))
            }
            // The previous agent's steady clock is not known.
            None => set_forward,
        };
        if jump > CLOCK_JUMP {
            let what = match set_forward > CLOCK_JUMP {
                true => "the clock was set forward by",
                false => "the machine was suspended for",
            };
            log.warn(format!("{what} {} s: deadlines and back-offs go on as before", jump.as_secs()));
            self.records.values_mut().for_each(|record| record.shift(jump));
            self.inputs.node_since = self.inputs.node_since.map(|since| since + jump);
            self.unsaved.extend(self.records.keys().cloned());
        }
    }

    pub(super) fn follow_node(&mut self, observation: &Observation, config: &Config) {
        let entry = observation.snapshot().and_then(|api| api.node.as_ref());
        let is_shown = entry.is_some() && observation.is_linked();
        if is_shown && !self.node_was_shown {
            self.inputs.node_since = node::awaits_labels_again(self.inputs.node_since, observation.now);
        }
        self.node_was_shown = is_shown;
        if let Some(entry) = entry {
            let node = remembered_inputs::node_view(&entry.value);
            let registered = entry.value.text_at(["metadata", "creationTimestamp"]).and_then(|at| at.parse().ok());
            self.inputs.follow_node(node, registered, observation.now, is_shown);
        }
        // A checkpoint of a node with another name does not describe this one.
        let known = self.inputs.node.clone().filter(|node| node.name == config.node_name);
        self.node = known.unwrap_or_else(|| config.node_view());
        let endpoint = config.api_endpoint.clone().or_else(|| self.api_endpoint(observation));
        let version = self.node.kubelet_version.as_deref().and_then(remembered_inputs::major_minor);
        let topology = node::topology(&self.node);
        self.options.set(|options| {
            options.kubelet_version = version;
            options.topology = topology;
            if endpoint.is_some() {
                options.api_endpoint = endpoint;
            }
        });
        self.inputs.api_endpoint.clone_from(&self.options.get().0.api_endpoint);
    }

    /// The API server's address for pods. What runs has the one that is remembered: another one takes its place once the
    /// cluster behind it has identified itself as the same.
    fn api_endpoint(&self, observation: &Observation) -> Option<Endpoint> {
        let connected = observation.api.as_ref().and_then(|api| api.endpoint.clone());
        let remembered = self.inputs.api_endpoint.clone();
        match self.concerns.removal_guard.identified_on(self.inputs.cluster_uid.as_ref()) {
            Some(0) => remembered.or(connected),
            Some(_) | None => connected.or(remembered),
        }
    }

    /// What the agent remembers for the next start.
    pub(super) fn follow_inputs(&mut self, observation: &Observation, log: &mut Log) {
        if let Some(secrets) = &observation.seal.opened {
            self.inputs.take(secrets.as_ref().clone(), &self.records);
        }
        objects::forget_superseded(&observation.folders, &mut self.inputs.superseded_objects);
        if observation.seal.retry {
            self.inputs_on_disk.saved = 0;
        }
        let concerns = &mut self.concerns;
        concerns.removal_guard.observe(observation, &self.definitions);
        if let Some(api) = observation.snapshot() {
            // Before the first answer nothing is known to have been reached.
            let reached = concerns.removal_guard.etcd_rollback.reached(api);
            self.inputs.reached = if reached > 0 { reached } else { self.inputs.reached };
        }
        let is_coordinated = self.inputs.coordinated || self.inputs.coordination_unknown;
        let has_approvals = concerns.claims.observe(observation, is_coordinated, log);
        self.inputs.follow_coordination(has_approvals, observation.snapshot());
        concerns.node_lease.observe(observation);
        concerns.startup_taint.observe(observation, log);
        concerns.node_conditions.observe(observation, log);
    }

    /// Notes that instances have started, as the API shows. Gives whether one has started since the last pass.
    pub(super) fn follow_starts(&mut self, observation: &Observation, config: &Config) -> bool {
        let Some(api) = observation.snapshot() else { return false };
        let mut news = false;
        for record in self.records.values_mut() {
            let namespace = &record.key.namespace;
            for instance in record.instances.iter_mut().filter(|i| !i.started) {
                let mirror = evidence::mirror(api, namespace, instance, &config.node_name);
                if mirror.is_some_and(evidence::has_started) {
                    instance.started = true;
                    news = true;
                }
            }
        }
        news
    }

    /// Notes what the container runtime lists, and since when instances end.
    pub(super) fn follow_ends(&mut self, observation: &Observation) {
        let has_listed = self.runtime_is_kubelets;
        let instances = self.records.values_mut().flat_map(|record| &mut record.instances);
        for instance in instances.filter(|i| !(has_listed && i.listed)) {
            let is_listed = observation.runtime_pod(&instance.uid).is_some();
            instance.listed |= is_listed;
            self.runtime_is_kubelets |= is_listed;
        }
        let instances = self.records.values().flat_map(|record| &record.instances);
        self.runtime_runs_others = ending::runs_others(observation, instances.clone(), self.runtime_runs_others);
        self.runtime_has_lost_all = ending::has_lost_all(observation, instances, self.runtime_has_lost_all);
        let ending: BTreeSet<&str> =
            self.records.values().flat_map(DaemonRecord::ending).map(|i| i.uid.as_str()).collect();
        self.ending_since.retain(|uid, _| ending.contains(uid.as_str()));
        for uid in ending {
            self.ending_since.entry(uid.to_owned()).or_insert(observation.steady);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::core::model::NodeView;
    use crate::node::agent::decide::tests;
    use crate::node::agent::requests::Reply;
    use crate::node::api::Link;
    use crate::node::api::Snapshot;

    use super::*;

    /// The address of the API server that pods get from an agent in `state` which is connected to `server`, by a connection
    /// of this number, or to nothing. `cluster`: what it says who it is there.
    fn rendered(
        state: &mut AgentState,
        server: &str,
        connection: Option<u64>,
        cluster: Option<&str>,
    ) -> Option<String> {
        let mut observation = tests::observation(Some(Snapshot::default()));
        let api = observation.api.as_mut().unwrap();
        api.endpoint = Some(Endpoint { host: server.to_owned(), port: 6443 });
        api.connections_opened = connection.unwrap_or(0);
        api.link = if connection.is_some() { Link::Up } else { Link::Connecting };
        let said = |uid: &str| Reply::ClusterIdentity { connection: connection.unwrap(), cluster: Ok(uid.to_owned()) };
        observation.replies = cluster.map(said).into_iter().collect();
        let guard = &mut state.concerns.removal_guard;
        guard.identify_cluster(&observation, &mut state.inputs.cluster_uid);
        state.follow_node(&observation, &tests::config());
        state.options.get().0.api_endpoint.clone().map(|endpoint| endpoint.host)
    }

    /// The agent that starts where `before` stopped, and knows of its kubeconfig nothing.
    fn next(before: &AgentState) -> AgentState {
        AgentState { inputs: before.inputs.clone(), ..tests::state(&tests::config()) }
    }

    #[test]
    fn pods_have_the_zone_of_the_node_that_is_remembered() {
        let mut state = tests::state(&tests::config());
        let labels = [("topology.kubernetes.io/zone", "a"), ("other", "b")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        state.inputs.node = Some(NodeView { labels: labels.into(), ..tests::config().node_view() });
        state.follow_node(&tests::observation(None), &tests::config());
        let topology: Vec<_> = state.options.get().0.topology.iter().collect();
        assert_eq!(topology, [(&"topology.kubernetes.io/zone".to_owned(), &"a".to_owned())]);
    }

    #[test]
    fn pods_keep_the_address_that_they_have_until_the_same_cluster_answers_at_another() {
        let of = |host: &str| Some(host.to_owned());
        let mut first = tests::state(&tests::config());
        assert_eq!(rendered(&mut first, "own", None, None), of("own"), "no other is known");
        assert_eq!(rendered(&mut first, "own", Some(1), Some("one")), of("own"));

        let mut offline = next(&first);
        offline.follow_node(&tests::observation(None), &tests::config());
        assert_eq!(offline.options.get().0.api_endpoint.as_ref().map(|e| e.host.as_str()), Some("own"));

        let mut moved = next(&first);
        assert_eq!(rendered(&mut moved, "other", None, None), of("own"));
        assert_eq!(rendered(&mut moved, "other", Some(1), None), of("own"), "it has not said who it is");
        let mut foreign = moved.clone();
        assert_eq!(rendered(&mut moved, "other", Some(1), Some("one")), of("other"));
        assert_eq!(rendered(&mut next(&moved), "own", None, None), of("other"), "it is remembered");

        assert_eq!(rendered(&mut foreign, "other", Some(1), Some("two")), of("own"));
        assert_eq!(rendered(&mut foreign, "own", Some(2), Some("one")), of("own"));
    }
}
