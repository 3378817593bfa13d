//! Cutting a stream into documents, as `YAMLReader` of apimachinery does: by lines that begin with `---`,
//! whatever YAML thinks of that place (also inside a block scalar).

use std::borrow::Cow;

use super::YamlError;
use super::YamlFault;

/// The text of one document.
pub(super) struct Chunk<'a> {
    /// Its first line in the file, from 1.
    pub(super) line: usize,
    /// Its text; an error if its separator says more than `---` and a comment.
    pub(super) text: Result<Cow<'a, str>, YamlError>,
}

/// The documents of `text`, whose first line is `first_line` of the file.
pub(super) fn documents(text: &str, first_line: usize) -> Vec<Chunk<'_>> {
    let mut chunks = Vec::new();
    let mut start = 0;
    let mut start_line = first_line;
    let mut bad: Option<YamlError> = None;
    let mut offset = 0;
    for (line, content) in (first_line..).zip(text.split_inclusive('\n')) {
        if let Some(after) = content.strip_prefix("---") {
            push(&mut chunks, &text[start..offset], start_line, bad.take());
            let after = after.trim();
            if !after.is_empty() && !after.starts_with('#') {
                bad = Some(YamlError {
                    line,
                    column: 4,
                    message: format!("invalid document separator: only a comment may follow ---, not {after:?}"),
                    fault: YamlFault::Syntax,
                });
                start_line = line;
            } else {
                start_line = line + 1;
            }
            start = offset + content.len();
        }
        offset += content.len();
    }
    push(&mut chunks, &text[start..], start_line, bad);
    chunks
}

fn push<'a>(chunks: &mut Vec<Chunk<'a>>, text: &'a str, line: usize, bad: Option<YamlError>) {
    // Carriage returns before line feeds never reach the YAML parser there, so not here either.
    let text = match bad {
        Some(error) => Err(error),
        None if text.contains("\r\n") => Ok(Cow::Owned(text.replace("\r\n", "\n"))),
        None => Ok(Cow::Borrowed(text)),
    };
    chunks.push(Chunk { line, text });
}
