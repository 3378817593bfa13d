//! Labels of mirror pods: the kubelet never brings a changed label to the API under the same UID.
//!
//! Owns the patch that corrects the labels of revision and generation in place, without a restart.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::json;

use crate::core::identity::template_hash;
use crate::core::json::at;
use crate::core::json::text_at;
use crate::core::model::GENERATION_ANNOTATION;
use crate::core::model::GENERATION_LABEL;
use crate::core::model::HASH_LABEL;
use crate::core::record::DaemonRecord;
use crate::core::record::Instance;

use super::super::evidence;
use super::super::log::Log;
use super::super::observation::Observation;
use super::super::records::Records;
use super::super::requests::Reply;
use super::super::requests::Request;

/// What has been asked for, by mirror pod UID: a patch that was refused is not sent again and again.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(in super::super) struct MirrorLabels(BTreeMap<String, Value>);

impl MirrorLabels {
    /// Reports patches that failed.
    pub(in super::super) fn observe(&mut self, observation: &Observation, records: &Records, log: &mut Log) {
        for reply in &observation.replies {
            if let Reply::MirrorPodNotLabelled { pod, failure } = reply {
                let is_it = |instance: &Instance| {
                    pod.name.strip_prefix(&instance.pod_name).is_some_and(|node| node.starts_with('-'))
                };
                let has_it =
                    |record: &DaemonRecord| record.key.namespace == pod.namespace && record.instances.iter().any(is_it);
                log.warn(format!("labels of mirror pod {pod} are not corrected: {failure}"))
                    .daemonset_of(records, has_it)
                    .pod(&pod.name);
            }
        }
    }

    /// The patches for mirror pods whose labels are not those of their manifests.
    pub(in super::super) fn requests(
        &mut self,
        observation: &Observation,
        records: &Records,
        node: &str,
    ) -> Vec<Request> {
        let Some(api) = observation.snapshot() else { return Vec::new() };
        let mut requests = Vec::new();
        let mut wrong = BTreeMap::new();
        for (record, instance) in records.values().flat_map(|r| r.live().map(move |i| (r, i))) {
            let Some(daemon_set) = &instance.daemon_set else { continue };
            let namespace = &record.key.namespace;
            let Some(pod) = evidence::mirror(api, namespace, instance, node) else { continue };
            let wanted = [
                (HASH_LABEL, Some(template_hash(&instance.revision))),
                (GENERATION_LABEL, daemon_set.annotations.get(GENERATION_ANNOTATION).map(String::as_str)),
            ];
            let labels = at(pod, &["metadata", "labels"]).unwrap_or(&Value::Null);
            let differs = |name: &str, value: &str| labels.get(name).and_then(Value::as_str) != Some(value);
            let patch: serde_json::Map<String, Value> = wanted
                .into_iter()
                .filter_map(|(name, value)| Some((name, value?)))
                .filter(|(name, value)| differs(name, value))
                .map(|(name, value)| (name.to_owned(), json!(value)))
                .collect();
            let Some(uid) = text_at(pod, &["metadata", "uid"]).filter(|_| !patch.is_empty()) else { continue };
            let patch = json!({"metadata": {"uid": uid, "labels": patch}});
            if self.0.get(uid) != Some(&patch) {
                let pod = evidence::mirror_key(namespace, &instance.pod_name, node);
                requests.push(Request::LabelMirrorPod { pod, uid: uid.to_owned(), patch: patch.clone() });
            }
            wrong.insert(uid.to_owned(), patch);
        }
        self.0 = wrong;
        requests
    }
}

#[cfg(test)]
mod tests {
    use crate::node::agent::decide::tests::config;
    use crate::node::agent::decide::tests::key;
    use crate::node::agent::decide::tests::observation;
    use crate::node::agent::decide::tests::shows_mirror;
    use crate::node::agent::decide::tests::state;

    use super::*;

    #[test]
    fn a_wrong_label_is_corrected_once_and_again_when_it_was_right_in_between() {
        let records = state(&config()).records;
        let instance = &records[&key()].instances[0];
        let mut labels = MirrorLabels::default();
        let mut asked = |hash: &str| {
            let pod = json!({"metadata": {"uid": "m", "labels": {HASH_LABEL: hash, "app": "net"}}});
            labels.requests(&observation(Some(shows_mirror(instance, pod))), &records, "n1")
        };
        let pod = evidence::mirror_key(&key().namespace, &instance.pod_name, "n1");
        let patch = json!({"metadata": {"uid": "m", "labels": {HASH_LABEL: instance.revision}}});
        let correction = [Request::LabelMirrorPod { pod, uid: "m".to_owned(), patch }];
        assert_eq!(asked(&instance.revision), []);
        assert_eq!(asked("another"), correction);
        assert_eq!(asked("another"), [], "it was asked for");
        assert_eq!(asked(&instance.revision), []);
        assert_eq!(asked("another"), correction);
    }
}
