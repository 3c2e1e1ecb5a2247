"""Command lines in the syntax of Go's flag package: `-x`, `--x`, `-x=value`, `-x value`. Booleans only with `=`.

Existing deployments with such flags work unchanged, and invalid flags are rejected as Go rejects them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from haulout.errors import UsageError

# What strconv.ParseBool accepts.
_TRUE = {"1", "t", "T", "TRUE", "true", "True"}
_FALSE = {"0", "f", "F", "FALSE", "false", "False"}


@dataclass(frozen=True, slots=True)
class GoFlag:
    """The default value and the help text of a flag."""

    default: str | bool
    help: str
    is_repeatable: bool = False  # its values are joined, one per line


def parse(args: Sequence[str], flags: Mapping[str, GoFlag]) -> dict[str, str | bool]:
    """Return the values of all flags. Raise `UsageError`."""
    values = {name: flag.default for name, flag in flags.items()}
    remaining = list(args)
    while remaining:
        arg = remaining.pop(0)
        if arg == "--" or not arg.startswith("-") or arg == "-":
            break  # Go stops at the first argument that is not a flag, and the Go controller ignores the rest
        # As parseOne in Go's src/flag/flag.go: one dash or two, which mean the same.
        name, has_value, value = arg.removeprefix("-").removeprefix("-").partition("=")
        if name not in flags:
            raise UsageError(f"flag provided but not defined: -{name}")
        if isinstance(flags[name].default, bool):
            values[name] = _parse_bool(name, value) if has_value else True
            continue
        if not has_value:
            if not remaining:
                raise UsageError(f"flag needs an argument: -{name}")
            value = remaining.pop(0)
        before = values[name] if flags[name].is_repeatable else ""
        values[name] = f"{before}\n{value}" if before else value
    return values


def _parse_bool(name: str, value: str) -> bool:
    if value not in _TRUE | _FALSE:
        raise UsageError(f"-{name}: expected true or false, found {value!r}")
    return value in _TRUE
