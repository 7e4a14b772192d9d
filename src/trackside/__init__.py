"""Trackside: a self-hosted training-job service that speaks the clouds' own APIs."""

__version__ = "0.1.0"
