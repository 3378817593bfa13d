//! Secrets and tokens of the checkpoint where the node's owner wants them sealed.
//!
//! Owns when they are sealed and opened. Must not write a secret in plain; a secret that cannot be sealed is not saved, and
//! that is reported.

use std::hash::DefaultHasher;
use std::hash::Hash;
use std::hash::Hasher;

use crate::core::status::Problem;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::core::time::doubled;
use crate::node::checkpoint::CheckpointStore;
use crate::node::checkpoint::Damaged;
use crate::node::checkpoint::Loaded;
use crate::node::seal::SealError;
use crate::node::seal::Sealed;
use crate::node::seal::SealingKey;

use super::failure;
use super::remembered_inputs::SavedSecrets;

/// The record's name in the state folder.
const SECRETS: &str = "secrets";
/// Why what is on disk is left as it is.
const CLOSED: &str = "the sealed secrets cannot be opened now";
/// What is newer than that is not saved either.
const CLOSED_AND_UNSAVED: &str =
    "the sealed secrets cannot be opened now, nor can newer ones and tokens be sealed, which are not saved";
/// What failed is tried again after this: each try runs a program.
const AGAIN: Span = Span::from_secs(60);
/// The same after the first try to open it, and twice as long after each other one: a TPM may come some seconds after the
/// agent, and daemons wait for it.
const SOON: Span = Span::from_secs(5);

/// How secrets are kept on disk.
#[derive(Debug, Default)]
pub(super) struct Sealing {
    /// With which of the machine's keys; `None`: in plain, with the other inputs.
    with: Option<String>,
    key: Option<SealingKey>,
    /// Hash of the secrets that are sealed on disk.
    saved: Option<u64>,
    /// What is on disk could not be opened for now: it is not replaced.
    is_closed: bool,
    /// How often in this process it could not be opened.
    tries: u32,
    /// When they were last sealed, or that was tried.
    sealed_at: Option<Timestamp>,
    /// Why secrets are not saved, and when to try again.
    trouble: Option<(String, Timestamp)>,
}

/// What was found on disk.
pub(super) enum Opened {
    Secrets(SavedSecrets),
    /// None that can be used now.
    Nothing,
    /// None that can be trusted.
    Damaged(Damaged),
}

impl Sealing {
    /// As configured.
    pub(super) fn new(with: Option<String>) -> Self {
        Self { with, ..Self::default() }
    }

    /// Whether secrets are kept apart.
    pub(super) fn is_on(&self) -> bool {
        self.with.is_some()
    }

    /// Opens what is on disk.
    pub(super) fn load(&mut self, store: &CheckpointStore, now: Timestamp) -> Opened {
        let sealed = match store.load::<Sealed>(SECRETS) {
            Loaded::Present(sealed) => sealed,
            Loaded::Absent => {
                (self.is_closed, self.trouble) = (false, None);
                return Opened::Damaged(store.reject(SECRETS, "is missing".to_owned()));
            }
            Loaded::Damaged(why) if !why.is_read() => {
                self.is_closed = true;
                self.wait(format!("{CLOSED}: {} {}", why.path.display(), why.why), now);
                return Opened::Nothing;
            }
            Loaded::Damaged(why) => {
                (self.is_closed, self.trouble) = (false, None);
                return Opened::Damaged(why);
            }
        };
        let opened = sealed.open().and_then(|(data, key)| {
            let secrets = serde_json::from_slice(&data).map_err(|_| SealError::Broken)?;
            Ok((fingerprint(&data), secrets, key))
        });
        self.is_closed = false;
        match opened {
            Ok((saved, secrets, key)) => {
                self.trouble = None;
                self.saved = (self.with.as_deref() == Some(key.with())).then_some(saved);
                self.key = Some(key);
                Opened::Secrets(secrets)
            }
            Err(error) if error.is_passing() => {
                self.is_closed = true;
                self.fail(CLOSED, &error, now);
                let soon = doubled(SOON, self.tries, AGAIN);
                self.tries = self.tries.saturating_add(1);
                self.trouble = self.trouble.take().map(|(why, _)| (why, now + soon));
                Opened::Nothing
            }
            Err(error) => {
                self.trouble = None;
                let why = format!("cannot be opened on this machine ({})", failure::of(&error, None).cause);
                Opened::Damaged(store.reject(SECRETS, why))
            }
        }
    }

    /// When what failed is due again.
    pub(super) fn again_at(&self) -> Option<Timestamp> {
        self.trouble.as_ref().map(|(_, again)| *again)
    }

