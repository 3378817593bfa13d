//! What needs the whole cluster: history, counters, rollouts.
//!
//! Owns the decisions of the coordinator, as functions of values. Must not know clients, leases or
//! clocks; `crate::cluster` is the shell around it.

pub mod broken;
pub mod certificates;
pub mod claims;
pub mod conditions;
pub mod counters;
pub mod decide;
pub mod events;
pub mod history;
pub mod liveness;
pub mod names;
pub mod node_daemons;
pub mod observation;
pub mod overview;
pub mod pace;
pub mod pass;
pub mod released;
pub mod requests;
pub mod retries;
pub mod rights;
pub mod rollout;
pub mod snapshot;
pub mod state;
pub mod steps;
pub mod telemetry;
pub mod term_clock;
