"""Limits on the number of clusters in maintenance at once: of all, or of those whose Cluster object has certain labels.

    limit = parse_limit("2")                      # of all clusters
    limit = parse_limit("env=prod:1")             # of those with that label; any selector as for `kubectl -l`
    limit.selects({"env": "prod"})

All limits apply together.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from haulout.kube.selectors import EVERYTHING, Selector, SelectorError, parse

_NUMBER = re.compile(r"[1-9][0-9]{0,5}")
_MAX_NAMES = 5  # names in an error message


@dataclass(frozen=True, slots=True)
class ClusterLimit:
    """At most `max_clusters` of the selected clusters."""

    max_clusters: int
    selector: Selector = EVERYTHING

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Return whether a cluster whose Cluster object has these labels counts."""
        return self.selector.matches(labels)

    @property
    def needs_labels(self) -> bool:
        """Whether the limit depends on labels of the Cluster object."""
        return self.selector != EVERYTHING

    @property
    def name(self) -> str:
        """The selected clusters, for users: the selector, or `all clusters`."""
        return str(self.selector) if self.needs_labels else "all clusters"

    def __str__(self) -> str:
        """Format the limit: `at most 1 cluster with env=prod`."""
        return (
            f"at most {self.max_clusters} {'cluster' if self.max_clusters == 1 else 'clusters'}{self._selector_suffix}"
        )

    def exhausted_message(self, holders: Sequence[str]) -> str:
        """Return why the limit is exhausted: `2 of 2 clusters are in maintenance: team-a/prod, team-b/prod`."""
        verb = "is" if len(holders) == 1 else "are"
        noun = "cluster" if self.max_clusters == 1 else "clusters"
        return (
            f"{len(holders)} of {self.max_clusters} {noun}{self._selector_suffix} "
            f"{verb} in maintenance: {_join_names(holders)}"
        )

    @property
    def _selector_suffix(self) -> str:
        return f" with {self.selector}" if self.needs_labels else ""


def parse_limit(text: str) -> ClusterLimit:
    """Parse a limit; raise ValueError with what was expected."""
    selector_text, _, number = text.strip().rpartition(":")
    if not _NUMBER.fullmatch(number.strip()):
        raise ValueError(f"expected a number of clusters such as 2, or env=prod:1, found {text!r}")
    if ":" in text and not selector_text.strip():
        raise ValueError(f"expected labels before the colon, as in env=prod:1, found {text!r}")
    try:
        return ClusterLimit(int(number), parse(selector_text))
    except SelectorError as error:
        raise ValueError(
            f"expected labels before the colon, as in env=prod:1, found {selector_text!r}: {error}"
        ) from None


def _join_names(names: Sequence[str]) -> str:
    remaining = len(names) - _MAX_NAMES
    return ", ".join((*names[:_MAX_NAMES], *((f"and {remaining} more",) if remaining > 0 else ())))
