//! Sandboxes of instances that have to end and that no kubelet ends.
//!
//! Owns when the agent stops a sandbox itself, and that it is never another's: only UIDs that the
//! records name as ending or ended count. A kubelet that was started without an API server removes nothing
//! until it has heard from one (`deletePod`: "sources aren't ready yet"), and one that sees a manifest go
//! at that time skips the deletion for good. Containers get the pod's grace period; preStop hooks are
//! the kubelet's and do not run.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::core::record::DaemonRecord;
use crate::core::record::Instance;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::node::api::Snapshot;
use crate::node::cri::ContainerState;
use crate::node::cri::Cri;
use crate::node::cri::CriError;
use crate::node::fsx::Shared;

use super::Agent;
use super::evidence;
use super::evidence::Runtime;
use super::now;

/// An instance that is to end and of which no container runs is given so long to the kubelet.
const LEFTOVER: Span = Span::from_secs(1);
/// So long after its grace period an instance still runs only if no kubelet ends it.
const DOUBT: Span = Span::from_secs(10);

/// What has been done about sandboxes.
#[derive(Default)]
pub(super) struct StuckSandboxes {
    /// Sandboxes that were told to stop.
    stopped: BTreeSet<String>,
    /// When the API server was last known to answer.
    api_answered_at: Timestamp,
    api_answered: bool,
}

/// Why a sandbox is not left to the kubelet.
fn verdict(
    instance: &Instance,
    runs: bool,
    waited: Span,
    forgotten: bool,
    kubelet_unsynced: bool,
    api_unreachable: bool,
) -> Option<&'static str> {
    let grace = evidence::grace(instance);
    match () {
        () if waited < LEFTOVER => None,
        () if !runs => Some("none of its containers runs"),
        () if forgotten => Some("the kubelet does not end it"),
        () if kubelet_unsynced => Some("the kubelet ends nothing before it has heard from the API server"),
        () if api_unreachable && waited >= grace + DOUBT => {
            Some("its grace period is over and the kubelet does not end it")
        }
        () => None,
    }
}

impl Agent {
    /// Stops and removes the sandboxes of instances that are to end, where the kubelet does not.
    pub(super) fn stop_stuck_sandboxes(&mut self, snapshot: Option<&Snapshot>) {
        let at = now();
        let answers = snapshot.is_some();
        if answers || self.stuck_sandboxes.api_answered {
            // Up to the moment at which it was found to be away, a kubelet may have heard from it.
            self.stuck_sandboxes.api_answered_at = at;
        }
        self.stuck_sandboxes.api_answered = answers;
        let (Some(cri), Runtime::Pods(pods)) = (&self.cri, &self.runtime) else { return };
        let mut standing = BTreeSet::new();
        let mut kubelet_unsynced = None;
        let api_freshness = self.stuck_sandboxes.api_answered_at.max(self.started);
        for instance in self.disk.records.values().flat_map(DaemonRecord::ending) {
            let waited = at - instance.phase.since().unwrap_or(at);
            for pod in pods.iter().filter(|p| p.uid == instance.uid && !p.sandboxes.is_empty()) {
                let forgotten = evidence::is_forgotten(instance, snapshot, waited);
                let kubelet_unsynced = !answers
                    && *kubelet_unsynced.get_or_insert_with(|| {
                        kubelet_started(&self.disk.files, at).is_some_and(|k| k > api_freshness)
                    });
                let runs = pod.running_since.is_some();
                let Some(why) = verdict(instance, runs, waited, forgotten, kubelet_unsynced, !answers) else {
                    continue;
                };
                let grace = evidence::grace(instance).max(Span::from_secs(1)).to_duration();
                let news = pod.sandboxes.iter().any(|id| !self.stuck_sandboxes.stopped.contains(id));
                standing.extend(pod.sandboxes.iter().cloned());
                if news {
                    tracing::info!(
                        pod = instance.pod_name,
                        "stopping the sandbox of {}: it is to end and {why}",
                        instance.pod_name
                    );
                    stop(cri, &instance.pod_name, &instance.uid, pod.sandboxes.clone(), grace);
                }
            }
        }
        let ended: BTreeSet<&String> = self.disk.records.values().flat_map(|r| r.ended.keys()).collect();
        for pod in pods.iter().filter(|p| ended.contains(&p.uid) && !p.sandboxes.is_empty()) {
            if pod.sandboxes.iter().any(|id| !self.stuck_sandboxes.stopped.contains(id)) {
                tracing::warn!(uid = pod.uid, "stopping a sandbox of an instance that has ended (UID {})", pod.uid);
                stop(cri, &pod.uid, &pod.uid, pod.sandboxes.clone(), Duration::from_secs(1));
            }
            standing.extend(pod.sandboxes.iter().cloned());
        }
        self.stuck_sandboxes.stopped = standing;
    }
}

