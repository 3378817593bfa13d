//! The pure core: what should run here, and how it looks as a static pod.
//!
//! Owns every decision. Must not do I/O, read a clock, log, or know tokio, kube or the file system.

pub mod acceptance;
pub mod adopt;
pub mod annotations;
pub mod canonical;
pub mod cluster;
pub mod convert;
pub mod dns;
pub mod doctor;
pub mod dry_run;
pub mod duration;
pub mod enrolment;
pub mod explain;
pub mod health;
pub mod identity;
pub mod images;
pub mod input;
pub mod json;
pub mod knowledge;
pub mod labels;
pub mod manifest;
pub mod metrics;
pub mod model;
mod named;
pub mod nearest;
pub mod node;
pub mod orders;
pub mod owners;
pub mod pass;
pub mod placement;
pub mod plan;
pub mod policy;
pub mod ports;
pub mod quantity;
pub mod record;
pub mod render;
pub mod rendering;
pub mod replies;
pub mod sources;
pub mod status;
pub mod time;
pub mod upstream;
pub mod validate;
pub mod volume;
pub mod window;
pub mod yaml;
