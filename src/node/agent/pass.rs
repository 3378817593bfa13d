//! One pass: fetch, plan, apply, and remember.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use crate::core::adopt;
use crate::core::adopt::AdoptableManifest;
use crate::core::model::ObjectKey;
use crate::core::pass::Plan;
use crate::core::plan::Action;
use crate::core::record::DaemonRecord;
use crate::core::status::Problem;
use crate::core::time::Span;
use crate::node::api::Link;
use crate::node::api::Scope;
use crate::node::api::Snapshot;
use crate::node::manifests::Manifest;
use crate::node::manifests::ManifestDir;
use crate::node::manifests::Scan;

use super::Agent;
use super::RUNTIME_OVERDUE;
use super::RUNTIME_PATIENCE;
use super::RUNTIME_PERIOD;
use super::Removals;
use super::apply;
use super::evidence;
use super::evidence::Runtime;
use super::now;
use super::planning::unwritable;
use super::remembered_inputs;

/// A clock that has gone this much further than time has was set.
const CLOCK_JUMP: Span = Span::from_secs(60);

impl Agent {
    /// One pass. Infallible: what fails is said by daemon, and tried again.
    pub(super) async fn pass(&mut self) {
        let began = Instant::now();
        self.do_pass().await;
        self.passes.count += 1;
        self.passes.last_micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.measure(began.elapsed());
    }

    async fn do_pass(&mut self) {
        self.problems.clone_from(&self.startup_problems);
        self.failures.clear();
        self.follow_clock();
        self.keep_state_folder();
        let snapshot = self.snapshot();
        self.follow_link();
        self.api_freshness.follow(self.api_answers(snapshot.as_deref()), now());
        self.fetch_runtime(snapshot.as_deref()).await;
        self.follow_node(snapshot.as_deref());
        self.folders.refresh(&mut self.problems);
        if let Some(api) = &snapshot {
            self.definitions.update(api);
            self.follow_history();
        }
        self.follow_approvals(snapshot.as_deref());
        let Some(scan) = self.scan() else { return self.report(snapshot.as_deref()) };
        self.manifests_lost_at_boot.follow(&self.disk.files, &self.disk.records, &scan, &self.config.kubelet_root);
        self.disk.lost = self.manifests_lost_at_boot.uids().map(str::to_owned).collect();
        let mut records = self.adopted(&scan);
        self.adopt_orphans(&mut records, snapshot.as_deref());
        let started = self.observe(&mut records, snapshot.as_deref());
        let any_not_started = records.values().flat_map(DaemonRecord::live).any(|instance| !instance.started);
        self.volume_check_schedule.begin(now(), started, any_not_started);
        self.look_into_crashes(&records, snapshot.as_deref());
        self.note_mirrors(&mut records, snapshot.as_deref());
        self.follow_acceptance(&records, snapshot.as_deref());
        self.judge_mirrors(&mut records, snapshot.as_deref());
        self.take_verdicts();
        let mut plan = self.plan(&records, &scan, snapshot.as_deref());
        let unwritable = unwritable(&plan);
        if !unwritable.is_empty() {
            self.render_cache.make_whole(&unwritable);
            plan = self.plan(&records, &scan, snapshot.as_deref());
        }
        self.plan = plan;
        self.history.planned(&self.plan, snapshot.as_deref(), self.has_second_list(snapshot.as_deref()));
        if self.manifests_lost_at_boot.give_up(&self.plan) {
            self.wake.notify_one();
        }
        self.want(snapshot.as_deref());
        self.watch_pending();
        self.pull_images(snapshot.as_deref());
        self.put_questions();
        self.keep_data(snapshot.as_deref());
        self.checkpoint_before();
        self.apply(&records);
        self.tell_stock();
        self.render_cache.shrink();
        self.meet_cluster(snapshot.as_deref());
        self.problems.extend(self.cluster.problem(self.remembered_inputs.cluster_uid.as_ref(), &self.config.state_dir));
        self.problems.extend(self.history.problem().filter(|_| !self.cluster.is_another()));
        if let Some(snapshot) = &snapshot {
            self.correct_labels(snapshot);
            self.reconcile_owners(snapshot);
            self.problems.extend(self.owners.problem());
            self.delete_mirror_pods(snapshot);
            self.preempted.follow(snapshot, &self.disk.records, now());
        }
        let answers = self.api_answers(snapshot.as_deref());
        self.stop_stuck_sandboxes(snapshot.as_deref().filter(|_| answers));
        self.restart_crashed();
        self.resync_kubelet();
        let failed = self.disk.clear_ended(now());
        self.problems.extend(failed.into_iter().map(|f| report_problem("volume data", f)));
        if let Err(failed) = self.disk.forget_gone() {
            self.problems.push(report_problem("checkpoint", failed));
        }
        self.publish(snapshot.as_deref());
        self.checkpoint();
        self.problems.extend(self.sealing.problem());
        self.problems.extend(self.metrics_problem());
        self.report(snapshot.as_deref());
        self.pass_number += 1;
        if self.pass_number == 1 {
            // No watch before the manifests of a boot are there: they come first. What changes between the look and
            // the watch is seen by the pass that this wakes.
            self.wake.notify_one();
        }
    }

