//! A part of the pages as a terminal shows it.
//!
//! Owns how paragraphs, lists and tables of Markdown become lines of at most some width. Code stays as it is.

/// Between two columns of a table.
const GAP: usize = 2;

/// `part` at most `width` wide, as far as its code and its longest words let it.
pub(super) fn laid_out(part: &str, width: usize) -> String {
    let mut text = String::new();
    let mut lines = part.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with("```") {
            let code = lines.by_ref().take_while(|line| !line.starts_with("```"));
            let indented = code.map(|line| if line.is_empty() { String::new() } else { format!("    {line}") });
            text.extend(indented.map(|line| line + "\n"));
        } else if line.starts_with('|') {
            let mut rows = vec![cells(line)];
            while let Some(line) = lines.next_if(|line| line.starts_with('|')) {
                rows.push(cells(line));
            }
            text.push_str(&table(&rows, width));
        } else if line.trim().is_empty() || line.starts_with('#') {
            text.push_str(line);
            text.push('\n');
        } else {
            let begun = line.trim_start();
            let (mark, words) = begun.split_at(marker(begun));
            let indent = " ".repeat(line.len() - begun.len());
            let mut words = words.trim_end().to_owned();
            let goes_on = |line: &&str| !line.trim().is_empty() && !is_begin(line);
            while let Some(line) = lines.next_if(goes_on) {
                words.push(' ');
                words.push_str(line.trim());
            }
            let room = width.saturating_sub(indent.len() + mark.len());
            for (number, line) in wrapped(&words, room).into_iter().enumerate() {
                let blank = " ".repeat(mark.len());
                text.push_str(&format!("{indent}{}{line}\n", if number == 0 { mark } else { &blank }));
            }
        }
    }
    text
}

/// Whether `line` begins something other than one more line of a paragraph.
fn is_begin(line: &str) -> bool {
    line.starts_with(['#', '|']) || line.starts_with("```") || marker(line.trim_start()) > 0
}

/// How wide the mark of a list's item is with which `line` begins; 0: it begins none.
fn marker(line: &str) -> usize {
    let digits = line.chars().take_while(char::is_ascii_digit).count();
    match line.starts_with("* ") || line.starts_with("- ") {
        true => 2,
        false if digits > 0 && line[digits..].starts_with(". ") => digits + 2,
        false => 0,
    }
}

/// The cells of a line of a table; a `|` that is escaped separates none.
fn cells(line: &str) -> Vec<String> {
    let line = line.trim().trim_start_matches('|');
    let line = line.strip_suffix('|').unwrap_or(line);
    line.replace("\\|", "\0").split('|').map(|cell| cell.trim().replace('\0', "|")).collect()
}

/// Rows below their head, each cell in lines of its column's width. Where a cell has several lines, a blank line parts
/// the rows. Where the longest words alone are too wide, each cell has a line of its own.
fn table(rows: &[Vec<String>], width: usize) -> String {
    let is_rule =
        |row: &&Vec<String>| !row.iter().all(|cell| !cell.is_empty() && cell.chars().all(|c| "-:".contains(c)));
    let rows: Vec<&Vec<String>> = rows.iter().filter(is_rule).collect();
    let widths = widths(&rows, width);
    if let (true, Some((head, body))) = (width < total(&widths), rows.split_first()) {
        return body.iter().map(|row| record(head, row, width)).collect::<Vec<_>>().join("\n");
    }
    let line = |parts: &[&str]| {
        let cells = parts.iter().zip(&widths).map(|(part, width)| format!("{part:<width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join(&" ".repeat(GAP)).trim_end())
    };
    let laid_out: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let cells: Vec<Vec<String>> = row.iter().zip(&widths).map(|(cell, width)| wrapped(cell, *width)).collect();
            let height = cells.iter().map(Vec::len).max().unwrap_or_default();
            let part = |cell: &Vec<String>, number: usize| cell.get(number).cloned().unwrap_or_default();
            let lines = (0..height).map(|number| cells.iter().map(|cell| part(cell, number)).collect::<Vec<_>>());
            lines.map(|parts| line(&parts.iter().map(String::as_str).collect::<Vec<_>>())).collect()
        })
        .collect();
    let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    let rule = line(&rule.iter().map(String::as_str).collect::<Vec<_>>());
    let Some((head, body)) = laid_out.split_first() else { return String::new() };
    let between = if body.iter().any(|row| row.len() > 1) { "\n" } else { "" };
    let body = body.iter().map(|row| row.concat()).collect::<Vec<_>>().join(between);
    format!("{}{rule}{body}", head.concat())
}

/// A row, each cell but the first with the head of its column.
fn record(head: &[String], row: &[String], width: usize) -> String {
    let mut text = String::new();
    for (number, (cell, head)) in row.iter().zip(head).enumerate().filter(|(_, (cell, _))| !cell.is_empty()) {
        let (said, indent) = if number == 0 { (cell.clone(), "") } else { (format!("{head}: {cell}"), "  ") };
        let lines = wrapped(&said, width.saturating_sub(indent.len() + 2));
        text.push_str(&format!("{indent}{}\n", lines.join(&format!("\n{indent}  "))));
    }
    text
}

/// How wide columns of these widths are together.
fn total(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
}

/// How wide each column is: as its widest cell, but for the widest ones, which share what is left of `width`. None is
/// narrower than its longest word.
fn widths(rows: &[&Vec<String>], width: usize) -> Vec<usize> {
    let columns = rows.iter().map(|row| row.len()).max().unwrap_or_default();
    let of = |column: usize, measure: fn(&str) -> usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| measure(cell)).max().unwrap_or_default().max(1)
    };
    let longest = |cell: &str| cell.split_whitespace().map(|word| word.chars().count()).max().unwrap_or_default();
    let full: Vec<usize> = (0..columns).map(|column| of(column, |cell| cell.chars().count())).collect();
    let least: Vec<usize> = (0..columns).map(|column| of(column, longest)).collect();
    let at_most = |most: usize| -> Vec<usize> {
        full.iter().zip(&least).map(|(full, least)| (*full).min(most.max(*least))).collect()
    };
    (1..=width).rev().map(at_most).find(|widths| total(widths) <= width).unwrap_or(least.clone())
}

/// `text` in lines of at most `width`, cut between words; a longer word has a line of its own. At least one line.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.len() - 1;
        let line = &mut lines[last];
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_columns_that_share_the_width() {
        let page = "| key | what |\n| --- | --- |\n| `a\\|b` | one two three four five |\n| c | six |\n";
        assert_eq!(
            laid_out(page, 20),
            "key    what\n-----  -------------\n`a|b`  one two three\n       four five\n\nc      six\n"
        );
        assert_eq!(
            laid_out(page, 80),
            "key    what\n-----  -----------------------\n`a|b`  one two three four five\nc      six\n"
        );
        assert_eq!(
            laid_out(page, 11),
            "`a|b`\n  what:\n    one two\n    three\n    four\n    five\n\nc\n  what:\n    six\n"
        );
    }

    #[test]
    fn paragraphs_and_lists_are_wrapped_and_code_is_not() {
        let page = "# Head\n\none two\nthree\n\n* four five six seven\n  eight\n* nine\n\n```console\n$ a   b   c   d   e   f\n```\n";
        let shown =
            "# Head\n\none two three\n\n* four five six\n  seven eight\n* nine\n\n    $ a   b   c   d   e   f\n";
        assert_eq!(laid_out(page, 16), shown);
        assert_eq!(laid_out("12. a b\n    c\n", 5), "12. a\n    b\n    c\n");
    }
}
