//! Which news of this node a rollout or a reader waits for.
//!
//! Owns the difference between this news and minor news: that an
//! instance has been written, is waited for, or was ended by the replacement that has been claimed.

use crate::core::cluster::node_daemons::DaemonReport;
use crate::core::cluster::node_daemons::Status;
use crate::core::status::State;

/// Whether `wanted` has news that a rollout or a reader waits for and that `live` does not have.
pub(super) fn matters(wanted: &Status, live: &Status) -> bool {
    let gone = live.daemons.iter().any(|l| !wanted.daemons.iter().any(|d| d.is_of(l)));
    let nothing = DaemonReport::default();
    gone || wanted.daemons.iter().any(|d| {
        let before = live.daemons.iter().find(|l| d.is_of(l)).unwrap_or(&nothing);
        // Until the new instance is ready, or the old one stays, the claim has all that a rollout needs.
        let starts = !d.instances.iter().any(|i| i.ready_since.is_some());
        let replaces = before.replacing.is_some() && (d.replacing == before.replacing || starts);
        d.replacing != before.replacing && !(replaces && d.replacing.is_none())
            || d.overlays != before.overlays
            || d.staged != before.staged
            || d.failed != before.failed
            || d.stock_pod != before.stock_pod
            || is_bad(d) != is_bad(before)
            || became_ready(d, before)
            || !replaces && (became_ready(before, d) || has_lost(d, before))
    })
}

fn is_bad(daemon: &DaemonReport) -> bool {
    daemon.phase.is_some_and(State::is_bad)
}

/// Whether an instance is ready, and was not.
fn became_ready(now: &DaemonReport, before: &DaemonReport) -> bool {
    let ready = |of: &DaemonReport, pod: &str| {
        of.instances.iter().any(|i| i.pod == pod && i.ready_since.is_some() && !i.ending)
    };
    now.instances.iter().any(|i| ready(now, &i.pod) && !ready(before, &i.pod))
}

/// Whether an instance has gone.
fn has_lost(now: &DaemonReport, before: &DaemonReport) -> bool {
    before.instances.iter().any(|b| !now.instances.iter().any(|i| i.pod == b.pod))
}

#[cfg(test)]
mod tests {
    use crate::core::cluster::node_daemons::InstanceReport;

    use super::*;

    fn instance(pod: &str, ready: bool) -> InstanceReport {
        let ready_since = ready.then(|| "2026-01-01T00:00:00Z".to_owned());
        InstanceReport { pod: pod.to_owned(), revision: "r".to_owned(), ready_since, ..InstanceReport::default() }
    }

    fn status(replacing: Option<&str>, instances: Vec<InstanceReport>) -> Status {
        let daemon = DaemonReport {
            name: "net".to_owned(),
            phase: Some(State::Starting),
            replacing: replacing.map(str::to_owned),
            instances,
            ..DaemonReport::default()
        };
        Status { daemons: vec![daemon], ..Status::default() }
    }

    #[test]
    fn a_first_installation_is_reported_when_it_is_ready() {
        let nothing = Status::default();
        let written = status(None, vec![instance("a", false)]);
        assert!(!matters(&status(None, Vec::new()), &nothing), "it waits");
        assert!(!matters(&written, &nothing));
        let ready = status(None, vec![instance("a", true)]);
        assert!(matters(&ready, &written) && matters(&ready, &nothing));
        assert!(!matters(&ready, &ready));
    }

    #[test]
    fn a_lost_instance_is_reported_at_once_unless_the_claim_implies_it() {
        let (ready, broken) = (|r| status(r, vec![instance("a", true)]), |r| status(r, vec![instance("a", false)]));
        assert!(matters(&broken(None), &ready(None)));
        assert!(matters(&status(None, Vec::new()), &ready(None)));
        assert!(matters(&Status::default(), &ready(None)), "the daemon is gone");
        assert!(matters(&ready(Some("s")), &ready(None)), "a claim");
        assert!(!matters(&broken(Some("s")), &ready(Some("s"))));
        assert!(!matters(&status(Some("s"), vec![instance("b", false)]), &ready(Some("s"))));
        assert!(matters(&status(Some("s"), vec![instance("b", true)]), &ready(Some("s"))));
        assert!(matters(&ready(None), &ready(Some("s"))), "the claim is given back");
        assert!(!matters(&status(None, vec![instance("b", false)]), &ready(Some("s"))), "the new one starts");
        assert!(matters(&status(None, vec![instance("b", true)]), &ready(Some("s"))));
        assert!(matters(&broken(Some("t")), &ready(Some("s"))), "another claim");
    }

    #[test]
    fn trouble_is_reported_at_once() {
        let before = status(Some("s"), vec![instance("a", false)]);
        let mut bad = before.clone();
        bad.daemons[0].phase = Some(State::Failing);
        assert!(matters(&bad, &before) && matters(&before, &bad));
        let mut failed = before.clone();
        failed.daemons[0].failed = Some(Default::default());
        assert!(matters(&failed, &before));
        let mut stock = before.clone();
        stock.daemons[0].stock_pod = Some("x".to_owned());
        assert!(matters(&stock, &before));
        let mut words = before.clone();
        words.daemons[0].message = "pulling".to_owned();
        assert!(!matters(&words, &before));
    }
}
