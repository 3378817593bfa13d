//! ServiceAccount tokens: requested for this node, renewed in time, and handed out.
//!
//! Owns their lifetime. Expired tokens are handed out too: at a boot without API server there are no others. Must not
//! log or print one; `Debug` hides them.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::hash::DefaultHasher;
use std::hash::Hash;
use std::hash::Hasher;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use futures::StreamExt;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::clock::now;
use crate::clock::uptime;
use crate::core::json::Json;
use crate::core::local_failure::LocalFailure;
use crate::core::model::TokenRequest;
use crate::core::time::Timestamp;
use crate::node::api::backoff::Backoff;
use crate::node::api::connector::Connector;
use crate::node::api::connector::Link;
use crate::node::api::error::ApiFailure;
use crate::node::api::store::Snapshot;
use crate::node::api::store::Store;

mod held;
mod request;

pub use held::IssuedToken;
pub use held::TokenSnapshot;

use held::FailedToken;
use held::HeldToken;
use held::ReceivedAt;

/// The clock jumps at boot, so the wall clock is checked this often.
const LOOK: Duration = Duration::from_secs(60);
/// Concurrent requests.
const CONCURRENT: usize = 4;

/// The tokens; clones share them. Without an API server it hands out imported ones.
#[derive(Clone, Default)]
pub struct Tokens {
    state: Arc<Mutex<TokensState>>,
    asked: Arc<Notify>,
}

#[derive(Default)]
struct TokensState {
    wanted: BTreeSet<TokenRequest>,
    /// The connection on which they are requested; `None`: any.
    on: Option<u64>,
    held: BTreeMap<TokenRequest, HeldToken>,
    failed: BTreeMap<TokenRequest, FailedToken>,
    /// Since when there has been no Node to bind tokens to.
    unregistered: Option<Timestamp>,
}

