"""The user's token for the operator's dashboard: `HAULOUT_TOKEN`."""

from collections.abc import Mapping

TOKEN_VARIABLE = "HAULOUT_TOKEN"  # noqa: S105 - the name of a variable, not its value
_COOKIE = "haulout-token"


def authorization_header(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the Authorization header with the token, if it is set."""
    token = environ.get(TOKEN_VARIABLE, "").strip()
    return {"Authorization": f"Bearer {token}"} if token else {}


def cookie_header(environ: Mapping[str, str]) -> dict[str, str]:
    """Return a cookie with the token, for requests through the API server's proxy, which drops `Authorization`."""
    token = environ.get(TOKEN_VARIABLE, "").strip()
    return {"Cookie": f"{_COOKIE}={token}"} if token else {}
