//! What defines the daemons: their DaemonSets, objects and files, as people write and hurt them.

use daemonlet::simulation::Doing;
use nix::errno::Errno;
use serde_json::Value;
use serde_json::json;

use crate::api;
use crate::moves::Home;
use crate::moves::Hurt;

use super::Node;
use super::SPACE;
use super::base64;
use super::daemon::Daemon;
use super::daemon::Label;
use super::disk::link;
use super::disk::overwrite;
use super::disk::replace;
use super::heal::Heal;

impl Node {
    pub(crate) fn apply(&mut self, daemon: usize) {
        let revision = self.next_revision();
        let truth = &mut self.daemons[daemon];
        (truth.api, truth.label, truth.held) = (Some(revision), Label::Static, None);
        let object = self.definition(daemon, revision, true);
        self.server.lock().unwrap().put("daemonsets", object);
    }

    pub(super) fn label(&mut self, daemon: usize, label: Label) {
        if self.daemons[daemon].home != Home::Api || self.daemons[daemon].api.is_none() || !self.is_reachable() {
            return;
        }
        if self.daemons[daemon].held_by_config.is_some() {
            return;
        }
        let truth = &mut self.daemons[daemon];
        if label == Label::Mistyped {
            truth.held = truth.wanted();
        }
        // From off to on again quickly, an instance may end, or not.
        truth.allowed += u32::from(label != Label::Mistyped && truth.label != label);
        truth.label = label;
        let key = api::id("daemonsets", SPACE, &truth.name);
        let word = match label {
            Label::Static => Value::from("static"),
            Label::None => Value::Null,
            Label::Mistyped => Value::from("Static"),
        };
        self.server.lock().unwrap().change(&key, |object| match word {
            Value::Null => drop(object["metadata"]["labels"].as_object_mut().map(|l| l.remove("daemonlet.dev/mode"))),
            word => object["metadata"]["labels"]["daemonlet.dev/mode"] = word,
        });
    }

