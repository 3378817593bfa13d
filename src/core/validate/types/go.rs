//! A serde deserializer over JSON values with the rules of Go's `encoding/json` and Kubernetes' own types.
//!
//! It notes, by address, which objects have which fields and which value it would not take. The way to a value is
//! looked for afterwards, and only if there is an error.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use serde::Deserializer;
use serde::de::IntoDeserializer;
use serde::de::Visitor;
use serde::de::value::MapDeserializer;
use serde::de::value::SeqDeserializer;
use serde_json::Value;

use crate::core::model::FieldError;
use crate::core::nearest;
use crate::core::quantity::Quantity;
use crate::core::quantity::QuantityError;
use crate::core::quantity::trimmed;

/// Paths of unknown fields, each with a suggested name.
pub(super) type Unknown = Vec<(String, Option<&'static str>)>;

/// Whether Go would decode `value`, found at the field `place`, as a `T`.
pub(super) fn check<'de, T: Deserialize<'de>>(value: Option<&'de Value>, place: &str) -> Result<(), FieldError> {
    let Some(value) = value else { return Ok(()) };
    let structs = Structs::default();
    let Err(error) = T::deserialize(Go { value, structs: &structs }) else { return Ok(()) };
    let mut field = place.to_owned();
    structs.walk(value, place, &mut |value, place, _| {
        if error.value == Some(value) {
            field = place.to_owned();
        }
    });
    Err(FieldError { field, reason: error.reason, hint: error.hint })
}

/// The fields that Go would drop where it decodes `value`, found at the field `place`, as a `T`.
pub(super) fn unknown<'de, T: Deserialize<'de>>(value: Option<&'de Value>, place: &str) -> Unknown {
    let Some(value) = value else { return Unknown::new() };
    let structs = Structs::default();
    // Not used for a value that is refused.
    let _ = T::deserialize(Go { value, structs: &structs });
    let mut unknown = Unknown::new();
    structs.walk(value, place, &mut |_, place, field| {
        if let Some((name, fields)) = field.filter(|(name, fields)| !fields.contains(name)) {
            unknown.push((place.to_owned(), nearest::of(name, fields.iter().copied())));
        }
    });
    unknown
}

type FieldNames = &'static [&'static str];

/// Takes a value, its place and, in a struct, its name and the fields that there are.
type See<'a> = dyn FnMut(*const Value, &str, Option<(&str, FieldNames)>) + 'a;

/// The objects that are structs, by their addresses, with the fields of their types; other objects are maps.
#[derive(Default)]
struct Structs(RefCell<HashMap<*const Value, FieldNames>>);

impl Structs {
    /// Shows `see` each value below `value`, which is at `place`: the value, its place and, in a struct, its name
    /// and the fields that there are.
    fn walk(&self, value: &Value, place: &str, see: &mut See<'_>) {
        if let Value::Array(items) = value {
            for (index, item) in items.iter().enumerate() {
                let place = format!("{place}[{index}]");
                see(item, &place, None);
                self.walk(item, &place, see);
            }
        }
        if let Value::Object(map) = value {
            let fields = self.0.borrow().get(&std::ptr::from_ref(value)).copied();
            for (name, value) in map {
                let place = match fields {
                    Some(_) if place.is_empty() => name.clone(),
                    Some(_) => format!("{place}.{name}"),
                    None => format!("{place}[{name}]"),
                };
                see(value, &place, fields.map(|fields| (name.as_str(), fields)));
                self.walk(value, &place, see);
            }
        }
    }
}

/// What Go would not take.
#[derive(Debug)]
struct TypeError {
    /// The value's address.
    value: Option<*const Value>,
    reason: String,
    hint: Option<String>,
}

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for TypeError {}

impl serde::de::Error for TypeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self { value: None, reason: message.to_string(), hint: None }
    }
}

#[derive(Clone, Copy)]
struct Go<'de, 's> {
    value: &'de Value,
    structs: &'s Structs,
}

