//! Completion of `kubectl daemonlet …`: kubectl runs `kubectl_complete-daemonlet` with the words so far.

use std::ffi::OsString;

/// What kubectl is to make of the candidates: no names of files (cobra's `ShellCompDirectiveNoFileComp`).
const NO_FILES: &str = ":4\n";

/// A line for each candidate that `words` can go on with, the last of which has begun; then the directive. Names of the
/// cluster are not among them: nothing is asked.
pub(super) fn candidates(words: &[OsString]) -> String {
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let (prefix, before) = words.split_last().map_or(("", [].as_slice()), |(last, before)| (last.as_str(), before));
    let command = super::command();
    let has_command = command.get_subcommands().any(|one| before.iter().any(|word| word == one.get_name()));
    let mut lines = String::new();
    let mut add = |name: &str, help: Option<&clap::builder::StyledStr>| {
        if name.starts_with(prefix) {
            lines.push_str(&format!("{name}\t{}\n", help.map(ToString::to_string).unwrap_or_default()));
        }
    };
    if prefix.starts_with('-') {
        for option in command.get_arguments() {
            if let Some(long) = option.get_long() {
                add(&format!("--{long}"), option.get_help());
            }
        }
    } else if !has_command {
        for one in command.get_subcommands() {
            add(one.get_name(), one.get_about());
        }
    }
    lines + NO_FILES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_come_first_then_options_and_never_files() {
        let names = |words: &[&str]| -> Vec<String> {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            let text = candidates(&words);
            let (lines, directive) = text.split_at(text.len() - NO_FILES.len());
            assert_eq!(directive, NO_FILES);
            lines.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect()
        };
        assert_eq!(names(&[""]), ["explain", "diff", "doctor", "pause", "resume", "promote", "abort", "retry"]);
        assert_eq!(names(&["-n", "kube-system", "p"]), ["pause", "promote"]);
        assert_eq!(names(&["pause", ""]), Vec::<String>::new());
        assert_eq!(names(&["pause", "--co"]), ["--context"]);
        assert_eq!(names(&[]).len(), 8);
    }
}
