//! Why a daemon does or does not run here, term by term.
