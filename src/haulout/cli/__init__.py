"""The command line.

`entry` has the root command and turns errors into one line and an exit code; each command is a module of its own. A
command's module imports click and nothing heavier at its top: the rest comes inside its function, so that `--help`,
`version` and shell completion answer at once. `connect` is the one place that wires the way to a cluster.

Exit codes, the same for all commands: 0 all is well; 1 something is missing, refused or out of reach; 2 the command
line or a file it names makes no sense; 130 interrupted; 143 terminated. `command`, which runs until it is told to end,
ends with 0 then.
"""

from haulout.cli.entry import main

__all__ = ["main"]
