"""How this program was called, for commands that a person is told to paste."""

import sys
from collections.abc import Mapping


def executable() -> list[str]:
    """Return how to call this program again: by its name, or as it was called if its name would not find it."""
    import shutil
    from pathlib import Path

    name = sys.argv[0]
    if Path(name).name == "__main__.py":
        return [sys.executable, "-m", "haulout"]
    return [name] if Path(name).name == "haulout" and not shutil.which("haulout") else ["haulout"]


def command_line(*arguments: str, options: Mapping[str, str | None] | None = None) -> str:
    """Return a command line of this program, with those of the options that have a value."""
    import shlex

    option_words = [word for name, value in (options or {}).items() if value for word in (name, value)]
    return shlex.join([*executable(), *arguments, *option_words])


def repeat_command() -> str:
    """Return the command line that was typed."""
    import shlex

    return shlex.join([*executable(), *sys.argv[1:]])
