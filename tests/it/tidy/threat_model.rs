//! The threat model and its tests name each other.

use super::*;

/// The threat model names tests: each of them exists.
#[test]
fn the_tests_that_the_threat_model_names_exist() {
    let page = fs::read_to_string("docs/security.md").unwrap();
    let model = page.split("\n## ").find(|part| part.starts_with("Tests of the threat model")).unwrap();
    let rows = model.lines().filter(|line| line.starts_with("| ")).skip(2);
    let named: Vec<&str> = rows
        .filter_map(|row| row.trim_end_matches('|').rsplit_once('|'))
        .flat_map(|(_, tests)| tests.split(',').map(|name| name.trim().trim_matches('`')))
        .filter(|name| !name.is_empty())
        .collect();
    assert!(named.len() > 20, "{named:?}");
    let sources = ["src", "tests/cluster/suite", "tests/it", "tests/cli"].map(|folder| text_below(Path::new(folder)));
    for name in named {
        let is_there = sources.iter().any(|text| {
            [format!("fn {name}()"), format!("def {name}(self)")].iter().any(|start| text.contains(start.as_str()))
        });
        assert!(is_there, "{name}");
    }
}

/// What the threat model says of each party has its tests, under the same name: a row may say more of whom it is about.
#[test]
fn the_rows_of_the_threat_model_are_those_of_its_tests() {
    let page = fs::read_to_string("docs/security.md").unwrap();
    let rows = |title: &str| -> Vec<String> {
        let part = page.split("\n## ").find(|part| part.starts_with(title)).unwrap();
        let names = part.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
        names.filter(|name| !matches!(*name, "who" | "---")).map(str::to_owned).collect()
    };
    let (model, tests) = (rows("Threat model"), rows("Tests of the threat model"));
    assert!(model.len() > 50, "{model:?}");
    for (row, tested) in model.iter().zip(&tests) {
        let more = row.strip_prefix(tested.as_str());
        assert!(more.is_some_and(|more| more.is_empty() || more.starts_with([':', ' '])), "{row:?}, and {tested:?}");
    }
    assert_eq!(model.len(), tests.len());
}

/// Everything that the files below `folder` say.
fn text_below(folder: &Path) -> String {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let of = |path: PathBuf| match path.is_dir() {
        true => text_below(&path),
        false => fs::read_to_string(&path).unwrap_or_default(),
    };
    entries.map(of).collect()
}
