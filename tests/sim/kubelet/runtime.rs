//! The container runtime that the kubelet uses, as it answers the agent.

use std::collections::BTreeMap;

use prost::Message;

use crate::moves::Blur;

use super::Kubelet;
use super::Phase;
use super::Pod;
use super::RuntimeState;
use super::STARTS;

/// The runtime's messages, as far as they are answered with something.
mod messages {
    use std::collections::BTreeMap;

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Metadata {
        #[prost(string, tag = "1")]
        pub name: String,
        #[prost(string, tag = "2")]
        pub uid: String,
        #[prost(string, tag = "3")]
        pub namespace: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Sandbox {
        #[prost(string, tag = "1")]
        pub id: String,
        #[prost(message, optional, tag = "2")]
        pub metadata: Option<Metadata>,
        #[prost(int32, tag = "3")]
        pub state: i32,
        #[prost(int64, tag = "4")]
        pub created_at: i64,
        #[prost(btree_map = "string, string", tag = "6")]
        pub annotations: BTreeMap<String, String>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Sandboxes {
        #[prost(message, repeated, tag = "1")]
        pub items: Vec<Sandbox>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Name {
        #[prost(string, tag = "1")]
        pub name: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Container {
        #[prost(string, tag = "1")]
        pub id: String,
        #[prost(string, tag = "2")]
        pub sandbox: String,
        #[prost(message, optional, tag = "3")]
        pub metadata: Option<Name>,
        #[prost(string, tag = "5")]
        pub image_ref: String,
        #[prost(int32, tag = "6")]
        pub state: i32,
        #[prost(int64, tag = "7")]
        pub created_at: i64,
        #[prost(btree_map = "string, string", tag = "8")]
        pub labels: BTreeMap<String, String>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Containers {
        #[prost(message, repeated, tag = "1")]
        pub items: Vec<Container>,
    }

    /// SandboxIdRequest.
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Id {
        #[prost(string, tag = "1")]
        pub id: String,
    }
}

impl Kubelet {
    /// The machine has booted: the kubelet's runtime answers again.
    pub(crate) fn forget_foreign(&mut self) {
        if self.runtime == RuntimeState::Foreign {
            self.runtime = RuntimeState::Answers;
        }
    }

    /// What the runtime answers, when the wall clock shows `wall`; `None`: it does not know the method.
    pub(crate) fn answer(&mut self, method: &str, request: &[u8], (now, wall): (i64, i64)) -> Option<Vec<u8>> {
        let is_foreign = self.runtime == RuntimeState::Foreign;
        let pods = || self.pods.values().filter(|_| !is_foreign);
        let blur = |pod: &Pod| self.blurred.get(&pod.manifest.daemon).copied();
        let nanos = |millis: i64| millis * 1_000_000;
        match method {
            "ListPodSandbox" => {
                let sandbox = |pod: &Pod| messages::Sandbox {
                    id: format!("s-{}", pod.manifest.uid),
                    metadata: Some(messages::Metadata {
                        name: pod.manifest.name.clone(),
                        uid: pod.manifest.uid.clone(),
                        namespace: pod.manifest.namespace.clone(),
                    }),
                    state: i32::from(
                        pod.phase == Phase::Gone || matches!(blur(pod), Some(Blur::SandboxNotReady | Blur::Both)),
                    ),
                    created_at: nanos(pod.made),
                    annotations: pod.manifest.annotations(),
                };
                let occupant = |name: String| messages::Sandbox {
                    id: format!("s-{name}"),
                    metadata: Some(messages::Metadata {
                        name: name.clone(),
                        uid: name,
                        namespace: "guests".to_owned(),
                    }),
                    ..messages::Sandbox::default()
                };
                let of_api = self.api_pods.iter().filter(|_| !is_foreign).map(|(uid, pod)| messages::Sandbox {
                    id: format!("s-{uid}"),
                    metadata: Some(messages::Metadata {
                        name: pod.name.clone(),
                        uid: uid.clone(),
                        namespace: "kube-system".to_owned(),
                    }),
                    created_at: nanos(pod.made),
                    ..messages::Sandbox::default()
                });
                let occupants = self.room.sandboxes().filter(|_| !is_foreign).map(occupant);
                Some(
                    messages::Sandboxes { items: pods().map(sandbox).chain(occupants).chain(of_api).collect() }
                        .encode_to_vec(),
                )
            }
            "ListContainers" => {
                let container = |pod: &Pod| messages::Container {
                    id: format!("c-{}", pod.manifest.uid),
                    sandbox: format!("s-{}", pod.manifest.uid),
                    metadata: Some(messages::Name { name: "main".to_owned() }),
                    image_ref: "img".to_owned(),
                    state: match pod.phase {
                        Phase::Running { .. } | Phase::Ending { .. } | Phase::Starting { .. }
                            if matches!(blur(pod), Some(Blur::UnknownContainer | Blur::Both)) =>
                        {
                            3
                        }
                        Phase::Starting { .. } if pod.manifest.is_bad && pod.restarts > 0 => 2,
                        Phase::Starting { .. } => 0,
                        Phase::Running { .. } | Phase::Ending { .. } => 1,
                        Phase::Gone => 2,
                    },
                    created_at: nanos(pod.made),
                    labels: BTreeMap::from([("io.kubernetes.pod.uid".to_owned(), pod.manifest.uid.clone())]),
                };
                let runs = self.api_pods.iter().filter(|(_, pod)| !is_foreign && pod.until.is_none());
                let of_api = runs.map(|(uid, pod)| messages::Container {
                    id: format!("c-{uid}"),
                    sandbox: format!("s-{uid}"),
                    metadata: Some(messages::Name { name: "main".to_owned() }),
                    image_ref: "img".to_owned(),
                    state: 1,
                    created_at: nanos(pod.made),
                    labels: BTreeMap::from([("io.kubernetes.pod.uid".to_owned(), uid.clone())]),
                });
                let items = pods().filter(|pod| !pod.is_held).map(container).chain(of_api).collect();
                Some(messages::Containers { items }.encode_to_vec())
            }
            "StopPodSandbox" | "RemovePodSandbox" => {
                let id = messages::Id::decode(request).ok()?.id;
                let uid = id.strip_prefix("s-")?.to_owned();
                if let Some(pod) = self.pods.get_mut(&uid) {
                    (pod.phase, pod.made) = match self.taken.contains_key(&uid) && self.runs {
                        true => (Phase::Starting { until: now + STARTS }, wall),
                        false => (Phase::Gone, pod.made),
                    };
                }
                Some(Vec::new())
            }
            "Status" => Some(runtime_status()),
            // Every image is there.
            "ImageStatus" => Some(image_status()),
            _ => None,
        }
    }
}

/// StatusResponse: the runtime and the pod network are ready.
fn runtime_status() -> Vec<u8> {
    #[derive(Clone, PartialEq, prost::Message)]
    struct Condition {
        #[prost(string, tag = "1")]
        kind: String,
        #[prost(bool, tag = "2")]
        status: bool,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    struct Conditions {
        #[prost(message, repeated, tag = "1")]
        conditions: Vec<Condition>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    struct Status {
        #[prost(message, optional, tag = "1")]
        status: Option<Conditions>,
    }
    let conditions = ["RuntimeReady", "NetworkReady"].map(|kind| Condition { kind: kind.to_owned(), status: true });
    Status { status: Some(Conditions { conditions: conditions.to_vec() }) }.encode_to_vec()
}

/// ImageStatusResponse { image { id: "img", pinned: true } }.
fn image_status() -> Vec<u8> {
    #[derive(Clone, PartialEq, prost::Message)]
    struct Image {
        #[prost(string, tag = "1")]
        id: String,
        #[prost(bool, tag = "8")]
        pinned: bool,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    struct Status {
        #[prost(message, optional, tag = "1")]
        image: Option<Image>,
    }
    Status { image: Some(Image { id: "img".to_owned(), pinned: true }) }.encode_to_vec()
}