    /// The API's word: empty, so that nothing is known of it, before it has said anything; `None` if
    /// there is no API server.
    pub(super) fn snapshot(&self) -> Option<Arc<Snapshot>> {
        match &self.api {
            Some(api) => Some(api.store().snapshot()),
            None => self.api_is_configured().then(Arc::default),
        }
    }

    /// Looks and plans, and changes nothing: for an answer without an agent.
    pub(super) fn look(&mut self) {
        self.problems.clone_from(&self.startup_problems);
        let snapshot = self.snapshot();
        self.follow_node(snapshot.as_deref());
        self.folders.refresh(&mut self.problems);
        let scan = match self.disk.manifests.as_mut().map(ManifestDir::scan) {
            Some(Ok(scan)) => scan,
            Some(Err(error)) => {
                let failure = apply::failure(&error, error.hint());
                return self.problems.push(report_problem("manifest folder", failure));
            }
            None => Scan::default(),
        };
        self.manifests_lost_at_boot.follow(&self.disk.files, &self.disk.records, &scan, &self.config.kubelet_root);
        let records = self.adopted(&scan);
        self.plan = self.plan(&records, &scan, snapshot.as_deref());
    }

    /// Asks the runtime where its word is needed: something ends, or nobody else tells readiness.
    async fn fetch_runtime(&mut self, api: Option<&Snapshot>) {
        let Some(pod_status_source) = &self.pod_status_source else {
            self.runtime = Runtime::None;
            return;
        };
        if self.pass_number == 0 {
            // The first pass is from disk alone: at boot the runtime may hang, and the kubelet waits.
            self.runtime = Runtime::Unreachable("the runtime has not been asked yet".to_owned());
            return;
        }
        let ending = self.disk.records.values().any(|r| r.ending().next().is_some());
        let no_api_view = !self.api_freshness.is_current(now())
            && self.disk.records.values().any(|r| r.live().next().is_some())
            || !self.api_freshness.is_current(now()) && self.hand_over_is_open()
            || self.lacks_mirror_pods(api);
        let fresh = now() - self.runtime_at < RUNTIME_PERIOD && self.pass_number > 1;
        let wanted = self.kubelet_resync.asks(now());
        if !ending && !wanted && (!no_api_view || fresh) {
            return;
        }
        // A runtime that hangs must not hold up what has nothing to do with it.
        let (asked_at, mut asked, patience) = match self.runtime_asked.take() {
            Some((asked_at, asked)) => (asked_at, asked, RUNTIME_OVERDUE),
            None => (now(), pod_status_source.ask(), RUNTIME_PATIENCE),
        };
        self.runtime_at = now();
        let ended = self.disk.records.values().flat_map(DaemonRecord::ending).filter_map(|i| i.phase.since()).max();
        self.runtime = match tokio::time::timeout(patience, &mut asked).await {
            // What was asked for before an instance ended may be older than its sandbox.
            Ok(Ok(Ok(_))) if ended.is_some_and(|ended| ended > asked_at) => {
                Runtime::Unreachable("the container runtime is asked again".to_owned())
            }
            Ok(Ok(Ok(pods))) => Runtime::Pods(pods),
            Ok(Ok(Err(why))) => Runtime::Unreachable(why),
            Ok(Err(error)) => Runtime::Unreachable(format!("the container runtime could not be asked: {error}")),
            Err(_) => {
                self.runtime_asked = Some((asked_at, asked));
                Runtime::Unreachable("the container runtime has not answered yet: is it running well?".to_owned())
            }
        };
    }

