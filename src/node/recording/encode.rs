//! Encodes values into pieces: CBOR, without secrets.
//!
//! Owns the way in. Everything that is longer than [`CUT`] becomes a piece of its own, so that the next frame costs only
//! what differs. Nothing secret gets as far as the table: marked values (`super::marks`) lose it here, and every digest
//! that is not known to be of something open is keyed.

mod compound;

use std::collections::BTreeSet;

use serde::Serialize;
use serde::ser;
use serde_json::Value;

use crate::core::overlays;

use super::PieceName;
use super::cbor::Major;
use super::cbor::head;
use super::marks;
use super::redact;
use super::redact::DigestKey;
use super::table::PieceTable;
use super::tags;
use compound::Compound;

/// What is longer, in bytes, is a piece of its own.
const CUT: usize = 192;
/// Structs whose texts are recorded as they are: what the API or a file has in the open, and what is made of it alone.
const OPEN: [&str; 5] = ["DaemonSet", "Entry", "Question", "AdmissionDryRun", "NodeView"];

/// Why a value cannot be recorded.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct EncodeError(String);

impl ser::Error for EncodeError {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

/// Encodes `value` into `table`. `open`: digests of what holds no secret. Gives the piece that is all of it.
///
/// # Errors
/// For a value that CBOR cannot hold, such as a path that is not text.
pub(crate) fn encode(
    value: &impl Serialize,
    table: &mut PieceTable,
    key: &DigestKey,
    open: &BTreeSet<String>,
) -> Result<PieceName, EncodeError> {
    let mut encoder = Encoder { out: Vec::new(), parts: Vec::new(), table, key, open, is_open: false, digests: false };
    value.serialize(&mut encoder)?;
    if encoder.table.is_too_much() {
        return Err(EncodeError("it is too large".to_owned()));
    }
    let Encoder { out, parts, table, .. } = encoder;
    Ok(table.put(&out, parts.into_iter().map(|(_, name)| name).collect()))
}

struct Encoder<'t> {
    out: Vec<u8>,
    /// The pieces that `out` refers to, and where.
    parts: Vec<(usize, PieceName)>,
    table: &'t mut PieceTable,
    key: &'t DigestKey,
    open: &'t BTreeSet<String>,
    is_open: bool,
    /// Whether a text is the beginning of a digest.
    digests: bool,
}

impl<'t> Encoder<'t> {
    fn head(&mut self, major: Major, value: u64) {
        head(&mut self.out, major, value);
    }

    fn text(&mut self, text: &str) {
        self.head(Major::Text, text.len() as u64);
        self.out.extend_from_slice(text.as_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.head(Major::Bytes, bytes.len() as u64);
        self.out.extend_from_slice(bytes);
    }

    /// Makes what was written since `start` a piece of its own, if it is long.
    ///
    /// # Errors
    /// When the value as a whole has become too large: what is not cut would be in memory until its end.
    fn cut(&mut self, start: usize) -> Result<(), EncodeError> {
        if self.out.len() - start <= CUT {
            return Ok(());
        }
        if self.table.is_too_much() {
            return Err(EncodeError("it is too large".to_owned()));
        }
        let first = self.parts.partition_point(|(at, _)| *at < start);
        let parts = self.parts.split_off(first).into_iter().map(|(_, name)| name).collect();
        let name = self.table.put(&self.out[start..], parts);
        self.out.truncate(start);
        self.parts.push((start, name));
        self.head(Major::Tag, tags::PIECE);
        self.bytes(&name);
        Ok(())
    }

    /// Begins a list or map; `length`: unknown if `None`.
    fn begin<'e>(&'e mut self, major: Major, length: Option<usize>, start: usize) -> Compound<'e, 't> {
        match length {
            Some(length) => self.head(major, length as u64),
            None => self.out.push((major as u8) << 5 | 31),
        }
        let was_open = self.is_open;
        Compound { encoder: self, start, was_open, is_indefinite: length.is_none() }
    }

