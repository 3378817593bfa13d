//! The laws of the startup taint.

use crate::kubelet::Phase;
use crate::node::Node;
use crate::node::SPACE;

use super::Laws;
use super::TAINTED;

impl Laws {
    /// The startup taint goes when the daemons that ask for it have run in this boot, or have had their time.
    pub(super) fn untainted(&mut self, node: &Node) {
        if !std::mem::take(&mut node.server.lock().unwrap().is_untainted) {
            return;
        }
        self.note(node, "the Node has the startup taint no longer".to_owned());
        let Some(taint) = &node.taint else { return };
        for (index, daemon) in node.daemons.iter().enumerate() {
            let name = format!("{SPACE}/{}", daemon.name);
            let is_clock_known = node.clock_forgotten_in != Some(node.booted);
            let is_awaited = is_clock_known && taint.is_awaited(node, index) && daemon.wanted().is_some();
            if is_awaited && !self.ran_in_boot.contains(&name) {
                let what = format!("{name} has not run in this boot");
                self.violate(node.steady, "no workload before its daemons", what);
            }
        }
    }

    /// The agent has ended because the machine shuts down.
    pub(crate) fn shut_down(&mut self, node: &Node) {
        self.note(node, "the machine shuts down".to_owned());
        if node.owes_taint && !node.has_taint() {
            let what = "the Node has none after the agent's end";
            self.violate(node.steady, "a machine that shuts down has the startup taint at its next boot", what);
        }
    }

    /// The startup taint goes once the daemons that ask for it run.
    pub(super) fn taint_goes(&mut self, node: &Node, is_up: bool) {
        let Some(taint) = &node.taint else { return };
        let runs = |name: &str| {
            let of = |pod: &&crate::kubelet::Pod| pod.manifest.daemon == format!("{SPACE}/{name}");
            node.kubelet.pods.values().filter(of).any(|pod| matches!(pod.phase, Phase::Running { .. }))
        };
        let mut asked = node.daemons.iter().enumerate().filter(|(index, _)| taint.is_asked(*index));
        let is_well = asked
            .all(|(index, daemon)| daemon.wanted().is_none() || node.is_settled_in_boot(index) && runs(&daemon.name));
        // Else what was Ready may seem to have been so before the boot.
        let is_clock_known = node.clock_forgotten_in != Some(node.booted);
        let may_go = is_up && node.is_clear() && node.can_write_taint() && is_clock_known;
        if !is_well || !may_go || !node.has_taint() {
            return self.tainted = 0;
        }
        self.tainted += node.steady - self.checked_at;
        if self.tainted > TAINTED {
            self.violate(node.steady, "no startup taint stays", "every daemon that asks for it runs");
        }
    }
}
