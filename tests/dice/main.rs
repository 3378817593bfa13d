//! Dice for the coordinator: rollouts, failures, joins, losses and deaths in an order that a seed draws, in simulated
//! time, with an API server, coordinators and agents in memory.
//!
//! Owns the laws. They are looked at after every step: the budget holds, on the nodes, also with those that broke and whose
//! agents are dead, whoever coordinates, and in what a coordinator gives by what it sees; a coordinator gives nothing that
//! pause, halt, abort, canary, partition or zones forbid by what it sees; a step's bound holds; what is halted spreads no
//! further, to nodes that join either; nodes that it broke count when they are deleted, too; what is claimed is not taken
//! away; nothing is claimed of who does not hold the Lease; first installs start with an approval and so many at a time; and
//! once all are well again every node has what is wanted, the status is true at each moment, and no coordinator writes,
//! also while NodeDaemons are deleted and come back. [`edges`], [`fleet`], [`blind`] and [`clocks`] have more
//! moves and laws, for lives of some seeds.
//! `DAEMONLET_SEEDS=5000` plays so many seeds, `DAEMONLET_SEED=7` one; both: so many from that one on. A seed that breaks a
//! law is printed with its story.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

mod agent;
mod api;
mod blind;
mod clocks;
mod coordinator;
mod edges;
mod fleet;
mod given;
mod life;
mod lost;
mod recent_truth;
mod slots;

use std::cell::RefCell;
use std::num::NonZero;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use daemonlet::core::time::Span;
use daemonlet::core::time::Timestamp;

use life::Life;

thread_local! {
    /// What a panic of this thread says.
    static SAID: RefCell<String> = const { RefCell::new(String::new()) };
}

const KEY: (&str, &str) = ("kube-system", "net");
const START: Timestamp = Timestamp::from_secs(1_700_000_000);
/// An approval is withdrawn by then, though both coordinators were stopped for as long as they ever are.
const WITHDRAWN: Span = Span::from_secs(250);
/// A coordinator knows of an agent that lives again after this, unless it is stopped: it lists Leases every 15 s.
const KNOWN_AFTER: Span = Span::from_secs(20);
/// Rounds without a change after which nothing else is waited for.
const QUIET: usize = 45;
/// Steps of a life before all are well again.
const LENGTH: usize = 600;

/// Numbers from a seed: splitmix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % u64::try_from(bound.max(1)).unwrap()).unwrap()
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// A life that breaks a law.
struct Broken {
    seed: u64,
    law: String,
    story: Vec<String>,
}

/// Plays one life.
fn play(seed: u64) -> Result<(), Broken> {
    let mut life = Life::new(seed);
    let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for step in 0..LENGTH {
            if step > 150 && life.dice.below(40) == 0 {
                life.disturb();
            }
            if step > 150 {
                life.may_be_odd();
                life.may_move_the_fleet();
                life.may_be_blind();
                life.may_set_clocks();
            }
            for _ in 0..6 {
                life.go_on(false);
            }
        }
        life.calm_down();
    }));
    played.map_err(|_| Broken { seed, law: SAID.take(), story: life.story })
}

/// Plays the lives of these seeds on all processors; gives the first of them that breaks a law.
fn first_broken(seeds: Range<u64>) -> Option<Broken> {
    let next = AtomicU64::new(seeds.start);
    let first: Mutex<Option<Broken>> = Mutex::new(None);
    let is_after = |first: &Mutex<Option<Broken>>, seed| first.lock().unwrap().as_ref().is_some_and(|b| b.seed < seed);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            // Lives before one that breaks a law are played to their end.
            if seed >= seeds.end || is_after(&first, seed) {
                return;
            }
            if let Err(broken) = play(seed)
                && !is_after(&first, seed)
            {
                *first.lock().unwrap() = Some(broken);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(work);
        }
    });
    first.into_inner().unwrap()
}

#[test]
fn whatever_happens_the_budget_holds_and_all_come_to_rest() {
    std::panic::set_hook(Box::new(|panic| SAID.set(panic.to_string())));
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("DAEMONLET_SEED").unwrap_or(0);
    let count = number("DAEMONLET_SEEDS").unwrap_or(if first == 0 { 40 } else { 1 });
    let broken = first_broken(first..first + count);
    let _ = std::panic::take_hook();
    if let Some(Broken { seed, law, story }) = broken {
        panic!("{}\nseed {seed}: {law}", story.join("\n"));
    }
}
