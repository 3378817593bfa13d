//! A recording from a file: pieces put together, within limits.
//!
//! Owns the reading. A bundle is untrusted: its pieces may lie about their sizes, and refer to each other
//! without an end.

use std::collections::BTreeMap;
use std::io::Read as _;

use ciborium::Value;
use flate2::read::DeflateDecoder;

use crate::core::time::Timestamp;

use super::FORMAT;
use super::PieceName;
use super::export::RecordingFile;
use super::redact::SecretShape;
use super::tags;

/// The most bytes of a recording's file.
pub(crate) const MAX_FILE: usize = 16 << 20;
/// The most bytes of one piece: an object has at most 1 MiB of data, and a frame is cut.
const MAX_PIECE: u64 = 4 << 20;
/// The most frames: more than fit into a recorder.
const MAX_FRAMES: usize = 10_000;
/// The most memory of the values that one frame is put together to.
const MAX_TOGETHER: usize = 256 << 20;
/// How deep values may lie in each other.
const MAX_DEPTH: usize = 512;

/// Why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("it is no recording: {0}")]
    NotOne(String),
    #[error("its format is {0}, and this program reads format {FORMAT}: use daemonlet {1}")]
    Format(u64, String),
    #[error("it is damaged: {0}")]
    Damaged(String),
    #[error("it is larger than this program reads")]
    TooLarge,
    #[error("this machine has no randomness for a key")]
    NoRandomness,
}

/// What may still be put together.
pub(crate) struct Limits(usize);

impl Default for Limits {
    fn default() -> Self {
        Self(MAX_TOGETHER)
    }
}

impl Limits {
    /// How much of them is used up.
    pub(crate) fn used(&self) -> usize {
        MAX_TOGETHER - self.0
    }

    fn take(&mut self, bytes: usize) -> Result<(), ReadError> {
        self.0 = self.0.checked_sub(bytes).ok_or(ReadError::TooLarge)?;
        Ok(())
    }
}

/// A recording that was read.
#[derive(Debug)]
pub(crate) struct Recording {
    pub(crate) version: String,
    pub(crate) missed: u64,
    pub(crate) has_values: bool,
    frames: Vec<(Timestamp, PieceName)>,
    pieces: BTreeMap<PieceName, Vec<u8>>,
}

/// What is read first: another format may have everything else in another form.
#[derive(serde::Deserialize)]
struct Head {
    format: u64,
    #[serde(default)]
    version: String,
}

impl Recording {
    /// Reads a recording's file.
    ///
    /// # Errors
    /// When it is no recording, or one of another format.
    pub(crate) fn open(bytes: &[u8]) -> Result<Self, ReadError> {
        if bytes.len() > MAX_FILE {
            return Err(ReadError::TooLarge);
        }
        let other = || ReadError::NotOne("it does not begin as a support bundle's does".to_owned());
        let value: Value = ciborium::from_reader(bytes).map_err(|_| other())?;
        let head: Head = value.deserialized().map_err(|_| other())?;
        if head.format != FORMAT {
            return Err(ReadError::Format(head.format, head.version));
        }
        if items(&value) > MAX_FILE / size_of::<Value>() {
            return Err(ReadError::TooLarge);
        }
        let file: RecordingFile = value.deserialized().map_err(|error| ReadError::Damaged(error.to_string()))?;
        if file.frames.len() > MAX_FRAMES {
            return Err(ReadError::TooLarge);
        }
        let frames = file.frames.into_iter().map(|(at, root)| Ok((at, name(&root)?)));
        let pieces = file.pieces.into_iter().map(|(piece, bytes)| match bytes {
            Value::Bytes(bytes) => Ok((name(&piece)?, bytes)),
            _ => Err(ReadError::Damaged("a piece has no bytes".to_owned())),
        });
        Ok(Self {
            version: file.version,
            missed: file.missed,
            has_values: file.has_values,
            frames: frames.collect::<Result<_, ReadError>>()?,
            pieces: pieces.collect::<Result<_, ReadError>>()?,
        })
    }

