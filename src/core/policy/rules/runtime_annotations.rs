//! Annotations of a pod that a container runtime, an OCI runtime or a plugin of them obeys.
//!
//! Owns which they are, by how their names begin. What they do is decided by the node's runtime: give a device, change a
//! control group, choose a hypervisor. A CNI plugin's are not among them: what a pod reaches is for the pod network.

/// The domains in front of the `/` or without one, with all below them: NRI and its plugins, containerd, CRI-O and the
/// workloads that OpenShift gives it, CDI, RDT and block I/O classes, and the resource manager between kubelet and runtime.
const DOMAINS: [&str; 10] = [
    "cdi.k8s.io",
    "containerd.io",
    "cri-o.io",
    "cri-resource-manager.intel.com",
    "crio.io",
    "noderesource.dev",
    "nri.containerd.io",
    "nri.io",
    "resources.beta.kubernetes.io",
    "workload.openshift.io",
];

/// What the others are, or how they begin up to a `.` or `/`: CRI-O and its examples of workloads, containerd, Kata
/// Containers, crun with libkrun and WebAssembly, urunc, what runc and crun call unsafe (`potentiallyUnsafeConfigAnnotations`:
/// for systemd, CRIU and where the bundle is), gVisor, hcsshim, OCI.
const STEMS: [&str; 18] = [
    "bundle",
    "com.github.containers",
    "com.urunc",
    "dev.gvisor",
    "io.containerd",
    "io.crio",
    "io.katacontainers",
    "io.kubernetes.cri",
    "io.kubernetes.cri-containerd",
    "io.kubernetes.cri-o",
    "io.microsoft",
    "io.openshift.builder",
    "krun",
    "module.wasm",
    "org.criu",
    "org.opencontainers",
    "org.systemd.property",
    "run.oci",
];

/// Whether the annotation `name` is one of them; case does not matter, as the API server compares names without it.
pub(super) fn has(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let is_below =
        |domain: &str, of: &str| domain.strip_suffix(of).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    let domain = name.split('/').next().unwrap_or_default();
    let begins =
        |stem: &str| name.strip_prefix(stem).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '/']));
    DOMAINS.iter().any(|of| is_below(domain, of)) || STEMS.iter().any(|stem| begins(stem))
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
            "io.crio/workload",
            "io.crio.workload-type/c",
            "IO.crio.workload-type.cpuset/c",
            "target.workload.openshift.io/management",
            "resources.workload.openshift.io/c",
            "io.openshift.builder",
            "org.criu.config",
            "bundle",
            "module.wasm.image/variant",
            "krun.ram_mib",
            "com.urunc.unikernel.unikernelType",
            "com.github.containers.virtcontainers.Factory",
            "io.containerd.cri.runtime-handler",
            "io.kubernetes.cri.untrusted-workload",
            "io.kubernetes.cri-o.UnifiedCgroup.c",
            "nvidia.cdi.k8s.io/x",
            "memory-qos.nri.io/container.c",
            "containerd.io/snapshot/x",
            "memtype.cri-resource-manager.intel.com/pod",
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
            "bundles",
            "bundle-version",
            "io.crio-x/y",
            "io.kubernetes.criminal",
            "openshift.io/scc",
            "example.com/org.criu.config",
            "",
        ] {
            assert!(!has(name), "{name}");
        }
    }
}
