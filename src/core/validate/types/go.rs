//! A serde deserializer over JSON values with the rules of Go's `encoding/json` and Kubernetes' own types.

use std::cell::RefCell;
use std::fmt;

use serde::Deserialize;
use serde::Deserializer;
use serde::de::DeserializeSeed;
use serde::de::Error as _;
use serde::de::IntoDeserializer;
use serde::de::MapAccess;
use serde::de::SeqAccess;
use serde::de::Visitor;
use serde::de::value::StrDeserializer;
use serde_json::Map;
use serde_json::Value;

use crate::core::model::FieldError;
use crate::core::nearest;

/// Fields that a type does not have, as paths, each with the name that was perhaps meant.
pub(super) type Unknown = Vec<(String, Option<&'static str>)>;

/// Whether Go would decode `value`, found at the field `place`, as a `T`.
pub(super) fn check<'de, T: Deserialize<'de>>(value: Option<&'de Value>, place: &str) -> Result<(), FieldError> {
    decode::<T>(value, place, None)
}

/// The fields that Go would drop where it decodes `value`, found at the field `place`, as a `T`.
pub(super) fn unknown<'de, T: Deserialize<'de>>(value: Option<&'de Value>, place: &str) -> Unknown {
    let unknown = RefCell::default();
    // Of a value that is refused nobody asks this.
    let _ = decode::<T>(value, place, Some(&unknown));
    unknown.take()
}

fn decode<'de, T: Deserialize<'de>>(
    value: Option<&'de Value>,
    place: &str,
    unknown: Option<&RefCell<Unknown>>,
) -> Result<(), FieldError> {
    let Some(value) = value else { return Ok(()) };
    let root = Path { parent: None, step: PathStep::Field(place) };
    T::deserialize(Go { value, path: &root, quantity: false, unknown }).map(drop).map_err(|error| FieldError {
        field: error.place.unwrap_or_else(|| place.to_owned()),
        reason: error.reason,
        hint: error.hint,
    })
}

/// The way to a value, kept on the stack and printed only when something is wrong.
#[derive(Clone, Copy)]
struct Path<'p> {
    parent: Option<&'p Path<'p>>,
    step: PathStep<'p>,
}

#[derive(Clone, Copy)]
enum PathStep<'p> {
    Field(&'p str),
    Key(&'p str),
    Index(usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.step {
            PathStep::Field(name) => {
                let first = self.parent.is_none_or(|parent| matches!(parent.step, PathStep::Field("")));
                write!(f, "{}{name}", if first { "" } else { "." })
            }
            PathStep::Key(key) => write!(f, "[{key}]"),
            PathStep::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// What Go would not take, and where.
#[derive(Debug)]
struct TypeError {
    place: Option<String>,
    reason: String,
    hint: Option<String>,
}

impl TypeError {
    fn at(mut self, path: &Path<'_>) -> Self {
        if self.place.is_none() {
            self.place = Some(path.to_string());
        }
        self
    }
}

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for TypeError {}

impl serde::de::Error for TypeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self { place: None, reason: message.to_string(), hint: None }
    }
}

#[derive(Clone, Copy)]
struct Go<'de, 'p> {
    value: &'de Value,
    path: &'p Path<'p>,
    quantity: bool,
    unknown: Option<&'p RefCell<Unknown>>,
}

impl Go<'_, '_> {
    fn wrong(self, wanted: &str) -> TypeError {
        let (found, quote) = match self.value {
            Value::Null => ("nothing".to_owned(), false),
            Value::Bool(value) => (format!("the boolean {value}"), true),
            Value::Number(value) => (format!("the number {value}"), true),
            Value::String(value) => (format!("the string {value:?}"), false),
            Value::Array(_) => ("a list".to_owned(), false),
            Value::Object(_) => ("an object".to_owned(), false),
        };
        TypeError {
            place: Some(self.path.to_string()),
            reason: format!("must be {wanted}, not {found}"),
            hint: match (wanted, quote) {
                ("a string", true) => Some("put the value in quotes".to_owned()),
                _ if self.value.as_str().is_some_and(is_quoted_scalar)
                    && wanted != "a list"
                    && wanted != "an object" =>
                {
                    Some("take the quotes away".to_owned())
                }
                _ => None,
            },
        }
    }

    /// An integer of the width that `low` and `high` say; Go takes no fraction, and readers here have made `8.0` an 8.
    fn integer(self, low: i64, high: i64, wanted: &str) -> Result<i64, TypeError> {
        match self.value {
            Value::Null => Ok(0),
            Value::Number(number) => {
                number.as_i64().filter(|number| (low..=high).contains(number)).ok_or_else(|| self.wrong(wanted))
            }
            _ => Err(self.wrong(wanted)),
        }
    }
}

macro_rules! forward_unused {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeError> {
            self.deserialize_any(visitor)
        })*
    };
}

