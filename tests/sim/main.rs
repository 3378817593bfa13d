//! The simulator: the agent's whole program on a node in memory, in thousands of lives.
//!
//! ```text
//! sim                  the lives that are kept, then new ones for SIM_SECONDS (10) seconds
//! sim found, sim new   the first of them alone, or the others
//! sim SEED [COUNT]     the lives of these seeds
//! sim FILE…            the lives in these files
//! ```
//!
//! A life that breaks a law is made shorter, printed as a story, and kept in tests/sim/found.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

mod api;
mod bad_revisions;
mod bridges;
mod etcd_backup;
mod gates;
mod kubelet;
mod laws;
mod life;
mod machine;
mod moves;
mod node;
mod node_conditions;
mod not_ready;
mod others;
mod overlays;
mod overriding;
mod room;
mod selection;
mod startup_taint;
mod surges;
mod vendor;

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use laws::Violation;
use moves::Life;
use node::Killed;

/// A fifth of a life is memory that comes and goes.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

thread_local! {
    /// A panic of this life, wherever it was: that of a task ends the task alone.
    static PANICKED: Cell<Option<String>> = const { Cell::new(None) };
}

fn main() {
    std::panic::set_hook(Box::new(|panic| {
        if !panic.payload().is::<Killed>() {
            PANICKED.set(Some(panic.to_string()));
        }
        if !panic.payload().is::<Killed>() && std::env::var_os("DAEMONLET_SIM_STORY").is_some() {
            eprintln!("{panic}");
            if std::env::var_os("RUST_BACKTRACE").is_some() {
                eprintln!("{}", std::backtrace::Backtrace::force_capture());
            }
        }
    }));
    if std::env::var_os("DAEMONLET_SIM_LOG").is_some() {
        let _ = daemonlet::log::init(
            "daemonlet=debug",
            daemonlet::config::LogTarget::Stderr,
            daemonlet::log::StateOutput::InLog,
        );
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let kubeconfig = folder.path().join("kubeconfig");
    let text = "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
        clusters: [{name: k, cluster: {server: \"http://127.0.0.1:6443\"}}]\n\
        users: [{name: u, user: {token: t}}]\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n";
    std::fs::write(&kubeconfig, text).expect("a kubeconfig");
    let kubeconfig = kubeconfig.to_string_lossy().into_owned();
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let is_right = match (words.first().map_or("", String::as_str), words.first().map(|word| word.parse::<u64>())) {
        ("", _) => kept(&kubeconfig) & new_lives(&kubeconfig),
        ("found", _) => kept(&kubeconfig),
        ("new", _) => new_lives(&kubeconfig),
        (_, Some(Ok(first))) => {
            let count = words.get(1).and_then(|word| word.parse().ok()).unwrap_or(1);
            (first..first + count).all(|seed| judge(&drawn(seed), &kubeconfig))
        }
        _ => words.iter().all(|file| {
            let text = std::fs::read_to_string(file).expect("a life that was kept");
            judge(&serde_json::from_str(&text).expect("a life"), &kubeconfig)
        }),
    };
    std::process::exit(i32::from(!is_right));
}

/// The lives that are kept.
fn kept(kubeconfig: &str) -> bool {
    let mut files: Vec<_> = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sim/found"))
        .map(|files| files.flatten().map(|file| file.path()).collect())
        .unwrap_or_default();
    files.retain(|file: &std::path::PathBuf| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    let (next, is_right) = (AtomicUsize::new(0), AtomicBool::new(true));
    let live_some = || {
        while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            let text = std::fs::read_to_string(file).expect("a life that was kept");
            let life: Life = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            if let Some(violation) = life::live(&life, kubeconfig).violation {
                println!("{}: {}: {}", file.display(), violation.law, violation.what);
                is_right.store(false, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        (0..threads()).for_each(|_| _ = scope.spawn(live_some));
    });
    println!("{} lives that were kept", files.len());
    is_right.into_inner()
}

/// How many lives are lived at once.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// New lives on all processors for a while; ends with the first that breaks a law, unless SIM_ALL is set.
fn new_lives(kubeconfig: &str) -> bool {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let seconds = number("SIM_SECONDS").unwrap_or(10);
    let most = number("SIM_LIVES").unwrap_or(u64::MAX);
    let first = number("SIM_SEED").unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        now.as_nanos() as u64 % 1_000_000_000
    });
    let goes_on = std::env::var_os("SIM_ALL").is_some();
    let (next, began, worked) = (AtomicU64::new(0), Instant::now(), processor_time());
    let found: Mutex<Vec<(Life, Violation)>> = Mutex::default();
    let threads = threads();
    let is_over = || began.elapsed() >= Duration::from_secs(seconds) || !goes_on && !found.lock().unwrap().is_empty();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !is_over() {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= most {
                        break;
                    }
                    let life = drawn(first + index);
                    if !has_what_is_asked_for(&life) {
                        continue;
                    }
                    if let Some(violation) = life::live(&life, kubeconfig).violation {
                        found.lock().unwrap().push((life, violation));
                    }
                }
            });
        }
    });
    let (lives, took) = (next.load(Ordering::Relaxed).min(most), began.elapsed().as_secs_f64());
    let rate = lives as f64 * 60.0 / (processor_time() - worked).as_secs_f64();
    let found = found.into_inner().unwrap();
    for (life, violation) in &found {
        print_story(life, violation, kubeconfig);
    }
    println!("{lives} lives from seed {first}, {took:.1} s on {threads} processors: {rate:.0} a minute of one");
    found.is_empty()
}

