//! How each watch does.
//!
//! Owns what is known of its failures. They remove nothing.

use crate::clock::now;
use crate::node::api::error::ApiFailure;

use super::Scope;
use super::ScopeState;
use super::Store;

impl Store {
    /// The watch of a scope failed. Returns whether the failure is new.
    pub(in crate::node::api) fn failed(&self, scope: &Scope, failure: ApiFailure) -> bool {
        self.with(|snapshot| {
            let Some(state) = snapshot.scopes.get_mut(scope) else { return false };
            let news = state.error.as_ref().is_none_or(|(before, _)| *before != failure);
            let since = state.error.as_ref().map_or_else(now, |(_, since)| *since);
            state.error = Some((failure, since));
            news
        })
    }

    /// The cluster does not have the resource: nothing in it is known, and that is not a failure.
    pub(in crate::node::api) fn missing(&self, scope: &Scope) {
        self.with(|snapshot| {
            let had = !snapshot.scopes.get(scope).is_some_and(|state| state.missing);
            snapshot.scopes.insert(scope.clone(), ScopeState { missing: true, ..ScopeState::default() });
            if had {
                snapshot.node_daemons = None;
                snapshot.changed();
            }
        });
        self.wake();
    }

    /// The watch of a scope works. If it is one of the agent's own, a waiting pass goes on at once, though no object changed.
    pub(in crate::node::api) fn recovered(&self, scope: &Scope) {
        let had_failed = self.with(|snapshot| {
            let state = snapshot.scopes.get_mut(scope);
            state.is_some_and(|state| state.error.take().is_some())
        });
        if had_failed && scope.is_of_agent() {
            self.poke();
        }
    }
}
