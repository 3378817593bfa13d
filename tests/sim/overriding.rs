//! Files that the owner of a node gives precedence over what the API server says.
//!
//! Owns when that begins and ends. Must not judge.

use super::moves::Home;
use super::node::Heal;
use super::node::Node;

impl Node {
    /// The owner writes a new version of a file that overrides the API's, for so long.
    pub(crate) fn override_api(&mut self, daemon: usize, seconds: u16) {
        let truth = &self.daemons[daemon];
        let is_plain = truth.wanted().is_some() && truth.held_by_config.is_none() && !truth.overrides && !truth.is_hurt;
        // What the API server has that the agent has not received would count as newer.
        let is_known = truth.api == Some(truth.highest);
        let has_both = truth.home == Home::Both && truth.file.is_some() && is_known;
        if !is_plain || !has_both || self.vendored.contains(&daemon) || !self.can_write(daemon) {
            return;
        }
        self.daemons[daemon].overrides = true;
        self.write_file(daemon);
        self.heal_after(seconds, Heal::Override(daemon as u8));
    }

    /// The owner takes the annotation away: what the API server says counts again, though it is older.
    pub(crate) fn end_override(&mut self, daemon: usize) {
        if !self.daemons[daemon].overrides {
            return;
        }
        if self.daemons[daemon].is_hurt || !self.can_write(daemon) {
            return self.heal_after(10, Heal::Override(daemon as u8));
        }
        self.api_counts_again(daemon);
        self.rewrite_file(daemon);
    }

    /// The file of a daemon overrides nothing any more.
    pub(crate) fn api_counts_again(&mut self, daemon: usize) {
        let truth = &mut self.daemons[daemon];
        if std::mem::take(&mut truth.overrides) {
            truth.allowed += 1;
            truth.highest = 0;
            // What failed and was not wanted meanwhile may be tried anew.
            self.bad_revisions.go_back();
        }
    }

    /// Nothing shows that a file which cannot be read overrides the API's.
    pub(crate) fn forget_overrides(&mut self) {
        let is_away = self.is_folder_away || self.is_wiped;
        for truth in self.daemons.iter_mut().filter(|truth| truth.overrides && (truth.is_hurt || is_away)) {
            truth.allowed += 1;
            truth.highest = 0;
        }
    }
}
