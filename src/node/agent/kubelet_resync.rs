//! Telling the kubelet to try again at once, when what a pod failed for has just come back.
//!
//! Owns two facts of timing. The kubelet tries a pod whose sandbox could not be made (no pod network
//! yet) again after 10 to 15 s; a change of the manifest under the same UID makes it try at once. So
//! when a daemon of this node has become ready, or the API server answers again, the manifests of
//! instances without a sandbox get one more annotation for a moment.
//!
//! And a daemon that crashed for want of the API server waits out a back-off that outlasts the outage.
//! The kubelet takes it from the container that ended: with its sandbox removed the same instance
//! starts at once. A new instance would not do: its mirror pod, which flannel asks for, comes only
//! when the kubelet has heard from the API server, many seconds later.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::core::manifest;
use crate::core::plan::State;
use crate::core::record::DaemonRecord;
use crate::core::rendering;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::core::yaml;
use crate::node::api::Link;

use super::Agent;
use super::apply::Failure;
use super::evidence::Runtime;
use super::now;

/// When to try again after something came back: what it has to set up takes it a moment.
const AFTER: [Span; 3] = [Span::from_millis(300), Span::from_millis(1_500), Span::from_secs(4)];
/// While the return of the API server is just now, it is tried again this often.
const EVERY: Span = Span::from_millis(1_500);
/// How long a manifest keeps the annotation: two changes too close together are one to the kubelet.
const FOR: Span = Span::from_secs(1);
/// How long the return of the API server counts as just now.
const BACK: Span = Span::from_secs(15);
/// The annotation.
const ANNOTATION: &str = "daemonlet.dev/resync";

/// Which instances are to be resynced, and which have been.
#[derive(Default)]
pub(super) struct KubeletResync {
    due: BTreeSet<Timestamp>,
    resynced: BTreeMap<String, Resynced>,
    ready: BTreeSet<String>,
    /// Instances that were restarted since the API server came back.
    restarted: BTreeSet<String>,
    link_was_down: bool,
    api_back: Option<Timestamp>,
}

struct Resynced {
    until: Timestamp,
    /// Digest of the file with the annotation, and of the one without.
    written: String,
    meant: String,
}

impl KubeletResync {
    /// When the API server came back, if that was just now.
    pub(super) fn api_back(&self, at: Timestamp) -> Option<Timestamp> {
        self.api_back.filter(|back| at - *back < BACK)
    }

    /// Whether the runtime's word is wanted.
    pub(super) fn asks(&self, at: Timestamp) -> bool {
        self.due.first().is_some_and(|due| *due <= at) || self.api_back(at).is_some()
    }

    /// When to look again.
    pub(super) fn next(&self) -> Option<Timestamp> {
        let restore = self.resynced.values().map(|n| n.until).min();
        self.due.first().copied().into_iter().chain(restore).min()
    }

    /// The digest that a manifest is meant to have while it carries the resync annotation.
    pub(super) fn meant(&self, uid: &str, on_disk: &str, at: Timestamp) -> Option<&str> {
        self.resynced.get(uid).filter(|n| n.written == on_disk && at < n.until).map(|n| n.meant.as_str())
    }

    fn schedule(&mut self, at: Timestamp) {
        self.due.extend(AFTER.iter().map(|after| at + *after));
    }
}

impl Agent {
    /// Notes when the API server comes back after it was seen to be away.
    pub(super) fn follow_link(&mut self) {
        let Some(api) = &self.api else { return };
        match &*api.connector().link().borrow() {
            Link::Down { .. } if self.kubelet_resync.link_was_down => {}
            Link::Down { failure, .. } => {
                self.kubelet_resync.link_was_down = true;
                tracing::warn!("the API server is unreachable: {failure}; what runs here goes on running");
            }
            Link::Up if std::mem::take(&mut self.kubelet_resync.link_was_down) => {
                let at = now();
                tracing::info!("the API server answers again");
                self.kubelet_resync.api_back = Some(at);
                self.kubelet_resync.restarted.clear();
                self.kubelet_resync.schedule(at);
            }
            _ => {}
        }
    }

