//! The form of a recording: values of passes, cut into pieces of which equal ones are kept once.
//!
//! ```text
//!  Frame (a value) ──encode──> CBOR without secrets, cut into pieces ──Table──> pieces by hash, deflated
//!                                                                                  │ write
//!  Frame in replay <──read──── CBOR with its pieces put together <──────────────── file
//! ```
//!
//! Owns what a recording may hold of a Secret or a token: a keyed digest, the length, and the shape that rendering asks
//! for. It never holds a value. Must not know what a pass is.

mod cbor;
pub(crate) mod encode;
pub(crate) mod export;
pub(crate) mod marks;
pub(crate) mod read;
pub(crate) mod redact;
pub(crate) mod table;

/// The version of the form. A recording of another one is not read.
pub(crate) const FORMAT: u64 = 1;

/// CBOR tags of a recording, from the range without individual registration.
pub(crate) mod tags {
    /// A piece, by its name.
    pub(crate) const PIECE: u64 = 60_001;
    /// A keyed digest in the place of a digest: bytes, half as many as the digest has characters.
    pub(crate) const DIGEST: u64 = 60_002;
    /// The shape of a secret value, see `redact::SecretShape`.
    pub(crate) const SECRET: u64 = 60_003;
    /// A value of a ConfigMap.
    pub(crate) const DATA: u64 = 60_004;
}

/// The name of a piece: the beginning of the SHA-256 of its bytes.
pub(crate) type PieceName = [u8; 16];
