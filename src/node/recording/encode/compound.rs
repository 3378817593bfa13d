//! The parts of a list or map while it is encoded.
//!
//! Owns what follows its last part: the mode before it comes back, and what is long becomes a piece.

use serde::Serialize;
use serde::ser;

use super::EncodeError;
use super::Encoder;
use crate::node::recording::redact;

/// What is left to do when a value ends: its beginning, the mode before it, and whether its length was unknown.
pub(super) struct Compound<'e, 't> {
    pub(super) encoder: &'e mut Encoder<'t>,
    pub(super) start: usize,
    pub(super) was_open: bool,
    pub(super) is_indefinite: bool,
}

impl Compound<'_, '_> {
    fn item<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), EncodeError> {
        value.serialize(&mut *self.encoder)
    }

    fn field<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), EncodeError> {
        self.encoder.text(name);
        let before = std::mem::replace(&mut self.encoder.digests, redact::is_digest_of_data(name));
        self.item(value)?;
        self.encoder.digests = before;
        Ok(())
    }

    fn finish(self) -> Result<(), EncodeError> {
        if self.is_indefinite {
            self.encoder.out.push(0xff);
        }
        self.encoder.is_open = self.was_open;
        self.encoder.cut(self.start)
    }
}

macro_rules! compounds {
    ($($trait:ident: $($method:ident($($name:ident: $type:ty)?) => $inner:ident),+;)+) => {
        $(impl ser::$trait for Compound<'_, '_> {
            type Ok = ();
            type Error = EncodeError;

            $(fn $method<T: Serialize + ?Sized>(&mut self, $($name: $type,)? value: &T) -> Result<(), EncodeError> {
                self.$inner($($name,)? value)
            })+

            fn end(self) -> Result<(), EncodeError> {
                self.finish()
            }
        })+
    };
}

compounds! {
    SerializeSeq: serialize_element() => item;
    SerializeTuple: serialize_element() => item;
    SerializeTupleStruct: serialize_field() => item;
    SerializeTupleVariant: serialize_field() => item;
    SerializeMap: serialize_key() => item, serialize_value() => item;
    SerializeStruct: serialize_field(name: &'static str) => field;
    SerializeStructVariant: serialize_field(name: &'static str) => field;
}
