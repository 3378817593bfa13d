//! Nodes that cannot go back because the revision to go back to needs an object that does not exist.
//!
//! Owns how long that is remembered. An agent looks for the objects of a revision to go back to only while that is
//! approved, so the node is given it again from time to time. Must not judge nodes that go forward: their agents report
//! it all the time.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::core::cluster::names::Name;
use crate::core::cluster::rollout::NodeFact;
use crate::core::cluster::snapshot::WatchedDaemon;
use crate::core::time::Span;
use crate::core::time::Timestamp;

use super::Basis;
use super::facts;

/// Nodes that lack an object are tried again when none of them has reported it for this long.
const AGAIN: Span = Span::from_secs(120);

/// Which nodes lack an object, and what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lacking {
    /// The hash of the revision that needs it.
    pub revision: String,
    /// When the agent of each last reported it, and the objects.
    pub nodes: BTreeMap<String, (Timestamp, String)>,
}

impl Lacking {
    /// What is known of those that are to go back to the revision `to`.
    pub(super) fn note(known: &Basis<'_>, daemon: &WatchedDaemon, nodes: &[NodeFact<'_>], to: Name) -> Self {
        let revision = known.view.names.text(to).to_owned();
        let before = known.of_it(&known.state.lacking, daemon).filter(|before| before.revision == revision);
        let remembered = |node: &str| {
            let (at, objects) = before?.nodes.get(node)?;
            // A clock that was set back makes none of them wait longer.
            Some(((*at).min(known.now), objects.clone()))
        };
        let waits = nodes.iter().filter(|node| node.belongs && !node.replacing && !facts::has(node, to));
        let found = waits.filter_map(|node| {
            let says = facts::missing_now(known, daemon, node, to);
            let says = says.map(|objects| (known.now, known.view.names.text(objects).to_owned()));
            Some((node.name.to_owned(), says.or_else(|| remembered(node.name))?))
        });
        Self { revision, nodes: found.collect() }
    }

    /// When nodes are tried again.
    pub(super) fn tried_again(&self) -> Option<Timestamp> {
        self.nodes.values().map(|(at, _)| *at + AGAIN).max()
    }

    /// Whether a node is not to be tried for now.
    pub(super) fn has(&self, node: &str, now: Timestamp) -> bool {
        self.nodes.contains_key(node) && self.tried_again().is_some_and(|at| at > now)
    }

    /// What most of them lack, and whether others lack something else.
    pub(super) fn most(&self) -> (&str, bool) {
        most(self.nodes.values().map(|(_, objects)| objects.as_str()))
    }
}

/// What most of them say, and whether others say something else.
pub(super) fn most<'a>(said: impl Iterator<Item = &'a str>) -> (&'a str, bool) {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    said.for_each(|objects| *counts.entry(objects).or_default() += 1);
    let are_others = counts.len() > 1;
    let most = counts.into_iter().max_by_key(|(objects, count)| (*count, Reverse(*objects)));
    (most.map_or("", |(objects, _)| objects), are_others)
}
