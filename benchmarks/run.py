"""`make bench`: how fast Haulout and its parts are, and how others compare.

    python benchmarks/run.py [--only synthetic|sandbox|real|drains|profiles|notices|dashboard|hub|failover] [--quick]

Prints the report and, unless it was a quick run, keeps in RESULTS.md what was measured.
"""

import argparse
import sys
from pathlib import Path

import dashboard
import drains
import failover
import hub
import notices
import profiles
import real_apiserver
import sandbox
import synthetic
from haulout.core.clock import RealClock
from report import document, this_machine
from resource_usage import OtherProcesses

PARTS = {
    "synthetic": synthetic,
    "sandbox": sandbox,
    "real": real_apiserver,
    "drains": drains,
    "profiles": profiles,
    "notices": notices,
    "dashboard": dashboard,
    "hub": hub,
    "failover": failover,
}
RESULTS = Path(__file__).parent / "RESULTS.md"


def main() -> None:
    """Measure what is asked for, and report it."""
    options = _options()
    clock = RealClock()
    started = clock.monotonic()

    def log(message: str) -> None:
        sys.stderr.write(f"[{clock.monotonic() - started:4.0f} s] {message}\n")

    is_kept = not options.quick
    report = RESULTS.read_text() if options.only else ""
    for name in [options.only] if options.only else PARTS:
        part, at, neighbours = PARTS[name], clock.now(), OtherProcesses()
        try:
            sections = part.run(part.QUICK if options.quick else part.FULL, log)
        except real_apiserver.NoControlPlane as reason:
            log(f"{name} is left out, and {RESULTS.name} stays as it is: {reason}")
            is_kept = False
            continue
        report = document(sections, at=at, machine=this_machine(), others=neighbours.share(), before=report)
    print(report, end="")
    if is_kept:
        RESULTS.write_text(report)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure how fast Haulout is.")
    parser.add_argument("--only", choices=PARTS, help="measure one part; the others in RESULTS.md stay as they are")
    parser.add_argument("--quick", action="store_true", help="a small run to see that it works; nothing is kept")
    return parser.parse_args()


if __name__ == "__main__":
    main()
