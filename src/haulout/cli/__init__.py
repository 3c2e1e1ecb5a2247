"""The command line interface.

`entry` has the root command, and turns errors into one line and an exit code. Each command is a module of its own. At
its top it imports click and nothing heavier, the rest inside its function, so that `--help`, `version` and shell
completion are fast. `connect` is the only place that creates a client.

Exit codes of all commands: 0 success; 1 something is missing, refused or unreachable; 2 invalid command line or input
file; 130 interrupted; 143 terminated. `run`, which runs until it is stopped, then ends with 0.
"""

from haulout.cli.entry import main

__all__ = ["main"]
