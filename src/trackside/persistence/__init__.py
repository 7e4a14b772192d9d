"""Keeps jobs and identities in SQLite or PostgreSQL; the only package that contains SQL."""

from trackside.persistence.stores import Stores, open_stores

__all__ = ["Stores", "open_stores"]