    /// Begins the value of an enum's variant.
    fn variant<'e>(&'e mut self, variant: &str, major: Major, length: usize) -> Compound<'e, 't> {
        let start = self.out.len();
        self.head(Major::Map, 1);
        self.text(variant);
        self.begin(major, Some(length), start)
    }

    /// Whether `text` is a digest of data that may be secret.
    fn is_closed_digest(&self, text: &str) -> bool {
        let is_beginning = self.digests && text.len() >= 16 && text.len().is_multiple_of(2) && redact::is_hex(text);
        !self.is_open && (is_beginning || redact::is_digest(text)) && !self.open.contains(text)
    }

    fn secret_text(&mut self, member: &str, text: &str) -> Result<(), EncodeError> {
        self.head(Major::Tag, tags::SECRET);
        redact::shape(member, text, self.key).serialize(self)
    }

    fn secret(&mut self, secret: &Value) -> Result<(), EncodeError> {
        let (open, closed) = redact::split(secret);
        let start = self.out.len();
        self.head(Major::Map, (open.len() + closed.len()) as u64);
        for (name, value) in &open {
            self.text(name);
            value.serialize(&mut *self)?;
        }
        for (member, texts) in closed {
            self.text(member);
            self.head(Major::Map, texts.len() as u64);
            for (key, text) in texts {
                self.text(key);
                self.secret_text(member, text)?;
            }
        }
        self.cut(start)
    }

    fn config_map(&mut self, config_map: &Value) -> Result<(), EncodeError> {
        let start = self.out.len();
        let Some(members) = config_map.as_object() else { return config_map.serialize(self) };
        self.head(Major::Map, members.len() as u64);
        for (name, value) in members {
            self.text(name);
            let (true, Some(data)) = (matches!(name.as_str(), "data" | "binaryData"), value.as_object()) else {
                value.serialize(&mut *self)?;
                continue;
            };
            self.head(Major::Map, data.len() as u64);
            for (key, value) in data {
                self.text(key);
                let start = self.out.len();
                // A list of overlays is part of what DaemonSets define.
                if key != overlays::KEY {
                    self.head(Major::Tag, tags::DATA);
                }
                self.text(value.as_str().unwrap_or_default());
                self.cut(start)?;
            }
        }
        self.cut(start)
    }

    fn marked<T: Serialize + ?Sized>(&mut self, mark: &str, value: &T) -> Result<(), EncodeError> {
        let was_open = std::mem::replace(&mut self.is_open, true);
        let json = || serde_json::to_value(value).map_err(ser::Error::custom);
        match mark {
            marks::SECRET => self.secret(&json()?)?,
            marks::CONFIG_MAP => self.config_map(&json()?)?,
            marks::SECRET_TEXT => self.secret_text("", json()?.as_str().unwrap_or_default())?,
            _ => value.serialize(&mut *self)?,
        }
        self.is_open = was_open;
        Ok(())
    }
}

macro_rules! integers {
    ($($unsigned:ident $u:ty, $signed:ident $i:ty;)+) => {
        $(
            fn $unsigned(self, value: $u) -> Result<(), EncodeError> {
                self.head(Major::Unsigned, u64::from(value));
                Ok(())
            }

            fn $signed(self, value: $i) -> Result<(), EncodeError> {
                let value = i64::from(value);
                match u64::try_from(value) {
                    Ok(value) => self.head(Major::Unsigned, value),
                    Err(_) => self.head(Major::Negative, value.unsigned_abs() - 1),
                }
                Ok(())
            }
        )+
    };
}

impl<'e, 't> ser::Serializer for &'e mut Encoder<'t> {
    type Ok = ();
    type Error = EncodeError;
    type SerializeSeq = Compound<'e, 't>;
    type SerializeTuple = Compound<'e, 't>;
    type SerializeTupleStruct = Compound<'e, 't>;
    type SerializeTupleVariant = Compound<'e, 't>;
    type SerializeMap = Compound<'e, 't>;
    type SerializeStruct = Compound<'e, 't>;
    type SerializeStructVariant = Compound<'e, 't>;

