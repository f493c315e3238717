"""Bounds: the largest work and cost of a program, computed before it runs from its text and the facts of its flow. Read ``estimate`` first."""
