//! The string form of a label selector, as `kubectl -l` takes it (apimachinery's `labels.Parse`).

use std::collections::BTreeSet;

use crate::core::labels::LabelError;
use crate::core::labels::Operator;
use crate::core::labels::Requirement;
use crate::core::labels::Selector;

/// Parses `a=b,c in (d,e),!f` and the like; the empty string selects everything.
///
/// # Errors
/// What was found, and what was expected instead.
pub fn parse(text: &str) -> Result<Selector, LabelError> {
    let mut parser = Parser { tokens: tokens(text), at: 0 };
    let mut requirements = Vec::new();
    if parser.peek().is_none() {
        return Ok(Selector::default());
    }
    loop {
        requirements.push(parser.requirement()?);
        match parser.next() {
            None => break,
            Some(",") => {}
            found => return Err(expected(found, "',' or the end")),
        }
    }
    requirements.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(Selector::new(requirements))
}

struct Parser<'a> {
    tokens: Vec<&'a str>,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.tokens.get(self.at).copied()
    }

    fn next(&mut self) -> Option<&'a str> {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn requirement(&mut self) -> Result<Requirement, LabelError> {
        let negated = self.peek() == Some("!");
        if negated {
            self.at += 1;
        }
        let key = match self.next() {
            Some(key) if is_identifier(key) => key,
            found => return Err(expected(found, "a label key or '!'")),
        };
        if matches!(self.peek(), None | Some(",")) {
            let operator = if negated { Operator::DoesNotExist } else { Operator::Exists };
            return Requirement::new(key, operator, Vec::new());
        }
        if negated {
            return Err(expected(self.peek(), "',' or the end"));
        }
        let (operator, values) = match self.next() {
            Some("=" | "==") => (Operator::In, self.value()?),
            Some("!=") => (Operator::NotIn, self.value()?),
            Some(">") => (Operator::Gt, self.value()?),
            Some("<") => (Operator::Lt, self.value()?),
            Some("in") => (Operator::In, self.values()?),
            Some("notin") => (Operator::NotIn, self.values()?),
            found => return Err(expected(found, "one of =, ==, !=, >, <, in, notin")),
        };
        Requirement::new(key, operator, values)
    }

    fn value(&mut self) -> Result<Vec<String>, LabelError> {
        match self.peek() {
            None | Some(",") => Ok(vec![String::new()]),
            Some(value) if is_identifier(value) => {
                self.at += 1;
                Ok(vec![value.to_owned()])
            }
            found => Err(expected(found, "a value")),
        }
    }

    /// `(a,b)`; nothing between two commas is the empty value, and so is `()`.
    fn values(&mut self) -> Result<Vec<String>, LabelError> {
        if self.peek() != Some("(") {
            return Err(expected(self.peek(), "'('"));
        }
        self.at += 1;
        let mut values = BTreeSet::new();
        loop {
            match self.peek() {
                Some(value) if is_identifier(value) => {
                    values.insert(value.to_owned());
                    self.at += 1;
                }
                _ => {
                    values.insert(String::new());
                }
            }
            match self.next() {
                Some(",") => {}
                Some(")") => return Ok(values.into_iter().collect()),
                found => return Err(expected(found, "',' or ')'")),
            }
        }
    }
}

fn expected(found: Option<&str>, expected: &str) -> LabelError {
    match found {
        Some(found) => LabelError(format!("found {found:?}, expected {expected}")),
        None => LabelError(format!("ends too early: expected {expected}")),
    }
}

fn is_special(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

fn is_identifier(token: &str) -> bool {
    !token.starts_with(is_special)
}

fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start_matches([' ', '\t', '\r', '\n']);
    while let Some(first) = rest.chars().next() {
        let length = if is_special(first) {
            if rest.starts_with("==") || rest.starts_with("!=") { 2 } else { 1 }
        } else {
            rest.find(|c: char| is_special(c) || matches!(c, ' ' | '\t' | '\r' | '\n')).unwrap_or(rest.len())
        };
        let (token, tail) = rest.split_at(length);
        tokens.push(token);
        rest = tail.trim_start_matches([' ', '\t', '\r', '\n']);
    }
    tokens
}
