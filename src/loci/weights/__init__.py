"""Trained networks that ship with the package, each with a card."""
