"""Moves jobs forward: load what is, decide (pure), apply. Only decide.py has opinions."""
