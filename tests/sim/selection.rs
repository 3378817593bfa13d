//! What is selected on this node: daemons for a label of the Node, and a configuration that for a while selects less.
//!
//! Owns who is selected when, and what each move of that does to the node. Must not judge.

use crate::api;

use super::moves::Fewer;
use super::moves::Home;
use super::node::Daemon;
use super::node::End;
use super::node::Heal;
use super::node::Node;

/// What a configuration has that selects everything.
pub(crate) const FOLDERS: [&str; 2] = ["/etc/daemonlet/daemonsets.d", "/mnt/late/daemonsets.d"];

impl Node {
    /// The label of the Node that daemons and overlays are for changes.
    pub(crate) fn label_node(&mut self, is_big: bool) {
        if !self.is_reachable() || self.is_big == is_big || !self.is_labelled {
            return;
        }
        self.be_big(is_big);
        self.write_label();
    }

    /// Who is for the label of the Node is for another one now.
    pub(crate) fn be_big(&mut self, is_big: bool) {
        self.is_big = is_big;
        for (index, daemon) in self.daemons.iter_mut().enumerate() {
            let is_selective = self.selective.contains(&index);
            if daemon.overlay.is_some() || is_selective {
                daemon.allowed += 1;
            }
            daemon.fits = !is_selective || is_big;
        }
    }

    fn write_label(&self) {
        let key = api::id("nodes", "", &self.name);
        let size = if self.is_big { "big" } else { "small" };
        self.server.lock().unwrap().change(&key, |node| node["metadata"]["labels"]["size"] = size.into());
    }

    /// The Node is registered anew by its kubelet, and gets its label later, from another component.
    pub(crate) fn register(&mut self, seconds: u16) {
        if !self.is_reachable() || !self.is_labelled {
            return;
        }
        self.server.lock().unwrap().delete(&api::id("nodes", "", &self.name));
        self.is_labelled = false;
        self.put_node();
        self.heal_after(seconds, Heal::Label);
    }

    /// The Node gets its label.
    pub(crate) fn get_label(&mut self) {
        if !self.is_reachable() {
            return self.heal_after(5, Heal::Label);
        }
        self.is_labelled = true;
        self.write_label();
    }

    /// The agent starts anew with a configuration that selects less. What runs is held as it is.
    pub(crate) fn select_fewer(&mut self, fewer: Fewer, seconds: u16) {
        // What another file defines, too, would be that file's.
        if self.fewer.is_some() || self.daemons.iter().any(|daemon| daemon.has_second) {
            return;
        }
        self.fewer = Some(fewer);
        for daemon in 0..self.daemons.len() {
            let is_left_out = match fewer {
                Fewer::Folders => self.is_late(daemon),
                Fewer::Namespaces => self.daemons[daemon].home == Home::Api,
            };
            if is_left_out {
                let runs = self.revision_of(daemon);
                self.daemons[daemon].held_by_config = Some(runs);
            }
        }
        self.heal_after(seconds, Heal::Selection);
        self.restart_agent();
    }

    /// The configuration selects everything again.
    pub(crate) fn select_all(&mut self) {
        self.fewer = None;
        self.daemons.iter_mut().for_each(|daemon| daemon.held_by_config = None);
        self.restart_agent();
    }

    fn restart_agent(&mut self) {
        self.end.get_or_insert(End::Stop { back: 100 });
    }

    /// The revision of the manifest of a daemon.
    pub(crate) fn revision_of(&mut self, daemon: usize) -> Option<u64> {
        let name = self.full_name(daemon);
        let exempt = self.disk.set_exempt(true);
        let found = self.kubelet.read(&self.disk).into_values().find(|manifest| manifest.daemon == name);
        self.disk.set_exempt(exempt);
        found.map(|manifest| manifest.revision)
    }

    /// Whether a daemon runs on a big node alone.
    pub(crate) fn selects(&self, daemon: &Daemon) -> bool {
        self.selective.iter().any(|index| self.daemons[*index].name == daemon.name)
    }

    /// The folders of the configuration, but for the vendor's.
    pub(crate) fn folders(&self) -> &'static [&'static str] {
        if self.fewer == Some(Fewer::Folders) { &FOLDERS[..1] } else { &FOLDERS }
    }

    /// Whether the policy has the namespace of the daemons.
    pub(crate) fn has_namespace(&self) -> bool {
        self.fewer != Some(Fewer::Namespaces)
    }
}
