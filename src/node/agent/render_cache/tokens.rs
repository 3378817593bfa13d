//! The tokens that a rendering is made from, with versions.
//!
//! Owns when a token counts as another one. Must not keep one.

use std::hash::DefaultHasher;
use std::hash::Hash;
use std::hash::Hasher;

use crate::core::model::TokenRequest;
use crate::core::model::TokenSource;
use crate::node::api::TokenSnapshot;

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
