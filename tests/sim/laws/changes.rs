//! The laws of each change that the agent makes on the disk.

use std::path::Path;

use daemonlet::simulation::Disk;
use daemonlet::simulation::Doing;

use crate::api::THEIR_TOKEN;
use crate::kubelet::Manifest;
use crate::kubelet::Phase;
use crate::moves::Fault;
use crate::node::KUBELET;
use crate::node::MANIFESTS;
use crate::node::Node;
use crate::node::RUN;
use crate::node::SPACE;
use crate::node::STATE;
use crate::node::volume_path;
use crate::others::THEIRS;
use crate::vendor::HIDDEN;

use super::Laws;

impl Laws {
    /// A change on the disk. Gives whether it is one of the manifest folder.
    pub(super) fn changed(&mut self, node: &mut Node, doing: Doing, path: &Path, by_world: bool) -> bool {
        if !by_world {
            let own = [STATE, RUN, MANIFESTS, KUBELET];
            // Folders above its own the agent may make.
            let is_own = own.iter().any(|place| path.starts_with(place) || Path::new(place).starts_with(path));
            if !is_own || path.file_name().is_some_and(|name| name == "etcd.yaml") {
                self.violate(node.steady, "files of others are untouched", format!("{doing:?} {}", path.display()));
            }
        }
        if !by_world && doing == Doing::Rename && path.file_name().is_some_and(|name| name == "..data") {
            self.renewed(node, path);
        }
        if path.parent() != Some(Path::new(MANIFESTS)) {
            return false;
        }
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if file.starts_with('.') {
            return false;
        }
        if let (Doing::Remove, Some(was)) = (doing, self.manifests.remove(&file)) {
            self.note(node, format!("{} goes, by {}", was.name, if by_world { "others" } else { "the agent" }));
            // What goes before an agent has looked in this boot, or with its older state folder, seems to have gone before.
            let has_looked = self.up_at >= node.booted && node.steady > node.booted;
            let knows = has_looked && node.restored_at.is_none_or(|at| at < self.up_at);
            if !by_world || knows {
                self.removed.insert(was.uid.clone(), node.steady);
            }
            if !by_world {
                self.removed_by_agent.insert(was.uid.clone(), node.steady);
                // A removal that cannot be synced has failed, and is done again: it is not counted.
                self.ends += u64::from(!node.faults.contains(&Fault::ManifestsBroken));
                self.ended_by_agent(node, &was);
            }
        }
        let text = (&*node.disk as &dyn Disk).text(path).unwrap_or_default();
        if let Some(manifest) = crate::kubelet::parse(&file, &text).filter(|m| !m.daemon.is_empty()) {
            if let Some(removed) = self.removed.get(&manifest.uid).copied().filter(|_| !by_world) {
                if node.restored_at.is_some_and(|at| at >= removed) {
                    // An older state folder does not know that it went, and from here on it is there again.
                    self.removed.remove(&manifest.uid);
                    self.removed_by_agent.remove(&manifest.uid);
                } else {
                    let what = format!("{} of {}", manifest.uid, manifest.daemon);
                    self.violate(node.steady, "a UID whose manifest was removed never comes back", what);
                }
            }
            if !by_world && manifest.revision == THEIRS {
                self.violate(node.steady, "what another cluster defines does not run", manifest.name.clone());
            }
            let is_new = self.manifests.values().all(|known| known.uid != manifest.uid);
            if is_new && !by_world && doing == Doing::Rename {
                self.begun.insert(manifest.uid.clone());
            }
            if self.manifests.get(&file) != Some(&manifest) {
                self.note(node, format!("{} comes, revision {}", manifest.name, manifest.revision));
            }
            self.manifests.insert(file, manifest);
        }
        true
    }

    /// The agent gave a volume another version.
    fn renewed(&mut self, node: &Node, path: &Path) {
        let Some(uid) = path.strip_prefix(KUBELET).ok().and_then(|path| path.iter().nth(1)) else { return };
        let manifest = self.manifests.values().find(|manifest| *manifest.uid == *uid).cloned();
        manifest.iter().for_each(|manifest| self.data_of(node, manifest));
    }

