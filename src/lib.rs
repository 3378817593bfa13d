//! daemonlet: one agent per node that runs DaemonSets as static pods.
//!
//! ```text
//!  folders ─┐                         ┌─> manifests (kubelet's staticPodPath)
//!  API ─────┼─> inputs ─> plan ─> apply ─> volume data (pods/<uid>/volumes)
//!  disk ────┘   (node)   (core)  (node) └─> events, status, checkpoint
//! ```
//!
//! * [`core`] decides: functions of values, no I/O, no clock, no logging, no globals.
//! * [`node`] is the shell: it fetches inputs, applies plans and reports.
//! * [`guard`] is a program of its own: for the first minutes of a boot it refuses in the stead of a
//!   silent API server.
//! * [`cluster`] is the coordinator: the one process that sees the whole cluster.
//! * [`config`] is the configuration of the node's owner.
//! * [`cli`] is the command line; only it and `main` print and choose exit codes.
//!
//! Invariants, each held by a test:
//! * Absence is not deletion: a manifest goes only on positive evidence.
//! * A pod UID whose manifest was ever removed is never used again.
//! * A file that is not ours is never touched.
//! * The data is on disk before the manifest that needs it.
//! * The same inputs give the same bytes.

#[cfg(not(target_pointer_width = "64"))]
compile_error!("daemonlet runs on 64-bit machines only: build it for x86-64 or arm64");

/// Asserts in builds with checks, and in the simulator: that is built without the compiler's, which the standard library
/// is slow with.
macro_rules! checked {
    ($($asserted:tt)*) => {
        if cfg!(any(debug_assertions, feature = "simulation")) {
            assert!($($asserted)*);
        }
    };
}

pub mod cli;
mod clock;
pub mod cluster;
pub mod config;
pub mod core;
pub mod guard;
pub mod log;
pub mod node;
mod regular_file;
#[cfg(feature = "simulation")]
pub mod simulation;
