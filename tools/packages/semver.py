"""Conversion of Python versions to semantic versions, which Helm and OLM require."""

import re

_VERSION = re.compile(r"(\d+\.\d+\.\d+)(?:\.?(dev|a|b|rc)(\d+))?")


def to_semver(version: str) -> str:
    """Return `0.1.0-dev.0` for `0.1.0.dev0`; raise `ValueError` for other forms."""
    found = _VERSION.fullmatch(version)
    if found is None:
        raise ValueError(f"expected a version such as 1.2.3 or 1.2.3.dev0, found {version!r}")
    release, stage, number = found.groups()
    return f"{release}-{stage}.{number}" if stage else str(release)
