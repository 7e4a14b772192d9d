"""Proof of identity: bytes and a secret in, a caller out. Knows no routes and no HTTP status."""
