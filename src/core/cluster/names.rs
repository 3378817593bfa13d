//! Strings by number: UIDs, revisions and keys that a pass compares 100,000 times.
//!
//! Owns the table, which lives as long as a coordinator holds the Lease, with whatever agents report: no string is
//! longer than [`LONGEST`], and [`Names::is_crowded`] says when it is time for a new table with what is still referred
//! to.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of a string that count: a namespace, a slash and a name have 317.
pub const LONGEST: usize = 320;
/// A table this small is never crowded.
const FEW: usize = 4_096;

/// A string by its number, which is good for one table.
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
    /// How many there were when the table was made.
    began: usize,
}

impl Names {
    /// The number of `text`; of one that is too long, of its beginning.
    pub fn of(&mut self, text: &str) -> Name {
        let text = beginning(text);
        if let Some(number) = self.numbers.get(text) {
            return Name(*number);
        }
        let (number, text) = (u32::try_from(self.texts.len()).unwrap_or(u32::MAX), Arc::<str>::from(text));
        self.numbers.insert(Arc::clone(&text), number);
        self.texts.push(text);
        Name(number)
    }

    /// The number that `text` has, if it has one.
    pub fn find(&self, text: &str) -> Option<Name> {
        self.numbers.get(beginning(text)).copied().map(Name)
    }

    /// The string behind a number.
    pub fn text(&self, name: Name) -> &str {
        self.texts.get(name.0 as usize).map_or("", |text| text)
    }

    /// Whether it has twice as many strings as when it was made.
    pub fn is_crowded(&self) -> bool {
        self.texts.len() > FEW.max(2 * self.began)
    }

    /// Notes that the table has only strings that are referred to.
    pub fn set_baseline(&mut self) {
        self.began = self.texts.len();
    }

    /// How many strings there are.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.texts.len()
    }
}

/// As much of `text` as counts, cut between characters.
fn beginning(text: &str) -> &str {
    let mut end = LONGEST.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
