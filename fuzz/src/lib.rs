//! The fuzz targets: what each makes of bytes, and how bytes are changed for it.
//!
//! `tests/it/fuzz.rs` includes this file too, and replays the seeds without a fuzzer.

pub mod api;
pub mod bundle;
pub mod checkpoint;
pub mod cluster;
pub mod config;
pub mod fields;
pub mod files;
pub mod mutate;
pub mod provider;
pub mod runtime;
pub mod socket;
pub mod whole;
pub mod yaml;

/// Hands a module's `check` and `change` to the fuzzer.
#[macro_export]
macro_rules! target {
    ($name:ident) => {
        libfuzzer_sys::fuzz_target!(|data: &[u8]| $crate::$name::check(data));

        libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
            match $crate::$name::change(&data[..size], max_size, seed) {
                Some(changed) => {
                    data[..changed.len()].copy_from_slice(&changed);
                    changed.len()
                }
                None => libfuzzer_sys::fuzzer_mutate(data, size, max_size),
            }
        });
    };
}
