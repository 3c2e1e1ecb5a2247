"""How this program was called, for commands that the output suggests."""

import sys
from collections.abc import Mapping


def executable() -> list[str]:
    """Return how to call this program again: by its name if it is on PATH, else as it was called."""
    import shutil
    from pathlib import Path

    name = sys.argv[0]
    if Path(name).name == "__main__.py":
        return [sys.executable, "-m", "haulout"]
    return [name] if Path(name).name == "haulout" and not shutil.which("haulout") else ["haulout"]


def command_line(*arguments: str, options: Mapping[str, str | None] | None = None) -> str:
    """Return a command line of this program, with the options that have a value."""
    import shlex

    option_words = [word for name, value in (options or {}).items() if value for word in (name, value)]
    return shlex.join([*executable(), *arguments, *option_words])


def repeat_command() -> str:
    """Return the command line of this process."""
    import shlex

    return shlex.join([*executable(), *sys.argv[1:]])