    /// When each pass was, and the piece that is all of it; oldest first.
    pub(crate) fn frames(&self) -> impl ExactSizeIterator<Item = (Timestamp, &PieceName)> {
        self.frames.iter().map(|(at, root)| (*at, root))
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &PieceName> {
        self.pieces.keys()
    }

    /// One piece, with the names of its parts in it.
    pub(crate) fn piece(&self, name: &PieceName, limits: &mut Limits) -> Result<Value, ReadError> {
        let deflated = self.pieces.get(name).ok_or_else(|| ReadError::Damaged("a piece is missing".to_owned()))?;
        let mut bytes = Vec::new();
        let read = DeflateDecoder::new(&**deflated).take(MAX_PIECE + 1).read_to_end(&mut bytes);
        read.map_err(|error| ReadError::Damaged(error.to_string()))?;
        if bytes.len() as u64 > MAX_PIECE {
            return Err(ReadError::TooLarge);
        }
        // Each byte may be an item of its own.
        limits.take(bytes.len())?;
        let value = ciborium::from_reader(&*bytes).map_err(|error| ReadError::Damaged(error.to_string()))?;
        limits.take(items(&value) * size_of::<Value>())?;
        Ok(value)
    }

    /// What the piece `root` is when it is put together, with a value in the place of each that was taken out.
    ///
    /// # Errors
    /// When a piece is missing, or everything together is too large.
    pub(crate) fn value(&self, root: &PieceName, limits: &mut Limits) -> Result<Value, ReadError> {
        self.put_together(root, limits, 0)
    }

    fn put_together(&self, name: &PieceName, limits: &mut Limits, depth: usize) -> Result<Value, ReadError> {
        let mut value = self.piece(name, limits)?;
        self.fill(&mut value, limits, depth)?;
        Ok(value)
    }

    fn fill(&self, value: &mut Value, limits: &mut Limits, depth: usize) -> Result<(), ReadError> {
        if depth > MAX_DEPTH {
            return Err(ReadError::TooLarge);
        }
        match value {
            Value::Tag(tags::PIECE, inner) => *value = self.put_together(&name(inner)?, limits, depth + 1)?,
            Value::Tag(tags::DIGEST, inner) => {
                let Value::Bytes(bytes) = &**inner else {
                    return Err(ReadError::Damaged("a digest is no bytes".to_owned()));
                };
                *value = Value::Text(bytes.iter().map(|byte| format!("{byte:02x}")).collect());
            }
            Value::Tag(tags::SECRET, inner) => {
                let shape: SecretShape = inner.deserialized().map_err(|error| ReadError::Damaged(error.to_string()))?;
                let text = shape.text();
                limits.take(text.len())?;
                *value = Value::Text(text);
            }
            Value::Tag(tags::DATA, inner) => *value = std::mem::replace(inner, Value::Null),
            Value::Tag(..) => return Err(ReadError::Damaged("an unknown tag".to_owned())),
            Value::Array(items) => items.iter_mut().try_for_each(|item| self.fill(item, limits, depth + 1))?,
            Value::Map(members) => {
                for (name, value) in members {
                    self.fill(name, limits, depth + 1)?;
                    self.fill(value, limits, depth + 1)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// How many values `value` is made of.
fn items(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(self::items).sum::<usize>(),
        Value::Map(members) => 1 + members.iter().map(|(name, value)| items(name) + items(value)).sum::<usize>(),
        Value::Tag(_, inner) => 1 + items(inner),
        _ => 1,
    }
}

fn name(value: &Value) -> Result<PieceName, ReadError> {
    let bytes = value.as_bytes().and_then(|bytes| PieceName::try_from(&**bytes).ok());
    bytes.ok_or_else(|| ReadError::Damaged("the name of a piece is not valid".to_owned()))
}
