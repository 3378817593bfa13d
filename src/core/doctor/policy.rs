//! What `[policy]` lets the API's users do on this node, in one line.

use crate::core::model::FieldError;

use super::Finding;

/// Says which namespaces are `trusted`, which are `granted` something, and which grants are `broad`.
pub fn examine(trusted: &[String], granted: &[String], broad: &[FieldError]) -> Finding {
    const CHECK: &str = "policy";
    let listed = |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let trusted = match trusted.iter().any(|name| name == "*") {
        true => "every namespace".to_owned(),
        false => listed(trusted),
    };
    let text = format!(
        "trusted (whoever writes DaemonSets there is root on the node): {trusted}; with grants: {}",
        listed(granted)
    );
    match broad {
        [] => Finding::ok(CHECK, text),
        broad => {
            let broad: Vec<String> = broad.iter().map(ToString::to_string).collect();
            let hint = "`daemonlet run --check-config` says for each what to write instead";
            Finding::warn(CHECK, format!("{text}; {}", broad.join("; ")), hint)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::doctor::Severity;

    #[test]
    fn one_line_says_who_is_trusted_who_has_grants_and_which_are_broad() {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let none = examine(&[], &[], &[]);
        assert_eq!(
            (none.level, none.text.as_str()),
            (Severity::Ok, "trusted (whoever writes DaemonSets there is root on the node): none; with grants: none")
        );
        let all = examine(&names(&["a", "*"]), &names(&["b", "c"]), &[]);
        assert!(all.text.ends_with(": every namespace; with grants: b, c"), "{}", all.text);
        let error = |path: &str| FieldError { field: "f".to_owned(), reason: format!("{path} is broad"), hint: None };
        let broad = examine(&names(&["a", "b"]), &names(&["c"]), &[error("/"), error("/run")]);
        assert_eq!(broad.level, Severity::Warn);
        assert!(broad.text.ends_with(": a, b; with grants: c; f: / is broad; f: /run is broad"), "{}", broad.text);
    }
}
