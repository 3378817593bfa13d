//! What an agent says of its node.

use std::sync::Arc;

use daemonlet::core::cluster::snapshot::WatchedKind;
use daemonlet::core::model::ObjectKey;
use daemonlet::core::time::Timestamp;
use serde_json::Value;
use serde_json::json;

use crate::KEY;
use crate::api::Api;

use super::Ailment;
use super::Node;
use super::Running;

impl Node {
    /// It writes its status, where that is served, and reads what is approved.
    pub(super) fn report(&mut self, api: &mut Api, now: Timestamp, reads: bool) {
        if reads && api.serves(WatchedKind::NodeDaemons) {
            let key = ObjectKey::new("", &self.name);
            let is_ours = self.is_ours();
            let fact = |(one, ending): (&Running, bool)| (one.hash.clone(), one.created, one.ready, ending);
            let running = self.instances().into_iter().map(fact).collect();
            let staged = self.staged.as_ref().map(|(hash, _)| hash.clone());
            let marks = [self.replacing.clone(), self.failed.clone(), self.previous.clone(), staged, self.missing()];
            let inputs = Some((is_ours, running, marks));
            match api.shared(WatchedKind::NodeDaemons, &key) {
                // Nothing else writes its status.
                Some(live) if inputs == self.reported => self.read = Arc::clone(live),
                _ => {
                    let patch = json!({"status": self.status(is_ours)});
                    let written = api.patch(WatchedKind::NodeDaemons, &key, &patch).ok();
                    self.reported = inputs.filter(|_| written.is_some());
                    self.read = written.unwrap_or_default();
                }
            }
            self.note_reported(Some(now));
        }
    }

    /// The wanted revision, where it lacks something, and no rollout of it is stopped.
    fn missing(&self) -> Option<String> {
        let daemon = self.daemon.as_ref().filter(|daemon| !daemon.is_paused && daemon.status.halted.is_none())?;
        let is_old = self.running.as_ref().is_some_and(|running| running.hash != daemon.hash);
        (is_old && self.ailment(&daemon.hash) == Some(Ailment::Lacks)).then(|| daemon.hash.clone())
    }

    pub(super) fn status(&self, is_ours: bool) -> Value {
        if !is_ours {
            return json!({"agentVersion": "1", "daemons": []});
        }
        let instances: Vec<Value> = self
            .instances()
            .into_iter()
            .map(|(running, is_ending)| {
                json!({"pod": "p", "revision": running.hash, "created": (running.created + self.clock).to_string(),
                    "readySince": running.ready.map(|ready| (ready + self.clock).to_string()), "ending": is_ending})
            })
            .collect();
        let failed =
            self.failed.as_ref().map(|revision| json!({"revision": revision, "cause": "not ready", "message": "m"}));
        let missing =
            self.missing().map(|revision| json!({"revision": revision, "message": "ConfigMap kube-system/net"}));
        json!({"agentVersion": "1", "daemons": [{"namespace": KEY.0, "name": KEY.1, "uid": "u", "mode": "static",
            "phase": "running", "instances": instances, "replacing": self.replacing, "failed": failed, "missing": missing, "staged": self.staged.as_ref().map(|(hash, _)| hash),
            "previous": self.previous}]})
    }
}
