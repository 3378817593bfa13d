//! Links of the pages, and pages that messages and units name.

use super::*;

/// The anchor that a heading has.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase().replace(' ', "-");
    kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
}

/// The targets of the links of `page` to other pages.
fn links(page: &str) -> Vec<&str> {
    let links = page.split("](").skip(1).map(|rest| rest.split(')').next().unwrap());
    links.filter(|link| !link.starts_with("https://")).collect()
}

#[test]
fn every_link_leads_somewhere_and_every_page_is_in_the_summary() {
    let mut listed = BTreeSet::new();
    for (path, page) in pages() {
        let folder = root().join(&path).parent().unwrap().to_owned();
        for link in links(&page) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target: PathBuf = if file.is_empty() { root().join(&path) } else { folder.join(file) };
            let text = fs::read_to_string(&target).unwrap_or_else(|error| panic!("{path}: {link}: {error}"));
            let headings =
                text.lines().filter(|line| line.starts_with('#')).map(|l| anchor(l.trim_start_matches(['#', ' '])));
            assert!(
                heading.is_empty() || headings.into_iter().any(|has| has == heading),
                "{path}: {link}: no such heading"
            );
            if path == "docs/SUMMARY.md" {
                listed.insert(format!("docs/{file}"));
            }
        }
    }
    for (path, _) in pages() {
        let is_one = path.starts_with("docs/") && path != "docs/SUMMARY.md";
        assert!(!is_one || listed.contains(&path), "docs/SUMMARY.md does not have {path}");
    }
}

#[test]
fn messages_and_units_point_to_pages_that_the_packages_install() {
    let cargo: toml::Table = read("Cargo.toml").parse().unwrap();
    let metadata = cargo["package"]["metadata"].as_table().unwrap();
    for (package, folder) in
        [("deb", "usr/share/doc/daemonlet/docs/"), ("generate-rpm", "/usr/share/doc/daemonlet/docs/")]
    {
        let assets = metadata[package]["assets"].to_string();
        for pages in ["docs/*.md", "docs/recipes/*.md", "docs/tutorials/*.md"] {
            assert!(assets.contains(pages) && assets.contains(folder), "{package} does not install {pages}");
        }
    }
    let mut texts: Vec<(String, String)> = ["daemonlet.service", "daemonlet-boot-guard.service"]
        .map(|unit| (unit.to_owned(), read(&format!("systemd/{unit}"))))
        .to_vec();
    for file in crate::sources(&root().join("src")) {
        texts.push((file.display().to_string(), fs::read_to_string(file).unwrap()));
    }
    let mut found = 0;
    for (file, text) in texts {
        assert!(!text.contains("see README"), "{file}: name the page");
        for rest in text.split("/usr/share/doc/daemonlet/").skip(1) {
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || "/-_.".contains(*c)).collect();
            assert!(root().join(name.trim_end_matches('.')).exists(), "{file}: there is no {name}");
            found += 1;
        }
    }
    assert!(found >= 3, "nothing points to the docs");
}