    /// Resyncs instances without a sandbox whose time has come.
    pub(super) fn resync_kubelet(&mut self) {
        let at = now();
        let ready = self.seen_running();
        let news = !ready.is_subset(&self.kubelet_resync.ready);
        self.kubelet_resync.ready = ready;
        let waiting =
            self.plan.daemons.iter().any(|d| d.summary.state != State::Running && d.record.live().next().is_some());
        if news && waiting {
            self.kubelet_resync.schedule(at);
        }
        self.kubelet_resync.resynced.retain(|_, resynced| at < resynced.until);
        if self.kubelet_resync.due.first().is_none_or(|due| *due > at) {
            return;
        }
        self.kubelet_resync.due = self.kubelet_resync.due.split_off(&(at + Span::from_millis(1)));
        if self.kubelet_resync.api_back(at).is_some() && waiting {
            self.kubelet_resync.due.insert(at + EVERY);
        }
        let Runtime::Pods(pods) = &self.runtime else { return };
        let alive: BTreeSet<&str> = pods.iter().filter(|p| p.alive).map(|p| p.uid.as_str()).collect();
        let stuck: Vec<(String, String, String, String)> = self
            .disk
            .records
            .values()
            .flat_map(|r| r.live().map(move |i| (r, i)))
            .filter(|(_, i)| !alive.contains(i.uid.as_str()) && at - i.created > FOR)
            .filter(|(_, i)| !self.kubelet_resync.resynced.contains_key(&i.uid))
            .map(|(r, i)| (r.key.to_string(), r.key.namespace.clone(), i.pod_name.clone(), i.uid.clone()))
            .collect();
        for (daemonset, namespace, pod, uid) in stuck {
            match self.write_resynced(&namespace, &pod, at) {
                Ok(resynced) => {
                    tracing::debug!(daemonset, pod, "the kubelet is told to try {pod} again");
                    self.kubelet_resync.resynced.insert(uid, resynced);
                }
                Err(failure) => {
                    tracing::debug!(daemonset, pod, "{pod} is not tried again at once: {}", failure.message)
                }
            }
        }
    }

    /// UIDs of instances that are ready, or have a running container while the API's word is behind.
    fn seen_running(&self) -> BTreeSet<String> {
        let ready = self.plan.daemons.iter().filter(|d| d.summary.state == State::Running);
        let mut seen: BTreeSet<String> = ready.map(|d| d.summary.uid.clone()).collect();
        if let (Some(_), Runtime::Pods(pods)) = (self.kubelet_resync.api_back(now()), &self.runtime) {
            seen.extend(pods.iter().filter(|p| p.running_since.is_some()).map(|p| p.uid.clone()));
        }
        seen
    }

    /// Ends crash back-offs of an outage with the outage: once an instance.
    pub(super) fn restart_crashed(&mut self) {
        let Some(back) = self.kubelet_resync.api_back(now()) else { return };
        let (Some(cri), Runtime::Pods(pods)) = (&self.cri, &self.runtime) else { return };
        for instance in self.disk.records.values().flat_map(DaemonRecord::live).filter(|i| i.created < back) {
            let Some(crashed) = pods.iter().find(|p| p.uid == instance.uid && p.crashing && p.running_since.is_none())
            else {
                continue;
            };
            if !self.kubelet_resync.restarted.insert(instance.uid.clone()) {
                continue;
            }
            let (cri, sandboxes, pod) = (Arc::clone(cri), crashed.sandboxes.clone(), instance.pod_name.clone());
            tracing::info!(pod, "restarting {pod}: it was in crash back-off when the API server came back");
            tokio::spawn(async move {
                for id in sandboxes {
                    let stopped = cri.stop_sandbox(&id).await;
                    if let Err(error) = async {
                        stopped?;
                        cri.remove_sandbox(&id).await
                    }
                    .await
                    {
                        tracing::warn!(pod, "{pod} waits out its back-off: {error}");
                    }
                }
            });
        }
    }

    fn write_resynced(&mut self, namespace: &str, pod: &str, at: Timestamp) -> Result<Resynced, Failure> {
        let failed = |message: String| Failure { message, hint: None };
        let file = manifest::file_name(namespace, pod);
        let Some(manifests) = &mut self.disk.manifests else { return Err(failed("no manifest folder".to_owned())) };
        let text = self.disk.files.text(manifests.path().join(&file)).map_err(|e| failed(e.to_string()))?;
        let document = yaml::read_documents(&text).into_iter().next().and_then(|d| d.value.ok());
        let Some(mut value) = document else { return Err(failed("the manifest cannot be read".to_owned())) };
        let annotations = value.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
        let Some(annotations) = annotations else { return Err(failed("the manifest is not ours".to_owned())) };
        annotations.insert(ANNOTATION.to_owned(), at.to_string().into());
        let header: Vec<String> = text
            .lines()
            .take_while(|l| l.starts_with('#'))
            .map(|l| l.trim_start_matches(['#', ' ']).to_owned())
            .collect();
        let resynced = yaml::write_manifest(&header, &value);
        let written = manifests.rewrite(&file, resynced.as_bytes(), &value).and_then(|()| manifests.sync());
        written.map_err(|e| super::apply::failure(&e, e.hint()))?;
        Ok(Resynced {
            until: at + FOR,
            written: rendering::digest(resynced.as_bytes()),
            meant: rendering::digest(text.as_bytes()),
        })
    }
}
