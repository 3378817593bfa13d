//! What is written about a DaemonSet whose rollout is decided.
//!
//! Owns when its counters and conditions may be written, and what counts as trouble with its current revision. Decides
//! nothing about the rollout.

use std::collections::BTreeMap;

use crate::core::cluster::conditions;
use crate::core::cluster::conditions::ConditionFacts;
use crate::core::cluster::counters::Counters;
use crate::core::cluster::events::Trouble;
use crate::core::cluster::events::TroubleCause;
use crate::core::cluster::history::RevisionFact;
use crate::core::cluster::names::Name;
use crate::core::cluster::released::FirstInstances;
use crate::core::cluster::released::Halted;
use crate::core::cluster::released::Released;
use crate::core::cluster::requests::RequestTarget;
use crate::core::cluster::rollout::NodeFact;
use crate::core::cluster::rollout::RolloutPlan;
use crate::core::cluster::snapshot::WatchedDaemon;
use crate::core::model::ObjectKey;
use crate::core::update_trigger::UpdateTrigger;

use super::Basis;
use super::ClusterPlan;
use super::ObjectWrite;
use super::broken::Broken;
use super::causes;
use super::facts;
use super::lacking::Lacking;
use super::status;

/// What was decided of a DaemonSet.
pub(super) struct RolloutOutcome<'a> {
    /// Its current ControllerRevision, once it is in the API.
    pub(super) current: Option<&'a RevisionFact>,
    /// Whether its current ControllerRevision has a name: it is in the API, or is written in this pass.
    pub(super) is_current_named: bool,
    /// The nodes on which the current revision failed.
    pub(super) broken: &'a Broken,
    /// Why its rollout is halted.
    pub(super) halted: Option<&'a Halted>,
    /// Whether people have taken its rollout back.
    pub(super) is_aborted: bool,
    /// What nodes may replace.
    pub(super) rolled: &'a RolloutPlan,
    /// What approved nodes wait for, and how many.
    pub(super) waiting: Option<(UpdateTrigger, usize)>,
    /// The released revision, and what first instances of a newer one do.
    pub(super) released: Option<&'a (Released, FirstInstances)>,
    /// The way back of its rollout.
    pub(super) back: &'a Option<conditions::GoingBack>,
    pub(super) counters: Counters,
    /// A DaemonSet controller that acts on it, too.
    pub(super) conflict: Option<&'a str>,
    /// Why its current ControllerRevision is not written.
    pub(super) refused: Option<&'a str>,
    /// Whether another controller writes its history and its counters.
    pub(super) is_gated: bool,
    /// The revision that nodes are to have.
    pub(super) target: Name,
    /// The nodes as the rollout sees them, which may go back.
    pub(super) towards: &'a [NodeFact<'a>],
    /// Those that lack an object to go back.
    pub(super) lacking: Option<&'a Lacking>,
}

impl RolloutOutcome<'_> {
    /// Adds the status that is to be written, and what goes wrong.
    pub(super) fn report(
        &self,
        known: &Basis<'_>,
        key: &ObjectKey,
        daemon: &WatchedDaemon,
        nodes: &[NodeFact<'_>],
        plan: &mut ClusterPlan,
    ) {
        // Counters follow the current revision: it has to be there first.
        let is_countable = self.is_current_named || self.is_gated || self.refused.is_some();
        if !is_countable || facts::are_reports_lost(known, nodes) {
            return;
        }
        let kept_on = self.released.filter(|(_, first)| *first == FirstInstances::Held).map(|(released, _)| released);
        let (rolled, broken) = ((self.towards, self.rolled), (self.broken, self.lacking, kept_on));
        let causes = causes::causes(known, daemon, nodes, rolled, broken);
        let unwritten = self.current.and_then(|current| causes::unwritten(known, daemon, current));
        let mut trouble = |cause, nodes| {
            let (key, uid, revision) = (key.clone(), daemon.uid.clone(), daemon.hash.clone());
            plan.troubles.insert(Trouble { key, uid, revision, cause }, nodes);
        };
        causes.iter().for_each(|(cause, nodes)| trouble(cause.clone(), nodes.len().max(1)));
        self.halted.iter().for_each(|halted| trouble(TroubleCause::Halted(halted.cause.clone()), 1));
        unwritten.iter().for_each(|(cause, _)| trouble(cause.clone(), 1));
        self.refused.iter().for_each(|_| trouble(TroubleCause::NoControllerRevision, 1));
        let is_unwritten = known.state.retries.refused_until(&RequestTarget::Status(key.clone())).is_some();
        is_unwritten.then(|| trouble(TroubleCause::StatusUnwritten, 1));
        // Events do not name what differs from node to node, or from attempt to attempt: each would be another event.
        let in_words = |(cause, nodes)| match cause {
            TroubleCause::ObjectMissing => (causes::missing_objects(known, daemon, self.lacking), nodes),
            cause => (cause.to_string(), nodes),
        };
        let mut causes: conditions::Causes = causes.into_iter().map(in_words).collect();
        causes.extend(unwritten.map(|(cause, why)| (format!("{cause}: {why}"), Vec::new())));
        // Other words of a node's are not repeated.
        let named = |revision| match facts::revision(known.view, daemon, revision) {
            Some(revision) => format!("revision {}", revision.hash),
            None => "another revision".to_owned(),
        };
        let mut claimed = BTreeMap::new();
        for revision in nodes.iter().filter(|n| n.should_run).filter_map(|n| n.replaces_by_other(daemon.wanted)) {
            *claimed.entry(named(revision)).or_default() += 1;
        }
        let mut staged = BTreeMap::<String, Vec<&str>>::new();
        for (node, revision) in nodes.iter().filter(|n| n.belongs).filter_map(|n| Some((n.name, n.stray(self.target)?)))
        {
            staged.entry(named(revision)).or_default().push(node);
        }
        let condition_facts = ConditionFacts {
            revision: &daemon.hash,
            counters: self.counters,
            held: self.rolled.held.as_ref(),
            waiting: self.waiting,
            claimed: &claimed,
            staged: &staged,
            are_overlays_left: nodes.iter().any(|n| n.should_run && n.has_other_overlays()),
            causes: &causes,
            trouble: match (self.conflict, self.refused) {
                (Some(conflict), _) => Some(("Conflict", conflict)),
                (None, Some(refused)) => Some(("NoControllerRevision", refused)),
                (None, None) => None,
            },
            back: self.back,
            released: self.released,
            halted: self.halted,
            is_aborted: self.is_aborted,
        };
        let counts = !self.is_gated && self.refused.is_none();
        if let Some(status) = status::patch(daemon, counts.then_some(&self.counters), &condition_facts, known.now) {
            let nodes = self.counters.desired_number_scheduled;
            let stops = status::stops(&daemon.status, &status);
            let at_once = stops || counts && status::ends(&daemon.status, &self.counters);
            plan.writes.push(ObjectWrite::Status { key: key.clone(), status, nodes, at_once });
        }
    }
}
