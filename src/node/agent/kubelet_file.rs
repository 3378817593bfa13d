//! The manifest folder that the kubelet's own configuration file names, while that file is away or cannot be used.
//!
//! Owns what is remembered of it. Must not guess: what is written and removed in another folder the kubelet never sees.

use crate::config::Config;
use crate::config::ConfigError;
use crate::config::KubeletFile;
use crate::core::status::Problem;

use super::error::AgentError;
use super::remembered_inputs::RememberedInputs;

/// Where the configuration names no manifest folder and the kubelet's file does not say one now, takes the one that it last
/// named. Gives what is wrong with the file.
///
/// # Errors
/// When the file cannot be used, and it is not known what it named.
pub(super) fn find_manifest_dir(
    config: &mut Config,
    inputs: &mut RememberedInputs,
) -> Result<Option<Problem>, AgentError> {
    let is_written = config.is_written("manifest-dir");
    if is_written {
        inputs.kubelet_manifest_dir = None;
    }
    let file = config.kubelet_config.display();
    let (why, keys) = match &config.kubelet_file {
        KubeletFile::NotNeeded => return Ok(None),
        KubeletFile::Read => {
            inputs.kubelet_manifest_dir = (!is_written).then(|| config.manifest_dir.clone());
            return Ok(None);
        }
        KubeletFile::Missing => (format!("{file} does not exist"), ""),
        KubeletFile::Unusable(fault) => (fault.message.clone(), " and runtime-endpoint"),
    };
    let Some(last) = inputs.kubelet_manifest_dir.clone() else {
        return match &config.kubelet_file {
            KubeletFile::Unusable(fault) if is_written => {
                let (object, reason) = ("configuration".to_owned(), fault.message.clone());
                Ok(Some(Problem { object, reason, hint: fault.hint.clone() }))
            }
            KubeletFile::Unusable(fault) => Err(ConfigError { problems: vec![fault.clone()] }.into()),
            _ => Ok(None),
        };
    };
    let folder = last.display();
    let problem = Problem {
        object: "manifest folder".to_owned(),
        reason: format!("{why}; the manifest folder is {folder}, which it last named"),
        hint: Some(format!(
            "restore {file}, then `systemctl reload daemonlet`; or write manifest-dir = \"{folder}\"{keys}"
        )),
    };
    config.manifest_dir = last;
    Ok(Some(problem))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const DEFAULT: &str = "/etc/kubernetes/manifests";

    #[test]
    fn while_the_kubelets_file_names_no_manifest_folder_it_is_the_one_that_it_last_named() {
        let root = tempfile::tempdir().unwrap();
        let (file, kubelet) = (root.path().join("c.toml"), root.path().join("config.yaml"));
        let mut inputs = RememberedInputs::default();
        let mut start = |own: &str, text: Option<&str>| {
            fs::write(&file, format!("node-name = \"n1\"\nkubelet-config = {kubelet:?}\n{own}")).unwrap();
            match text {
                Some(text) => fs::write(&kubelet, text).unwrap(),
                None => drop(fs::remove_file(&kubelet)),
            }
            let mut config = crate::config::load_to_start(Some(&file)).unwrap();
            let problem = find_manifest_dir(&mut config, &mut inputs);
            problem.map(|problem| (config.manifest_dir.to_string_lossy().into_owned(), problem.is_some())).ok()
        };
        let named = |folder: &str| format!("kind: KubeletConfiguration\nstaticPodPath: {folder}\n");
        let is = |folder: &str, has_problem: bool| Some((folder.to_owned(), has_problem));
        assert_eq!(start("", None), is(DEFAULT, false), "it never named any");
        assert_eq!(start("", Some("")), None, "nor did this one, which is no file of a kubelet without a folder");
        assert_eq!(start("", Some(&named("/srv/pods"))), is("/srv/pods", false));
        assert_eq!(start("", None), is("/srv/pods", true));
        assert_eq!(start("", Some(&named("/srv/others"))), is("/srv/others", false));
        assert_eq!(start("", None), is("/srv/others", true));
        for damaged in ["", "kind: [\n", "kind: Pod\n", "kind: KubeletConfiguration\nstaticPodPath: 5\n", "\0\0\0\0"] {
            assert_eq!(start("", Some(damaged)), is("/srv/others", true), "{damaged:?}");
        }
        let written = "manifest-dir = \"/srv/own\"\n";
        assert_eq!(start(written, None), is("/srv/own", false));
        assert_eq!(start(written, Some("")), is("/srv/own", true), "the runtime's endpoint rests on it, too");
        assert_eq!(start("", None), is(DEFAULT, false), "the owner has named another since");
    }
}
