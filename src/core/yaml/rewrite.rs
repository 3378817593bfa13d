//! Places that go-yaml reads in another way than YAML 1.2 wants, written as both read them.
//!
//! Owns which those are. Must not read a document.

use granit_parser::ErrorKind;
use granit_parser::Marker;
use granit_parser::Span;

use super::MAX_DEPTH;

/// By how much such a line is indented: more than any block in a document of sane shape.
const INDENT: usize = 400;

/// How a place is written that go-yaml takes.
#[derive(Clone, Copy)]
pub(super) enum Rewrite {
    /// The line, from 1, continues a quoted scalar too far to the left.
    Indent(usize),
    /// The plain scalar at these bytes, in a flow collection, is `-`, or ends with a colon before `,`, `]` or `}`.
    Quote { start: usize, end: usize },
    /// A comment follows at this byte without a blank.
    Separate(usize),
}

impl Rewrite {
    pub(super) fn of(self, text: &str) -> String {
        match self {
            Self::Indent(line) => indent_line(text, line),
            Self::Quote { start, end } => {
                let (before, scalar, after) = (&text[..start], &text[start..end], &text[end..]);
                format!("{before}'{}'{after}", scalar.replace('\'', "''"))
            }
            Self::Separate(at) => format!("{} {}", &text[..at], &text[at..]),
        }
    }

    /// The correction for an error at this byte.
    pub(super) fn for_error(kind: &ErrorKind, at: Marker) -> Option<Self> {
        let start = at.byte_offset()?;
        match kind {
            ErrorKind::InvalidQuotedScalarIndent => Some(Self::Indent(at.line())),
            ErrorKind::PlainScalarStartsWithDashFlowIndicator => Some(Self::Quote { start, end: start + 1 }),
            ErrorKind::CommentNotSeparated => Some(Self::Separate(start)),
            _ => None,
        }
    }

    /// For a plain `scalar` of the document's `text` that the parser ends before a colon which is part of it.
    pub(super) fn for_colon(text: &str, scalar: &str, span: &Span) -> Option<Self> {
        let range = span.byte_range()?;
        let ends = matches!(text.as_bytes().get(range.end..)?, [b':', b',' | b']' | b'}', ..]);
        let is_whole = text.get(range.clone())? == scalar;
        (ends && is_whole).then_some(Self::Quote { start: range.start, end: range.end + 1 })
    }
}

/// Indents one line, from 1. Inside a quoted scalar, where leading blanks count for nothing.
fn indent_line(text: &str, line: usize) -> String {
    let mut indented = String::with_capacity(text.len() + MAX_DEPTH);
    for (number, content) in (1..).zip(text.split_inclusive('\n')) {
        if number == line {
            indented.push_str(&" ".repeat(INDENT));
        }
        indented.push_str(content);
    }
    indented
}
