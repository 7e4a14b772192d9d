"""Runs on every node: starts tasks, reads sensors, ships reports."""
