"""Alibaba PAI-DLC (2020-12-03): the dialect and nothing else."""
