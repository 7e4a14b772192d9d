"""The command line: an ordinary signed HTTP client. Knows no store and no engine."""
