//! What the kubelet itself says: its configuration file and its own API.
