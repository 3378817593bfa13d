//! What happens to a whole machine: another name, a copy, folders that are wiped, an agent of another version.
//!
//! Owns what each does to the node, and what cannot be known any more after it. Must not judge.

use std::path::Path;
use std::sync::Arc;

use daemonlet::simulation::Disk;
use daemonlet::simulation::DiskHandle;
use daemonlet::simulation::Links;
use daemonlet::simulation::Simulated;
use serde_json::Value;
use sha2::Digest;
use sha2::Sha256;

use super::api;
use super::api::Reach;
use super::moves::Fault;
use super::moves::Place;
use super::moves::Renaming;
use super::moves::Version;
use super::node::Daemon;
use super::node::End;
use super::node::FOLDER;
use super::node::Heal;
use super::node::KUBELET;
use super::node::MANIFESTS;
use super::node::Node;
use super::node::RUN;
use super::node::STATE;

/// The names that a node has, one after the other.
const NAMES: [&str; 3] = ["n1", "n2", "n3"];
/// Fields that older versions of the agent did not write.
const LATER: [&str; 9] =
    ["thisBoot", "accepted", "unconfirmedSince", "previous", "answer", "reached", "boot", "rollbackData", "nodeName"];

impl Node {
    pub(crate) fn rename(&mut self, renaming: Renaming, reach: Reach) {
        if self.forgets() || !self.is_reachable() {
            return;
        }
        let next = 1 + NAMES.iter().position(|name| *name == self.name).unwrap_or(0);
        let former = std::mem::replace(&mut self.name, NAMES[next % NAMES.len()].to_owned());
        // Each instance is replaced once.
        for bridge in &mut self.bridges {
            (bridge.allowed, bridge.renamed_in) = (bridge.allowed + 1, Some(self.booted));
        }
        self.daemons.iter_mut().for_each(|daemon| daemon.allowed += 1);
        if renaming != Renaming::Cloned {
            let mut server = self.server.lock().unwrap();
            server.delete(&api::id("nodes", "", &former));
            let of = |object: &Value| object["spec"]["nodeName"] == *former;
            let pods = server.etcd.objects.iter().filter(|(key, object)| key.0 == "pods" && of(object));
            let pods: Vec<api::Id> = pods.map(|(key, _)| key.clone()).collect();
            pods.iter().for_each(|pod| server.delete(pod));
        }
        self.put_node();
        self.end = Some(match renaming {
            Renaming::Restarted => End::Stop { back: 100 },
            Renaming::Rebooted | Renaming::Cloned => End::PowerLoss { kept: 3, reach },
        });
        if renaming == Renaming::Restarted {
            self.kubelet.restart(self.steady);
            // A kubelet of another name ends them.
            self.kubelet.room.restart(true);
        }
    }

    pub(crate) fn wipe(&mut self, place: Place, seconds: u16) {
        match place {
            Place::Etc if self.is_wiped || !self.is_plain() => {}
            Place::Etc => {
                self.is_wiped = true;
                self.daemons.iter_mut().for_each(|daemon| daemon.allowed += 1);
                for folder in ["/etc/daemonlet", "/etc/kubernetes"] {
                    self.as_world(|disk| remove_tree(disk, Path::new(folder)));
                }
                self.heal_after(seconds, Heal::Etc);
            }
            Place::Run => {
                self.forgets_gates = true;
                self.as_world(|disk| remove_tree(disk, Path::new(RUN)));
            }
            Place::State if self.can_forget() => {
                self.forget();
                self.as_world(|disk| remove_tree(disk, Path::new(STATE)));
                self.end = Some(End::Kill { back: 1_000 });
            }
            Place::Var if self.can_forget() => {
                self.forget();
                // What only the API server defines starts when that answers, and a folder's other revision before.
                // Each start is a first one, which may wait for others.
                self.daemons.iter_mut().for_each(|daemon| daemon.has_run = false);
                self.daemons.iter_mut().filter(|daemon| daemon.in_api()).for_each(|daemon| {
                    (daemon.highest, daemon.data_may_go_back) = (0, true);
                    daemon.is_on_new_disk = true;
                });
                // A manifest whose data nothing on the node has is not left for the kubelet.
                self.allow_anew();
                (self.has_new_disk, self.has_lost_state) = (true, true);
                self.end = Some(End::PowerLoss { kept: 3, reach: Reach::Up });
            }
            // What cannot be remembered cannot be ended, either (not-mended).
            Place::Kubelet if self.is_state_open || self.forgets() && self.takes_no_data() => {}
            Place::Kubelet => {
                // The data that is not remembered is not there for some.
                self.allow_anew();
                self.has_new_root = true;
                self.end = Some(End::PowerLoss { kept: 3, reach: Reach::Up });
            }
            Place::State | Place::Var => {}
        }
    }

    /// What needs data that the API server has, such as labels of the Node for overlays, or a file that cannot be read now,
    /// may start anew; so may all of which the disk takes no data.
    pub(crate) fn allow_anew(&mut self) {
        let is_full = self.takes_no_data();
        for daemon in 0..self.daemons.len() {
            let Daemon { overlay, is_hurt, .. } = &self.daemons[daemon];
            let is_away = self.daemons[daemon].in_api() || self.is_late(daemon) || *is_hurt || overlay.is_some();
            let is_unread = self.is_folder_away || self.faults.contains(&Fault::FolderUnreadable);
            // Nor does anything say the labels of the Node.
            let is_away = is_away || is_unread || self.selective.contains(&daemon);
            self.daemons[daemon].allowed += u32::from(is_away || is_full);
        }
    }

