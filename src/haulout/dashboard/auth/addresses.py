"""Client addresses in canonical form, for comparison and rate limits."""

import ipaddress

_IPV6_CLIENT_PREFIX = 64  # bits: the owner of an IPv6 address can choose the rest


def canonical_address(text: str | None) -> str | None:
    """Return an address without zone, IPv4-mapped ones as IPv4; None if it is invalid."""
    try:
        address = ipaddress.ip_address((text or "").partition("%")[0])
    except ValueError:
        return None
    return str(getattr(address, "ipv4_mapped", None) or address)


def rate_limit_key(address: str) -> str:
    """Return the rate limit key of a canonical address: itself, or for IPv6 its /64."""
    if ":" not in address:
        return address
    return str(ipaddress.ip_network((address, _IPV6_CLIENT_PREFIX), strict=False))