    pub(super) fn delete_pod(&mut self, daemon: usize, force: bool) {
        if !self.is_reachable() {
            return;
        }
        let prefix = format!("{}-", self.daemons[daemon].name);
        let mut server = self.server.lock().unwrap();
        let is_here = |pod: &Value| {
            let is_mirror = pod["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_string();
            is_mirror && pod["spec"]["nodeName"] == *self.name
        };
        let pods = server.etcd.objects.iter().filter(|(key, _)| key.0 == "pods" && key.2.starts_with(&prefix));
        let mut keys = pods.filter(|(_, pod)| is_here(pod)).map(|(key, _)| key.clone());
        let Some(key) = keys.next() else { return };
        match force {
            true => server.delete(&key),
            false => server.change(&key, |pod| {
                pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            }),
        }
        drop(server);
        self.daemons[daemon].allowed += 1;
        self.kubelet.poke(self.steady);
    }

    /// The objects of a daemon go where it has them; where that cannot be now, `back` undoes it.
    pub(crate) fn carry_objects(&mut self, daemon: usize, back: impl FnOnce(&mut Daemon)) {
        match self.daemons[daemon].home {
            Home::Folder if self.can_write(daemon) => self.write_objects(daemon),
            Home::Api | Home::Both if self.is_reachable() && self.daemons[daemon].has_config => {
                self.put_objects(daemon)
            }
            _ => back(&mut self.daemons[daemon]),
        }
    }

    fn objects(&self, daemon: usize) -> Vec<Value> {
        let Daemon { name, config, secret, overlay, .. } = &self.daemons[daemon];
        let metadata = |prefix: &str| json!({"name": format!("{prefix}-{name}"), "namespace": SPACE});
        let overlay = overlay.as_ref().and_then(|overlay| overlay.text());
        let overlay = overlay.map(|text| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("o"), "data": {"overlays.yaml": text}})
        });
        let own = [
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("c"),
                "data": {"k": format!("V={config}"), "l": format!("V={config}")}}),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata("s"),
                "data": {"k": base64(format!("V={secret}"))}}),
        ];
        own.into_iter().chain(overlay).collect()
    }

    pub(crate) fn put_objects(&mut self, daemon: usize) {
        let objects = self.objects(daemon);
        let mut server = self.server.lock().unwrap();
        for object in objects {
            let resource = if object["kind"] == "Secret" { "secrets" } else { "configmaps" };
            server.put(resource, object);
        }
    }

    pub(crate) fn write_objects(&mut self, daemon: usize) {
        let text: String = self.objects(daemon).iter().map(|object| format!("---\n{object}\n")).collect();
        let path = self.path(daemon).with_file_name(format!("d{daemon}-objects.yaml"));
        self.as_world(|disk| replace(disk, &path, text.as_bytes()));
    }

    pub(crate) fn write_file(&mut self, daemon: usize) {
        let revision = self.next_revision();
        let text = self.file_text(daemon, revision);
        let path = self.path(daemon);
        self.unhurt(daemon);
        self.as_world(|disk| replace(disk, &path, text.as_bytes()));
        self.daemons[daemon].write(revision, self.steady);
    }

    /// A save in two steps: what is there first is a whole definition, and a wrong one.
    pub(super) fn write_half(&mut self, daemon: usize) {
        let revision = self.next_revision();
        let text = self.file_text(daemon, revision);
        let path = self.path(daemon);
        self.unhurt(daemon);
        let cut = text.find("      - name: side").unwrap_or(text.len() / 2);
        self.as_world(|disk| overwrite(disk, &path, &text.as_bytes()[..cut]));
        self.daemons[daemon].write(revision, self.steady);
        let after = self.draw.one_of(&[50, 300, 900]);
        self.heals.push((self.steady + after, Heal::FinishWriting(daemon as u8)));
    }

    pub(super) fn restore_file(&mut self, daemon: usize) {
        if !self.daemons[daemon].is_hurt {
            return;
        }
        if !self.can_write(daemon) {
            return self.heal_after(10, Heal::File(daemon as u8));
        }
        self.rewrite_file(daemon);
    }

    /// Its file is again as it was meant.
    pub(crate) fn rewrite_file(&mut self, daemon: usize) {
        self.unhurt(daemon);
        self.daemons[daemon].written_at = self.steady;
        if let Some(revision) = self.daemons[daemon].file {
            let (path, text) = (self.path(daemon), self.file_text(daemon, revision));
            self.as_world(|disk| replace(disk, &path, text.as_bytes()));
        }
    }

    fn unhurt(&mut self, daemon: usize) {
        self.daemons[daemon].is_hurt = false;
        self.disk.mend(&self.path(daemon));
    }

    pub(super) fn hurt(&mut self, daemon: usize, hurt: Hurt) {
        let Some(revision) = self.daemons[daemon].file else { return };
        let (path, text) = (self.path(daemon), self.file_text(daemon, revision));
        self.daemons[daemon].is_hurt = true;
        match hurt {
            Hurt::Empty => self.as_world(|disk| overwrite(disk, &path, b"")),
            Hurt::Half => self.as_world(|disk| overwrite(disk, &path, &text.as_bytes()[..text.len() / 3])),
            Hurt::Zeros => self.as_world(|disk| overwrite(disk, &path, &vec![0; text.len()])),
            Hurt::DanglingLink => self.as_world(|disk| link(disk, &path, "/mnt/nowhere/file.yaml")),
            Hurt::LinkLoop => self.as_world(|disk| link(disk, &path, &path.to_string_lossy())),
            Hurt::Unreadable => self.disk.fail(Doing::Open, &path, Errno::EIO),
            Hurt::StaleHandle => self.disk.fail(Doing::Read, &path, Errno::ESTALE),
        }
    }

    pub(crate) fn file_text(&self, daemon: usize, revision: u64) -> String {
        let mut object = self.definition(daemon, revision, false);
        let containers = object["spec"]["template"]["spec"]["containers"].take();
        let mut text = String::from("apiVersion: apps/v1\nkind: DaemonSet\n");
        text += &format!("metadata: {}\nspec:\n  selector: {}\n", object["metadata"], object["spec"]["selector"]);
        if object["spec"]["updateStrategy"].is_object() {
            text += &format!("  updateStrategy: {}\n", object["spec"]["updateStrategy"]);
        }
        text += &format!("  template:\n    metadata: {}\n    spec:\n", object["spec"]["template"]["metadata"]);
        for (name, value) in object["spec"]["template"]["spec"].as_object().into_iter().flatten() {
            if name != "containers" {
                text += &format!("      {name}: {value}\n");
            }
        }
        text += "      containers:\n";
        for container in containers.as_array().into_iter().flatten() {
            text += &format!("      - name: {}\n", container["name"].as_str().unwrap_or_default());
            for (name, value) in container.as_object().into_iter().flatten().filter(|(name, _)| *name != "name") {
                text += &format!("        {name}: {value}\n");
            }
        }
        text
    }

    pub(crate) fn definition(&self, daemon: usize, revision: u64, in_api: bool) -> Value {
        let name = &self.daemons[daemon].name;
        let labels = json!({"app": name});
        let mut mode = json!({"app": name});
        if in_api {
            mode["daemonlet.dev/mode"] = "static".into();
        }
        let before = self.after.get(&daemon).into_iter().flatten().map(|before| format!("{SPACE}/d{before}"));
        let before: Vec<String> = before.collect();
        let mut annotations = match before.is_empty() {
            true => json!({}),
            false => json!({"daemonlet.dev/after": before.join(", ")}),
        };
        if self.taint.as_ref().is_some_and(|taint| taint.is_asked(daemon)) {
            annotations["daemonlet.dev/startup-taint"] = "true".into();
        }
        if self.conditioned.contains(&daemon) {
            annotations["daemonlet.dev/node-condition"] = crate::node_conditions::kind(daemon).into();
        }
        if self.bad_revisions.is_cautious(daemon) {
            annotations["daemonlet.dev/rollback"] = "auto".into();
            annotations["daemonlet.dev/progress-deadline"] = "60s".into();
        }
        if self.daemons[daemon].overlay.is_some() {
            annotations["daemonlet.dev/overlays"] = format!("o-{name}").into();
        }
        if self.daemons[daemon].overrides && !in_api {
            annotations["daemonlet.dev/override"] = "true".into();
        }
        let ports = if self.has_ports { crate::room::ports(name) } else { json!([]) };
        let mut object = json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": name, "namespace": SPACE, "labels": mode, "annotations": annotations},
            "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {
                "automountServiceAccountToken": self.daemons[daemon].home == Home::Api,
                "terminationGracePeriodSeconds": 1 + daemon as i64 * 2,
                "volumes": [
                    {"name": "c", "configMap": {"name": format!("c-{name}")}},
                    {"name": "s", "secret": {"secretName": format!("s-{name}")}}],
                "containers": [
                    {"name": "main", "image": "img:1", "env": [{"name": "REV", "value": revision.to_string()}], "ports": ports,
                        "volumeMounts": [{"name": "c", "mountPath": "/c"}, {"name": "s", "mountPath": "/s"}]},
                    {"name": "side", "image": "img:1"}]}}}});
        if self.bad_revisions.is_bad(revision) {
            let env = &mut object["spec"]["template"]["spec"]["containers"][0]["env"];
            *env = json!([env[0], {"name": "BAD", "value": "yes"}]);
        }
        if self.surging.contains(&daemon) {
            object["spec"]["updateStrategy"] = crate::surges::strategy();
        }
        if self.selective.contains(&daemon) {
            object["spec"]["template"]["spec"]["nodeSelector"] = json!({"size": "big"});
        }
        object
    }
}
