use std::path::Path;

use super::ProblemKind;
use super::parse_file;

const GOOD: &str = "\
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: a, namespace: kube-system}
spec:
  selector: {matchLabels: {app: a}}
  template:
    metadata: {labels: {app: a}}
    spec:
      containers: [{name: a, image: a:1}]
";

fn parse(text: &str) -> super::ParsedFile {
    parse_file(Path::new("/x/a.yaml"), text)
}

#[test]
fn one_bad_document_keeps_the_good_ones_and_is_reported_with_line_and_column() {
    let file =
        parse(&format!("# head\n---\na: [1\nb: 2\n---\n{GOOD}---\napiVersion: v1\nkind: ConfigMap\ndata: {{a: 1}}\n"));
    assert_eq!(file.daemon_sets.len(), 1);
    assert_eq!(file.daemon_sets[0].key.to_string(), "kube-system/a");
    assert_eq!(file.problems.len(), 2);
    assert_eq!(file.problems[0].kind, ProblemKind::Syntax);
    assert_eq!(file.problems[0].line, 4, "{}", file.problems[0]);
    assert_eq!(file.problems[1].to_string(), "/x/a.yaml:16: metadata.name: required");
    assert!(file.is_incomplete());
}

#[test]
fn an_invalid_object_is_named_with_its_field() {
    let file = parse(&GOOD.replace("image: a:1", "image: a:1, env: [{name: X, value: 1}]"));
    assert!(file.daemon_sets.is_empty());
    assert_eq!(
        file.problems[0].to_string(),
        "/x/a.yaml:1: DaemonSet kube-system/a: spec.template.spec.containers[0].env[0].value: must be a string, not the number 1"
    );
    assert_eq!(file.problems[0].hint.as_deref(), Some("put the value in quotes"));
    assert!(!file.is_incomplete());
}

#[test]
fn a_mode_that_is_none_is_named_and_not_taken_for_static() {
    let labelled =
        |mode: &str| GOOD.replace("name: a, name", &format!("name: a, labels: {{daemonlet.dev/mode: {mode}}}, name"));
    for mode in ["static", "bootstrap"] {
        assert_eq!(parse(&labelled(mode)).daemon_sets.len(), 1, "{mode}");
    }
    let file = parse(&labelled("statik"));
    assert!(file.daemon_sets.is_empty());
    assert_eq!(
        file.problems[0].to_string(),
        "/x/a.yaml:1: DaemonSet kube-system/a: metadata.labels[daemonlet.dev/mode]: \"statik\" is neither static nor bootstrap"
    );
    assert!(!file.is_incomplete(), "the file still says which objects it holds");
}

/// Every file of the corpus, where there is one: all documents parse, all DaemonSets are valid.
#[test]
fn corpus() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus");
    let Ok(_) = std::fs::read_dir(&folder) else {
        println!("no corpus at {}: skipped", folder.display());
        return;
    };
    let (mut files, mut daemon_sets) = (0, 0);
    let mut problems = Vec::new();
    let mut folders = vec![folder];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if path.file_name().unwrap() != "templated-not-plain" {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "yaml" || extension == "json") {
                let file = parse_file(&path, &std::fs::read_to_string(&path).unwrap());
                files += 1;
                daemon_sets += file.daemon_sets.len();
                problems.extend(file.problems.iter().map(ToString::to_string));
            }
        }
    }
    // Two published files that no API server takes: apps/v1 without a selector.
    problems.retain(|problem| !problem.ends_with("spec.selector: required"));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(files > 100 && daemon_sets > 140, "{files} files, {daemon_sets} DaemonSets");
}

#[test]
fn a_template_that_nobody_filled_in_is_called_one() {
    let hint = |text: &str| parse_file(Path::new("f"), text).problems.remove(0).hint;
    for text in ["metadata:\n  name: {{ name }}\n", "{% if x %}\na: b\n{% endif %}\n", "{{- if .Values.x }}\na: b\n"] {
        assert!(hint(text).unwrap().starts_with("this is a template"), "{text}");
    }
    assert_eq!(hint("# {{ name }}\na: [\n"), None);
}

