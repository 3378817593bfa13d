//! What the node's owner says: TOML files in systemd's order, every key documented.
