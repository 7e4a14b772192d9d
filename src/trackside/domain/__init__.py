"""The rules: what a job is and how it moves. Standard library only; no I/O, no clock."""
