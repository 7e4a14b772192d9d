"""Measures the hot paths against their bare limits and their peers, in one run."""
