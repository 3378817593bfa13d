//! How well something is known, and which of several sources counts.
//!
//! Owns the one precedence of what the API and the folders have: DaemonSets, Namespaces, ConfigMaps, Secrets, ServiceAccounts
//! and others. For a DaemonSet, what runs here by the API's word is the API's last version, too ([`crate::core::sources`]).
//! Only evidence makes something absent.

use std::fmt;

use serde::Deserialize;
use serde::Serialize;

use crate::core::local_failure::LocalFailure;
use crate::core::time::Timestamp;

/// How one thing is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Knowledge<T> {
    /// As it is now.
    Current(T),
    /// As it was last known, and since when its source has shown nothing newer.
    Remembered(T, Timestamp),
    /// Its source has not answered yet.
    #[default]
    NeverHeard,
    /// Its source is there and cannot be read; why.
    Unreadable(LocalFailure),
    /// It does not exist, and its source shows that.
    Absent(Absence),
}

/// Why the API server cannot be asked now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unlinked {
    /// This process has not connected to it yet.
    NotConnected,
    AnotherCluster,
    /// The connection is lost.
    NoConnection,
    /// Its cluster has not identified itself yet.
    Unidentified,
}

impl fmt::Display for Unlinked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotConnected => "it has not been connected to yet",
            Self::AnotherCluster => "another cluster answers",
            Self::NoConnection => "there is no connection to it",
            Self::Unidentified => "it has not said yet which cluster it is",
        })
    }
}

/// The evidence that something does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Absence {
    /// There is no such source: none is configured.
    NotConfigured,
    /// The source was read completely and does not have it.
    NotListed,
    /// The source was seen to lose it.
    Deleted,
}

impl<T> Knowledge<T> {
    /// The value, however old.
    pub fn value(&self) -> Option<&T> {
        match self {
            Knowledge::Current(value) | Knowledge::Remembered(value, _) => Some(value),
            Knowledge::NeverHeard | Knowledge::Unreadable(_) | Knowledge::Absent(_) => None,
        }
    }

    /// The value as it is now.
    pub fn current(&self) -> Option<&T> {
        match self {
            Knowledge::Current(value) => Some(value),
            _ => None,
        }
    }
}

/// By this annotation (`"true"`) the node's owner gives a folder's object precedence over the API's last version, and
/// over what it says now as long as that is nothing newer.
pub const OVERRIDE_ANNOTATION: &str = "daemonlet.dev/override";

/// What to do where a folder's object is passed over, though it may override.
pub fn hint_where_passed_over(overrides: bool) -> &'static str {
    match overrides {
        true => "delete the file, or change it: it then counts until the API server has another version",
        false => "annotate the object in the file with daemonlet.dev/override: \"true\" to use it instead",
    }
}

/// What the API server says of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiAnswer<T> {
    /// No API server is configured.
    NotConfigured,
    /// Nothing yet.
    Nothing,
    /// It is there, and is not read.
    Unread,
    /// It is there.
    Present(T),
    /// It is not there.
    Gone,
}

/// Which source counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// The API's version now.
    Api,
    /// The API's last version, remembered on disk.
    Remembered,
    /// A folder, now or as it was last read well.
    Folder,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Origin::Api => "the API server's version",
            Origin::Remembered => "the version that the API server last had",
            Origin::Folder => "the folder's version",
        })
    }
}

/// What every source has of one object.
#[derive(Clone, Copy, Debug)]
pub struct ObjectSources<T> {
    /// The API's version now.
    pub api: ApiAnswer<T>,
    /// The API's last version.
    pub remembered: Option<T>,
    /// The folder's, as it is or as it was last read well.
    pub folder: Option<T>,
    /// Whether the folder's carries [`OVERRIDE_ANNOTATION`].
    pub overrides: bool,
    /// Whether the API's version is newer than the remembered one.
    pub is_newer: bool,
    /// Whether the API may speak for a folder's object: policy covers and trusts its namespace.
    pub api_may_speak: bool,
}

