"""Equivalent mutants, which no test can detect because the change has no effect: `equivalents.toml`, with reasons.

They are not run, and do not count. An entry whose mutant is no longer in the code is an error.
"""

import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path

FILE = Path(__file__).with_name("equivalents.toml")


def read(file: Path = FILE) -> Mapping[str, Mapping[str, str]]:
    """Return by module the names of its equivalent mutants, each with the reason."""
    return tomllib.loads(file.read_text())


def stale_entries(equivalents: Mapping[str, Mapping[str, str]], mutants: Mapping[str, Collection[str]]) -> list[str]:
    """Return the entries that name a module or mutant that is not there; `mutants` has the names of all by module."""
    return [
        f"{module} {name}"
        for module, names in equivalents.items()
        for name in names
        if name not in mutants.get(module, ())
    ]
