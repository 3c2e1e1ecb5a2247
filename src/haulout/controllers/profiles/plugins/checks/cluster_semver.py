"""The check `clusterSemver`: whether the version in a label is lower than that of another node."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from haulout.controllers.profiles.config.options import option
from haulout.controllers.profiles.plugin import (
    PROFILE_LABEL,
    Check,
    CheckResult,
    PluginContext,
    check_error,
    fails,
    passes,
    unknown,
)
from haulout.controllers.profiles.view import topics
from haulout.core import semver
from haulout.core.semver import Version

MIN_VERSION = Version(0, 1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSemver(Check):
    """Passes if the node is outdated: the version in its label is lower than that of some other node.

    Versions are strict semantic versions: `MAJOR.MINOR.PATCH`, optionally with `-pre-release` and `+build`, without a
    leading `v`. A pre-release is lower than its release, and build metadata is ignored. The highest version in the
    cluster counts as at least 0.1.0. Values of other nodes that are not versions are skipped.

    For a node without the label, the check does not pass, negated or not, since it is unknown whether the node is
    outdated. If the node's own value is not a version, the check fails with an error.
    """

    type = "clusterSemver"
    example = "key: example.com/os-version\nprofileScoped: true"

    key: str = option("The key of the label with the version.", required=True)
    profile_scoped: bool = option(
        "Compare only with nodes whose profile label names the profile that is evaluated.", default=False
    )

    def evaluate(self, context: PluginContext) -> CheckResult:
        written = context.node.metadata.labels.get(self.key)
        if written is None:
            return unknown(f"node {context.node.name} has no label {self.key}, so there is no version to compare")
        try:
            own = semver.parse(written)
        except ValueError as error:
            return check_error(f"label {self.key} of node {context.node.name}: {error}", own=written)
        highest = max((MIN_VERSION, *self._versions(context)))
        info: dict[str, Any] = {"own": str(own), "max": str(highest)}
        if own < highest:
            return passes(f"node {context.node.name} is at {own}, the highest version is {highest}", **info)
        return fails(f"node {context.node.name} is at {own}, and no node it is compared with is higher", **info)

    def _versions(self, context: PluginContext) -> Iterator[Version]:
        for observed in context.cluster.nodes_with(self.key):
            if self.profile_scoped and context.profile not in observed.profiles:
                continue
            try:
                yield semver.parse(observed.node.metadata.labels[self.key])
            except ValueError:
                continue

    def topics(self, node: str) -> tuple[str, ...]:
        del node
        scoped = (topics.label(PROFILE_LABEL),) if self.profile_scoped else ()
        return (topics.label(self.key), *scoped)
