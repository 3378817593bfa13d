//! Kubernetes quantities: parsing and upstream's canonical spelling (`0.1` is `100m`).
