"""Places tasks on nodes: knows nothing of metrics or dialects."""
