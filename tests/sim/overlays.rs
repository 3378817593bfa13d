//! Overlays: what a ConfigMap changes of a DaemonSet's pods on nodes with a label.
//!
//! Owns what each ConfigMap says. Must not judge.

use serde_json::Value;
use serde_json::json;

use super::api;
use super::moves::Home;
use super::moves::OverlayChange;
use super::node::Daemon;
use super::node::Heal;
use super::node::Node;
use super::node::SPACE;

/// The overlays of one daemon.
#[derive(Clone, Debug)]
pub(crate) struct Overlay {
    /// What the newest list sets on big nodes.
    version: u64,
    /// `None`: the list is as it is to be.
    fault: Option<OverlayChange>,
    /// The newest version that an instance ran with.
    pub(crate) newest_run: u64,
}

impl Default for Overlay {
    fn default() -> Self {
        Self { version: 1, fault: None, newest_run: 0 }
    }
}

impl Overlay {
    /// It is again as it was before. Gives whether that is another one.
    pub(crate) fn go_back(&mut self, before: &Self) -> bool {
        let is_other = (self.version, self.fault) != (before.version, before.fault);
        (self.version, self.fault) = (before.version, before.fault);
        is_other
    }

    pub(crate) fn is_as_meant(&self) -> bool {
        self.fault.is_none()
    }

    /// The text of its ConfigMap; `None`: there is none.
    pub(crate) fn text(&self) -> Option<String> {
        match self.fault {
            Some(OverlayChange::Lost) => None,
            Some(_) => Some("- nodes: all of them\n".to_owned()),
            None => {
                let env = json!([{"name": "OV", "value": self.version.to_string()}]);
                let patch = json!({"spec": {"containers": [{"name": "main", "env": env}]}});
                Some(json!([{"nodes": {"matchLabels": {"size": "big"}}, "patch": patch}]).to_string())
            }
        }
    }
}

/// What an overlay has set in a pod.
pub(crate) fn of(pod: &Value) -> Option<u64> {
    let env = pod["spec"]["containers"][0]["env"].as_array()?;
    env.iter().find(|env| env["name"] == "OV")?["value"].as_str()?.parse().ok()
}

impl Node {
    /// What the overlays of a daemon set on this node.
    pub(crate) fn overlay_here(&self, daemon: &Daemon) -> Option<u64> {
        daemon.overlay.as_ref().filter(|_| self.is_big).map(|overlay| overlay.version)
    }

    pub(crate) fn change_overlay(&mut self, daemon: usize, change: OverlayChange, seconds: u16) {
        let truth = &mut self.daemons[daemon];
        let home = truth.home;
        let Some(overlay) = truth.overlay.as_mut().filter(|overlay| overlay.fault.is_none()) else { return };
        let before = overlay.clone();
        match change {
            OverlayChange::Newer => overlay.version += 1,
            // The folder's would count again.
            OverlayChange::Lost if home == Home::Both => return,
            OverlayChange::Damaged | OverlayChange::Lost => overlay.fault = Some(change),
        }
        // Who patches a pod replaces it.
        truth.allowed += 1;
        let fault = overlay.fault;
        self.carry_objects(daemon, |daemon| daemon.overlay = Some(before));
        let is_changed = self.daemons[daemon].overlay.as_ref().is_some_and(|overlay| overlay.fault == fault);
        if fault.is_none() || !is_changed {
            return;
        }
        if fault == Some(OverlayChange::Lost) && home == Home::Api {
            let key = api::id("configmaps", SPACE, &format!("o-{}", self.daemons[daemon].name));
            self.server.lock().unwrap().delete(&key);
        }
        self.heal_after(seconds, Heal::Overlay(daemon as u8));
    }

    pub(crate) fn heal_overlay(&mut self, daemon: usize) {
        let can_be = match self.daemons[daemon].home {
            Home::Folder => self.can_write(daemon),
            Home::Api | Home::Both => self.is_reachable() && self.daemons[daemon].has_config,
        };
        if !can_be {
            return self.heal_after(10, Heal::Overlay(daemon as u8));
        }
        if let Some(overlay) = &mut self.daemons[daemon].overlay {
            overlay.fault = None;
        }
        self.carry_objects(daemon, |_| ());
    }
}
