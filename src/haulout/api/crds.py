"""Loads the CustomResourceDefinitions that a package contains as YAML files."""

from functools import cache
from importlib import resources

import msgspec

from haulout.api.objects import RawObject


def load_crd(package: str, file: str) -> RawObject:
    """Return the only CustomResourceDefinition in a file of a package."""
    (found,) = load_crds(package, file)
    return found


def load_crds(package: str, file: str) -> list[RawObject]:
    """Return the CustomResourceDefinitions in a file of a package.

    Each call returns new objects, which may be modified.
    """
    found: list[RawObject] = msgspec.json.decode(_json(package, file))
    return found


@cache
def _json(package: str, file: str) -> bytes:
    import yaml  # slow to import, and most processes load no definitions

    text = resources.files(package).joinpath(file).read_text(encoding="utf-8")
    return msgspec.json.encode(list(yaml.safe_load_all(text)))