    /// A clock that was set forward makes nothing older: deadlines and back-offs go on where they were.
    /// A clock that was set back takes every time that is remembered along: nothing waits until it
    /// gets there again.
    fn follow_clock(&mut self) {
        let at = now();
        if at < self.last_pass {
            self.runtime_at = self.runtime_at.min(at - RUNTIME_PERIOD);
            self.save_at = self.save_at.map(|due| due.min(at));
            self.removals =
                self.removals.map(|r| Removals { at: r.at.min(at + self.config.removals_delay.into()), ..r });
            self.disk.clear_again.clear();
            self.folders.reread();
            self.definitions.forget_answers(|_| false);
        }
        let jump = at - (self.last_pass + self.last_pass_steady.elapsed().into());
        if jump > CLOCK_JUMP {
            tracing::warn!("the clock was set forward by {} s: what is timed here goes on as before", jump.as_secs());
            for (key, record) in &mut self.disk.records {
                record.shift(jump);
                self.disk.unsaved.insert(key.clone());
            }
        }
        self.last_pass = at;
        self.last_pass_steady = Instant::now();
    }

    /// Whether the API's word on this node's pods is current.
    pub(super) fn api_answers(&self, api: Option<&Snapshot>) -> bool {
        let up = self.api.as_ref().is_some_and(|api| *api.connector().link().borrow() == Link::Up);
        let pods = api.and_then(|api| api.scopes.get(&Scope::Pods));
        up && pods.is_some_and(|state| state.lists > 0 && state.error.is_none())
    }

    fn follow_node(&mut self, api: Option<&Snapshot>) {
        if let Some(entry) = api.and_then(|api| api.node.as_ref()) {
            let node = remembered_inputs::node_view(&entry.value);
            if self.remembered_inputs.node.as_ref() != Some(&node) {
                self.remembered_inputs.node = Some(node);
            }
        }
        // A checkpoint of a node with another name says nothing about this one.
        let known = self.remembered_inputs.node.clone().filter(|node| node.name == self.config.node_name);
        self.node = known.unwrap_or_else(|| self.config.node_view());
        let endpoint = self.config.api_endpoint.clone().or_else(|| self.api.as_ref().and_then(|a| a.endpoint()));
        let version = self.node.kubelet_version.as_deref().and_then(remembered_inputs::major_minor);
        self.options.set(|options| {
            options.kubelet_version = version;
            if endpoint.is_some() {
                options.api_endpoint = endpoint;
            }
        });
    }

    fn scan(&mut self) -> Option<Scan> {
        if self.disk.manifests.is_none() {
            self.open_manifests();
        }
        if self.pass_number > 0 {
            self.watch_manifests();
        }
        let scanned = self.disk.manifests.as_mut()?.scan();
        match scanned {
            Ok(scan) => {
                for (file, error) in &scan.unreadable {
                    let failure = apply::failure(error, error.hint());
                    self.problems.push(report_problem(file, failure));
                }
                self.problems.extend(copies(&scan));
                Some(scan)
            }
            Err(error) => {
                let failure = apply::failure(&error, error.hint());
                self.problems.push(report_problem("manifest folder", failure));
                self.disk.manifests = None;
                None
            }
        }
    }

    /// The records, with manifests of ours that they do not know.
    fn adopted(&self, scan: &Scan) -> BTreeMap<ObjectKey, DaemonRecord> {
        let mut records = self.disk.records.clone();
        let known: BTreeMap<&str, &ObjectKey> =
            self.disk.records.values().flat_map(|r| r.instances.iter().map(|i| (i.uid.as_str(), &r.key))).collect();
        // One whose owner was changed is still that daemon's, and is repaired with its other content.
        let strays = |uid: &str, owner: &ObjectKey| known.get(uid).is_some_and(|key| *key != owner);
        for manifest in scan.ours.values().filter(|m| !m.uid.is_empty() && !strays(&m.uid, &m.owner)) {
            let record = records.entry(manifest.owner.clone()).or_insert_with(|| self.disk.new_record(&manifest.owner));
            let found = AdoptableManifest {
                uid: &manifest.uid,
                pod_name: &manifest.pod_name,
                incarnation: manifest.incarnation.unwrap_or(0),
                revision: &manifest.revision,
            };
            if adopt::adopt(record, &found, now()) && !self.offline {
                tracing::info!(daemonset = %manifest.owner, pod = %manifest.pod_name, "took over a manifest of ours that no record knows");
            }
        }
        records
    }

