"""The command line: an ordinary signed HTTP client. Knows no store and no engine."""

OWN = "/api/trackside/v1"  # where the server answers in its own words
