"""Prints what is installed beside it as a CycloneDX document: the bill of materials that an image carries.

    /opt/haulout/bin/python sbom.py > sbom.cdx.json

Only the standard library is needed, so that nothing has to be installed to tell what is.
"""

import importlib.metadata
import json
import re
import sys
import uuid
from collections.abc import Iterable
from importlib.metadata import Distribution
from typing import Any

_NAME_OF_REQUIREMENT = re.compile(r"[A-Za-z0-9._-]+")


def main() -> None:
    """Print it."""
    json.dump(bill(importlib.metadata.distributions()), sys.stdout, indent=1)
    sys.stdout.write("\n")


def bill(installed: Iterable[Distribution]) -> dict[str, Any]:
    """Return the document: the same for the same packages, whenever it is made."""
    by_name = {_key(it.name): it for it in installed}
    ours = by_name.pop("haulout")
    components = [_component(by_name[name]) for name in sorted(by_name)]
    all_of_it = [_component(ours, kind="application"), *components]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, ' '.join(it['purl'] for it in all_of_it))}",
        "version": 1,
        "metadata": {"component": all_of_it[0]},
        "components": components,
        "dependencies": [
            {"ref": _address(it), "dependsOn": sorted(_address(by_name[name]) for name in _needs(it) & by_name.keys())}
            for it in (ours, *by_name.values())
        ],
    }


def _component(it: Distribution, *, kind: str = "library") -> dict[str, Any]:
    expressed = [{"expression": line} for line in it.metadata.get_all("License-Expression") or ()]
    licenses = {"licenses": expressed} if expressed else _named_license(it)
    address = _address(it)
    return {"type": kind, "bom-ref": address, "name": it.name, "version": it.version, "purl": address, **licenses}


def _named_license(it: Distribution) -> dict[str, Any]:
    """Return what packages say that do not use license expressions yet: a classifier, or a line of text."""
    classified = [
        line.rpartition(" :: ")[2] for line in it.metadata.get_all("Classifier") or () if line.startswith("License ::")
    ]
    short = [text for text in it.metadata.get_all("License") or () if text.strip() and "\n" not in text]
    names = classified or short
    return {"licenses": [{"license": {"name": name}} for name in names]} if names else {}


def _needs(it: Distribution) -> set[str]:
    found = (_NAME_OF_REQUIREMENT.match(line) for line in it.requires or ())
    return {_key(match.group()) for match in found if match}


def _address(it: Distribution) -> str:
    return f"pkg:pypi/{_key(it.name)}@{it.version}"


def _key(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    main()
