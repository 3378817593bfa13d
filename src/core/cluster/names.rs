//! Strings by number: UIDs, revisions and keys that a pass compares 100,000 times.

use std::collections::BTreeMap;
use std::sync::Arc;

/// A string by its number; numbers are given once and never taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(u32);

#[cfg(test)]
impl Name {
    /// The number of the string that was given `number` others before it.
    pub(crate) const fn first(number: u32) -> Self {
        Self(number)
    }
}

/// The numbers of strings.
#[derive(Clone, Debug, Default)]
pub struct Names {
    numbers: BTreeMap<Arc<str>, u32>,
    texts: Vec<Arc<str>>,
}

impl Names {
    /// The number of `text`.
    pub fn of(&mut self, text: &str) -> Name {
        if let Some(number) = self.numbers.get(text) {
            return Name(*number);
        }
        let (number, text) = (u32::try_from(self.texts.len()).unwrap_or(u32::MAX), Arc::<str>::from(text));
        self.numbers.insert(Arc::clone(&text), number);
        self.texts.push(text);
        Name(number)
    }

    /// The string behind a number.
    pub fn text(&self, name: Name) -> &str {
        self.texts.get(name.0 as usize).map_or("", |text| text)
    }
}