    /// What a new disk does not have; the machine is off.
    pub(crate) fn take_disk(&mut self) {
        let is_root_new = std::mem::take(&mut self.has_new_root);
        self.as_world(|disk| {
            if self.has_new_disk {
                remove_tree(disk, Path::new(STATE));
            }
            if self.has_new_disk || is_root_new {
                remove_tree(disk, &Path::new(KUBELET).join("pods"));
            }
        });
    }

    /// What was in `/etc` comes back.
    pub(crate) fn restore_etc(&mut self) {
        self.is_wiped = false;
        self.as_world(|disk| {
            disk.make_folder(Path::new(MANIFESTS));
            disk.make_folder(Path::new(FOLDER));
            disk.put(format!("{MANIFESTS}/etcd.yaml"), super::node::foreign());
        });
        for daemon in 0..self.daemons.len() {
            if self.daemons[daemon].in_folder() && !self.is_late(daemon) {
                self.write_objects(daemon);
                self.rewrite_file(daemon);
                self.mask_again(daemon);
            }
        }
    }

    /// The agent that starts finds what one of another version has written.
    pub(crate) fn change_version(&mut self, version: Version) {
        if self.forgets() || version == Version::NewFormat && !self.can_forget() {
            return;
        }
        if version == Version::NewFormat {
            self.forget();
        }
        if version == Version::Older {
            self.forget_clock();
        }
        self.end = Some(End::Kill { back: 1_000 });
        let files = self.state_files();
        let read = |data: &[u8]| -> Option<Value> {
            serde_json::from_str(String::from_utf8_lossy(data).split_once('\n')?.1).ok()
        };
        let inputs = files.get(&Path::new(STATE).join("inputs.json")).and_then(|data| read(data));
        let known_names = [Value::from(self.name.as_str()), inputs.unwrap_or_default()["node"]["name"].clone()];
        for (path, data) in files {
            let text = String::from_utf8_lossy(&data).into_owned();
            let Some((_, json)) = text.split_once('\n') else { continue };
            let Some(mut value) = read(&data) else { continue };
            if text.starts_with("daemonlet-checkpoint/1 ") {
                assert_eq!(checkpoint(1, json.trim_end()), text, "it is written as the agent writes it");
            }
            match version {
                Version::NewFormat => {}
                Version::NewFields => add_fields(&mut value),
                // Under which name an instance was made, nothing else says (not-mended).
                Version::Older if has_unknown_name(&value, &known_names) => continue,
                Version::Older => remove_fields(&mut value),
            }
            let number = if version == Version::NewFormat { 2 } else { 1 };
            let text = checkpoint(number, &value.to_string());
            self.as_world(|disk| disk.overwrite(&path, text.as_bytes()));
        }
    }

    /// Whether what is wanted can be known from folders, API server and manifests alone.
    fn can_forget(&mut self) -> bool {
        let here: Vec<String> = self.kubelet.read(&self.disk).into_values().map(|manifest| manifest.daemon).collect();
        let ends = |name: &str| here.iter().any(|here| here.ends_with(&format!("/{name}")));
        let is_odd = self.daemons.iter().any(|d| d.wanted().is_none() && ends(&d.name) || d.is_mistyped());
        self.is_plain() && self.is_reachable() && self.is_clear() && self.has_folders() && !is_odd
    }

    /// Nothing of what the agent remembers can be used.
    fn forget(&mut self) {
        self.forget_data();
        self.forget_clock();
        self.restored_at = Some(self.steady);
        self.has_lost_state = true;
        self.forget_overrides();
        self.daemons.iter_mut().filter(|daemon| daemon.file.is_none()).for_each(|daemon| daemon.highest = 0);
    }
}

/// A file of the state folder, in a version of its format.
fn checkpoint(number: u32, json: &str) -> String {
    let digest: String = Sha256::digest(json.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("daemonlet-checkpoint/{number} sha256:{digest}\n{json}\n")
}

fn add_fields(value: &mut Value) {
    let Some(object) = value.as_object_mut() else { return };
    object.insert("writtenByANewerVersion".to_owned(), serde_json::json!({"number": 7, "list": [null, "x"]}));
    if let Some(Value::Array(instances)) = object.get_mut("instances") {
        instances.iter_mut().for_each(add_fields);
    }
    for inner in ["good", "last", "thisBoot", "progress", "node"] {
        if let Some(inner) = object.get_mut(inner) {
            add_fields(inner);
        }
    }
}

/// Whether an instance was made under a name that only its record says.
fn has_unknown_name(record: &Value, known_names: &[Value]) -> bool {
    let mut names = record["instances"].as_array().into_iter().flatten().map(|instance| &instance["nodeName"]);
    names.any(|name| name.is_string() && !known_names.contains(name))
}

fn remove_fields(value: &mut Value) {
    let Some(object) = value.as_object_mut() else { return };
    LATER.iter().for_each(|field| drop(object.remove(*field)));
    if let Some(Value::Array(instances)) = object.get_mut("instances") {
        instances.iter_mut().for_each(remove_fields);
    }
}

pub(crate) fn remove_tree(disk: &Arc<Simulated>, path: &Path) {
    let files: &dyn Disk = &**disk;
    if files.open_folder(&DiskHandle::Start, path, Links::Refuse).is_ok() {
        for name in files.list(path).unwrap_or_default() {
            remove_tree(disk, &path.join(name));
        }
        let _ = files.remove_folder(&DiskHandle::Start, path);
    } else {
        let _ = files.unlink(&DiskHandle::Start, path);
    }
    if let Some(above) =
        path.parent().filter(|above| files.open_folder(&DiskHandle::Start, above, Links::Follow).is_ok())
    {
        disk.sync_folder(above);
    }
}
