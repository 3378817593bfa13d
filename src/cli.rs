//! The command line: arguments in, text and an exit code out.
