"""Knows how samples are kept and averaged; knows nothing of tasks, dialects or HTTP."""
