"""Metrics, and one module per experiment of the paper."""
