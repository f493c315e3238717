"""Ports: the Protocols through which rooms use each other. Read ``ports`` first."""
