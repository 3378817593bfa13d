//! What is watched, and the changes that watches bring.
//!
//! Owns the names only.

use serde_json::Value;

use crate::core::cluster::node_daemons;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WatchedKind {
    Nodes,
    /// `daemonsets`.
    DaemonSets,
    /// `nodedaemons`.
    NodeDaemons,
    /// `controllerrevisions`.
    Revisions,
    /// `namespaces`, for their node selectors.
    Namespaces,
    /// `certificatesigningrequests`, where nodes' identities are approved.
    CertificateRequests,
}

impl WatchedKind {
    /// The resource's name in URLs.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::DaemonSets => "daemonsets",
            Self::NodeDaemons => node_daemons::PLURAL,
            Self::Revisions => "controllerrevisions",
            Self::Namespaces => "namespaces",
            Self::CertificateRequests => "certificatesigningrequests",
        }
    }
}

/// The kinds without which nothing is rolled out.
pub const KINDS: [WatchedKind; 5] = [
    WatchedKind::Nodes,
    WatchedKind::DaemonSets,
    WatchedKind::NodeDaemons,
    WatchedKind::Revisions,
    WatchedKind::Namespaces,
];

/// A change that a watch or a reply brings.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A list begins.
    Begin(WatchedKind),
    /// An object exists; `listed`: as part of the list.
    Present(WatchedKind, Box<Value>, bool),
    /// An object is gone.
    Gone(WatchedKind, Box<Value>),
    /// The list is complete.
    Complete(WatchedKind),
    /// An object as an answer to one of our own requests shows it.
    Written(WatchedKind, Box<Value>),
    /// An object of [`unread`](super::ClusterSnapshot) as a GET shows it.
    Read(WatchedKind, Box<Value>),
}

impl Change {
    /// The kind of its object.
    pub fn kind(&self) -> WatchedKind {
        match self {
            Self::Begin(kind)
            | Self::Present(kind, _, _)
            | Self::Gone(kind, _)
            | Self::Complete(kind)
            | Self::Written(kind, _)
            | Self::Read(kind, _) => *kind,
        }
    }
}
