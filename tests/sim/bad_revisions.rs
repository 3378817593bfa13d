//! Revisions whose container ends at once, and daemons that return from those (`daemonlet.dev/rollback`).
//!
//! Owns which revisions fail, and which was good last. Must not judge.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use super::kubelet::Phase;
use super::node::Heal;
use super::node::Node;

/// After so long a revision that runs is good, in milliseconds: 30 s, and a while in which the agent looks.
const GOOD: i64 = 60_000;
/// How long one that fails may stay: its deadline of 60 s, and a while.
const STAYS: i64 = 60_000 + 150_000;

/// Which revisions fail.
#[derive(Default)]
pub(crate) struct BadRevisions {
    cautious: BTreeSet<usize>,
    bad: BTreeSet<u64>,
    /// Since when each instance runs; which revision of a daemon was good last; and for how long one has failed, in time that
    /// counts.
    since: BTreeMap<String, i64>,
    good: BTreeMap<String, u64>,
    failing: BTreeMap<String, i64>,
    /// Revisions that a daemon has returned from.
    left: BTreeSet<u64>,
}

impl BadRevisions {
    pub(crate) fn new(cautious: &[u8]) -> Self {
        let cautious = cautious.iter().map(|daemon| usize::from(*daemon)).collect();
        Self { cautious, ..Self::default() }
    }

    /// Whether a daemon returns from a revision that fails.
    pub(crate) fn is_cautious(&self, daemon: usize) -> bool {
        self.cautious.contains(&daemon)
    }

    /// What was wanted before is wanted again: each revision may be tried anew.
    pub(crate) fn go_back(&mut self) {
        self.left.clear();
    }

    pub(crate) fn is_bad(&self, revision: u64) -> bool {
        self.bad.contains(&revision)
    }
}

impl Node {
    fn can_apply(&self, daemon: usize) -> bool {
        let is_listed = !self.server.lock().unwrap().refusals.contains_key("daemonsets");
        let can_be =
            if self.daemons[daemon].in_api() { self.is_reachable() && is_listed } else { self.can_write(daemon) };
        can_be && !self.daemons[daemon].overrides
    }

    fn apply_next(&mut self, daemon: usize) {
        if self.daemons[daemon].in_api() { self.apply(daemon) } else { self.write_file(daemon) }
    }

    /// A revision comes that fails, and a better one so much later.
    pub(crate) fn apply_bad(&mut self, daemon: usize, seconds: u16) {
        if !self.can_apply(daemon) || self.daemons[daemon].wanted().is_none() {
            return;
        }
        let next = self.following_revision();
        self.bad_revisions.bad.insert(next);
        self.apply_next(daemon);
        // What was good has the data of then.
        self.daemons[daemon].data_may_go_back |= self.bad_revisions.is_cautious(daemon);
        self.heal_after(seconds, Heal::Better(daemon as u8));
    }

    /// If the revision of a daemon is one that fails, the next one is not.
    pub(crate) fn apply_better(&mut self, daemon: usize) {
        let truth = &self.daemons[daemon];
        let is_bad = [truth.api, truth.file].into_iter().flatten().any(|revision| self.bad_revisions.is_bad(revision));
        match (is_bad, self.can_apply(daemon)) {
            (true, true) => self.apply_next(daemon),
            (true, false) => self.heal_after(10, Heal::Better(daemon as u8)),
            (false, _) => {}
        }
    }

    /// Whether a revision is what a daemon returns to from the one that is wanted.
    pub(crate) fn is_return(&mut self, daemon: usize, revision: u64) -> bool {
        let Some(wanted) = self.daemons[daemon].wanted() else { return false };
        let bad = &mut self.bad_revisions;
        // What was being started when it came is none.
        let has_failed = self.daemons[daemon].highest == wanted && bad.is_bad(wanted);
        let is_one = has_failed && bad.is_cautious(daemon) && !bad.is_bad(revision);
        if is_one {
            bad.left.insert(wanted);
        }
        is_one
    }

    /// Whether a daemon has returned from a revision, and remembers that.
    pub(crate) fn has_left(&self, revision: u64) -> bool {
        self.bad_revisions.left.contains(&revision) && !self.has_lost_state && !self.forgets()
    }

    /// `passed` milliseconds have passed that count. Gives a daemon that should have returned.
    pub(crate) fn pass_bad_revisions(&mut self, passed: i64) -> Option<String> {
        let now = self.steady;
        let bad = &mut self.bad_revisions;
        bad.since.retain(|uid, _| self.kubelet.pods.contains_key(uid));
        let can_judge = self.not_ready.is_none() && !self.has_lost_state;
        let mut late = None;
        for daemon in &bad.cautious {
            let truth = &self.daemons[*daemon];
            for (uid, pod) in &self.kubelet.pods {
                let revision = pod.manifest.revision;
                if !pod.manifest.daemon.ends_with(&format!("/{}", truth.name)) {
                    continue;
                }
                if matches!(pod.phase, Phase::Running { .. }) {
                    let since = *bad.since.entry(uid.clone()).or_insert(now);
                    if now - since > GOOD && truth.wanted() == Some(revision) {
                        bad.good.insert(truth.name.clone(), revision);
                    }
                }
                let fails = bad.bad.contains(&revision) && pod.restarts > 1 && truth.wanted() == Some(revision);
                let has_good = bad.good.get(&truth.name).is_some_and(|good| *good != revision);
                if fails && has_good && can_judge && truth.held_by_config.is_none() && !truth.is_hurt {
                    let failing = bad.failing.entry(uid.clone()).or_default();
                    *failing += passed;
                    if *failing > STAYS {
                        late = Some(truth.name.clone());
                    }
                }
            }
        }
        late
    }
}