impl<'de> Deserializer<'de> for Go<'de, '_> {
    type Error = TypeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeError> {
        let result = match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(items) => return self.sequence(items, visitor),
            Value::Object(map) => return self.map(map, None, visitor),
            Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
                (Some(value), ..) => visitor.visit_i64(value),
                (_, Some(value), _) => visitor.visit_u64(value),
                (.., Some(value)) => visitor.visit_f64(value),
                _ => visitor.visit_unit(),
            },
        };
        result.map_err(|error: TypeError| error.at(self.path))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeError> {
        match self.value {
            Value::Null => visitor.visit_bool(false),
            Value::Bool(value) => visitor.visit_bool(*value),
            _ => Err(self.wrong("true or false")),
        }
    }

    fn deserialize_i32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeError> {
        visitor.visit_i64(self.integer(i32::MIN.into(), i32::MAX.into(), "an integer of 32 bits")?)
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeError> {
        visitor.visit_i64(self.integer(i64::MIN, i64::MAX, "an integer of 64 bits")?)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeError> {
        match self.value {
            Value::Null => visitor.visit_f64(0.0),
            Value::Number(number) => visitor.visit_f64(number.as_f64().unwrap_or_default()),
            _ => Err(self.wrong("a number")),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeError> {
        let result = match self.value {
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Null => visitor.visit_borrowed_str(""),
            Value::Number(number) if self.quantity => visitor.visit_string(number.to_string()),
            _ if self.quantity => return Err(self.wrong("a quantity")),
            _ => return Err(self.wrong("a string")),
        };
        result.map_err(|error: TypeError| error.at(self.path))
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeError> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, TypeError> {
        let quantity = name == "Quantity";
        if quantity && matches!(self.value, Value::String(text) if !is_quantity(text)) {
            return Err(self.wrong("a quantity such as 100m or 64Mi"));
        }
        visitor.visit_newtype_struct(Self { quantity, ..self })
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeError> {
        match self.value {
            Value::Array(items) => self.sequence(items, visitor),
            Value::Null => self.sequence(&[], visitor),
            _ => Err(self.wrong("a list")),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeError> {
        self.object(None, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, TypeError> {
        self.object(Some(fields), visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeError> {
        visitor.visit_unit()
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _length: usize, visitor: V) -> Result<V::Value, TypeError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _length: usize,
        visitor: V,
    ) -> Result<V::Value, TypeError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, TypeError> {
        self.deserialize_any(visitor)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _name: &'static str, visitor: V) -> Result<V::Value, TypeError> {
        self.deserialize_any(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeError> {
        self.deserialize_str(visitor)
    }

    forward_unused! {
        deserialize_i8 deserialize_i16 deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
        deserialize_f32 deserialize_char deserialize_unit deserialize_identifier
    }
}

impl<'de> Go<'de, '_> {
    fn object<V: Visitor<'de>>(self, fields: Fields, visitor: V) -> Result<V::Value, TypeError> {
        match self.value {
            Value::Object(map) => self.map(map, fields, visitor),
            Value::Null => {
                let (path, unknown) = (self.path, self.unknown);
                visitor.visit_map(Entries { entries: None, value: None, fields, path, unknown })
            }
            _ => Err(self.wrong("an object")),
        }
    }

    fn map<V: Visitor<'de>>(
        self,
        map: &'de Map<String, Value>,
        fields: Fields,
        visitor: V,
    ) -> Result<V::Value, TypeError> {
        let (path, unknown) = (self.path, self.unknown);
        let entries = Entries { entries: Some(map.iter()), value: None, fields, path, unknown };
        visitor.visit_map(entries).map_err(|error| error.at(self.path))
    }

    fn sequence<V: Visitor<'de>>(self, items: &'de [Value], visitor: V) -> Result<V::Value, TypeError> {
        let items = Items { items, index: 0, path: self.path, unknown: self.unknown };
        visitor.visit_seq(items).map_err(|error| error.at(self.path))
    }
}

struct Items<'de, 'p> {
    items: &'de [Value],
    index: usize,
    path: &'p Path<'p>,
    unknown: Option<&'p RefCell<Unknown>>,
}

impl<'de> SeqAccess<'de> for Items<'de, '_> {
    type Error = TypeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, TypeError> {
        let Some(value) = self.items.get(self.index) else { return Ok(None) };
        let path = Path { parent: Some(self.path), step: PathStep::Index(self.index) };
        self.index += 1;
        let go = Go { value, path: &path, quantity: false, unknown: self.unknown };
        seed.deserialize(go).map(Some).map_err(|error| error.at(&path))
    }
}

/// The fields of the type; none: the keys are a map's own.
type Fields = Option<&'static [&'static str]>;

struct Entries<'de, 'p> {
    entries: Option<serde_json::map::Iter<'de>>,
    value: Option<(&'de str, &'de Value)>,
    fields: Fields,
    path: &'p Path<'p>,
    unknown: Option<&'p RefCell<Unknown>>,
}

impl<'de> MapAccess<'de> for Entries<'de, '_> {
    type Error = TypeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, TypeError> {
        let Some((key, value)) = self.entries.as_mut().and_then(Iterator::next) else { return Ok(None) };
        self.value = Some((key, value));
        let key: StrDeserializer<'_, TypeError> = key.as_str().into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, TypeError> {
        let Some((key, value)) = self.value.take() else { return Err(TypeError::custom("a value without a key")) };
        let step = if self.fields.is_some() { PathStep::Field(key) } else { PathStep::Key(key) };
        let path = Path { parent: Some(self.path), step };
        if let (Some(unknown), Some(fields)) = (self.unknown, self.fields)
            && !fields.contains(&key)
        {
            unknown.borrow_mut().push((path.to_string(), nearest::of(key, fields.iter().copied())));
        }
        let go = Go { value, path: &path, quantity: false, unknown: self.unknown };
        seed.deserialize(go).map_err(|error| error.at(&path))
    }
}

/// Whether `resource.ParseQuantity` takes the text: digits with at most one point, then one of the suffixes.
fn is_quantity(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end =
        unsigned.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let good_number = number.bytes().any(|byte| byte.is_ascii_digit()) && number.matches('.').count() <= 1;
    let exponent = |suffix: &str| {
        let digits = suffix.strip_prefix(['+', '-']).unwrap_or(suffix);
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    good_number
        && match suffix {
            "" | "n" | "u" | "m" | "k" | "M" | "G" | "T" | "P" | "E" => true,
            "Ki" | "Mi" | "Gi" | "Ti" | "Pi" | "Ei" => true,
            _ => suffix.strip_prefix(['e', 'E']).is_some_and(exponent),
        }
}

/// Whether a string would be a number or a boolean without its quotes.
fn is_quoted_scalar(text: &str) -> bool {
    matches!(text, "true" | "false") || text.parse::<f64>().is_ok_and(f64::is_finite)
}
