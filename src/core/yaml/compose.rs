//! From the parser's events to one JSON value: anchors, aliases, merge keys, keys that are set twice, and bounds.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::HashSet;

use granit_parser::ErrorKind;
use granit_parser::Event;
use granit_parser::Marker;
use granit_parser::Parser;
use granit_parser::ScalarStyle;
use granit_parser::Span;
use granit_parser::StrInput;
use granit_parser::Tag;
use serde_json::Map;
use serde_json::Value;

use super::Limit;
use super::MAX_DEPTH;
use super::YamlError;
use super::YamlFault;
use super::rewrite::Rewrite;
use super::scalar;
use super::scalar::Scalar;

/// The most bytes of text that aliases may add to one document.
const MAX_ALIAS_BYTES: usize = 8 << 20;

/// How many places that go-yaml reads in another way than YAML 1.2 wants are written as both read them.
///
/// Each costs one more reading of the document.
const MAX_REWRITTEN: usize = 64;

/// The value of the document in `text`, whose first line is `first_line` of the file, with its own first line;
/// `None` if it is empty. Like go-yaml, reads no further than the first `...`.
pub(super) fn document(text: &str, first_line: usize, limit: Limit) -> Result<Option<(usize, Value)>, YamlError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    refuse_control_characters(text, first_line)?;
    // A line break of YAML 1.1 that is no line break in 1.2.
    let mut text = Cow::Borrowed(text);
    if text.contains('\u{85}') {
        text = Cow::Owned(text.replace('\u{85}', "\n"));
    }
    for _ in 0..MAX_REWRITTEN {
        let mut composer = Composer::new(&text, first_line, limit);
        let result = composer.document();
        let Some(rewrite) = composer.rewrite else { return result };
        text = Cow::Owned(rewrite.of(&text));
    }
    Composer::new(&text, first_line, limit).document()
}

fn refuse_control_characters(text: &str, first_line: usize) -> Result<(), YamlError> {
    let allowed = |character: char| matches!(character, '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{fffd}' | '\u{10000}'..);
    let Some((at, character)) = text.char_indices().find(|(_, character)| !allowed(*character)) else {
        return Ok(());
    };
    let before = &text[..at];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    Err(YamlError {
        line: first_line + before.bytes().filter(|byte| *byte == b'\n').count(),
        column: before[line_start..].chars().count() + 1,
        message: format!("control characters are not allowed: U+{:04X}", u32::from(character)),
        fault: YamlFault::Syntax,
    })
}

struct Composer<'a> {
    parser: Parser<'a, StrInput<'a>>,
    text: &'a str,
    first_line: usize,
    limit: Limit,
    /// What an anchor stands for; `None` while its node is open.
    anchors: HashMap<usize, Option<Anchored>>,
    nodes: usize,
    /// Of the texts of all nodes.
    bytes: usize,
    alias_nodes: usize,
    alias_bytes: usize,
    /// The reason why parsing ended, where go-yaml goes on.
    rewrite: Option<Rewrite>,
    /// A directive follows: for go-yaml it ends the document, and what comes after it is not read.
    is_at_directive: bool,
}

#[derive(Clone)]
struct Anchored {
    node: YamlNode,
    nodes: usize,
    bytes: usize,
    depth: usize,
}

#[derive(Clone)]
enum YamlNode {
    Scalar(Scalar),
    Value(Value),
    /// A plain or tagged `<<`, which merges when it is a key.
    Merge,
}

/// A node with what it weighs.
struct Composed {
    node: YamlNode,
    marker: Marker,
    bytes: usize,
    /// Levels of maps and lists in it.
    depth: usize,
}

impl<'a> Composer<'a> {
    fn new(text: &'a str, first_line: usize, limit: Limit) -> Self {
        let mut options = granit_parser::options! {};
        options.set_emit_comments(false);
        Self {
            parser: Parser::new_from_str_with_options(text, options),
            text,
            first_line,
            limit,
            anchors: HashMap::new(),
            nodes: 0,
            bytes: 0,
            alias_nodes: 0,
            alias_bytes: 0,
            rewrite: None,
            is_at_directive: false,
        }
    }

    fn document(&mut self) -> Result<Option<(usize, Value)>, YamlError> {
        loop {
            match self.next()? {
                (Event::StreamStart | Event::DocumentStart(..), _) => {}
                (Event::StreamEnd | Event::DocumentEnd, _) => return Ok(None),
                (event, span) => {
                    let composed = self.node(event, span, 0)?;
                    let line = self.first_line + span.start.line().saturating_sub(1);
                    // Errors after the node are the document's too, up to its end.
                    let after = self.next();
                    if !self.is_at_directive {
                        let _ = after?;
                    }
                    let value = self.value(composed)?;
                    return Ok((!value.is_null()).then_some((line, value)));
                }
            }
        }
    }

