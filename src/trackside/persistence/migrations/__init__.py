"""Holds the steps from one schema to the next."""