/// How long processors have worked for this process: others may work beside it.
fn processor_time() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Lives one life, twice: the same life must be the same. What breaks a law is made shorter and printed.
fn judge(life: &Life, kubeconfig: &str) -> bool {
    let (one, other) = (life::live(life, kubeconfig), life::live(life, kubeconfig));
    if one.trace != other.trace {
        println!("seed {}: the same life is not the same", life.seed);
        return false;
    }
    let Some(violation) = one.violation else { return true };
    print_story(life, &violation, kubeconfig);
    false
}

/// The story of a life that breaks a law, made shorter unless SIM_WHOLE is set.
fn print_story(life: &Life, violation: &Violation, kubeconfig: &str) {
    let (life, violation) = match std::env::var_os("SIM_WHOLE") {
        None => shrink(life.clone(), violation.clone(), kubeconfig),
        Some(_) => (life.clone(), violation.clone()),
    };
    println!("seed {}: {}: {}", life.seed, violation.law, violation.what);
    println!("  daemons {:?}, after {:?}, one journal {}", life.daemons, life.after, life.one_journal);
    println!(
        "  startup taint for {:?}, overlays for {:?}, conditions of {:?}",
        life.tainted, life.overlaid, life.conditioned
    );
    for (at, what) in &life.moves {
        println!("  {:>9.3} s  {what:?}", *at as f64 / 1_000.0);
    }
    println!("  {:>9.3} s  {}", violation.at as f64 / 1_000.0, violation.law);
    println!("  {}", serde_json::to_string(&life).unwrap_or_default());
}

/// The life of a seed; without the moves that SIM_WITHOUT names.
fn drawn(seed: u64) -> Life {
    let mut life = Life::of(seed);
    let without = std::env::var("SIM_WITHOUT").unwrap_or_default();
    let is_named =
        |what: &moves::Move| without.split(',').any(|name| !name.is_empty() && format!("{what:?}").starts_with(name));
    life.moves.retain(|(_, what)| !is_named(what));
    life
}

/// Whether a life has the move that SIM_WITH names; without that every life counts.
fn has_what_is_asked_for(life: &Life) -> bool {
    let name = std::env::var("SIM_WITH").unwrap_or_default();
    name.is_empty() || life.moves.iter().any(|(_, what)| format!("{what:?}").starts_with(&name))
}

/// Leaves out what the violation does not need.
fn shrink(mut life: Life, mut violation: Violation, kubeconfig: &str) -> (Life, Violation) {
    let mut length = life.moves.len();
    while length > 0 {
        let mut at = 0;
        while at < life.moves.len() {
            let mut less = life.clone();
            less.moves.drain(at..(at + length).min(life.moves.len()));
            match life::live(&less, kubeconfig).violation {
                Some(same) if same.law == violation.law => (life, violation) = (less, same),
                _ => at += length,
            }
        }
        length /= 2;
    }
    (life, violation)
}