    /// The data of an instance is as new as that of any before it.
    fn data_of(&mut self, node: &Node, manifest: &Manifest) {
        let name = manifest.daemon.rsplit('/').next().unwrap_or_default();
        let Some(daemon) = node.daemons.iter().find(|daemon| daemon.name == name) else { return };
        for volume in &manifest.volumes {
            let token = (&*node.disk as &dyn Disk).text(volume_path(&manifest.uid, volume).join("token"));
            if token.is_ok_and(|token| token.starts_with(THEIR_TOKEN)) {
                let what = format!("{volume} of {name}");
                return self.violate(node.steady, "no volume has another cluster's data", what);
            }
        }
        for volume in ["c", "s"] {
            let text = (&*node.disk as &dyn Disk).text(volume_path(&manifest.uid, volume).join("k"));
            let Some(value) = text.ok().and_then(|text| text.strip_prefix("V=")?.parse::<u64>().ok()) else { continue };
            let newest = self.newest.entry((daemon.name.clone(), volume.to_owned())).or_default();
            if value == THEIRS {
                let what = format!("{volume} of {name}");
                return self.violate(node.steady, "no volume has another cluster's data", what);
            }
            if value < *newest && !daemon.data_may_go_back {
                let what = format!("{volume} of {name} from V={newest} to V={value}");
                return self.violate(node.steady, "nothing goes back by itself", what);
            }
            *newest = value;
        }
    }

    /// Nothing ends without evidence.
    fn ended_by_agent(&mut self, node: &mut Node, was: &Manifest) {
        let name = was.daemon.strip_prefix(&format!("{SPACE}/")).unwrap_or_default().to_owned();
        let steady = node.steady;
        let is_full = has_no_room(node, was)
            && node.kubelet.pods.get(&was.uid).is_some_and(|p| matches!(p.phase, Phase::Running { .. }));
        if let Some(why) = node.end_of_bridge(was) {
            self.violate(node.steady, "an instance ends when the DaemonSet controller's pod can run", why);
        }
        let ends_early = node.ends_a_surge_early(was);
        let is_beside = node.surges(&was.daemon) && !ends_early;
        let index = node.daemons.iter().position(|daemon| daemon.name == name);
        let Some(daemon) = index.map(|daemon| &mut node.daemons[daemon]) else { return };
        if daemon.wanted() != Some(was.revision) {
            if ends_early && !is_full && daemon.wanted().is_some() && daemon.allowed == 0 {
                let what = format!("{} of {} at revision {}", was.name, was.daemon, was.revision);
                self.violate(steady, "a surge ends nothing before another runs", what);
            }
            if is_full && daemon.wanted().is_some() && !is_beside {
                let what = format!("{} of {} at revision {}", was.name, was.daemon, was.revision);
                self.violate(steady, "a full disk ends nothing that is to be replaced", what);
            }
            return;
        }
        if node.bad_revisions.is_bad(was.revision) && index.is_some_and(|daemon| node.bad_revisions.is_cautious(daemon))
        {
            return;
        }
        if node.kubelet.room.has_rejected(&was.uid) {
            return;
        }
        if daemon.allowed > 0 {
            daemon.allowed -= 1;
            return;
        }
        let what = format!("{} of {} at revision {}, which is wanted", was.name, was.daemon, was.revision);
        self.violate(steady, "nothing ends without evidence", what);
    }

    /// Containers run after those of the daemons that theirs starts after.
    pub(super) fn in_order(&mut self, node: &Node, manifest: &Manifest) {
        self.note(node, format!("{} runs", manifest.name));
        if !self.ran_in_boot.insert(manifest.daemon.clone()) || !node.keeps_order() || self.agent_has_ended {
            return;
        }
        // No start but the first of a boot waits, and nothing that has no gate.
        let waits = self.at_boot.get(&manifest.daemon).is_none_or(|uid| manifest.has_gate && *uid == manifest.uid);
        let index = node.daemons.iter().position(|d| manifest.daemon == format!("{SPACE}/{}", d.name));
        let Some(daemon) = index.filter(|_| waits) else { return };
        for before in node.starts_before(daemon) {
            let name = format!("{SPACE}/{}", node.daemons[before].name);
            let is_known = self.at_boot.contains_key(&name) && node.daemons[before].is_settled();
            if is_known && !self.ran_in_boot.contains(&name) {
                let what = format!("{} runs before {name}", manifest.daemon);
                self.violate(node.steady, "a daemon starts after those that it names", what);
            }
        }
    }

