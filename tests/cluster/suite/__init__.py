"""The stories: one file of tests per cluster that they need, each run in a sandbox of its own."""
