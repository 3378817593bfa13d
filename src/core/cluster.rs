//! What needs the whole cluster: history, counters, rollouts.
//!
//! Owns the decisions of the coordinator, as functions of values. Must not know clients, leases or
//! clocks; `crate::cluster` is the shell around it.

pub mod conditions;
pub mod counters;
pub mod history;
pub mod names;
pub mod node_daemons;
pub mod overview;
pub mod pace;
pub mod pass;
pub mod retries;
pub mod rights;
pub mod rollout;
pub mod view;
