//! Messages of upstream's components that have no machine-readable form.
//!
//! Owns the reading: no other module compares with their messages. Each function names the source of its texts.

pub mod api_server;
pub mod container_runtime;
pub mod kubelet;
pub mod scheduler;
