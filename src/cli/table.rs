//! Columns of text.

/// One cell: the text, and what is printed for it (the same, or the same in colour).
#[derive(Clone, Debug)]
pub(super) struct Cell {
    width: usize,
    printed: String,
}

impl Cell {
    /// `printed` takes no more room than `text`.
    pub(super) fn painted(text: &str, printed: String) -> Self {
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
    let lines: Vec<&Vec<Cell>> = std::iter::once(&head).chain(rows).collect();
    let width = |column: usize| lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.width).max();
    let mut text = String::new();
    for line in &lines {
        let mut row = String::new();
        for (column, cell) in line.iter().enumerate() {
            row.push_str(&cell.printed);
            let gap = width(column).unwrap_or_default() - cell.width + 2;
            row.extend(std::iter::repeat_n(' ', gap));
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}
