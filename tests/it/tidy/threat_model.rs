//! The threat model names its tests.

use super::*;

/// Each row of the threat model names tests, and each of them exists.
#[test]
fn the_tests_that_the_threat_model_names_exist() {
    let page = fs::read_to_string("tests/threat-model.md").unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| who |"));
    let rows: Vec<&str> = rows.filter(|line| !line.starts_with("| --- ")).collect();
    assert!(rows.len() > 50, "{rows:?}");
    let sources = ["src", "tests/cluster/suite", "tests/it", "tests/cli"].map(|folder| text_below(Path::new(folder)));
    for row in rows {
        let (_, tests) = row.trim_end_matches([' ', '|']).rsplit_once(" | ").unwrap();
        for name in tests.split(", ").map(|name| name.trim_matches('`')) {
            let is_there = sources.iter().any(|text| {
                [format!("fn {name}()"), format!("def {name}(self)")].iter().any(|start| text.contains(start.as_str()))
            });
            assert!(is_there, "{row}: {name:?}");
        }
    }
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