    fn next(&mut self) -> Result<(Event<'a>, Span), YamlError> {
        match self.parser.next_event() {
            Some(Ok(next)) => Ok(next),
            Some(Err(error)) => {
                self.is_at_directive |= matches!(error.kind(), ErrorKind::MissingDocumentEndBeforeDirective);
                self.rewrite = Rewrite::for_error(error.kind(), *error.marker());
                Err(self.error(*error.marker(), error.info()))
            }
            None => {
                let message = "the document ends too early".into();
                Err(YamlError { line: self.first_line, column: 1, message, fault: YamlFault::Syntax })
            }
        }
    }

    fn error(&self, at: Marker, message: impl Into<String>) -> YamlError {
        let line = self.first_line + at.line().saturating_sub(1);
        YamlError { line, column: at.col() + 1, message: message.into(), fault: YamlFault::Syntax }
    }

    /// Refuses a document that exceeds [`Limit`] once its aliases are expanded.
    fn within_limit(&self, at: Marker) -> Result<(), YamlError> {
        let counts =
            [("keys and values", self.nodes, self.limit.nodes), ("bytes of text", self.bytes, self.limit.bytes)];
        let Some((what, _, most)) = counts.into_iter().find(|(_, count, most)| count > most) else { return Ok(()) };
        let message = format!("the document unfolds to more than {most} {what}");
        Err(YamlError { fault: YamlFault::TooLarge, ..self.error(at, message) })
    }

    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Composed, YamlError> {
        self.nodes += 1;
        let marker = span.start;
        if depth > MAX_DEPTH {
            return Err(self.error(marker, format!("nested more than {MAX_DEPTH} levels deep")));
        }
        self.within_limit(marker)?;
        let before = self.nodes;
        let (anchor, node, bytes, levels) = match event {
            Event::Alias(id) => return self.alias(id, marker, depth),
            Event::Scalar(text, style, anchor, tag) => {
                self.rewrite = Rewrite::for_colon(self.text, &text, &span).filter(|_| style == ScalarStyle::Plain);
                if self.rewrite.is_some() {
                    return Err(self.error(marker, "the colon belongs to the text before it"));
                }
                let bytes = text.len();
                self.bytes += bytes;
                self.within_limit(marker)?;
                let node = match self.scalar(&text, style, tag.as_deref(), marker)? {
                    Scalar::Str(text) if text == "<<" && is_merge(style, tag.as_deref()) => YamlNode::Merge,
                    scalar => YamlNode::Scalar(scalar),
                };
                (anchor, node, bytes, 0)
            }
            Event::SequenceStart(_, anchor, _) => {
                self.open(anchor);
                let (items, bytes, levels) = self.sequence(depth)?;
                (anchor, YamlNode::Value(Value::Array(items)), bytes, levels + 1)
            }
            Event::MappingStart(_, anchor, _) => {
                self.open(anchor);
                let (map, bytes, levels) = self.mapping(depth)?;
                (anchor, YamlNode::Value(Value::Object(map)), bytes, levels + 1)
            }
            _ => return Err(self.error(marker, "the document is cut short here")),
        };
        if anchor != 0 {
            let nodes = self.nodes - before + 1;
            let anchored = Anchored { node: node.clone(), nodes, bytes, depth: levels };
            self.anchors.insert(anchor, Some(anchored));
        }
        Ok(Composed { node, marker, bytes, depth: levels })
    }

    fn open(&mut self, anchor: usize) {
        if anchor != 0 {
            self.anchors.insert(anchor, None);
        }
    }

    fn alias(&mut self, id: usize, marker: Marker, depth: usize) -> Result<Composed, YamlError> {
        let Some(Some(anchored)) = self.anchors.get(&id) else {
            return Err(self.error(marker, "the anchor's value contains itself"));
        };
        self.nodes += anchored.nodes;
        self.alias_nodes += anchored.nodes;
        self.bytes += anchored.bytes;
        self.alias_bytes += anchored.bytes;
        let excessive = self.alias_nodes > 100
            && self.nodes > 1000
            && self.alias_nodes as f64 / self.nodes as f64 > allowed_alias_ratio(self.nodes);
        if excessive || self.alias_bytes > MAX_ALIAS_BYTES {
            return Err(self.error(marker, "the document contains excessive aliasing"));
        }
        if depth + anchored.depth > MAX_DEPTH {
            return Err(self.error(marker, format!("nested more than {MAX_DEPTH} levels deep")));
        }
        self.within_limit(marker)?;
        Ok(Composed { node: anchored.node.clone(), marker, bytes: anchored.bytes, depth: anchored.depth })
    }

