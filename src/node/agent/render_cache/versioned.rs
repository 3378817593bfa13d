//! What a rendering is made from, with versions.
//!
//! Owns when a token counts as another one.

use std::hash::DefaultHasher;
use std::hash::Hash;
use std::hash::Hasher;

use crate::core::model::ObjectRef;
use crate::core::model::ObjectSource;
use crate::core::model::TokenRequest;
use crate::core::model::TokenSource;
use crate::node::api::TokenSnapshot;

/// Objects with versions: a version changes whenever what `lookup` says does.
pub(in crate::node::agent) trait VersionedObjects: ObjectSource {
    /// The version of what is known of `reference`.
    fn version(&self, reference: &ObjectRef) -> u64;
    /// Changes whenever [`VersionedObjects::version`] of an object for which [`VersionedObjects::follows_epoch`]
    /// does; 0: nothing can be said of all at once.
    fn epoch(&self) -> u64 {
        0
    }
    /// Whether `version` is one that cannot change within an epoch.
    fn follows_epoch(&self, _version: u64) -> bool {
        false
    }
}

/// Tokens with versions.
pub(in crate::node::agent) trait VersionedTokens: TokenSource {
    /// The version of the token for `request`; 0 if there is none.
    fn version(&self, request: &TokenRequest) -> u64;
}

impl VersionedTokens for TokenSnapshot {
    fn version(&self, request: &TokenRequest) -> u64 {
        let Some(token) = self.token(request) else { return 0 };
        let mut hasher = DefaultHasher::new();
        token.hash(&mut hasher);
        hasher.finish() | 1
    }
}
