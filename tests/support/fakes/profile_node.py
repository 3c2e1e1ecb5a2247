"""Reconciles profiles of one node without a cluster: each step is applied before the next one.

node = ProfileNode(FILE, labels={"cloud.sap/maintenance-profile": "os"})
node.reconcile()
node.state("os")
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import msgspec

from haulout.api.objects import Node
from haulout.controllers.profiles.config import loader
from haulout.controllers.profiles.config.loader import Registries
from haulout.controllers.profiles.config.model import Configuration
from haulout.controllers.profiles.config.options import option
from haulout.controllers.profiles.decision import decide
from haulout.controllers.profiles.machine import data_annotation, transitions
from haulout.controllers.profiles.observation import Decision, DrainStatus, Observation, ProfileReport
from haulout.controllers.profiles.plugin import (
    DATA_ANNOTATION,
    STATE_LABEL,
    Action,
    Check,
    CheckResult,
    PluginContext,
    ProfileStatus,
    Schedule,
    SendDecision,
    SetLabel,
    Trigger,
    check_error,
    fails,
    passes,
    unknown,
)
from haulout.controllers.profiles.plugins.registry import registries
from haulout.errors import HauloutError
from support.builders.objects import a_node
from support.fakes.cluster_view import MINUTE, NOW, FakeClusterView

DRAINED = DrainStatus(is_done=True, message="all have left")
DRAINING = DrainStatus(is_done=False, message="0 of 2 pods have left")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationCheck(Check):
    """Has the result that the annotation of its name gives: yes, no, unknown, not known, error, crash; else no."""

    type = "says"

    about: str = option("the annotation")
    again: timedelta = option("when it wants to be asked again", default=timedelta())

    def evaluate(self, context: PluginContext) -> CheckResult:
        """Return the check result."""
        match context.node.metadata.annotations.get(self.about, ""):
            case "yes":
                return passes("it says so")
            case "unknown":
                return unknown("nobody knows")
            case "error":
                return check_error("it could not be asked")
            case "not known":
                raise HauloutError("it has not been read yet")
            case "crash":
                raise ZeroDivisionError
        return fails("it says no", requeue_at=context.now + self.again if self.again else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountingTrigger(Trigger):
    """Counts its runs in a label; fails if the annotation `crash` exists."""

    type = "counts"

    label: str = option("the label")

    def actions(self, context: PluginContext) -> tuple[Action, ...]:
        """Return an action that increments the label."""
        if "crash" in context.node.metadata.annotations:
            raise ZeroDivisionError
        return (SetLabel(self.label, str(int(context.node.metadata.labels.get(self.label, "0")) + 1)),)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenSchedule(Schedule):
    """Fails when asked whether it is due."""

    type = "breaks"

    def due(self, *, status: ProfileStatus, last_sent: datetime | None, now: datetime) -> SendDecision:
        """Break."""
        del status, last_sent, now
        raise ZeroDivisionError


def registries_with_test_plugins() -> Registries:
    """Return all plugins there are, and those above."""
    real = registries()
    return replace(
        real,
        checks={**real.checks, AnnotationCheck.type: AnnotationCheck},
        triggers={**real.triggers, CountingTrigger.type: CountingTrigger},
        schedules={**real.schedules, BrokenSchedule.type: BrokenSchedule},
    )


def load_configuration(text: str) -> Configuration:
    """Return what a file says."""
    return loader.load(text.encode(), registries_with_test_plugins(), {}).configuration


class ProfileNode:
    """One node, and its reconciles."""

    def __init__(
        self,
        text: str,
        *,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        cluster: FakeClusterView | None = None,
    ) -> None:
        self.configuration = load_configuration(text)
        metadata = {"labels": dict(labels or {}), "annotations": dict(annotations or {}), "resourceVersion": "1"}
        raw = a_node("n1")
        raw["metadata"] = {**raw["metadata"], "uid": "u1", **metadata}
        self.node = msgspec.convert(raw, Node)
        self.cluster = cluster or FakeClusterView(raw)
        self.now = NOW
        self.drains: dict[str, DrainStatus] = {}
        self.result: Decision | None = None

    def set_configuration(self, text: str) -> None:
        """Use another configuration file."""
        self.configuration = load_configuration(text)

    def annotate(self, **annotations: str | None) -> None:
        """Set annotations of the node; None takes one off."""
        self._set_metadata("annotations", annotations)

    def label(self, labels: Mapping[str, str | None]) -> None:
        """Set labels of the node."""
        self._set_metadata("labels", labels)

    def cordon(self) -> None:
        """Cordon the node without the cordon annotation, as another tool does."""
        spec = msgspec.structs.replace(self.node.spec, unschedulable=True)
        self.node = msgspec.structs.replace(self.node, spec=spec)

    def observation(self, **more: Any) -> Observation:
        """Return the observation of the next reconcile."""
        text = self.node.metadata.annotations.get(DATA_ANNOTATION)
        fields: dict[str, Any] = {
            "node": self.node,
            "statuses": data_annotation.statuses_of(text),
            "last_sent": data_annotation.last_sent_of(text),
            "pending": transitions.read_pending(self.node),
            "drains": self.drains,
            "cluster": self.cluster,
            "requeue": self.configuration.requeue,
            "now": self.now,
        }
        return Observation(**(fields | more))

    def reconcile(self, *, elapsed: timedelta = MINUTE, **more: Any) -> Decision:
        """Let time pass, reconcile once, and write the result."""
        self.now += elapsed
        result = decide(self.observation(**more), self.configuration.profiles)
        text = data_annotation.updated(self.data, result.statuses, result.last_sent)
        written = {DATA_ANNOTATION: text, transitions.PENDING_ANNOTATION: transitions.encode_pending(result.pending)}
        self.node = result.draft.with_labels({STATE_LABEL: str(result.state)}).with_annotations(written).node
        self.result = result
        return result

    def reconcile_times(self, number: int) -> Iterator[Decision]:
        """Reconcile several times."""
        for _ in range(number):
            yield self.reconcile()

    # Reads

    @property
    def data(self) -> str:
        """The data annotation."""
        return self.node.metadata.annotations.get(DATA_ANNOTATION, "")

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of the node."""
        return self.node.metadata.labels

    def state(self, profile: str) -> str:
        """Return the state of a profile from the data annotation."""
        return data_annotation.statuses_of(self.data)[profile].current

    def states(self) -> dict[str, str]:
        """Return the states of all profiles."""
        return {name: entry.current for name, entry in data_annotation.statuses_of(self.data).items()}

    def report(self, profile: str) -> ProfileReport:
        """Return the report of the last reconcile about a profile."""
        assert self.result is not None
        return next(candidate for candidate in self.result.reports if candidate.name == profile)

    def _set_metadata(self, section: str, values: Mapping[str, str | None]) -> None:
        known = {**getattr(self.node.metadata, section), **values}
        fields = {section: {key: value for key, value in known.items() if value is not None}}
        self.node = msgspec.structs.replace(self.node, metadata=msgspec.structs.replace(self.node.metadata, **fields))