    /// Whether what failed is due again. A clock that was set back makes it wait no longer.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        self.again_at().is_some_and(|again| again <= now || again > now + AGAIN)
    }

    /// Whether what is on disk waits to be opened.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether what is on disk can be opened now.
    fn can_open(&self, store: &CheckpointStore) -> bool {
        matches!(store.load::<Sealed>(SECRETS), Loaded::Present(sealed) if sealed.open().is_ok())
    }

    /// Saves `secrets` sealed, if they differ from what is on disk. A failure is reported by [`Sealing::problem`].
    /// `is_superseded`: they have everything that what is on disk may have, and something newer, also where that cannot be
    /// opened; it is set aside then.
    pub(super) fn save(
        &mut self,
        store: &CheckpointStore,
        secrets: &SavedSecrets,
        is_superseded: bool,
        now: Timestamp,
    ) {
        let Some(with) = self.with.clone().filter(|_| !self.is_closed || is_superseded) else { return };
        let Ok(data) = serde_json::to_vec(secrets) else { return };
        let hash = fingerprint(&data);
        let is_early = match self.is_closed {
            // That it cannot be opened is found again and again meanwhile.
            true => self.sealed_at.is_some_and(|at| (at..at + AGAIN).contains(&now)),
            false => self.trouble.is_some() && !self.is_due(now),
        };
        if self.saved == Some(hash) || is_early {
            return;
        }
        self.sealed_at = Some(now);
        if self.is_closed && self.can_open(store) {
            // What is there comes back first.
            self.trouble = self.trouble.take().map(|(why, _)| (why, now));
            return;
        }
        let key = match self.key.take().filter(|key| key.with() == with) {
            Some(key) => Ok(key),
            None => SealingKey::make(&with),
        };
        let sealed = key.and_then(|key| {
            let sealed = key.seal(&data);
            self.key = Some(key);
            sealed
        });
        match sealed {
            Err(error) if self.is_closed => self.fail(CLOSED_AND_UNSAVED, &error, now),
            Err(error) => self.fail("Secrets and tokens cannot be sealed and are not saved", &error, now),
            // An agent that is killed between finds the new one.
            Ok(sealed) => match store.write_unsynced(SECRETS, &sealed).and_then(|new| {
                self.set_aside(store);
                store.sync(&new)
            }) {
                Ok(()) => (self.saved, self.trouble) = (Some(hash), None),
                Err(error) => self.fail("sealed secrets cannot be saved", &error, now),
            },
        }
    }

    /// Sets aside what is on disk and could not be opened.
    fn set_aside(&mut self, store: &CheckpointStore) {
        if !std::mem::take(&mut self.is_closed) {
            return;
        }
        let why = self.trouble.take().map_or_else(|| CLOSED.to_owned(), |(why, _)| why);
        let kept = store.reject(SECRETS, why.clone()).kept;
        let kept = kept.as_ref().map_or_else(String::new, |kept| format!(" ({})", kept.display()));
        tracing::warn!(
            "{why}; the API server has shown all Secrets since: they are sealed anew, the old ones set aside{kept}"
        );
    }

    /// Secrets are in plain with the other inputs now: nothing sealed stays.
    pub(super) fn drop_sealed(&mut self, store: &CheckpointStore) {
        if !self.is_on() && !self.is_closed {
            // What cannot be removed is as old as it is, and sealed.
            let _ = store.remove(SECRETS);
        }
    }

    fn fail(&mut self, what: &str, error: &(dyn std::error::Error + 'static), now: Timestamp) {
        self.wait(format!("{what}: {}", failure::of(error, None).cause), now);
    }

    fn wait(&mut self, why: String, now: Timestamp) {
        self.saved = None;
        self.trouble = Some((why, now + AGAIN));
    }

    /// The problem to report, if there is one.
    pub(super) fn problem(&self) -> Option<Problem> {
        let (reason, _) = self.trouble.as_ref()?;
        let hint = "`systemd-creds setup` makes the host's key; a TPM needs a drop-in for the unit (see /usr/share/doc/daemonlet/docs/security.md)";
        Some(Problem { object: "checkpoint".to_owned(), reason: reason.clone(), hint: Some(hint.to_owned()) })
    }

    /// Whether all secrets are sealed on disk and can be opened now: what cannot be opened today may not be at the next boot,
    /// which has no other copy. Nor can that boot keep from the kubelet what lacks its secrets where the disk takes no record.
    pub(super) fn is_safe(&self, store: &CheckpointStore) -> bool {
        let Some(saved) = self.saved.filter(|_| self.is_on() && self.trouble.is_none()) else { return false };
        let Loaded::Present(sealed) = store.load::<Sealed>(SECRETS) else { return false };
        sealed.open().is_ok_and(|(data, _)| fingerprint(&data) == saved) && store.save(SECRETS, &sealed).is_ok()
    }
}

fn fingerprint(data: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    data.hash(&mut hasher);
    hasher.finish()
}
