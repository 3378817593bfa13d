//! The `$(NAME)` syntax of container environments (upstream's `third_party/forked/golang/expansion`).
//!
//! Owns escaping and finding references. Must not expand: the kubelet does.

use std::borrow::Cow;

/// `literal` so that the kubelet's `expansion.Expand` gives it back unchanged.
pub(super) fn escape(literal: &str) -> Cow<'_, str> {
    if literal.contains('$') { Cow::Owned(literal.replace('$', "$$")) } else { Cow::Borrowed(literal) }
}

/// The names that `expansion.Expand` would look up in `text`, in order.
pub(super) fn references(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            let at = rest.find('$')?;
            let after = rest.get(at + 1..)?;
            let mut chars = after.chars();
            match chars.next()? {
                '(' => {
                    // Without a closing parenthesis here there is none later.
                    let end = after.find(')')?;
                    rest = after.get(end + 1..)?;
                    return after.get(1..end);
                }
                _ => rest = chars.as_str(),
            }
        }
    })
}

#[cfg(test)]
mod tests;
