"""Steps of one node, without a cluster: each is taken as the controller takes it, on what the one before it wrote.

walk = Walk(FILE, labels={"cloud.sap/maintenance-profile": "os"})
walk.step()
walk.state("os")
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import msgspec

from haulout.errors import HauloutError
from haulout.kube.objects import Node
from haulout.profiles import begun, config, data
from haulout.profiles.config import Registries
from haulout.profiles.machine import step
from haulout.profiles.model import Configuration
from haulout.profiles.options import option
from haulout.profiles.plugin import (
    DATA_ANNOTATION,
    STATE_LABEL,
    Check,
    Due,
    Effect,
    Entry,
    Scene,
    Schedule,
    SetLabel,
    Trigger,
    Verdict,
    broken,
    fails,
    passes,
    unknown,
)
from haulout.profiles.plugins.registry import registries
from haulout.profiles.steps import DrainSeen, ProfileReport, Result, Subject
from support.builders import a_node
from support.scenes import MINUTE, NOW, Cluster

DRAINED = DrainSeen(is_done=True, words="all have left")
DRAINING = DrainSeen(is_done=False, words="0 of 2 pods have left")


@dataclass(frozen=True, slots=True, kw_only=True)
class Says(Check):
    """Says what the annotation of its name says: yes, no, unknown, not known, error or crash; and otherwise no."""

    type = "says"

    about: str = option("the annotation")
    again: timedelta = option("when it wants to be asked again", default=timedelta())

    def look(self, scene: Scene) -> Verdict:
        """Return the verdict."""
        match scene.node.metadata.annotations.get(self.about, ""):
            case "yes":
                return passes("it says so")
            case "unknown":
                return unknown("nobody knows")
            case "error":
                return broken("it could not be asked")
            case "not known":
                raise HauloutError("it has not been read yet")
            case "crash":
                raise ZeroDivisionError
        return fails("it says no", wakes_at=scene.now + self.again if self.again else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts(Trigger):
    """Counts in a label how often it ran; breaks if the annotation `crash` is there."""

    type = "counts"

    label: str = option("the label")

    def effects(self, scene: Scene) -> tuple[Effect, ...]:
        """Return the label with one more."""
        if "crash" in scene.node.metadata.annotations:
            raise ZeroDivisionError
        return (SetLabel(self.label, str(int(scene.node.metadata.labels.get(self.label, "0")) + 1)),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaks(Schedule):
    """Cannot tell when it is due."""

    type = "breaks"

    def due(self, *, entry: Entry, last: datetime | None, now: datetime) -> Due:
        """Break."""
        del entry, last, now
        raise ZeroDivisionError


def with_small_ones() -> Registries:
    """Return all plugins there are, and those above."""
    real = registries()
    return replace(
        real,
        checks={**real.checks, Says.type: Says},
        triggers={**real.triggers, Counts.type: Counts},
        schedules={**real.schedules, Breaks.type: Breaks},
    )


def loaded(text: str) -> Configuration:
    """Return what a file says."""
    return config.load(text.encode(), with_small_ones(), {}).configuration


class Walk:
    """One node, and the steps it takes."""

    def __init__(
        self,
        text: str,
        *,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        cluster: Cluster | None = None,
    ) -> None:
        self.configuration = loaded(text)
        metadata = {"labels": dict(labels or {}), "annotations": dict(annotations or {}), "resourceVersion": "1"}
        raw = a_node("n1")
        raw["metadata"] = {**raw["metadata"], "uid": "u1", **metadata}
        self.node = msgspec.convert(raw, Node)
        self.cluster = cluster or Cluster(raw)
        self.now = NOW
        self.drains: dict[str, DrainSeen] = {}
        self.result: Result | None = None

    def edit(self, text: str) -> None:
        """Go on by another file."""
        self.configuration = loaded(text)

    def annotate(self, **annotations: str | None) -> None:
        """Set annotations of the node; None takes one off."""
        self._set("annotations", annotations)

    def label(self, labels: Mapping[str, str | None]) -> None:
        """Set labels of the node."""
        self._set("labels", labels)

    def cordon(self) -> None:
        """Cordon the node without a mark, as others than we do."""
        spec = msgspec.structs.replace(self.node.spec, unschedulable=True)
        self.node = msgspec.structs.replace(self.node, spec=spec)

    def subject(self, **more: Any) -> Subject:
        """Return what a step rests on."""
        text = self.node.metadata.annotations.get(DATA_ANNOTATION)
        fields: dict[str, Any] = {
            "node": self.node,
            "entries": data.entries_of(text),
            "notified": data.notified_of(text),
            "pending": begun.read(self.node),
            "drains": self.drains,
            "sights": self.cluster,
            "requeue": self.configuration.requeue,
            "now": self.now,
        }
        return Subject(**(fields | more))

    def step(self, *, wait: timedelta = MINUTE, **more: Any) -> Result:
        """Take one step and write it; time passes before it."""
        self.now += wait
        result = step(self.subject(**more), self.configuration.profiles)
        text = data.revised(self.data, result.entries, result.notified)
        written = {DATA_ANNOTATION: text, begun.ANNOTATION: begun.write(result.pending)}
        self.node = result.draft.labelled({STATE_LABEL: str(result.state)}).annotated(written).node
        self.result = result
        return result

    def steps(self, number: int) -> Iterator[Result]:
        """Take some steps."""
        for _ in range(number):
            yield self.step()

    # Looking

    @property
    def data(self) -> str:
        """The data annotation."""
        return self.node.metadata.annotations.get(DATA_ANNOTATION, "")

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of the node."""
        return self.node.metadata.labels

    def state(self, profile: str) -> str:
        """Return where a profile stands, as the annotation says."""
        return data.entries_of(self.data)[profile].current

    def states(self) -> dict[str, str]:
        """Return where all profiles stand."""
        return {name: entry.current for name, entry in data.entries_of(self.data).items()}

    def report(self, profile: str) -> ProfileReport:
        """Return what the last step said about a profile."""
        assert self.result is not None
        return next(it for it in self.result.reports if it.name == profile)

    def _set(self, what: str, values: Mapping[str, str | None]) -> None:
        known = {**getattr(self.node.metadata, what), **values}
        fields = {what: {key: value for key, value in known.items() if value is not None}}
        self.node = msgspec.structs.replace(self.node, metadata=msgspec.structs.replace(self.node.metadata, **fields))
