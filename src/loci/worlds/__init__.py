"""Endless labelled videos, made on the device."""
