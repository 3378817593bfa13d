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

    /// Whether it has no colour.
    fn is_plain(&self) -> bool {
        self.printed.chars().count() == self.width
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

/// The least width of the last column, to which others leave room, and of each of those.
const LEAST_LAST: usize = 30;
const LEAST: usize = 20;

/// The same at most `width` wide: the last cells, which have no colour, end with `…` where they would not fit. Where that
/// would leave too little of them, the widest others without a colour lose their middle.
pub(super) fn fitted(head: &[&str], rows: &[Vec<Cell>], width: usize) -> String {
    let Some(last) = head.len().checked_sub(1) else { return String::new() };
    let cells = |column: usize| rows.iter().filter_map(move |row| row.get(column));
    let widest = |column: usize| cells(column).map(|cell| cell.width).chain([head[column].chars().count()]).max();
    let mut widths: Vec<usize> = (0..=last).map(|column| widest(column).unwrap_or_default()).collect();
    let is_plain: Vec<bool> = (0..last).map(|column| cells(column).all(Cell::is_plain)).collect();
    let needed = widths[last].min(LEAST_LAST);
    while widths[..last].iter().map(|width| width + 2).sum::<usize>() + needed > width {
        let columns = (0..last).filter(|column| is_plain[*column] && widths[*column] > LEAST);
        let Some(column) = columns.max_by_key(|column| widths[*column]) else { break };
        widths[column] -= 1;
    }
    let room = width.saturating_sub(widths[..last].iter().map(|width| width + 2).sum()).max(10);
    let mut rows = rows.to_vec();
    for row in &mut rows {
        for (column, cell) in row.iter_mut().enumerate() {
            if column == last && cell.width > room {
                let begin: String = cell.printed.chars().take(room - 1).collect();
                *cell = Cell::from(format!("{}…", begin.trim_end()).as_str());
            } else if column < last && cell.width > widths[column] {
                *cell = Cell::from(ends_of(&cell.printed, widths[column]).as_str());
            }
        }
    }
    table(head, &rows)
}

/// The text at most `width` wide: of a longer one both ends, which tell most of a name.
fn ends_of(text: &str, width: usize) -> String {
    let (begin, end) = ((width - 1) / 2, width - 1 - (width - 1) / 2);
    let letters = text.chars().count();
    text.chars().take(begin).chain(['…']).chain(text.chars().skip(letters - end)).collect()
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
    fn long_names_leave_room_for_the_reason() {
        let name = "openshift-cluster-node-tuning-operator/node-feature-discovery-worker";
        let state = Cell::painted("failing", |text| Colour::all().red(text));
        let row = vec![
            Cell::from(name),
            Cell::from("node-feature-discovery-worker-7x2kp"),
            state,
            Cell::from("x".repeat(200).as_str()),
        ];
        let plain = |text: &str| text.replace("\x1b[31m", "").replace("\x1b[0m", "");
        let text = plain(&fitted(&["DAEMONSET", "POD", "STATE", "REASON"], std::slice::from_ref(&row), 100));
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert!(
            text.contains("openshift-clus…scovery-worker  node-feature-…y-worker-7x2kp")
                && text.contains("  failing  xxxxxxxxxxxxxxxxxxxxxxxxxxxxx…\n"),
            "{text}"
        );
        // Where nothing is left to cut, it is as narrow as it can be.
        let text = plain(&fitted(&["DAEMONSET", "POD", "STATE", "REASON"], &[row], 20));
        assert!(text.contains("openshift…ery-worker  node-feat…rker-7x2kp  failing  xxxxxxxxx…\n"), "{text}");
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
