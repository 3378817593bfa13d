//! Text from outside on its way to a terminal or a log.
//!
//! Owns what a person may be shown as it is. What a terminal would obey, what would begin a line of its own, what
//! would turn the order of the letters around, and invisible characters are escaped as in JSON. Owns also how long such a text may be.

use std::borrow::Cow;

use serde_json::Value;

/// The longest text about one daemon that is kept and shown, in bytes.
pub const TEXT: usize = 4096;

/// `text` with at most `most` bytes of it, and how many more it has.
pub fn short(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return Cow::Borrowed(text);
    }
    let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    Cow::Owned(format!("{}… ({} bytes more)", &text[..end], text.len() - end))
}

/// `text` as one line.
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false)
}

/// `text` as lines.
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c == '\n')
}

/// `text` for a terminal, with the lines and the colours of this program.
pub fn terminal(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|c| is_unsafe(c) && c != '\n') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\x1b') {
        out.push_str(&lines(&rest[..at]));
        let sequence = COLOURS.iter().find(|sequence| rest[at..].starts_with(*sequence));
        let kept = sequence.map_or("\\u001b", |sequence| *sequence);
        out.push_str(kept);
        rest = &rest[at + sequence.map_or(1, |sequence| sequence.len())..];
    }
    out.push_str(&lines(rest));
    Cow::Owned(out)
}

/// Every text in `value` as one line.
pub fn values(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(escaped) = line(text) {
                *text = escaped;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(values),
        Value::Object(members) => members.values_mut().for_each(values),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The colours of this program, and their end.
const COLOURS: [&str; 5] = ["\x1b[0m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[36m"];

fn escaped(text: &str, keeps: fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(|c| is_unsafe(c) && !keeps(c)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            c if !is_unsafe(c) || keeps(c) => out.push(c),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c => out.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}"))),
        }
    }
    Cow::Owned(out)
}

/// Whether a terminal shows `c`, and obeys nothing in it.
pub fn is_shown(c: char) -> bool {
    !is_unsafe(c)
}

/// Control characters, ends of lines, marks of direction and of annotations, and what is not seen at all. What is seen as a
/// blank stays, as the space does: U+2800 and the spaces of Unicode.
fn is_unsafe(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{fff9}'..='\u{fffb}') || is_ignorable(c)
}

/// Unicode's `Default_Ignorable_Code_Point` (`DerivedCoreProperties.txt`, version 16): what has no glyph of its own, the marks
/// of direction among it.
fn is_ignorable(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_character_reaches_a_terminal_that_it_would_obey() {
        for c in ('\0'..=char::MAX).filter(|c| is_unsafe(*c)) {
            let text = format!("a{c}b");
            let hidden = match c {
                '\n' => "a\\nb".to_owned(),
                '\r' => "a\\rb".to_owned(),
                '\t' => "a\\tb".to_owned(),
                c => format!(
                    "a{}b",
                    c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect::<String>()
                ),
            };
            assert_eq!(line(&text), hidden);
            let written = match c {
                '\n' | '\r' | '\t' => continue,
                _ => serde_json::from_str::<String>(&format!("\"{hidden}\"")).expect("JSON"),
            };
            assert_eq!(written, text, "as in JSON");
            assert_eq!(&*terminal(&text), if c == '\n' { &text } else { &hidden });
        }
        for plain in ["", "käse 包 🧀 \u{2800}\u{a0}한", "a\\nb", "\"{}\""] {
            assert_eq!((line(plain), terminal(plain)), (plain.into(), plain.into()));
        }
    }

    #[test]
    fn what_is_not_seen_is_written_out() {
        for hidden in [
            "\u{ad}",
            "\u{34f}",
            "\u{61c}",
            "\u{115f}",
            "\u{1160}",
            "\u{17b4}",
            "\u{17b5}",
            "\u{180b}",
            "\u{180e}",
            "\u{200b}",
            "\u{200d}",
            "\u{202e}",
            "\u{2060}",
            "\u{2064}",
            "\u{206f}",
            "\u{3164}",
            "\u{fe00}",
            "\u{fe0f}",
            "\u{feff}",
            "\u{ffa0}",
            "\u{fff9}",
            "\u{1d173}",
            "\u{e0001}",
            "\u{e0020}",
            "\u{e007f}",
            "\u{e0100}",
            "\u{e01ef}",
        ] {
            let shown = line(hidden);
            assert!(shown.starts_with("\\u") && shown.is_ascii(), "{shown:?}");
        }
        assert_eq!(line("a\u{e0041}"), "a\\udb40\\udc41");
    }

    #[test]
    fn a_long_text_says_how_much_of_it_is_left_out() {
        for (text, most, shown) in
            [("abc", 3, "abc"), ("abcd", 3, "abc… (1 bytes more)"), ("äöü", 3, "ä… (4 bytes more)"), ("", 0, "")]
        {
            assert_eq!(short(text, most), shown);
        }
    }

    #[test]
    fn only_this_programs_own_sequences_are_kept() {
        let own = "\x1b[31merror:\x1b[0m text\n";
        assert_eq!(terminal(own), own);
        for (text, shown) in [
            ("\x1b]0;title\x07", "\\u001b]0;title\\u0007"),
            ("\x1b[2J\x1b[H", "\\u001b[2J\\u001b[H"),
            ("a\x1b[31m\r\x1bc", "a\x1b[31m\\r\\u001bc"),
            ("\u{9b}31m", "\\u009b31m"),
            ("\x1b", "\\u001b"),
        ] {
            assert_eq!(terminal(text), shown);
        }
    }

    #[test]
    fn every_text_of_a_value_is_one_line() {
        let mut value = json!({"a": ["x\ny", 1, null], "b": {"c": "\u{202e}z"}});
        values(&mut value);
        assert_eq!(value, json!({"a": ["x\\ny", 1, null], "b": {"c": "\\u202ez"}}));
    }
}
