//! Suggestions for misspelt names.

/// The candidate that `name` is probably a misspelling of: other case, or a few wrong letters.
pub fn of<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let lower = name.to_lowercase();
    candidates
        .map(|candidate| (strsim::damerau_levenshtein(&lower, &candidate.to_lowercase()), candidate))
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, candidate)| *distance <= candidate.len().min(name.len()) / 3)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_letters_are_a_misspelling_and_other_words_are_not() {
        let of = |name| of(name, ["hostNetwork", "hostPID", "os", "containers"].into_iter());
        assert_eq!(of("hostNetwrok"), Some("hostNetwork"));
        assert_eq!(of("hostnetwork"), Some("hostNetwork"));
        assert_eq!(of("container"), Some("containers"));
        assert_eq!(of("x"), None);
        assert_eq!(of("priority"), None);
    }
}
