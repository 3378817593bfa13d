//! A recording as a file, and the same keyed for one bundle.
//!
//! Owns the file's form: CBOR of [`RecordingFile`].

use ciborium::Value;
use serde::Deserialize;
use serde::Serialize;

use crate::core::time::Timestamp;

use super::FORMAT;
use super::PieceName;
use super::read::Limits;
use super::read::ReadError;
use super::redact;
use super::redact::DigestKey;
use super::redact::SecretShape;
use super::table::PieceTable;
use super::tags;

/// What a recording is on disk.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RecordingFile {
    pub(crate) format: u64,
    /// The program that made it.
    pub(crate) version: String,
    /// Passes that came too fast to be recorded.
    pub(crate) missed: u64,
    /// Whether the values of ConfigMaps are in it.
    pub(crate) has_values: bool,
    /// When each pass was, and the piece that is all of it.
    pub(crate) frames: Vec<(Timestamp, Value)>,
    /// The name of each piece, and its deflated bytes.
    pub(crate) pieces: Vec<(Value, Value)>,
}

/// The bytes of a recording.
pub(crate) fn write(table: &PieceTable, missed: u64) -> Vec<u8> {
    let name = |name: &PieceName| Value::Bytes(name.to_vec());
    let file = RecordingFile {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        missed,
        has_values: true,
        frames: table.frames().map(|frame| (frame.at, name(&frame.root))).collect(),
        pieces: table.pieces().map(|(piece, bytes)| (name(piece), Value::Bytes(bytes.to_vec()))).collect(),
    };
    let mut bytes = Vec::new();
    // Writing to memory does not fail.
    let _ = ciborium::into_writer(&file, &mut bytes);
    bytes
}

/// What of ConfigMaps goes into a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConfigMapValues {
    Kept,
    /// Their shapes alone, as of Secrets.
    LeftOut,
}

/// The recording with every digest and name keyed once more, by a key that is thrown away.
///
/// # Errors
/// When it is no recording.
pub(crate) fn for_bundle(recording: &[u8], values: ConfigMapValues) -> Result<Vec<u8>, ReadError> {
    let key = DigestKey::random().ok_or(ReadError::NoRandomness)?;
    let recording = super::read::Recording::open(recording)?;
    let mut table = PieceTable::default();
    let mut limits = Limits::default();
    let mut pieces = Vec::new();
    for name in recording.names() {
        let mut value = recording.piece(name, &mut limits)?;
        close(&mut value, &key, values);
        let mut bytes = Vec::new();
        let _ = ciborium::into_writer(&value, &mut bytes);
        pieces.push((Value::Bytes(key.digest(name, 16)), Value::Bytes(table.deflate(&bytes).into())));
    }
    let frames = recording.frames().map(|(at, root)| (at, Value::Bytes(key.digest(root, 16)))).collect();
    let file = RecordingFile {
        format: FORMAT,
        version: recording.version.clone(),
        missed: recording.missed,
        has_values: recording.has_values && values == ConfigMapValues::Kept,
        frames,
        pieces,
    };
    let mut bytes = Vec::new();
    let _ = ciborium::into_writer(&file, &mut bytes);
    Ok(bytes)
}

/// Keys the digests in one piece.
fn close(value: &mut Value, key: &DigestKey, values: ConfigMapValues) {
    match value {
        Value::Tag(tags::PIECE, inner) | Value::Tag(tags::DIGEST, inner) => {
            if let Value::Bytes(bytes) = &mut **inner {
                *bytes = key.digest(bytes, bytes.len());
            }
        }
        Value::Tag(tags::SECRET, inner) => {
            if let Ok(mut shape) = inner.deserialized::<SecretShape>() {
                shape.digest = key.digest(&shape.digest, 16);
                **inner = Value::serialized(&shape).unwrap_or(Value::Null);
            }
        }
        Value::Tag(tags::DATA, inner) => {
            if let (ConfigMapValues::LeftOut, Value::Text(text)) = (values, &**inner) {
                let shape = SecretShape::of_text(text, key);
                *value = Value::Tag(tags::SECRET, Box::new(Value::serialized(&shape).unwrap_or(Value::Null)));
            }
        }
        Value::Tag(_, inner) => close(inner, key, values),
        // A short value could be guessed from the digest of what it is in.
        Value::Text(text) if values == ConfigMapValues::LeftOut && redact::is_digest(text) => *text = key.hex(text),
        Value::Array(items) => items.iter_mut().for_each(|item| close(item, key, values)),
        Value::Map(members) => members.iter_mut().for_each(|(name, value)| {
            close(name, key, values);
            close(value, key, values);
        }),
        _ => {}
    }
}
