//! Responses of the API server of whose objects some fields are read: what passes is what the whole document has there.

use daemonlet::core::field_filter::FieldFilter;
use daemonlet::core::field_filter::FieldSelection;
use daemonlet::core::field_filter::ResponseShape;
use daemonlet::core::field_filter::is_too_large;
use serde_json::Map;
use serde_json::Value;

use super::mutate;

const FIELDS: FieldSelection = FieldSelection::Of(&[
    ("kind", FieldSelection::All),
    (
        "metadata",
        FieldSelection::Of(&[
            ("name", FieldSelection::All),
            ("uid", FieldSelection::All),
            ("labels", FieldSelection::All),
        ]),
    ),
    (
        "spec",
        FieldSelection::Of(&[(
            "containers",
            FieldSelection::Of(&[("name", FieldSelection::All), ("ports", FieldSelection::All)]),
        )]),
    ),
]);

/// No object is too large that has fewer bytes.
const LARGE: usize = 4096;
/// So much of one object passes.
const LONGEST: usize = 128 << 10;

/// What must hold of any bytes.
///
/// # Panics
/// Where it does not.
pub fn check(data: &[u8]) {
    let documents = documents(data).filter(|_| !data.contains(&b'\\'));
    for place in [ResponseShape::Whole, ResponseShape::Items] {
        let read = read(data, data.len().max(1), place);
        assert!(read.len() <= data.len() + 64, "{} of {} bytes", read.len(), data.len());
        for piece in [1 + data.len() % 7, 1 + data.len() / 3] {
            assert_eq!(self::read(data, piece, place), read, "in pieces of {piece}");
        }
        let Some(documents) = &documents else { continue };
        let found = self::documents(&read).expect("JSON");
        assert_eq!(found.len(), documents.len());
        for (found, document) in found.iter().zip(documents) {
            match place {
                ResponseShape::Whole => is_part(found, document, data.len()),
                ResponseShape::Items => are_parts(found, document, data.len()),
            }
        }
    }
}

fn read(data: &[u8], piece: usize, place: ResponseShape) -> Vec<u8> {
    let mut filter = FieldFilter::new(&FIELDS, place);
    data.chunks(piece).flat_map(|bytes| filter.feed(bytes)).collect()
}

/// All documents that `data` is, if it is nothing else.
fn documents(data: &[u8]) -> Option<Vec<Value>> {
    serde_json::Deserializer::from_slice(data).into_iter().collect::<Result<_, _>>().ok()
}

/// That of the items of a list, and of the object of an event, no more and no less passes than the fields.
fn are_parts(found: &Value, document: &Value, size: usize) {
    let (Some(found), Some(document)) = (found.as_object(), document.as_object()) else {
        return assert_eq!(found, document);
    };
    assert!(found.keys().eq(document.keys()));
    for ((name, found), value) in found.iter().zip(document.values()) {
        match (name.as_str(), found, value) {
            ("object", _, _) => is_part(found, value, size),
            ("items", Value::Array(found), Value::Array(items)) => {
                assert_eq!(found.len(), items.len());
                found.iter().zip(items).for_each(|(found, item)| is_part(found, item, size));
            }
            ("items", Value::Object(found), Value::Object(items)) => {
                assert!(found.keys().eq(items.keys()));
                found.values().zip(items.values()).for_each(|(found, item)| is_part(found, item, size));
            }
            _ => assert_eq!(found, value),
        }
    }
}

/// That of an object the fields pass; of one that is too large at most its identity.
fn is_part(found: &Value, object: &Value, size: usize) {
    if !object.is_object() {
        return assert_eq!(found, object);
    }
    if is_too_large(found) {
        assert!(size > LARGE, "it is not large");
        let identity = found["metadata"].as_object().expect("an identity");
        assert!(identity.iter().all(|(name, value)| object["metadata"].get(name) == Some(value)), "{found}");
        return;
    }
    assert_eq!(*found, part(object, &FIELDS));
    assert!(found.to_string().len() <= LONGEST, "it is large");
}

fn part(value: &Value, fields: &FieldSelection) -> Value {
    match (fields, value) {
        (FieldSelection::Of(fields), Value::Object(map)) => {
            let of =
                |(name, fields): &(&str, FieldSelection)| Some(((*name).to_owned(), part(map.get(*name)?, fields)));
            Value::Object(fields.iter().filter_map(of).collect::<Map<String, Value>>())
        }
        (FieldSelection::Of(_), Value::Array(items)) => items.iter().map(|item| part(item, fields)).collect(),
        _ => value.clone(),
    }
}

/// Other bytes that are still a document, most of the time; `None`: any other bytes will do.
pub fn change(data: &[u8], max: usize, seed: u32) -> Option<Vec<u8>> {
    if !seed.is_multiple_of(4) { mutate::lines(data, max, seed) } else { None }
}