impl<T: Copy> ObjectSources<T> {
    /// The object that counts, and whose it is. `None`: no source has it.
    ///
    /// The API's version, its last version, the folder's: in this order. Where the API says
    /// that it is gone, the folder counts again; a folder's override comes before everything but a newer version.
    pub fn choose(&self) -> Option<(Origin, T)> {
        let folder = self.folder.map(|folder| (Origin::Folder, folder));
        if folder.is_some() && (!self.api_may_speak || self.overrides && !self.is_newer) {
            return folder;
        }
        match self.api {
            ApiAnswer::Present(api) => Some((Origin::Api, api)),
            ApiAnswer::Gone => folder,
            // Its last version stays valid though the API is not asked any more.
            ApiAnswer::NotConfigured => self.remembered.map(|remembered| (Origin::Remembered, remembered)).or(folder),
            ApiAnswer::Unread | ApiAnswer::Nothing => {
                let remembered = self.remembered.map(|remembered| (Origin::Remembered, remembered));
                // An object that is not read still comes before the folder's.
                remembered.or(folder.filter(|_| matches!(self.api, ApiAnswer::Nothing)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: ObjectSources<u8> = ObjectSources {
        api: ApiAnswer::Present(1),
        remembered: Some(2),
        folder: Some(4),
        overrides: false,
        is_newer: false,
        api_may_speak: true,
    };

    #[test]
    fn each_source_counts_where_those_before_it_say_nothing() {
        let of = |sources: ObjectSources<u8>| sources.choose();
        let quiet = ObjectSources { api: ApiAnswer::Nothing, ..ALL };
        assert_eq!(of(ALL), Some((Origin::Api, 1)));
        assert_eq!(of(quiet), Some((Origin::Remembered, 2)), "the folder is older, however long the API is away");
        assert_eq!(of(ObjectSources { remembered: None, ..quiet }), Some((Origin::Folder, 4)));
        assert_eq!(of(ObjectSources { remembered: None, folder: None, ..quiet }), None);
        let unread = ObjectSources { api: ApiAnswer::Unread, ..ALL };
        assert_eq!(of(unread), Some((Origin::Remembered, 2)));
        assert_eq!(of(ObjectSources { remembered: None, ..unread }), None, "the folder is older");
        assert_eq!(of(ObjectSources { api: ApiAnswer::Gone, ..ALL }), Some((Origin::Folder, 4)), "it counts again");
        assert_eq!(of(ObjectSources { api: ApiAnswer::Gone, folder: None, ..ALL }), None);
        let unasked = ObjectSources { api: ApiAnswer::NotConfigured, ..ALL };
        assert_eq!(of(unasked), Some((Origin::Remembered, 2)), "a lost kubeconfig takes nothing back");
        assert_eq!(of(ObjectSources { remembered: None, ..unasked }), Some((Origin::Folder, 4)));
    }

    #[test]
    fn an_override_comes_before_everything_but_a_newer_version() {
        let overrides = ObjectSources { overrides: true, ..ALL };
        assert_eq!(overrides.choose(), Some((Origin::Folder, 4)));
        assert_eq!(ObjectSources { api: ApiAnswer::Nothing, ..overrides }.choose(), Some((Origin::Folder, 4)));
        assert_eq!(ObjectSources { api: ApiAnswer::Unread, ..overrides }.choose(), Some((Origin::Folder, 4)));
        assert_eq!(ObjectSources { is_newer: true, ..overrides }.choose(), Some((Origin::Api, 1)));
    }

    #[test]
    fn the_api_does_not_speak_for_a_namespace_that_policy_does_not_cover_or_trust() {
        let refused = ObjectSources { api_may_speak: false, ..ALL };
        assert_eq!(refused.choose(), Some((Origin::Folder, 4)));
        assert_eq!(
            ObjectSources { folder: None, ..refused }.choose(),
            Some((Origin::Api, 1)),
            "it is no folder's object"
        );
    }
}