/// Ends the containers of a pod with their grace period, then its sandboxes.
fn stop(cri: &Arc<Cri>, pod: &str, uid: &str, sandboxes: Vec<String>, grace: Duration) {
    let (cri, pod, uid) = (Arc::clone(cri), pod.to_owned(), uid.to_owned());
    tokio::spawn(async move {
        let stopped: Result<(), CriError> = async {
            let containers = cri.containers(Some(&uid)).await?;
            let running = containers.iter().filter(|c| c.state == ContainerState::Running);
            futures::future::try_join_all(running.map(|c| cri.stop_container(&c.id, grace))).await?;
            for id in &sandboxes {
                cri.stop_sandbox(id).await?;
                cri.remove_sandbox(id).await?;
            }
            Ok(())
        }
        .await;
        if let Err(error) = stopped {
            let failure = super::apply::failure(&error, None);
            tracing::warn!(pod, "the sandbox of {pod} is not stopped: {}", failure.message);
        }
    });
}

/// When the youngest kubelet of this node was started; `None` if there is none to be seen.
fn kubelet_started(files: &Shared, at: Timestamp) -> Option<Timestamp> {
    let booted = at - super::planning::uptime();
    let ticks = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten().filter(|t| *t > 0)?;
    let proc = Path::new("/proc");
    let started = files.list(proc).ok()?.into_iter().filter_map(|process| {
        let stat = files.text(proc.join(process).join("stat")).ok()?;
        Some(booted + Span::from_secs(start_ticks(&stat, "kubelet")?) / ticks)
    });
    started.max()
}

/// The start time of a process of that name (`/proc/<pid>/stat`, field 22), in ticks since boot.
fn start_ticks(stat: &str, name: &str) -> Option<i64> {
    let (head, rest) = stat.rsplit_once(')')?;
    let (_, command) = head.split_once('(')?;
    if command != name {
        return None;
    }
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::time::at;
    use crate::core::time::ms;

    #[test]
    fn a_sandbox_is_left_to_the_kubelet_while_it_may_be_ending_it() {
        let instance = Instance::new("u", "p", 0, "", at(0));
        let grace = ms(30_000);
        let word = |runs, waited, forgotten, kubelet_unsynced, api_unreachable| {
            verdict(&instance, runs, waited, forgotten, kubelet_unsynced, api_unreachable).is_some()
        };
        assert!(!word(false, LEFTOVER - ms(1), false, false, false), "it has only begun");
        assert!(word(false, LEFTOVER, false, false, false), "an empty sandbox");
        assert!(!word(true, grace + DOUBT, false, false, false), "the kubelet hears the API server");
        assert!(word(true, LEFTOVER, false, true, true), "a kubelet that has never heard from it");
        assert!(!word(true, grace + DOUBT - ms(1), false, false, true), "it may be ending it");
        assert!(word(true, grace + DOUBT, false, false, true));
        assert!(word(true, LEFTOVER, true, false, false));
    }

    #[test]
    fn a_process_is_known_by_its_name_whatever_is_in_it() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        assert_eq!(start_ticks(&format!("42 (kubelet) {rest}"), "kubelet"), Some(4_711));
        assert_eq!(start_ticks(&format!("42 (not) kubelet) {rest}"), "kubelet"), None);
        assert_eq!(start_ticks("42 (kubelet", "kubelet"), None);
    }
}
