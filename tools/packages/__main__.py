"""`python -m tools.packages deploy`: writes the packages, and removes outdated files."""

import sys
from pathlib import Path

from haulout import __version__
from tools.packages.all_packages import write


def main() -> None:
    (folder,) = sys.argv[1:] or ["deploy"]
    for path in write(Path(folder), __version__):
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
