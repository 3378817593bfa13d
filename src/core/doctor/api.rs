//! The API server: reachable, the rights that the agent needs, its clock, and no DaemonSet controller at work.
//!
//! Owns the finding for each answer. Must not ask: the answers are given to it.

use serde_json::Value;

use crate::core::cluster::overview::Leader;
use crate::core::dry_run::GRANT;
use crate::core::model::Mode;
use crate::core::model::STARTING_TAINT;
use crate::core::node_conditions;
use crate::core::startup_taint;
use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::Finding;
use super::policies;
use super::policies::PolicyProbeResult;
use super::stock;

mod rights;

pub use rights::Right;
pub use rights::right_to_conditions;
pub use rights::right_to_taint;
pub use rights::rights;
pub use rights::rights_of;
pub use rights::rights_to_ask;

/// How many rights are checked for DaemonSets in namespaces that are not trusted: each is a request.
pub const MOST_RIGHTS: usize = 512;
/// How many DaemonSets are named in one finding.
const NAMED: usize = 20;
/// A larger difference between the clocks is a warning; the server's `Date` is exact to one second.
const CLOCK_WARN: Span = Span::from_secs(5);
/// With a larger difference, certificates and tokens are not valid yet, or no longer.
const CLOCK_BAD: Span = Span::from_secs(30);

/// What was found of the API server.
#[derive(Clone, Debug)]
pub enum ApiFacts {
    /// No API server is configured.
    NotConfigured,
    /// It does not answer, or refuses our credentials.
    Unreachable {
        why: String,
        cause: UnreachableCause,
        /// Whether the kubeconfig is the one that `daemonlet enroll` wrote.
        is_enrolled: bool,
    },
    Answers(Box<Answers>),
}

/// Why there is no answer of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnreachableCause {
    /// It does not answer.
    Silent,
    /// It answered but does not accept our credentials.
    Unauthorized,
    /// It was not asked: the kubeconfig cannot be used.
    Kubeconfig,
}

