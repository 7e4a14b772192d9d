"""Reads what tasks printed, from files."""

from trackside.logstore.files import open_logs

__all__ = ["open_logs"]
