//! Columns of text.

use crate::core::escape;

/// One cell: what is printed, and how wide the text in it is.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    width: usize,
    printed: String,
}

impl Cell {
    /// The text as one line, and that in a colour.
    pub(super) fn painted(text: &str, paint: impl FnOnce(&str) -> String) -> Self {
        let text = escape::line(text);
        Self { width: text.chars().count(), printed: paint(&text) }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::painted(text, str::to_owned)
    }
}

/// `rows` below `head`, each column as wide as its widest cell; nothing follows the last cell.
pub(super) fn table(head: &[&str], rows: &[Vec<Cell>]) -> String {
    let head: Vec<Cell> = head.iter().map(|text| Cell::from(*text)).collect();
    let all: Vec<Vec<Cell>> = std::iter::once(head).chain(rows.iter().cloned()).collect();
    lines(&all).concat()
}

/// The same at most `width` wide: the last cells, which have no colour, end with `…` where they would not fit. They keep
/// at least 10 characters.
pub(super) fn fitted(head: &[&str], rows: &[Vec<Cell>], width: usize) -> String {
    let Some(last) = head.len().checked_sub(1) else { return String::new() };
    let widest = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.width);
        cells.chain([head[column].chars().count()]).max().unwrap_or_default() + 2
    };
    let room = width.saturating_sub((0..last).map(widest).sum()).max(10);
    let mut rows = rows.to_vec();
    for cell in rows.iter_mut().filter_map(|row| row.get_mut(last)).filter(|cell| cell.width > room) {
        let begin: String = cell.printed.chars().take(room - 1).collect();
        *cell = Cell::from(format!("{}…", begin.trim_end()).as_str());
    }
    table(head, &rows)
}

/// The text at most `width` wide: of a longer one the end, which tells most of a path.
pub(super) fn end_of(text: &str, width: usize) -> String {
    match text.chars().count().checked_sub(width) {
        None | Some(0) => text.to_owned(),
        Some(more) => std::iter::once('…').chain(text.chars().skip(more + 1)).collect(),
    }
}

/// Each of `rows` as a line, each column as wide as its widest cell; nothing follows the last cell.
pub(super) fn lines(rows: &[Vec<Cell>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| rows.iter().filter_map(|line| line.get(column)).map(|cell| cell.width).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or_default()).collect();
    let line = |line: &Vec<Cell>| {
        let mut row = String::new();
        for (cell, width) in line.iter().zip(&widths) {
            row.push_str(&cell.printed);
            let gap = width - cell.width + 2;
            row.extend(std::iter::repeat_n(' ', gap));
        }
        format!("{}\n", row.trim_end())
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output::Colour;

    #[test]
    fn of_a_long_path_the_end_is_kept() {
        assert_eq!(end_of("/etc/daemonlet/daemonsets.d/cni.yaml", 12), "….d/cni.yaml");
        assert_eq!(end_of("/a/b", 4), "/a/b");
    }

    #[test]
    fn a_cell_has_no_colour_but_its_own() {
        let red = |text: &str| Colour::all().red(text);
        let cells = [Cell::from("a\x1b[32mb\n"), Cell::painted("c\x1b[0m", red)];
        let shown = "a\\u001b[32mb\\n  \x1b[31mc\\u001b[0m\x1b[0m\n";
        assert_eq!(lines(&[cells.to_vec()]), [shown]);
    }

    #[test]
    fn very_many_rows_take_no_time() {
        let row = |number: usize| vec![Cell::from("a"), Cell::from(number.to_string().as_str()), Cell::from("b")];
        let rows: Vec<Vec<Cell>> = (0..100_000).map(row).collect();
        let began = std::time::Instant::now();
        assert_eq!(lines(&rows)[7], "a  7      b\n");
        // Each width anew for each cell takes minutes.
        assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
    }

    #[test]
    fn the_last_column_is_cut_to_the_width_and_no_other() {
        let row = |name: &str, reason: &str| vec![Cell::from(name), Cell::from(reason)];
        let rows = [row("kube-system/a", "it waits for the Secret kube-system/b"), row("c", "short")];
        let text = fitted(&["NAME", "REASON"], &rows, 40);
        assert_eq!(text, "NAME           REASON\nkube-system/a  it waits for the Secret…\nc              short\n");
        assert!(text.lines().all(|line| line.chars().count() <= 40));
        assert_eq!(fitted(&["NAME", "REASON"], &rows, 60), table(&["NAME", "REASON"], &rows));
        assert_eq!(fitted(&["NAME", "REASON"], &rows[..1], 0).lines().nth(1), Some("kube-system/a  it waits…"));
    }
}
