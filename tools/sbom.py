"""Prints the installed packages as a CycloneDX document: the software bill of materials (SBOM) of an image.

    /opt/haulout/bin/python sbom.py > sbom.cdx.json

It needs only the standard library, so that nothing has to be installed in the image.
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
    json.dump(sbom_document(importlib.metadata.distributions()), sys.stdout, indent=1)
    sys.stdout.write("\n")


def sbom_document(installed: Iterable[Distribution]) -> dict[str, Any]:
    """Return the document, which depends only on the installed packages."""
    by_name = {_key(entry.name): entry for entry in installed}
    application = by_name.pop("haulout")
    components = [_component(by_name[name]) for name in sorted(by_name)]
    all_components = [_component(application, kind="application"), *components]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, ' '.join(item['purl'] for item in all_components))}",
        "version": 1,
        "metadata": {"component": all_components[0]},
        "components": components,
        "dependencies": [
            {
                "ref": _package_url(entry),
                "dependsOn": sorted(_package_url(by_name[name]) for name in _required_names(entry) & by_name.keys()),
            }
            for entry in (application, *by_name.values())
        ],
    }


def _component(distribution: Distribution, *, kind: str = "library") -> dict[str, Any]:
    license_expressions = [{"expression": line} for line in distribution.metadata.get_all("License-Expression") or ()]
    licenses = {"licenses": license_expressions} if license_expressions else _named_license(distribution)
    address = _package_url(distribution)
    return {
        "type": kind,
        "bom-ref": address,
        "name": distribution.name,
        "version": distribution.version,
        "purl": address,
        **licenses,
    }


def _named_license(distribution: Distribution) -> dict[str, Any]:
    """Return the license of packages without a license expression: from a classifier, or a line of text."""
    classified = [
        line.rpartition(" :: ")[2]
        for line in distribution.metadata.get_all("Classifier") or ()
        if line.startswith("License ::")
    ]
    license_texts = [
        text for text in distribution.metadata.get_all("License") or () if text.strip() and "\n" not in text
    ]
    names = classified or license_texts
    return {"licenses": [{"license": {"name": name}} for name in names]} if names else {}


def _required_names(distribution: Distribution) -> set[str]:
    found = (_NAME_OF_REQUIREMENT.match(line) for line in distribution.requires or ())
    return {_key(match.group()) for match in found if match}


def _package_url(distribution: Distribution) -> str:
    return f"pkg:pypi/{_key(distribution.name)}@{distribution.version}"


def _key(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    main()
