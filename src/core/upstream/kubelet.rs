//! The kubelet's words.

/// Reasons of warnings about pods that the kubelet has accepted. Any other warning about a pod of which nothing runs
/// is the reason why it was rejected (`rejectPod`, reasons of admission handlers).
const WORKS_ON: [&str; 20] = [
    "BackOff",
    "DNSConfigForming",
    "ErrImageNeverPull",
    "Failed",
    "FailedAttachVolume",
    "FailedCreatePodContainer",
    "FailedCreatePodSandBox",
    "FailedMapVolume",
    "FailedMount",
    "FailedPodSandBoxStatus",
    "FailedPostStartHook",
    "FailedSync",
    "FailedToRetrieveImagePullSecret",
    "InspectFailed",
    "InvalidDiskCapacity",
    "MissingClusterDNS",
    "NetworkNotReady",
    "ProbeWarning",
    "Unhealthy",
    "FailedMountOnFilesystemMismatch",
];

/// Whether a warning with this reason is about a pod that it has accepted (`pkg/kubelet/events/event.go`).
pub fn works_on(reason: &str) -> bool {
    WORKS_ON.contains(&reason)
}

/// Whether a rejection with this reason says that the node has too little of something, and nothing to preempt
/// (`pkg/kubelet/lifecycle/predicate.go`: `InsufficientResourceError`, `NodePorts`; `UnexpectedAdmissionErrorType` when
/// `pkg/kubelet/preemption` finds no pods).
pub fn has_no_room(reason: &str) -> bool {
    reason.starts_with("OutOf") || ["NodePorts", "UnexpectedAdmissionError"].contains(&reason)
}

/// Why it rejected a pod; without the words that `rejectPod` puts before each message.
pub fn rejection(reason: &str, message: &str) -> String {
    let message = message.trim_start_matches("Pod was rejected: ");
    if message.is_empty() { reason.to_owned() } else { format!("{reason}: {message}") }
}

/// Whether a graceful node shutdown ended a pod or kept it from starting (`nodeshutdown_manager.go`).
pub fn ended_by_shutdown(reason: &str, message: &str) -> bool {
    reason == "NodeShutdown" || (reason == "Terminated" && message.contains("node shutdown"))
}

/// Whether the message of the Node's condition Ready says that the node shuts down (`nodeshutdown.ShutdownStatus`).
pub fn shuts_down(message: &str) -> bool {
    message.contains("node is shutting down")
}
