"""`make bench`: how fast Haulout's Kubernetes layer, its sandbox and its drains are, and how others compare.

    python benchmarks/run.py [--only synthetic|sandbox|real|drains] [--quick]

Prints the report and, if everything was measured at full size, keeps it in RESULTS.md.
"""

import argparse
import sys
from pathlib import Path

import drains
import real
import sandbox
import synthetic
from gauges import Neighbours
from haulout.core.clock import RealClock
from report import document

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
    if options.only in (None, "synthetic"):
        sections += synthetic.run(synthetic.QUICK if options.quick else synthetic.FULL, say)
    if options.only in (None, "sandbox"):
        sections += sandbox.run(sandbox.QUICK if options.quick else sandbox.FULL, say)
    if options.only in (None, "real", "drains"):
        try:
            if options.only != "drains":
                sections += real.run(real.QUICK if options.quick else real.FULL, say)
            if options.only != "real":
                sections += drains.run(drains.QUICK if options.quick else drains.FULL, say)
        except real.NoControlPlane as reason:
            say(f"the real server is left out, and {RESULTS.name} stays as it is: {reason}")
            complete = False
    report = document(sections, at=at, others=neighbours.share())
    print(report, end="")
    if complete:
        RESULTS.write_text(report)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure Haulout's Kubernetes layer and its sandbox.")
    parser.add_argument(
        "--only", choices=("synthetic", "sandbox", "real", "drains"), help="measure one part; RESULTS.md stays as it is"
    )
    parser.add_argument("--quick", action="store_true", help="a small run to see that it works; the same")
    return parser.parse_args()


if __name__ == "__main__":
    main()
