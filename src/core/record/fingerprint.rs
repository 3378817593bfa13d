//! What the kubelet's admission of a pod depends on beside the pod, to tell whether it has changed.
//!
//! Owns the form alone. Fingerprints are compared, and never read for more than their source.

use serde::Deserialize;
use serde::Deserializer;
use serde::Serialize;
use serde_json::Value;

/// Other pods and the Node, as they were at some time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Fingerprint {
    /// They are not known.
    #[default]
    Unknown,
    /// By the pods that the API server shows, the node has too little for it: the names of resources and host ports.
    Lacks(Vec<String>),
    /// A digest of the pods and of the Node that the API server shows.
    OfApi(u64),
    /// A digest of the runtime's sandboxes.
    OfRuntime(u64),
}

impl Fingerprint {
    /// Reads one; a fingerprint that another version of the agent has stored is unknown.
    ///
    /// # Errors
    /// There is no value.
    pub fn or_unknown<'de, D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        Ok(Self::deserialize(Value::deserialize(reader)?).unwrap_or_default())
    }

    /// Whether the node had too little of something for the pod.
    pub fn is_lack(&self) -> bool {
        matches!(self, Self::Lacks(_))
    }

    /// Whether the runtime is its source.
    pub fn is_of_runtime(&self) -> bool {
        matches!(self, Self::OfRuntime(_))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::core::model::ObjectKey;
    use crate::core::record::DaemonRecord;
    use crate::core::record::Instance;
    use crate::core::record::RestartCause;
    use crate::core::time::at;

    use super::*;

    #[test]
    fn a_record_of_another_version_keeps_its_instances() {
        let mut record = DaemonRecord::new(ObjectKey::new("a", "b"), 0);
        record.instances = vec![Instance::new("u", "p", 0, "r", at(0))];
        let cause = RestartCause::NotAccepted { reason: "OutOfcpu".to_owned() };
        let lacks = Fingerprint::Lacks(vec!["cpu".to_owned()]);
        record.order_restart("u", cause, at(1), &lacks);
        let stored = serde_json::to_value(&record).unwrap();
        assert_eq!(serde_json::from_value::<DaemonRecord>(stored.clone()).unwrap(), record);
        for other in [json!("lacks cpu"), json!(""), json!({"ofMoon": 1}), json!({"ofApi": "x"}), json!(7), json!(null)]
        {
            let mut older = stored.clone();
            older["backoff"]["surroundings"] = other;
            let read: DaemonRecord = serde_json::from_value(older).unwrap();
            assert_eq!(read.instances, record.instances);
            assert_eq!(read.backoff.unwrap().surroundings, Fingerprint::Unknown);
        }
        let mut older = stored;
        older["backoff"].as_object_mut().unwrap().remove("surroundings");
        assert_eq!(serde_json::from_value::<DaemonRecord>(older).unwrap().instances, record.instances);
    }
}
