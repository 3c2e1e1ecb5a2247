"""Takes the pictures, of all clusters or of those that are named."""

import sys
from pathlib import Path

from tools.pictures import clusters, fleet, large
from tools.pictures.browser import camera

CLUSTERS = {"fleet": fleet.take_pictures, "clusters": clusters.take_pictures, "large": large.take_pictures}


def main(arguments: list[str]) -> None:
    """Write the pictures into the given folder."""
    names = arguments[1:] or list(CLUSTERS)
    if not arguments or not CLUSTERS.keys() >= set(names):
        sys.exit(f"usage: python -m tools.pictures FOLDER [{'|'.join(CLUSTERS)}]...")
    with camera(Path(arguments[0])) as take:
        for name in names:
            CLUSTERS[name](take)


if __name__ == "__main__":
    main(sys.argv[1:])
