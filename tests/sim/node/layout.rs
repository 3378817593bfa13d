//! A node and its cluster as a life begins with them.

use std::path::Path;
use std::sync::Arc;

use daemonlet::simulation::Doing;
use serde_json::json;

use crate::vendor::VENDORS;

use super::FOLDER;
use super::KUBELET;
use super::Killed;
use super::LATE;
use super::LATE_MOUNT;
use super::LATE_SYSTEM;
use super::MANIFESTS;
use super::Node;
use super::SPACE;
use super::disk::foreign;

impl Node {
    /// Folders, what the kernel shows, and files of others.
    pub(super) fn lay_out(&mut self) {
        let disk = &self.disk;
        for folder in ["/run", "/var/lib", KUBELET, MANIFESTS, FOLDER, LATE_MOUNT, VENDORS, "/tmp"] {
            disk.make_folder(Path::new(folder));
        }
        disk.mount(Path::new(LATE_MOUNT), LATE_SYSTEM);
        disk.make_folder(Path::new(LATE));
        disk.put_device(Path::new("/dev/null"));
        disk.put("/proc/sys/kernel/random/boot_id", format!("{:032x}\n", 0));
        disk.put("/proc/self/mountinfo", "1 0 8:1 / / rw - ext4 /dev/sda rw\n");
        disk.put("/proc/1/stat", format!("1 (init) {}0 0", "S 1 ".repeat(10)));
        disk.put(format!("{MANIFESTS}/etcd.yaml"), foreign());
        disk.put(format!("{FOLDER}/README.txt"), "for people");
        disk.set_volatile("/run");
        let (effects, poke) = (Arc::clone(&self.effects), Arc::clone(&self.poke));
        disk.observe(Some(Arc::new(move |doing, path: &Path| {
            let mut effects = effects.lock().unwrap();
            let by_world = effects.by_world;
            if doing != Doing::Sync {
                effects.log.push((doing, path.to_owned(), by_world));
                if std::env::var_os("DAEMONLET_SIM_DISK").is_some() && !by_world {
                    eprintln!("          {doing} {}", path.display());
                }
                poke.notify_one();
            }
            if by_world {
                return;
            }
            if let Some((left, end)) = effects.left {
                effects.left = (left > 0).then(|| (left - 1, end));
                if left == 0 {
                    effects.ended = Some(end);
                    drop(effects);
                    std::panic::panic_any(Killed);
                }
            }
        })));
    }

    pub(super) fn settle_cluster(&mut self) {
        let mut server = self.server.lock().unwrap();
        let named = |kind: &str, namespace: &str, name: &str| {
            let mut object = json!({"kind": kind, "metadata": {"name": name}});
            if !namespace.is_empty() {
                object["metadata"]["namespace"] = namespace.into();
            }
            object
        };
        for namespace in [SPACE, crate::others::GUESTS, crate::others::OUTSIDERS] {
            server.put("namespaces", named("Namespace", "", namespace));
        }
        server.put("serviceaccounts", named("ServiceAccount", SPACE, "default"));
        let mut ca = named("ConfigMap", SPACE, "kube-root-ca.crt");
        ca["data"] = json!({"ca.crt": "CA"});
        server.put("configmaps", ca);
        let mut service = named("Service", "default", "kubernetes");
        service["spec"] = json!({"clusterIP": "10.96.0.1", "ports": [{"name": "https", "port": 443}]});
        server.put("services", service);
        drop(server);
        self.put_node();
    }

    pub(crate) fn put_node(&self) {
        let mut labels = json!({"kubernetes.io/hostname": self.name});
        if self.is_labelled {
            labels["size"] = if self.is_big { "big" } else { "small" }.into();
        }
        let mut node = json!({"kind": "Node", "metadata": {"name": self.name, "labels": labels}});
        if self.taint.is_some() {
            // The kubelet's --register-with-taints.
            node["spec"] = json!({"taints": [{"key": crate::startup_taint::KEY, "effect": "NoSchedule"}]});
        }
        node["status"] = json!({"nodeInfo": {"kubeletVersion": "v1.36.2"},
            "conditions": [{"type": "Ready", "status": "True"}]});
        if !self.bridges.is_empty() {
            // What the scheduler says is short, an instance may have only if the Node has it.
            node["status"]["allocatable"] = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
        }
        self.server.lock().unwrap().put("nodes", node);
        if self.not_ready.is_some() {
            self.write_condition();
        }
    }
}
