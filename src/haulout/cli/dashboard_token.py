"""The token that somebody shows to an operator whose dashboard wants to know who asks: `HAULOUT_TOKEN`."""

from collections.abc import Mapping

TOKEN_VARIABLE = "HAULOUT_TOKEN"  # noqa: S105 - a name, not a secret
_COOKIE = "haulout-token"


def authorization_header(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the header that shows it, if it is set."""
    token = environ.get(TOKEN_VARIABLE, "").strip()
    return {"Authorization": f"Bearer {token}"} if token else {}


def cookie_header(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the same by way of the API server, which keeps `Authorization` to itself."""
    token = environ.get(TOKEN_VARIABLE, "").strip()
    return {"Cookie": f"{_COOKIE}={token}"} if token else {}