    /// Notes that instances have started, as the API shows. Gives whether
    /// one has started since the last look.
    fn observe(&self, records: &mut BTreeMap<ObjectKey, DaemonRecord>, api: Option<&Snapshot>) -> bool {
        let Some(api) = api else { return false };
        let mut news = false;
        for record in records.values_mut() {
            let namespace = record.key.namespace.clone();
            for instance in &mut record.instances {
                let Some(pod) = evidence::mirror(api, &namespace, instance, &self.config.node_name) else { continue };
                if !instance.started && evidence::has_started(pod) {
                    instance.started = true;
                    news = true;
                }
            }
        }
        news
    }

    fn apply(&mut self, before: &BTreeMap<ObjectKey, DaemonRecord>) {
        let at = now();
        let mut plan = std::mem::replace(&mut self.plan, Plan { daemons: Vec::new(), removals_held: false });
        self.disk.prewrite(&plan.daemons);
        let (disk, watchdog) = (&mut self.disk, &mut self.watchdog);
        let mut apply = |daemon| {
            // Many daemons on a slow disk take their time, and that is no loop that hangs.
            watchdog.ping();
            disk.apply(daemon)
        };
        // Who acts goes first: no manifest waits for what is only noted of other daemons.
        let (acting, noting): (Vec<_>, Vec<_>) =
            plan.daemons.iter().enumerate().partition(|(_, d)| !d.actions.is_empty());
        let mut results = vec![Ok(()); plan.daemons.len()];
        acting.into_iter().chain(noting).for_each(|(number, daemon)| results[number] = apply(daemon));
        // Every manifest is in place before anything is waited for that none of them waits for.
        for (key, failure) in self.disk.sync() {
            let of_it = plan.daemons.iter().zip(&mut results).filter(|(daemon, _)| daemon.key == key);
            of_it.for_each(|(_, result)| *result = Err(failure.clone()));
        }
        for (daemon, result) in plan.daemons.iter_mut().zip(results) {
            self.tell(daemon, result.as_ref().err());
            for action in &mut daemon.actions {
                if let Action::Start { rendering, .. } | Action::Refresh { rendering, .. } = action {
                    *rendering = Arc::new(rendering.shrunk());
                }
            }
            if let Err(failure) = result {
                self.failures.insert(daemon.key.clone(), failure);
            }
            if let Some(Action::Confirm { .. }) = daemon.actions.iter().find(|a| matches!(a, Action::Confirm { .. })) {
                self.ask(&daemon.key, before.get(&daemon.key), at);
            }
        }
        self.hold_removals(plan.removals_held, at);
        self.plan = plan;
    }
}

/// Whether a manifest of ours lies under another name than we gave it.
pub(super) fn is_copy(manifest: &Manifest) -> bool {
    manifest.file != crate::core::manifest::file_name(&manifest.namespace, &manifest.pod_name)
}

/// Manifests of ours that somebody copied: the kubelet takes one of them, and which is chance.
fn copies(scan: &Scan) -> impl Iterator<Item = Problem> {
    let twins = |m: &Manifest| scan.ours.values().any(|other| other.uid == m.uid && other.file != m.file);
    scan.ours.values().filter(move |m| is_copy(m) && twins(m)).map(|m| Problem {
        object: m.file.clone(),
        reason: format!("a copy of the manifest of pod {}: the kubelet takes only one of them", m.pod_name),
        hint: Some("remove the copy from the manifest folder".to_owned()),
    })
}

pub(super) fn report_problem(object: &str, failure: apply::Failure) -> crate::core::status::Problem {
    crate::core::status::Problem { object: object.to_owned(), reason: failure.message, hint: failure.hint }
}
