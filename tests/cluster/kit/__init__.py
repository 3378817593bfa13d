"""A real Kubernetes on one machine, for tests that read like a story.

The map, from the ground up (each module says at its head what it owns):

  tools          the programs: Debian packages, Kubernetes from its Go modules, our own Go programs
  preflight      what the machine must have before a story starts
  sandbox        namespaces and cgroups of a run's own, so that nothing of it can stay behind
  wait           waiting with a bound, on events where there are any
  process        programs that a test starts, freezes and stops
  net            the network between machines, and cuts in it
  pki            certificates and kubeconfigs
  api            a Kubernetes client on the standard library
  control_plane  etcd, API server, controller manager, scheduler
  faces          what an API server shows that does not work
  images         container images without a registry
  registry       a registry of images on loopback, with its troubles
  kubelet        a kubelet with containerd, beside the test
  hollow         hollow nodes: the kubelet's code, a fake runtime
  machine        whole machines: systemd, containerd, kubelet, daemonlet as units
  networks       the file that gives a cluster its pod network
  agent          daemonlet itself, beside the test
  packages       its .deb and .rpm
  recipes        images for the daemons of its recipes

The standard library is all that is used. Nothing here talks to anything outside the sandbox
except `tools`, which fetches what is built.
"""
