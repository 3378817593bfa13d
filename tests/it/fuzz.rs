//! The seeds of the fuzz targets, and what fuzzing once found: each as it is, and changed by the
//! targets' own mutators. `make fuzz` looks for more.

use std::fs;
use std::path::Path;

#[allow(unreachable_pub)]
#[path = "../../fuzz/src/lib.rs"]
mod targets;

/// How often each seed is changed.
const CHANGES: u32 = 60;
/// The fuzzer's own bound.
const LONGEST: usize = 131_072;

fn replay(target: &str, check: fn(&[u8]), change: fn(&[u8], usize, u32) -> Option<Vec<u8>>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    let mut seeds: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    seeds.sort();
    assert!(seeds.len() > 3, "only {} seeds", seeds.len());
    for seed in seeds {
        let data = fs::read(&seed).unwrap();
        println!("{} as it is", seed.display());
        check(&data);
        for number in 0..CHANGES {
            if let Some(changed) = change(&data, LONGEST, number) {
                println!("{}, change {number}", seed.display());
                check(&changed);
            }
        }
    }
}

#[test]
fn api() {
    replay("api", targets::api::check, targets::api::change);
}

#[test]
fn checkpoint() {
    replay("checkpoint", targets::checkpoint::check, targets::checkpoint::change);
}

#[test]
fn config() {
    replay("config", targets::config::check, targets::config::change);
}

#[test]
fn fields() {
    replay("fields", targets::fields::check, targets::fields::change);
}

#[test]
fn files() {
    replay("files", targets::files::check, targets::files::change);
}

#[test]
fn yaml() {
    replay("yaml", targets::yaml::check, targets::yaml::change);
}

#[test]
fn runtime() {
    replay("runtime", targets::runtime::check, targets::runtime::change);
}

#[test]
fn provider() {
    replay("provider", targets::provider::check, targets::provider::change);
}

#[test]
fn socket() {
    replay("socket", targets::socket::check, targets::socket::change);
}

#[test]
fn bundle() {
    replay("bundle", targets::bundle::check, targets::bundle::change);
}

#[test]
fn cluster() {
    replay("cluster", targets::cluster::check, targets::cluster::change);
}
