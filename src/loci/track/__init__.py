"""A video in, tracks and pictures out."""