#[test]
fn a_field_that_there_is_not_is_a_doubt_and_no_problem() {
    let file = parse(&format!(
        "{}---\n{}",
        GOOD.replace("name: a, name", "name: b, name"),
        GOOD.replace("spec:\n      c", "spec:\n      hostNetwrok: true\n      c")
    ));
    assert_eq!((file.daemon_sets.len(), file.problems.len()), (2, 0));
    assert!(!file.is_incomplete());
    let unknown_fields: Vec<String> = file.unknown_fields.iter().map(ToString::to_string).collect();
    assert_eq!(
        unknown_fields,
        ["/x/a.yaml:11: DaemonSet kube-system/a: spec.template.spec.hostNetwrok: \
          unknown field: Kubernetes 1.36 does not have it"]
    );
    assert_eq!(file.unknown_fields[0].kind, ProblemKind::UnknownField);
    assert_eq!(file.daemon_sets[1].template["spec"]["hostNetwrok"], true, "it is passed on");
}

#[test]
fn many_problems_of_one_object_hide_no_other() {
    let many = GOOD.replace("image: a:1", &format!("image: a:1, env: [{}]", vec!["{}"; 101].join(",")));
    let named = |name: &str, text: &str| text.replace("name: a, namespace", &format!("name: {name}, namespace"));
    let file = parse(&many);
    assert_eq!((file.problems.len(), file.is_incomplete()), (101, false), "it says which object it is about");
    let broken = named("b", &GOOD.replace("image: a:1", "image: a:1, env: [{}]"));
    let file = parse(&format!("{many}---\n{broken}---\n{}", named("c", GOOD)));
    assert_eq!(file.daemon_sets.len(), 1);
    let problems_of =
        |name: &str| file.problems.iter().filter(|p| p.object.as_ref().is_some_and(|o| o.key.name == name)).count();
    assert_eq!((problems_of("b"), file.problems.len(), file.is_incomplete()), (1, 101, false));
}

#[test]
fn of_many_problems_the_first_are_reported_and_the_others_counted() {
    for bad in ["x\n---\n", "a: [\n---\n", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: A}\n---\n"] {
        let good = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: good}\n";
        let file = parse_file(Path::new("f"), &(bad.repeat(20_000) + good));
        assert_eq!(file.problems.len(), 101, "{bad}");
        let last = file.problems.last().unwrap();
        assert_eq!(last.reason, "and 19900 more problems after the first 100", "{bad}");
        assert!(file.is_incomplete(), "it is not known of which objects problems are left out");
        assert_eq!(file.objects.len(), 1, "what is valid counts");
    }
    let name = |number: usize| format!("x{number}: 1\n");
    let unknown: String = (0..500).map(name).collect();
    let daemon_set = "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: a}\nspec:\n  selector: {matchLabels: {a: b}}\n  \
        template:\n    metadata: {labels: {a: b}}\n    spec: {containers: [{name: c, image: i}]}\n";
    let file = parse_file(Path::new("f"), &(daemon_set.to_owned() + &unknown));
    assert_eq!((file.daemon_sets.len(), file.unknown_fields.len(), file.is_incomplete()), (1, 101, false));
}

#[test]
fn a_key_that_is_set_twice_is_refused_with_what_kubectl_does() {
    for text in ["kind: DaemonSet\nkind: DaemonSet\n", "{\"kind\": \"DaemonSet\", \"kind\": \"DaemonSet\"}"] {
        let problem = parse(text).problems.remove(0);
        assert_eq!(
            (problem.reason.as_str(), problem.hint.as_deref()),
            ("key \"kind\" is set twice", Some("kubectl takes the last one; remove the other"))
        );
    }
}

#[test]
fn a_misspelt_field_of_a_refused_daemon_set_is_named() {
    for (good, bad, expected) in [
        ("matchLabels", "matchLabel", "spec.selector.matchLabel: matchLabels"),
        ("containers", "container", "spec.template.spec.container: containers"),
    ] {
        let file = parse(&GOOD.replacen(good, bad, 1));
        assert!(file.daemon_sets.is_empty() && file.unknown_fields.is_empty());
        let unknown = file.problems.iter().filter(|problem| problem.kind == ProblemKind::UnknownField);
        let meant = unknown.map(|p| format!("{}: {}", p.field.as_ref().unwrap(), p.hint.as_ref().unwrap()));
        let expected = expected.split_once(": ").unwrap();
        assert_eq!(meant.collect::<Vec<_>>(), [format!("{}: did you mean {}?", expected.0, expected.1)]);
    }
}
