//! The agent: the shell around the core. Fetches inputs, applies plans, reports.
//!
//! Owns every effect on the node. Must not decide: decisions are `crate::core`'s.

pub mod agent;
pub mod api;
pub mod checkpoint;
pub mod cri;
pub mod doctor;
pub mod enrolment;
pub mod folders;
pub mod fsx;
pub mod images;
pub mod kubelet;
pub mod manifests;
pub mod metrics;
pub mod notify;
pub mod recording;
pub mod seal;
pub mod socket;
#[cfg(test)]
mod tests;
pub mod volumes;