/// What the API server answered.
#[derive(Clone, Debug)]
pub struct Answers {
    /// Its host and port, and its version.
    pub server: String,
    /// Whether pods can get its address: `api-endpoint` is set, or the kubeconfig's server has no path.
    pub has_address_for_pods: bool,
    /// By how much its clock is ahead of ours; `None`: it sent no time.
    pub ahead: Option<Span>,
    /// Whether the Node is registered; `None`: unknown.
    pub registered: Option<bool>,
    /// Whether paths of the host are granted, and the Node does not say that its runtime makes all that is mounted below them
    /// read only, too.
    pub is_writable_below: bool,
    /// Whether the cluster has NodeDaemons, or why that is unknown.
    pub crd: Result<bool, String>,
    /// Who coordinates, and the time; `None`: the cluster has no NodeDaemons.
    pub coordinator: Option<(Leader, Timestamp)>,
    pub denied: Vec<Right>,
    /// How many rights were checked.
    pub asked: usize,
    /// Why they could not be checked, if so.
    pub unasked: Option<String>,
    /// How many DaemonSets need rights that were not checked ([`MOST_RIGHTS`]).
    pub left_out: usize,
    /// Why not all DaemonSets could be listed, if so: the rights that the others need were not checked.
    pub unlisted: Option<String>,
    /// DaemonSets that run in place of the DaemonSet controller ([`stock::part_examined`]), with their pods on this node that are
    /// not mirror pods.
    pub daemons: Vec<(Value, Mode, Vec<String>)>,
    /// DaemonSets of the DaemonSet controller that get no pod while this node waits for its daemons; `None`: it never
    /// waits, or they could not be listed.
    pub intolerant: Option<Vec<String>>,
    /// The results of the writes that the admission policies have to refuse.
    pub probes: Vec<(&'static str, PolicyProbeResult)>,
    /// The address of the Service `kubernetes`, and whether it answers from here; `None`: not checked.
    pub service: Option<(String, Result<(), String>)>,
}

/// All checks of the API.
pub fn examine(facts: &ApiFacts, node: &str) -> Vec<Finding> {
    const CHECK: &str = "API server";
    let answers = match facts {
        ApiFacts::NotConfigured => {
            return vec![Finding::ok(CHECK, "none is configured: DaemonSets come from folders alone")];
        }
        ApiFacts::Unreachable { why, cause, is_enrolled } => {
            let hint = match cause {
                UnreachableCause::Silent if *is_enrolled => {
                    "daemons in the checkpoint keep running; `daemonlet enroll` corrects the kubeconfig if the kubelet's names \
                     another server or certificate authority"
                }
                UnreachableCause::Unauthorized if *is_enrolled => {
                    "`daemonlet enroll --force` asks the cluster for another certificate"
                }
                UnreachableCause::Silent => {
                    "daemons in the checkpoint keep running; compare the kubeconfig's server with the kubelet's"
                }
                UnreachableCause::Unauthorized => "give the agent credentials that the API server accepts",
                UnreachableCause::Kubeconfig => "correct it: the agent reads it again by itself",
            };
            return vec![Finding::bad(CHECK, why.clone(), hint)];
        }
        ApiFacts::Answers(answers) => answers,
    };
    let mut findings = vec![Finding::ok(CHECK, format!("{} answers", answers.server))];
    if !answers.has_address_for_pods {
        let reason = "the kubeconfig's server is a path of its host, which KUBERNETES_SERVICE_HOST cannot say: pods with \
                      hostNetwork that need the API wait";
        let hint = "set api-endpoint to an address that serves the API without a path, as HOST:PORT";
        findings.push(Finding::warn("address for pods", reason, hint));
    }
    findings.push(clock(answers.ahead));
    findings.push(match answers.registered {
        Some(true) => Finding::ok("Node", format!("{node} is registered")),
        Some(false) => Finding::warn(
            "Node",
            format!(
                "{node} is not registered: ServiceAccount tokens, which are bound to the Node, cannot be requested"
            ),
            "check the kubelet's log, and whether node-name is right",
        ),
        None => Finding::warn("Node", format!("{node} could not be read"), "see the rights below"),
    });
    if answers.is_writable_below {
        let reason = "file systems that are mounted below the granted host-paths are writable: this node's container runtime has \
                      no mounts that are read only throughout";
        let hint = "grant no path with mounts below it, or use containerd 2.0 or CRI-O 1.30";
        findings.push(Finding::warn("policy", reason, hint));
    }
    findings.extend(denied(answers));
    findings.extend(policies::examine(&answers.probes));
    findings.push(crd(&answers.crd));
    findings.extend(answers.coordinator.as_ref().map(|(leader, now)| coordinator(leader, *now)));
    findings.extend(stock::examine(&answers.daemons));
    findings.extend(answers.intolerant.as_deref().map(intolerant));
    if let Some((address, answer)) = &answers.service {
        findings.push(service(address, answer));
    }
    findings
}

fn clock(ahead: Option<Span>) -> Finding {
    const CHECK: &str = "clock";
    let Some(ahead) = ahead else {
        return Finding::warn(CHECK, "the API server sends no time", "compare it by hand");
    };
    let (off, side) = (ahead.abs(), if ahead > Span::ZERO { "behind" } else { "ahead of" });
    let text = match (off + Span::from_millis(500)).as_secs() {
        0..2 => "the same as the API server's".to_owned(),
        seconds => format!("{seconds} s {side} the API server's"),
    };
    let hint = "set it: `timedatectl set-ntp true`";
    match off {
        _ if off >= CLOCK_BAD => Finding::bad(CHECK, text, hint),
        _ if off >= CLOCK_WARN => Finding::warn(CHECK, text, hint),
        _ => Finding::ok(CHECK, text),
    }
}

fn denied(answers: &Answers) -> Vec<Finding> {
    const CHECK: &str = "rights";
    if let Some(why) = &answers.unasked {
        return vec![Finding::warn(
            CHECK,
            format!("could not be checked: {why}"),
            "compare them with /usr/share/daemonlet/k8s/rbac.yaml",
        )];
    }
    let left_out = (answers.left_out > 0).then(|| {
        let number = answers.left_out;
        let text = format!(
            "those of {number} DaemonSets that run here are not checked: no more than {MOST_RIGHTS} are of namespaces that are not \
             trusted, and none of a DaemonSet that is too large"
        );
        Finding::warn(CHECK, text, "see `daemonlet status`: it names what the agent may not read")
    });
    let unlisted = answers.unlisted.as_ref().map(|why| {
        let text =
            format!("those of the DaemonSets that run here are not all checked: they could not be listed: {why}");
        Finding::warn(CHECK, text, "run `daemonlet doctor` again")
    });
    let unchecked = left_out.into_iter().chain(unlisted);
    if answers.denied.is_empty() {
        let granted = Finding::ok(CHECK, format!("all {} required rights are granted", answers.asked));
        let unchecked: Vec<Finding> = unchecked.collect();
        return if unchecked.is_empty() { vec![granted] } else { unchecked };
    }
    // One line for the verbs of one resource.
    let mut lines: Vec<(Right, Vec<&str>)> = Vec::new();
    for right in &answers.denied {
        let same = |other: &Right| Right { verb: String::new(), ..other.clone() };
        match lines.iter_mut().find(|(first, _)| same(first) == same(right)) {
            Some((_, verbs)) => verbs.push(&right.verb),
            None => lines.push((right.clone(), vec![&right.verb])),
        }
    }
    let finding = |(right, verbs): (Right, Vec<&str>)| {
        let is_packaged = right.namespace == "default" || right.resource == "leases";
        let by_name = !right.namespace.is_empty() && !is_packaged;
        let to_ask = right.verb == "create" && right.resource == "pods";
        let hint = match by_name {
            _ if to_ask => GRANT.to_owned(),
            _ if right == right_to_taint() => startup_taint::GRANT.to_owned(),
            _ if right == right_to_conditions() => node_conditions::GRANT.to_owned(),
            true => format!(
                "kubectl get daemonsets -n {} -o yaml | daemonlet generate rbac -f - | kubectl apply -f -",
                right.namespace
            ),
            false => "kubectl apply -f /usr/share/daemonlet/k8s/rbac.yaml (packaging/k8s in the repository); it \
                      binds the group daemonlet:nodes, any other user needs a binding"
                .to_owned(),
        };
        let right = Right { verb: verbs.join(", "), ..right };
        Finding::bad(CHECK, format!("may not {right}"), hint)
    };
    lines.into_iter().map(finding).chain(unchecked).collect()
}

fn crd(crd: &Result<bool, String>) -> Finding {
    const CHECK: &str = "NodeDaemons";
    match crd {
        Ok(true) => {
            Finding::ok(CHECK, "the cluster has the resource: replacements wait for the coordinator's approval")
        }
        Ok(false) => Finding::warn(
            CHECK,
            "the cluster does not have the resource: rollouts have no cluster-wide budget",
            "daemonlet generate crd | kubectl apply -f -, and run a coordinator",
        ),
        Err(why) => Finding::warn(CHECK, format!("could not be read: {why}"), "see whether the API server is well"),
    }
}

fn coordinator(leader: &Leader, now: Timestamp) -> Finding {
    const CHECK: &str = "coordinator";
    let hint = "apply coordinator-rbac.yaml and coordinator-deployment.yaml of /usr/share/daemonlet/k8s, or look at the \
                coordinator's log";
    match leader.words(now) {
        (words, false) => Finding::ok(CHECK, words),
        (words, true) => Finding::warn(CHECK, words, hint),
    }
}

/// Which pods of the DaemonSet controller wait as workload does.
fn intolerant(daemon_sets: &[String]) -> Finding {
    const CHECK: &str = "startup taint";
    if daemon_sets.is_empty() {
        return Finding::ok(CHECK, "every DaemonSet of the DaemonSet controller tolerates it");
    }
    let (named, more) = daemon_sets.split_at(daemon_sets.len().min(NAMED));
    let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    let text = format!("pods of these DaemonSets wait as workload does: {}{more}", named.join(", "));
    let hint = format!(
        "if the node's daemons need one of them, give its template a toleration: key {STARTING_TAINT}, operator Exists, \
         effect NoSchedule"
    );
    Finding::warn(CHECK, text, hint)
}

fn service(address: &str, answer: &Result<(), String>) -> Finding {
    const CHECK: &str = "service address";
    match answer {
        Ok(()) => Finding::ok(CHECK, format!("{address} answers from this node")),
        Err(why) => Finding::bad(
            CHECK,
            format!("{address}, where pods look for the API server, does not answer from this node: {why}"),
            "check that kube-proxy or its replacement runs here; daemons with hostNetwork do not need it",
        ),
    }
}
