"""Knows how to read what a task uses, one device per file; reads, never schedules and never ships."""
