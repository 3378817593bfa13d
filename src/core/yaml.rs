//! YAML as kubectl and the kubelet read it, and written so that they read back the same strings.
//!
//! Owns the way from text to JSON values and back. Reading follows three upstream programs, in this
//! order: `k8s.io/apimachinery/pkg/util/yaml` (how a stream is cut into documents, and when it is
//! JSON), `go.yaml.in/yaml/v2` (YAML 1.1 scalars, merge keys, anchors) and `sigs.k8s.io/yaml` (keys
//! become strings). The grammar is parsed by `granit-parser`. Stricter than kubectl in one point:
//! a key that is set twice is an error, also when two spellings become the same string.
//!
//! Must not read files, and must not know Kubernetes objects.

mod compose;
mod number;
mod rewrite;
mod scalar;
mod split;
mod strict_json;
mod write;

use serde_json::Value;

pub use write::for_terminal;
pub use write::write;
pub use write::write_manifest;

/// The deepest nesting of maps and lists that is read; deeper documents are an error.
pub const MAX_DEPTH: usize = 120;

/// The largest text that is read, in bytes; a larger one is an error as a whole.
pub const MAX_TEXT: usize = 10 << 20;

/// Why a document does not parse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct YamlError {
    /// Line in the file, from 1.
    pub line: usize,
    /// Column, from 1.
    pub column: usize,
    /// What is wrong, lower case.
    pub message: String,
    pub fault: YamlFault,
}

/// What is wrong with a document, where a caller tells the kinds apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum YamlFault {
    /// It does not parse.
    Syntax,
    /// It is more than a [`Limit`] allows.
    TooLarge,
    /// A map has a key twice.
    KeySetTwice,
}

/// How much of a text is made into values: aliases make a large value of a small text.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// Documents; later ones are not read.
    pub documents: usize,
    /// Keys and values of a document, each alias with all that it stands for.
    pub nodes: usize,
    /// Bytes of the texts of these.
    pub bytes: usize,
}

impl Limit {
    /// What go-yaml allows, and nothing less.
    const NONE: Self = Self { documents: usize::MAX, nodes: usize::MAX, bytes: usize::MAX };
}

/// One document of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Its first line with content in the file, from 1.
    pub line: usize,
    /// Its value as JSON, or why there is none.
    pub value: Result<Value, YamlError>,
}

/// All documents of `text`, in order; empty documents are left out.
///
/// A document that does not parse is in the list with its error, and the others are still read.
pub fn read_documents(text: &str) -> Vec<Document> {
    read_within(text, Limit::NONE)
}

/// As [`read_documents`], no more than `limit` allows. A document that is more is in the list with its error.
pub fn read_within(text: &str, limit: Limit) -> Vec<Document> {
    if text.len() > MAX_TEXT {
        let message = format!("the text has more than {} MiB, and is not read", MAX_TEXT >> 20);
        return vec![Document {
            line: 1,
            value: Err(YamlError { line: 1, column: 1, message, fault: YamlFault::TooLarge }),
        }];
    }
    let mut documents = Vec::new();
    let (rest, first_line, json_error) = strict_json::read_stream(text, &mut documents);
    let mut json_error = json_error;
    for chunk in split::documents(rest, first_line) {
        if documents.len() >= limit.documents {
            break;
        }
        let value = match chunk.text {
            Ok(text) => compose::document(&text, chunk.line, limit),
            Err(error) => Err(error),
        };
        match value {
            Ok(None) => {}
            Ok(Some((line, value))) => documents.push(Document { line, value: Ok(value) }),
            // A text that begins with a brace and is neither JSON nor YAML gets the error of the JSON reader, as in kubectl.
            Err(error) => {
                let error = json_error.take().unwrap_or(error);
                documents.push(Document { line: chunk.line, value: Err(error) });
            }
        }
        json_error = None;
    }
    documents
}

#[cfg(test)]
mod tests;
