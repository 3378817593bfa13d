//! Columns of text.

use crate::core::escape;

/// One cell: the text, and what is printed for it (the same, or the same in colour).
#[derive(Clone, Debug)]
pub(super) struct Cell {
    width: usize,
    printed: String,
}

impl Cell {
    /// `printed` takes no more room than `text`.
    pub(super) fn painted(text: &str, printed: String) -> Self {
        let (text, printed) = (escape::line(text), escape::terminal(&printed).replace('\n', "\\n"));
        Self { width: text.chars().count(), printed }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::painted(text, text.to_owned())
    }
}

/// `rows` below `head`, each column as wide as its widest cell; nothing follows the last cell.
pub(super) fn table(head: &[&str], rows: &[Vec<Cell>]) -> String {
    let head: Vec<Cell> = head.iter().map(|text| Cell::from(*text)).collect();
    let all: Vec<Vec<Cell>> = std::iter::once(head).chain(rows.iter().cloned()).collect();
    lines(&all).concat()
}

/// Each of `rows` as a line, each column as wide as its widest cell; nothing follows the last cell.
pub(super) fn lines(rows: &[Vec<Cell>]) -> Vec<String> {
    let width = |column: usize| rows.iter().filter_map(|line| line.get(column)).map(|cell| cell.width).max();
    let line = |line: &Vec<Cell>| {
        let mut row = String::new();
        for (column, cell) in line.iter().enumerate() {
            row.push_str(&cell.printed);
            let gap = width(column).unwrap_or_default() - cell.width + 2;
            row.extend(std::iter::repeat_n(' ', gap));
        }
        format!("{}\n", row.trim_end())
    };
    rows.iter().map(line).collect()
}