    /// The kubelet starts a pod.
    pub(super) fn started(&mut self, node: &mut Node, manifest: &Manifest) {
        if manifest.daemon.is_empty() {
            return;
        }
        if !manifest.daemon.starts_with(&format!("{SPACE}/")) {
            self.violate(node.steady, "what policy does not allow does not run", manifest.daemon.clone());
        }
        self.note(node, format!("{} starts, revision {}", manifest.name, manifest.revision));
        if manifest.revision == HIDDEN {
            if !node.may_forget_folders() {
                self.violate(node.steady, "what another file hides does not run", manifest.daemon.clone());
            }
            return node.start_hidden(&manifest.daemon);
        }
        let disk: &dyn Disk = &*node.disk;
        let missing = manifest.volumes.iter().find(|volume| {
            let folder = volume_path(&manifest.uid, volume);
            let files: &[&str] = match volume.as_str() {
                "c" => &["k", "l"],
                "s" => &["k"],
                _ => &["token", "ca.crt", "namespace"],
            };
            files.iter().any(|file| disk.text(folder.join(file)).map_or(true, |text| text.is_empty()))
        });
        let of = node.daemons.iter().find(|daemon| manifest.daemon.ends_with(&format!("/{}", daemon.name)));
        let is_removed =
            of.and_then(|d| d.data_removed).is_some_and(|at| node.steady - at < 90_000 || !node.is_clear());
        if let Some(volume) =
            missing.filter(|_| !is_removed && node.manifests_at_boot != Some(Fault::ManifestsReadOnly))
        {
            let what = format!("volume {volume} of {} ({})", manifest.name, manifest.daemon);
            self.violate(node.steady, "data is complete before the manifest that names it", what);
        }
        let containers = manifest.whole["spec"]["containers"].as_array().map_or(0, Vec::len);
        if containers != 2 {
            let what = format!("{} of {} has {containers} containers", manifest.name, manifest.daemon);
            self.violate(node.steady, "what is half written does not count", what);
        }
        let name = manifest.daemon.strip_prefix(&format!("{SPACE}/")).unwrap_or_default().to_owned();
        let steady = node.steady;
        let Some(index) = node.daemons.iter().position(|daemon| daemon.name == name) else { return };
        if let Some(wanted) = node.daemons[index].wanted().filter(|wanted| *wanted != manifest.revision) {
            node.kubelet.room.has_returned(&manifest.daemon, wanted);
        }
        let (returns, surges) = (node.is_return(index, manifest.revision), node.surges(&manifest.daemon));
        let is_first = self.started_ever.insert(manifest.uid.clone());
        if is_first && node.has_left(manifest.revision) {
            let what = format!("{name} at revision {}", manifest.revision);
            self.violate(steady, "a revision that has failed is not tried again", what);
        }
        // What surged starts at a boot beside what it is to replace.
        let may_go_back = returns || surges && !is_first;
        let daemon = &mut node.daemons[index];
        daemon.has_run = true;
        self.placed.insert(manifest.daemon.clone());
        let is_anew = daemon.is_on_new_disk || daemon.is_restored;
        if daemon.wanted() == Some(manifest.revision) && is_anew {
            (daemon.is_on_new_disk, daemon.is_restored) = (false, false);
            daemon.highest = manifest.revision;
        }
        if manifest.revision < daemon.highest && !may_go_back {
            let what = format!("{} from revision {} to {}", daemon.name, daemon.highest, manifest.revision);
            self.violate(steady, "nothing goes back by itself", what);
        }
        if !daemon.is_past(manifest.revision) {
            daemon.highest = daemon.highest.max(manifest.revision);
        }
        let (has, may_go_back) = (crate::overlays::of(&manifest.whole), daemon.data_may_go_back);
        if let Some(overlay) = &mut daemon.overlay {
            if has.is_some_and(|has| has < overlay.newest_run) && !may_go_back {
                let what = format!("{name} from overlay {} to {has:?}", overlay.newest_run);
                self.violate(steady, "nothing goes back by itself", what);
            }
            overlay.newest_run = overlay.newest_run.max(has.unwrap_or(0));
        }
        self.data_of(node, manifest);
    }
}

/// Whether the disk takes no instance in the place of this one.
fn has_no_room(node: &Node, of: &Manifest) -> bool {
    let is_full = |fault: Fault| node.faults.contains(&fault);
    is_full(Fault::ManifestsFull) || is_full(Fault::PodsFull) && !of.volumes.is_empty()
}