impl<'de> Go<'de, '_> {
    fn wrong(self, wanted: &str) -> TypeError {
        let (found, quote) = match self.value {
            Value::Null => ("nothing".to_owned(), false),
            Value::Bool(value) => (format!("the boolean {value}"), true),
            Value::Number(value) => (format!("the number {value}"), true),
            Value::String(value) => (format!("the string {value:?}"), false),
            Value::Array(_) => ("a list".to_owned(), false),
            Value::Object(_) => ("an object".to_owned(), false),
        };
        let hint = match wanted {
            "a string" if quote => Some("put the value in quotes".to_owned()),
            "a list" | "an object" => None,
            _ if self.value.as_str().is_some_and(is_quoted_scalar) => Some("remove the quotes".to_owned()),
            _ => None,
        };
        TypeError { value: Some(self.value), reason: format!("must be {wanted}, not {found}"), hint }
    }

    /// Without quotes a text is no more of a quantity.
    fn no_quantity(self, wanted: &str) -> TypeError {
        TypeError { hint: None, ..self.wrong(wanted) }
    }

    /// An integer of the width that `low` and `high` say; Go takes no fraction, and readers here have made `8.0` an 8.
    fn integer(self, low: i64, high: i64, wanted: &str) -> Result<i64, TypeError> {
        match self.value {
            Value::Null => Ok(0),
            value => value.as_i64().filter(|n| (low..=high).contains(n)).ok_or_else(|| self.wrong(wanted)),
        }
    }

    fn object<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeError> {
        let entries = match self.value {
            Value::Object(map) => Some(map),
            Value::Null => None,
            _ => return Err(self.wrong("an object")),
        };
        let entries = entries.into_iter().flatten().map(|(key, value)| (key.as_str(), Self { value, ..self }));
        visitor.visit_map(MapDeserializer::new(entries))
    }
}

impl<'de> IntoDeserializer<'de, TypeError> for Go<'de, '_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Go<'de, '_> {
    type Error = TypeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeError> {
        let refused = |error: serde_json::Error| match self.value {
            Value::String(_) => TypeError { value: Some(self.value), reason: error.to_string(), hint: None },
            // The only type that takes several forms is `IntOrString`.
            _ => self.wrong("a 32-bit integer or a string"),
        };
        self.value.deserialize_any(visitor).map_err(refused)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeError> {
        match self.value {
            Value::Null => visitor.visit_bool(false),
            Value::Bool(value) => visitor.visit_bool(*value),
            _ => Err(self.wrong("true or false")),
        }
    }

    fn deserialize_i32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeError> {
        visitor.visit_i64(self.integer(i32::MIN.into(), i32::MAX.into(), "a 32-bit integer")?)
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeError> {
        visitor.visit_i64(self.integer(i64::MIN, i64::MAX, "a 64-bit integer")?)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeError> {
        match self.value {
            Value::Null => visitor.visit_borrowed_str(""),
            Value::String(_) => self.deserialize_any(visitor),
            _ => Err(self.wrong("a string")),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeError> {
        if self.value.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, TypeError> {
        match self.value {
            Value::String(text) if name == "Time" && !is_time(text) => {
                Err(self.wrong("a time such as 2026-01-31T10:00:00Z"))
            }
            _ if name != "Quantity" => visitor.visit_newtype_struct(self),
            Value::Null => visitor.visit_i64(0),
            // Go trims a text. What is too large is refused: upstream may store another number.
            Value::String(text) => match trimmed(text).parse::<Quantity>() {
                Ok(_) => visitor.visit_newtype_struct(self),
                Err(QuantityError::TooLarge) => Err(self.no_quantity("a quantity of less than 1e21")),
                Err(_) => Err(self.no_quantity("a quantity such as 100m or 64Mi")),
            },
            Value::Number(number) => match number.to_string().parse::<Quantity>() {
                Ok(_) => visitor.visit_newtype_struct(self),
                Err(_) => Err(self.wrong("a quantity of less than 1e21")),
            },
            _ => Err(self.wrong("a quantity")),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeError> {
        let items = match self.value {
            Value::Array(items) => items.as_slice(),
            Value::Null => &[],
            _ => return Err(self.wrong("a list")),
        };
        visitor.visit_seq(SeqDeserializer::new(items.iter().map(|value| Self { value, ..self })))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeError> {
        self.object(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: FieldNames,
        visitor: V,
    ) -> Result<V::Value, TypeError> {
        self.structs.0.borrow_mut().insert(self.value, fields);
        self.object(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeError> {
        visitor.visit_unit()
    }

    // No field of a DaemonSet or a Pod has such a type.
    serde::forward_to_deserialize_any! {
        i8 i16 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct enum identifier
    }
}

/// Whether `text` has the form of Go's `time.RFC3339`: jiff takes more.
fn is_time(text: &str) -> bool {
    let form =
        |text: &str| text.bytes().map(|byte| if byte.is_ascii_digit() { b'0' } else { byte }).collect::<Vec<_>>();
    let (time, rest) = text.split_at_checked(19).unwrap_or_default();
    let zone = match rest.strip_prefix(['.', ',']) {
        Some(fraction) => fraction.trim_start_matches(|digit: char| digit.is_ascii_digit()),
        None => rest,
    };
    form(time) == b"0000-00-00T00:00:00"
        && !time.ends_with(":60")
        && (zone == "Z" || matches!(form(zone).as_slice(), b"+00:00" | b"-00:00"))
}

/// Whether a string would be a number or a boolean without its quotes.
fn is_quoted_scalar(text: &str) -> bool {
    matches!(text, "true" | "false") || text.parse::<f64>().is_ok_and(f64::is_finite)
}
