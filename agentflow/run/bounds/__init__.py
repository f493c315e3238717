"""Bounds: what a program may do and cost, computed before it runs from its text and the facts of its flow. Read ``estimate`` first."""
