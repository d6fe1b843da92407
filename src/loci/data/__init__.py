"""Clips, and readers of real files that yield them."""
