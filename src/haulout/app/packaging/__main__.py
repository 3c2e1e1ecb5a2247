"""`python -m haulout.app.packaging deploy`: writes the packages there, and removes what is made no more."""

import sys
from pathlib import Path

from haulout import __version__
from haulout.app.packaging.everything import write


def main() -> None:
    """Write them."""
    (folder,) = sys.argv[1:] or ["deploy"]
    for path in write(Path(folder), __version__):
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
