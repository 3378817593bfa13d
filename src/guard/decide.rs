//! What the guard does with the results of its probes: a state machine over probes and time.
//!
//! Pure: time comes in as the time since the guard's start, and what is to be done goes out as
//! values. Must not probe, resolve or touch the kernel.
//!
//! ```text
//!             refuses                    answers
//!   Silent ────────────> Refusing    any ────────> Answering (for good)
//!     ^  <────────────
//!   (start)   silent
//! ```

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

/// How long a probe may take before its address counts as silent.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// How long an address is probed at the quick pace.
const QUICK_FOR: Duration = Duration::from_secs(10);
/// How long after its last refusal an address may be slow without counting as silent: a server that
/// has just started refuses one moment and is short of breath the next.
const BREATH: Duration = Duration::from_secs(10);
const QUICK: Duration = Duration::from_millis(200);
const SLOW: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeResult {
    /// A TLS handshake was completed, however late.
    Answer,
    /// The other side ended the attempt by itself: a client gets an error at once.
    Refusal,
    /// Nothing within [`ANSWER_WITHIN`], or only this node's own report that there is no route.
    NoAnswer,
}

/// What is known of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Face {
    /// It has not answered yet, or not any more.
    Unreachable,
    /// It refuses by itself.
    Refusing,
    /// It has answered: the guard is done with it.
    Answering,
}

/// Why the guard ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Every address has answered.
    Answered,
    /// It has acted for as long as it may.
    TimeUp,
}

/// A probe to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AddressProbe {
    /// Counts the probes of a guard.
    pub(super) number: u64,
    /// Where to.
    pub(super) address: SocketAddr,
}

#[derive(Clone, Debug)]
struct Address {
    face: Face,
    /// When it became known.
    since: Duration,
    /// When the next probe is due.
    due: Duration,
    /// When it last refused.
    refused: Option<Duration>,
    /// The number of the latest probe that decided `face`; results of earlier ones are ignored.
    decided_by: u64,
}

/// What the guard knows of each address.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    max: Duration,
    addresses: BTreeMap<SocketAddr, Address>,
    probes: u64,
}

impl Guard {
    /// A guard that knows no address yet and ends `max` after its start.
    pub(super) fn new(max: Duration) -> Self {
        Self { max, addresses: BTreeMap::new(), probes: 0 }
    }

    /// The addresses are these now. New ones count as silent until they answer, so that the rule
    /// comes before the first probe; those that are no longer named are forgotten.
    pub(super) fn learn(&mut self, now: Duration, named: &BTreeSet<SocketAddr>) {
        self.addresses.retain(|address, _| named.contains(address));
        for address in named {
            let new = Address { face: Face::Unreachable, since: now, due: now, refused: None, decided_by: 0 };
            self.addresses.entry(*address).or_insert(new);
        }
    }

    /// Takes the result of a probe; gives the address's face if that changed.
    pub(super) fn observe(&mut self, now: Duration, probe: AddressProbe, result: ProbeResult) -> Option<Face> {
        let address = self.addresses.get_mut(&probe.address)?;
        let face = match result {
            ProbeResult::Answer => Face::Answering,
            _ if address.face == Face::Answering || probe.number < address.decided_by => return None,
            ProbeResult::Refusal => {
                address.refused = Some(now);
                Face::Refusing
            }
            ProbeResult::NoAnswer if address.refused.is_some_and(|refused| now.saturating_sub(refused) < BREATH) => {
                return None;
            }
            ProbeResult::NoAnswer => Face::Unreachable,
        };
        address.decided_by = probe.number;
        let changed = address.face != face;
        address.face = face;
        changed.then_some(face)
    }

    /// The probes that are due; each is given once.
    pub(super) fn probes(&mut self, now: Duration) -> Vec<AddressProbe> {
        let mut probes = Vec::new();
        for (address, known) in &mut self.addresses {
            if known.face != Face::Answering && known.due <= now {
                let pace = if now.saturating_sub(known.since) < QUICK_FOR { QUICK } else { SLOW };
                known.due = now + pace;
                self.probes += 1;
                probes.push(AddressProbe { number: self.probes, address: *address });
            }
        }
        probes
    }

    /// The addresses in whose stead this node refuses.
    pub(super) fn refused(&self) -> BTreeSet<SocketAddr> {
        self.addresses
            .iter()
            .filter(|(_, known)| known.face == Face::Unreachable)
            .map(|(address, _)| *address)
            .collect()
    }

    /// Whether any address is known.
    pub(super) fn knows_any(&self) -> bool {
        !self.addresses.is_empty()
    }

    /// Whether and why the guard is to end.
    pub(super) fn end(&self, now: Duration) -> Option<End> {
        let answered = self.knows_any() && self.addresses.values().all(|known| known.face == Face::Answering);
        if answered {
            return Some(End::Answered);
        }
        (now >= self.max).then_some(End::TimeUp)
    }

    /// When to look again at the latest.
    pub(super) fn next(&self) -> Duration {
        let open = self.addresses.values().filter(|known| known.face != Face::Answering);
        open.map(|known| known.due).fold(self.max, Duration::min)
    }
}

#[cfg(test)]
mod tests;