    fn scalar(&self, text: &str, style: ScalarStyle, tag: Option<&Tag>, at: Marker) -> Result<Scalar, YamlError> {
        match tag {
            Some(tag) => match tag.suffix_in_namespace("tag:yaml.org,2002:") {
                Some(suffix) => scalar::tagged(&suffix, text).map_err(|message| self.error(at, message)),
                None => Ok(Scalar::Str(text.to_owned())),
            },
            None if style == ScalarStyle::Plain => Ok(scalar::plain(text)),
            None => Ok(Scalar::Str(text.to_owned())),
        }
    }

    fn sequence(&mut self, depth: usize) -> Result<(Vec<Value>, usize, usize), YamlError> {
        let mut items = Vec::new();
        let (mut bytes, mut levels) = (0, 0);
        loop {
            let (event, span) = self.next()?;
            if event == Event::SequenceEnd {
                return Ok((items, bytes, levels));
            }
            let item = self.node(event, span, depth + 1)?;
            bytes += item.bytes;
            levels = levels.max(item.depth);
            items.push(self.value(item)?);
        }
    }

    fn mapping(&mut self, depth: usize) -> Result<(Map<String, Value>, usize, usize), YamlError> {
        let mut map = Map::new();
        // The keys that stand here themselves: only these may not be set twice.
        let mut own = HashSet::new();
        let (mut bytes, mut levels) = (0, 0);
        loop {
            let (event, span) = self.next()?;
            if event == Event::MappingEnd {
                return Ok((map, bytes, levels));
            }
            let key = self.node(event, span, depth + 1)?;
            let at = key.marker;
            bytes += key.bytes;
            let (event, span) = self.next()?;
            let value = self.node(event, span, depth + 1)?;
            bytes += value.bytes;
            levels = levels.max(value.depth);
            let name = match key.node {
                YamlNode::Merge => {
                    self.merge(&mut map, value)?;
                    continue;
                }
                YamlNode::Scalar(scalar) => scalar.into_key().map_err(|message| self.error(at, message))?,
                YamlNode::Value(_) => return Err(self.error(at, "a map or a list is no key")),
            };
            if !own.insert(name.clone()) {
                let error = self.error(at, format!("key {name:?} is set twice"));
                return Err(YamlError { fault: YamlFault::KeySetTwice, ..error });
            }
            let value = self.value(value)?;
            map.insert(name, value);
        }
    }

    /// Later wins, also where the merge stands after the key, as in go-yaml.
    fn merge(&self, map: &mut Map<String, Value>, merged: Composed) -> Result<(), YamlError> {
        let at = merged.marker;
        let wrong = || self.error(at, "a merge needs a map or a list of maps");
        match merged.node {
            YamlNode::Value(Value::Object(other)) => map.extend(other),
            YamlNode::Value(Value::Array(items)) => {
                for item in items.into_iter().rev() {
                    let Value::Object(other) = item else { return Err(wrong()) };
                    map.extend(other);
                }
            }
            _ => return Err(wrong()),
        }
        Ok(())
    }

    fn value(&self, composed: Composed) -> Result<Value, YamlError> {
        match composed.node {
            YamlNode::Value(value) => Ok(value),
            YamlNode::Merge => Ok(Value::String("<<".to_owned())),
            YamlNode::Scalar(scalar) => scalar
                .into_value()
                .ok_or_else(|| self.error(composed.marker, "infinity and not-a-number have no place in JSON")),
        }
    }
}

fn is_merge(style: ScalarStyle, tag: Option<&Tag>) -> bool {
    match tag {
        None => style == ScalarStyle::Plain,
        Some(tag) => tag.suffix_in_namespace("tag:yaml.org,2002:").is_some_and(|suffix| suffix == "merge"),
    }
}

/// The share of a document that may come from aliases: go-yaml's `allowedAliasRatio`.
fn allowed_alias_ratio(nodes: usize) -> f64 {
    const LOW: f64 = 400_000.0;
    const HIGH: f64 = 4_000_000.0;
    let nodes = (nodes as f64).clamp(LOW, HIGH);
    0.99 - 0.89 * ((nodes - LOW) / (HIGH - LOW))
}
