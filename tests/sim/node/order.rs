//! The order in which daemons start, as far as an agent can keep it.

use std::collections::BTreeSet;

use super::Node;

impl Node {
    /// Whether daemons that start now have to keep their order: none has waited as long as it may, and what the agent
    /// knows of the order is what is true.
    pub(crate) fn keeps_order(&self) -> bool {
        self.booted > 0
            && self.steady - self.booted < 115_000
            && self.ordered_at < self.booted - 120_000
            && self.clock_set_at < self.booted
            // Of what was adopted without a record it is not known that it has a gate.
            && self.damaged_at < self.booted - 60_000
            // Without its inputs an agent does not know in which boot another last ran: it closes no gate.
            && self.inputs_damaged_at.is_none_or(|at| at < self.booted - 60_000)
            // What was touched at a time that is still to come may have been touched in this boot.
            && self.latest < self.booted + self.wall.get()
            && !self.forgets()
            && !self.has_older_state()
            // What was to be made anew at the boot, as under another name or without its Secrets, keeps the open gate that it had.
            && self.manifests_at_boot.is_none()
            // Then no gate can be closed.
            && !self.takes_no_data()
    }

    /// The daemons that have to be Ready before `daemon` starts.
    pub(crate) fn starts_before(&self, daemon: usize) -> Vec<usize> {
        let after = |daemon: usize| self.after.get(&daemon).into_iter().flatten().copied();
        let reaches = |from: usize, to: usize| {
            let (mut open, mut reached) = (vec![from], BTreeSet::new());
            while let Some(next) = open.pop() {
                open.extend(after(next).filter(|before| reached.insert(*before)));
            }
            reached.contains(&to)
        };
        after(daemon).filter(|before| *before < daemon || !reaches(*before, daemon)).collect()
    }
}
