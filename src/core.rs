//! The pure core: what should run here, and how it looks as a static pod.
//!
//! Owns every decision. Must not do I/O, read a clock, log, or know tokio, kube or the file system.

pub mod canonical;
pub mod convert;
pub mod explain;
pub mod identity;
pub mod model;
pub mod placement;
pub mod plan;
pub mod policy;
pub mod quantity;
pub mod render;
pub mod status;
pub mod validate;
pub mod volume;
pub mod yaml;
