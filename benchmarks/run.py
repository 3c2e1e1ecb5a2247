"""`make bench`: how fast Haulout's Kubernetes layer, sandbox, drains and profiles are, and how others compare.

    python benchmarks/run.py [--only synthetic|sandbox|real|drains|profiles] [--quick]

Prints the report and, if everything was measured at full size, keeps it in RESULTS.md.
"""

import argparse
import sys
from pathlib import Path

import drains
import profiles
import real
import sandbox
import synthetic
from gauges import Neighbours
from haulout.core.clock import RealClock
from report import document

PARTS = {"synthetic": synthetic, "sandbox": sandbox, "real": real, "drains": drains, "profiles": profiles}
RESULTS = Path(__file__).parent / "RESULTS.md"


def main() -> None:
    """Measure what is asked for, and report it."""
    options = _options()
    clock = RealClock()
    begun = clock.monotonic()

    def say(what: str) -> None:
        sys.stderr.write(f"[{clock.monotonic() - begun:4.0f} s] {what}\n")

    at, neighbours = clock.now(), Neighbours()
    complete = not (options.quick or options.only)
    sections = []
    for name in PARTS if options.only is None else (options.only,):
        part = PARTS[name]
        try:
            sections += part.run(part.QUICK if options.quick else part.FULL, say)
        except real.NoControlPlane as reason:
            say(f"{name} is left out, and {RESULTS.name} stays as it is: {reason}")
            complete = False
    report = document(sections, at=at, others=neighbours.share())
    print(report, end="")
    if complete:
        RESULTS.write_text(report)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure how fast Haulout is.")
    parser.add_argument("--only", choices=PARTS, help="measure one part; RESULTS.md stays as it is")
    parser.add_argument("--quick", action="store_true", help="a small run to see that it works; the same")
    return parser.parse_args()


if __name__ == "__main__":
    main()
