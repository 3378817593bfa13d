//! What only the whole program shows: published files, the kubelet's own code as the judge, the tree itself.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod attempts;
mod corpus;
#[cfg(debug_assertions)]
mod fuzz;
mod hostile;
mod oracle;
mod persons;
mod pod_security;
mod referenced;
mod strings;
mod templates;
mod tidy;
mod volumes;
