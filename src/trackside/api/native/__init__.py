"""Trackside's own API under /api/trackside/v1: what no vendor's dialect has."""

PREFIX = "/api/trackside/v1"
