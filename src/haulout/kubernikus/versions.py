"""Whether a kubelet has another version than the API server. Pure.

Versions are compared as Semantic Versioning has it: build metadata does not count, and a kubelet that is newer differs,
too. What is no version is an answer for people, and no crash: the label then stays as it is.
"""

from haulout.core import semver
from haulout.core.semver import Version


class OddVersion(ValueError):
    """What should be a version is none."""


def needs_update(*, server: str, kubelet: str) -> bool:
    """Tell whether a kubelet differs from the server; raises `OddVersion`."""
    return _read(kubelet, whose="its kubelet") != _read(server, whose="the API server")


def _read(written: str, *, whose: str) -> Version:
    if not written:
        raise OddVersion(f"{whose} does not say which version it has")
    try:
        return semver.parse(written.removeprefix("v"))
    except ValueError:
        raise OddVersion(f"{whose} says that its version is {written!r:.60}: expected one such as v1.31.4") from None