    integers! {
        serialize_u8 u8, serialize_i8 i8;
        serialize_u16 u16, serialize_i16 i16;
        serialize_u32 u32, serialize_i32 i32;
        serialize_u64 u64, serialize_i64 i64;
    }

    fn serialize_bool(self, value: bool) -> Result<(), EncodeError> {
        self.out.push(if value { 0xf5 } else { 0xf4 });
        Ok(())
    }

    fn serialize_f32(self, value: f32) -> Result<(), EncodeError> {
        self.serialize_f64(f64::from(value))
    }

    fn serialize_f64(self, value: f64) -> Result<(), EncodeError> {
        self.out.push(0xfb);
        self.out.extend_from_slice(&value.to_be_bytes());
        Ok(())
    }

    fn serialize_char(self, value: char) -> Result<(), EncodeError> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, text: &str) -> Result<(), EncodeError> {
        if self.is_closed_digest(text) {
            let digest = self.key.digest(text.as_bytes(), text.len() / 2);
            self.head(Major::Tag, tags::DIGEST);
            self.bytes(&digest);
            return Ok(());
        }
        let start = self.out.len();
        self.text(&redact::without_credentials(text));
        self.cut(start)
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Result<(), EncodeError> {
        self.bytes(bytes);
        Ok(())
    }

    fn serialize_none(self) -> Result<(), EncodeError> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), EncodeError> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), EncodeError> {
        self.out.push(0xf6);
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), EncodeError> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<(), EncodeError> {
        self.text(variant);
        Ok(())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, name: &'static str, value: &T) -> Result<(), EncodeError> {
        match name.starts_with('$') {
            true => self.marked(name, value),
            false => value.serialize(self),
        }
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), EncodeError> {
        self.head(Major::Map, 1);
        self.text(variant);
        value.serialize(self)
    }

    fn serialize_seq(self, length: Option<usize>) -> Result<Compound<'e, 't>, EncodeError> {
        let start = self.out.len();
        Ok(self.begin(Major::List, length, start))
    }

    fn serialize_tuple(self, length: usize) -> Result<Compound<'e, 't>, EncodeError> {
        self.serialize_seq(Some(length))
    }

    fn serialize_tuple_struct(self, _: &'static str, length: usize) -> Result<Compound<'e, 't>, EncodeError> {
        self.serialize_seq(Some(length))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        length: usize,
    ) -> Result<Compound<'e, 't>, EncodeError> {
        Ok(self.variant(variant, Major::List, length))
    }

    fn serialize_map(self, length: Option<usize>) -> Result<Compound<'e, 't>, EncodeError> {
        let start = self.out.len();
        Ok(self.begin(Major::Map, length, start))
    }

    fn serialize_struct(self, name: &'static str, length: usize) -> Result<Compound<'e, 't>, EncodeError> {
        let start = self.out.len();
        let compound = self.begin(Major::Map, Some(length), start);
        compound.encoder.is_open |= OPEN.contains(&name);
        Ok(compound)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        length: usize,
    ) -> Result<Compound<'e, 't>, EncodeError> {
        Ok(self.variant(variant, Major::Map, length))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use sha2::Digest;
    use sha2::Sha256;

    use super::*;

    #[test]
    fn what_is_too_large_is_given_up_before_its_end() {
        let (asked, mut table) = (Cell::new(0), PieceTable::default());
        let texts = (0..100_000_u32).map(|number| {
            asked.set(asked.get() + 1);
            (0..8)
                .map(|part| format!("{:x?}", Sha256::digest([number.to_be(), part].map(u32::to_be_bytes).concat())))
                .collect::<String>()
        });
        struct Texts<I>(Cell<Option<I>>);
        impl<I: Iterator<Item = String>> Serialize for Texts<I> {
            fn serialize<S: ser::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_seq(self.0.take().into_iter().flatten())
            }
        }
        let key = DigestKey::random().unwrap();
        let refused = encode(&Texts(Cell::new(Some(texts))), &mut table, &key, &BTreeSet::new());
        assert!(refused.is_err() && (500..50_000).contains(&asked.get()), "{} of 100,000", asked.get());
    }
}
