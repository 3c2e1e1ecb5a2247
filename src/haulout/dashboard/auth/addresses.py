"""Addresses of clients, in the form in which they are compared and limited."""

import ipaddress

_IPV6_CLIENT_PREFIX = 64  # bits: whoever has an IPv6 address can choose the rest


def canonical_address(text: str | None) -> str | None:
    """Return an address without zone, an IPv4 address as such; None if it is none."""
    try:
        address = ipaddress.ip_address((text or "").partition("%")[0])
    except ValueError:
        return None
    return str(getattr(address, "ipv4_mapped", None) or address)


def rate_limit_key(address: str) -> str:
    """Return what an address that is canonical is limited by: itself, and for IPv6 its /64."""
    if ":" not in address:
        return address
    return str(ipaddress.ip_network((address, _IPV6_CLIENT_PREFIX), strict=False))
