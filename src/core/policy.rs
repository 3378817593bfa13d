//! What the node's owner allows: modes and namespaces (`default-mode`, `[policy]`).
