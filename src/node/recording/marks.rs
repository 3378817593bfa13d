//! Marks of values that may hold secrets, for the encoder of recordings.
//!
//! A mark is the name of a newtype struct. Only the encoder knows these names; to any other serializer the value is
//! what it is, so a type that is marked must go to no other one.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde::Serialize;
use serde::Serializer;
use serde_json::Value;

use crate::core::model::Kind;
use crate::core::model::ObjectRef;

/// A Secret: of its data only the shapes are recorded.
pub(crate) const SECRET: &str = "$secret";
/// A text that is secret as a whole.
pub(crate) const SECRET_TEXT: &str = "$secret-text";
/// A ConfigMap: its values can be left out of a bundle.
pub(crate) const CONFIG_MAP: &str = "$config-map";
/// An object that is recorded as it is.
pub(crate) const OPEN: &str = "$open";

/// An object, marked by its kind.
pub(crate) struct Marked<'a>(pub(crate) &'a ObjectRef, pub(crate) &'a Value);

impl Serialize for Marked<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mark = match self.0.kind {
            Kind::Secret => SECRET,
            Kind::ConfigMap => CONFIG_MAP,
            _ => OPEN,
        };
        serializer.serialize_newtype_struct(mark, self.1)
    }
}

struct MarkedText<'a>(&'a str);

impl Serialize for MarkedText<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_newtype_struct(SECRET_TEXT, self.0)
    }
}

/// Objects with their versions.
pub(crate) mod objects {
    use serde::Deserializer;

    use crate::node::api::Entry;

    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        objects: &BTreeMap<ObjectRef, Entry>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let objects = objects.iter();
        serializer
            .collect_seq(objects.map(|(reference, entry)| (reference, entry.version, Marked(reference, &entry.value))))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<ObjectRef, Entry>, D::Error> {
        let objects = Vec::<(ObjectRef, u64, Arc<Value>)>::deserialize(from)?;
        Ok(objects.into_iter().map(|(reference, version, value)| (reference, Entry { version, value })).collect())
    }
}

/// The same behind an `Arc`.
pub(crate) mod shared_objects {
    use serde::Deserializer;

    use crate::node::api::Entry;

    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        objects: &Arc<BTreeMap<ObjectRef, Entry>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        super::objects::serialize(objects, serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<BTreeMap<ObjectRef, Entry>>, D::Error> {
        super::objects::deserialize(from).map(Arc::new)
    }
}

/// Objects of which a recording has the names alone.
pub(crate) mod references {
    use serde::Deserializer;

    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        objects: &[(ObjectRef, Arc<Value>)],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(objects.iter().map(|(reference, _)| reference))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(ObjectRef, Arc<Value>)>, D::Error> {
        let references = Vec::<ObjectRef>::deserialize(from)?;
        Ok(references.into_iter().map(|reference| (reference, Arc::default())).collect())
    }
}

/// Tokens by what they were asked for.
pub(crate) mod tokens {
    use serde::Deserializer;

    use crate::core::model::TokenRequest;

    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        tokens: &BTreeMap<TokenRequest, Arc<str>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(tokens.iter().map(|(request, token)| (request, MarkedText(token))))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<TokenRequest, Arc<str>>, D::Error> {
        Ok(Vec::<(TokenRequest, Arc<str>)>::deserialize(from)?.into_iter().collect())
    }
}
