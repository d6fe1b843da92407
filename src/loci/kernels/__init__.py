"""Fused versions of hot spots, each beside the plain torch twin it must equal."""
