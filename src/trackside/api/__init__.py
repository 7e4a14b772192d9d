"""The edges: HTTP in, HTTP out. Only the dialect packages below know vendor JSON."""
