"""The token that somebody shows to an operator whose dashboard wants to know who asks: `HAULOUT_TOKEN`."""

from collections.abc import Mapping

VARIABLE = "HAULOUT_TOKEN"
_COOKIE = "haulout-token"


def shown(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the header that shows it, if it is set."""
    token = environ.get(VARIABLE, "").strip()
    return {"Authorization": f"Bearer {token}"} if token else {}


def kept(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the same by way of the API server, which keeps `Authorization` to itself."""
    token = environ.get(VARIABLE, "").strip()
    return {"Cookie": f"{_COOKIE}={token}"} if token else {}