impl Tokens {
    fn with<T>(&self, f: impl FnOnce(&mut TokensState) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// These tokens are needed from now on. Others are kept until they expire: a daemon that is missing from one pass
    /// must not lose a token that cannot be renewed now.
    pub fn set_wanted(&self, wanted: &BTreeSet<TokenRequest>) {
        let changed = self.with(|state| {
            let wall = now();
            let lacking: Vec<&TokenRequest> = wanted.iter().filter(|w| !state.held.contains_key(*w)).collect();
            let serves = |request: &TokenRequest| lacking.iter().any(|lacking| lacking.is_alike(request));
            state.held.retain(|request, held| wanted.contains(request) || wall < held.expires || serves(request));
            state.failed.retain(|request, _| wanted.contains(request));
            let changed = state.wanted != *wanted;
            if changed {
                state.wanted = wanted.clone();
            }
            changed
        });
        if changed {
            self.asked.notify_one();
        }
    }

    /// From now on tokens are requested while connection number `on` is the newest, whose cluster has identified itself;
    /// `None`: always. Another cluster would give tokens that this one does not take.
    pub fn ask_on(&self, on: Option<u64>) {
        if self.with(|state| std::mem::replace(&mut state.on, on)) != on {
            self.asked.notify_one();
        }
    }

    /// All tokens, even expired ones.
    pub fn snapshot(&self) -> TokenSnapshot {
        let tokens =
            self.with(|state| state.held.iter().map(|(request, held)| (request.clone(), held.token.clone())).collect());
        TokenSnapshot { tokens }
    }

    /// Hashes everything of [`Tokens::export`] except the tokens themselves, which change only with the rest.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.with(|state| {
            for (request, held) in &state.held {
                (request, held.issued, held.expires, &held.node_uid).hash(&mut hasher);
            }
        });
        hasher.finish()
    }

    /// Every token, for the checkpoint. `boot`: this one's `boot_id`.
    pub fn export(&self, boot: &str) -> Vec<IssuedToken> {
        self.with(|state| {
            let list = state.held.iter().map(|(request, held)| IssuedToken {
                request: request.clone(),
                token: held.token.to_string(),
                issued: held.issued,
                expires: held.expires,
                node_uid: held.node_uid.clone(),
                received: held.received.map(|up| ReceivedAt { boot: boot.to_owned(), up }),
            });
            list.collect()
        })
    }

    /// When each token expires.
    pub fn expiries(&self) -> Vec<(TokenRequest, Timestamp)> {
        self.with(|state| state.held.iter().map(|(request, held)| (request.clone(), held.expires)).collect())
    }

    /// Imports tokens from a checkpoint, except where there is one already. `boot`: this one's `boot_id`.
    pub fn import(&self, tokens: Vec<IssuedToken>, boot: &str) {
        self.with(|state| {
            for issued in tokens {
                let request = issued.request.clone();
                state.held.entry(request).or_insert_with(|| HeldToken::new(issued, boot));
            }
        });
        self.asked.notify_one();
    }

    /// Why tokens are missing or not renewed, and since when.
    pub fn problems(&self) -> BTreeMap<TokenRequest, (LocalFailure, Timestamp)> {
        self.with(|state| {
            let failed = state.failed.iter();
            let mut problems: BTreeMap<_, _> = failed
                .map(|(request, failed)| (request.clone(), (failed.failure.message.clone().into(), failed.since)))
                .collect();
            if let Some(since) = state.unregistered {
                let is_held = |request: &TokenRequest| state.held.keys().any(|held| held.is_alike(request));
                let missing = state.wanted.iter().filter(|request| !is_held(request));
                problems.extend(missing.map(|request| (request.clone(), (LocalFailure::NodeNotRegistered, since))));
            }
            problems
        })
    }

    /// Requests and renews tokens for ever.
    pub(super) async fn keep(self, client: kube::Client, store: Store, connector: Connector, node: String) {
        let mut changed = store.changed();
        let mut link = connector.link();
        loop {
            let snapshot = store.snapshot();
            let (due, next) = self.due(&snapshot, connector.opened());
            if let Some(uid) = node_uid(&snapshot)
                && !due.is_empty()
            {
                let requests = due.into_iter().map(|request| {
                    let (client, node, uid) = (&client, &node, &uid);
                    async move { (request::issue(client, &request, node, uid).await, request) }
                });
                let mut answers = futures::stream::iter(requests).buffer_unordered(CONCURRENT);
                while let Some((answer, request)) = answers.next().await {
                    self.record(request, answer, &snapshot);
                    store.poke();
                }
                continue;
            }
            drop(snapshot);
            tokio::select! {
                () = tokio::time::sleep(next) => {}
                () = self.asked.notified() => {}
                Ok(()) = changed.changed() => {}
                Ok(()) = link.changed() => {
                    if *link.borrow_and_update() == Link::Up {
                        self.retry_links();
                    }
                }
            }
        }
    }

    /// What must be requested now, and when to check again. `connection`: the number of the newest.
    fn due(&self, snapshot: &Snapshot, connection: u64) -> (Vec<TokenRequest>, Duration) {
        let uid = node_uid(snapshot);
        self.with(|state| {
            if state.on.is_some_and(|on| on != connection) {
                return (Vec::new(), LOOK);
            }
            let Some(uid) = uid else {
                state.unregistered.get_or_insert_with(now);
                return (Vec::new(), LOOK);
            };
            state.unregistered = None;
            let (wall, up) = (now(), uptime());
            let now = Instant::now();
            let mut next = LOOK;
            let mut due = Vec::new();
            for request in &state.wanted {
                let held = state.held.get(request);
                let serves = |held: &HeldToken| {
                    held.node_uid == uid && !held.is_due(up, wall) && !held.is_of_another(request, snapshot)
                };
                if held.is_some_and(serves) {
                    continue;
                }
                match state.failed.get(request) {
                    Some(failed) if now < failed.retry_at && !failed.is_worth_it(request, snapshot) => {
                        next = next.min(failed.retry_at - now);
                    }
                    _ => due.push(request.clone()),
                }
            }
            (due, next)
        })
    }

    fn record(&self, request: TokenRequest, answer: Result<IssuedToken, ApiFailure>, snapshot: &Snapshot) {
        self.with(|state| match answer {
            Ok(issued) => {
                state.failed.remove(&request);
                // It takes the place of one of another life.
                let wanted = &state.wanted;
                state.held.retain(|held, _| !held.is_alike(&request) || wanted.contains(held));
                state.held.insert(request, HeldToken::received(issued, snapshot.version));
            }
            Err(failure) => {
                let failed = state.failed.entry(request).or_insert_with(|| FailedToken {
                    failure: failure.clone(),
                    since: now(),
                    backoff: Backoff::request(),
                    retry_at: Instant::now(),
                    version: 0,
                });
                failed.failure = failure;
                failed.retry_at = Instant::now() + failed.backoff.next();
                failed.version = snapshot.version;
            }
        });
    }

    /// The connection is back: requests that failed without one are retried at once.
    fn retry_links(&self) {
        self.with(|state| {
            for failed in state.failed.values_mut().filter(|failed| failed.failure.is_link()) {
                failed.retry_at = Instant::now();
            }
        });
    }
}

fn node_uid(snapshot: &Snapshot) -> Option<String> {
    let node = snapshot.node.as_ref()?;
    node.value.at(["metadata", "uid"])?.as_str().map(String::from)
}

#[cfg(test)]
mod tests;
