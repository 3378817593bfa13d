//! What holds once nothing happens any more.

use daemonlet::simulation::Disk;

use crate::kubelet::Phase;
use crate::node::MANIFESTS;
use crate::node::Node;
use crate::node::SPACE;
use crate::node::foreign;
use crate::node::volume_path;

use super::CONDITIONS;
use super::Laws;
use super::opened;

impl Laws {
    /// After the faults have ended, the node is as it is wanted.
    pub(crate) fn converged(&mut self, node: &Node) {
        if node.kubelet.room.is_rejection_missed {
            // What returned in its stead stays, until an operator retries the other.
            return;
        }
        for daemon in &node.daemons {
            let name = format!("{SPACE}/{}", daemon.name);
            let runs: Vec<_> = node.kubelet.pods.values().filter(|pod| pod.manifest.daemon == name).collect();
            let runs: Vec<_> = runs.into_iter().filter(|pod| matches!(pod.phase, Phase::Running { .. })).collect();
            let is: Vec<u64> = runs.iter().map(|pod| pod.manifest.revision).collect();
            let wanted: Vec<u64> = daemon.wanted().into_iter().collect();
            let stays = daemon.is_to_run() && wanted.is_empty() && is.len() == 1;
            if is != wanted && !stays {
                let what = format!("{name}: revisions {is:?} run, and {wanted:?} are wanted");
                return self.violate(node.steady, "after the faults the node is as it is wanted", what);
            }
            let Some(pod) = runs.first() else { continue };
            let (has, wants) = (crate::overlays::of(&pod.manifest.whole), node.overlay_here(daemon));
            if has != wants {
                let what = format!("{name}: overlay {has:?}, and {wants:?} applies here");
                return self.violate(node.steady, "an instance runs with the overlays of its node", what);
            }
            for (volume, value) in [("c", daemon.config), ("s", daemon.secret)] {
                let path = volume_path(&pod.manifest.uid, volume).join("k");
                let text = (&*node.disk as &dyn Disk).text(&path).unwrap_or_default();
                if text != format!("V={value}") {
                    let what = format!("{name}: {volume} is {text:?}, and V={value} is newest");
                    return self.violate(node.steady, "each volume holds the newest data", what);
                }
            }
            if pod.manifest.volumes.iter().any(|volume| volume == "kube-api-access") {
                let path = volume_path(&pod.manifest.uid, "kube-api-access").join("token");
                let token = (&*node.disk as &dyn Disk).text(&path).unwrap_or_default();
                let server = node.server.lock().unwrap();
                if server.token_ends(&token).is_none_or(|at| at < server.steady) {
                    let what = format!("{name}: the token {token:?} is not in force");
                    drop(server);
                    return self.violate(node.steady, "each volume holds the newest data", what);
                }
            }
        }
        if let Some(wrong) = node.wrong_bridge() {
            return self.violate(node.steady, "after the faults the node is as it is wanted", wrong);
        }
        let text = (&*node.disk as &dyn Disk).text(format!("{MANIFESTS}/etcd.yaml")).unwrap_or_default();
        if text != foreign() {
            self.violate(node.steady, "files of others are untouched", "etcd.yaml is another");
        }
        if let Some(open) = opened(node) {
            self.violate(node.steady, "no file of the agent stays open to others", open);
        }
        if node.has_taint() {
            self.violate(node.steady, "no startup taint stays", "the Node has it after the faults");
        }
        if let Some(wrong) = node.wrong_conditions().filter(|_| node.clock_forgotten_in != Some(node.booted)) {
            self.violate(node.steady, CONDITIONS, wrong);
        }
        self.wants_status = true;
    }
}
