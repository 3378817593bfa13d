//! Why the scheduler does not bind a pod. It says so in the message of a condition and in nothing else.
//!
//! Owns the scheduler's texts. Must not decide what follows.

/// What of the filter plugins' reasons may end when another pod leaves the node (`pkg/scheduler/framework/plugins`:
/// `nodeports.ErrReason`; `Too many pods` of `noderesources.fitsRequest`; `ErrReasonExistingAntiAffinityRulesNotMatch`,
/// `ErrReasonAntiAffinityRulesNotMatch` of `interpodaffinity`; `volumerestrictions.ErrReasonDiskConflict`).
const OF_OTHER_PODS: [&str; 5] = [
    "node(s) didn't have free ports for the requested pod ports",
    "Too many pods",
    "node(s) didn't satisfy existing pods anti-affinity rules",
    "node(s) didn't match pod anti-affinity rules",
    "node(s) had no available disk",
];

/// What is said of nodes that a pod with a node affinity is not for (`pkg/scheduler/schedule_one.go`:
/// `SetAbsentNodesStatus`; `nodeaffinity.ErrReasonPod`).
const OF_OTHER_NODES: [&str; 2] =
    ["node(s) didn't satisfy plugin(s) [", "node(s) didn't match Pod's node affinity/selector"];

/// Whether a pod that may run on one node alone may become schedulable when another pod leaves that node; `message`: of its
/// condition `PodScheduled` (`framework.FitError`: each reason with the number of nodes that have it, then what preemption
/// says). `offers`: whether the node has any of a resource. A message that is not understood says no.
///
/// The scheduler names what the first plugin finds that refuses the node: others may refuse it after that.
pub fn may_fit_without_another(message: &str, offers: impl Fn(&str) -> bool) -> bool {
    let reasons = message.split_once(" nodes are available: ").and_then(|(_, reasons)| {
        let (first, _) = reasons.split_once(". ").or_else(|| Some((reasons.strip_suffix('.')?, "")))?;
        first.split(", ").map(|counted| counted.split_once(' ').map(|(_, reason)| reason)).collect::<Option<Vec<_>>>()
    });
    let of_this_node = |reason: &&str| !OF_OTHER_NODES.iter().any(|of_others| reason.starts_with(of_others));
    let cures = |reason: &str| match reason.strip_prefix("Insufficient ") {
        Some(resource) => offers(resource),
        None => OF_OTHER_PODS.contains(&reason),
    };
    let reasons: Vec<&str> = reasons.into_iter().flatten().filter(of_this_node).collect();
    !reasons.is_empty() && reasons.into_iter().all(cures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_may_fit_when_another_leaves_only_where_others_are_all_that_is_in_its_way() {
        let offers = |resource: &str| ["cpu", "memory", "example.com/dongle"].contains(&resource);
        let preemption = "preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, \
                          2 Preemption is not helpful for scheduling.";
        let ports = "1 node(s) didn't have free ports for the requested pod ports";
        let others = "2 node(s) didn't satisfy plugin(s) [NodeAffinity]";
        for (reasons, expected) in [
            (ports.to_owned(), true),
            (format!("{ports}, {others}"), true),
            (format!("{ports}, 2 node(s) didn't match Pod's node affinity/selector"), true),
            ("1 Insufficient cpu, 1 Insufficient memory, 1 Too many pods".to_owned(), true),
            (format!("1 Insufficient example.com/dongle, {others}"), true),
            ("1 node(s) didn't match pod anti-affinity rules".to_owned(), true),
            ("1 node(s) didn't satisfy existing pods anti-affinity rules".to_owned(), true),
            (format!("1 Insufficient example.com/nic, {others}"), false),
            ("1 Insufficient cpu, 1 Insufficient example.com/nic".to_owned(), false),
            (format!("1 node(s) didn't match pod affinity rules, {others}"), false),
            ("1 node(s) had untolerated taint {a: b}".to_owned(), false),
            (format!("{ports}, 1 node(s) were unschedulable"), false),
            ("3 node(s) didn't satisfy plugin(s) [NodeAffinity]".to_owned(), false),
            ("node(s) didn't satisfy plugin(s) [NodeAffinity VolumeBinding] simultaneously".to_owned(), false),
            ("persistentvolumeclaim \"a\" not found".to_owned(), false),
        ] {
            for rest in [String::new(), format!(" {preemption}")] {
                let message = format!("0/3 nodes are available: {reasons}.{rest}");
                assert_eq!(may_fit_without_another(&message, offers), expected, "{message}");
            }
        }
        for message in ["", "no nodes available to schedule pods", &format!("0/3 nodes are available: {ports}, 1 nod")]
        {
            assert!(!may_fit_without_another(message, offers), "{message}");
        }
    }
}
