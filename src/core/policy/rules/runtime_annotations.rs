//! Annotations of a pod that a container runtime, an OCI runtime or a plugin of them obeys.
//!
//! Owns which they are, by how their names begin. What they do is decided by the node's runtime: give a device, change a
//! control group, choose a hypervisor. A CNI plugin's are not among them: what a pod reaches is for the pod network.

/// The domains in front of the `/` or without one, with all below them: NRI and its plugins, CRI-O, CDI, RDT and block I/O classes.
const DOMAINS: [&str; 7] = [
    "cdi.k8s.io",
    "cri-o.io",
    "crio.io",
    "noderesource.dev",
    "nri.containerd.io",
    "nri.io",
    "resources.beta.kubernetes.io",
];

/// How the others begin: CRI-O and containerd, Kata Containers, crun, runc and crun for systemd, gVisor, hcsshim, OCI.
const PREFIXES: [&str; 9] = [
    "com.github.containers.",
    "dev.gvisor.",
    "io.containerd.",
    "io.katacontainers.",
    "io.kubernetes.cri",
    "io.microsoft.",
    "org.opencontainers.",
    "org.systemd.property.",
    "run.oci.",
];

/// Whether the annotation `name` is one of them; case does not matter, as the API server compares names without it.
pub(super) fn has(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let is_below =
        |domain: &str, of: &str| domain.strip_suffix(of).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    let domain = name.split('/').next().unwrap_or_default();
    DOMAINS.iter().any(|of| is_below(domain, of)) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runtimes_and_their_plugins_obey() {
        for name in [
            "devices.nri.io/container.c",
            "ulimits.nri.containerd.io/container.c",
            "mounts.noderesource.dev/pod",
            "cdi.k8s.io/vendor.com_gpu",
            "CDI.k8s.io/x",
            "io.kubernetes.cri-o.Devices",
            "io.kubernetes.cri.rdt-class",
            "cpu-quota.crio.io",
            "cpu-quota.crio.io/c",
            "seccomp-profile.kubernetes.cri-o.io/c",
            "rdt.resources.beta.kubernetes.io/pod",
            "blockio.resources.beta.kubernetes.io/container.c",
            "io.katacontainers.config.hypervisor.path",
            "run.oci.handler",
            "org.systemd.property.DeviceAllow",
            "dev.gvisor.spec.mount.v.source",
        ] {
            assert!(has(name), "{name}");
        }
        for name in [
            "kubectl.kubernetes.io/default-container",
            "prometheus.io/scrape",
            "checksum/config",
            "container.apparmor.security.beta.kubernetes.io/c",
            "k8s.v1.cni.cncf.io/networks",
            "example.com/nri.io",
            "notnri.io/x",
            "run.ocix",
            "",
        ] {
            assert!(!has(name), "{name}");
        }
    }
}
