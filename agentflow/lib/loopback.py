"""Whether a host is this machine."""

from __future__ import annotations

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Whether a host is this machine's loopback, by its address. ``localhost`` is the only name that counts: for another one a resolver is asked."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
