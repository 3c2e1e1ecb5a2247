"""Numbers of things, as people say them."""


def pods(count: int) -> str:
    """Return `1 pod` or `3 pods`."""
    return "1 pod" if count == 1 else f"{count} pods"
