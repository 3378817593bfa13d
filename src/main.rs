//! The binary: parses arguments, runs one command, chooses the exit code.

fn main() {}
