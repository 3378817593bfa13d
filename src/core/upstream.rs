//! What upstream's components say only in words.
//!
//! Owns the reading: nothing else compares with their messages. Each function names the source of its words.

pub mod api_server;
pub mod container_runtime;
pub mod kubelet;
