"""Primitives that take procedures."""
