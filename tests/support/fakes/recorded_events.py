"""An event recorder that only keeps what is recorded."""

from typing import Any

from haulout.kube.recorder import ObjectReference


class RecordedEvents:
    """In place of an EventRecorder."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []  # object, type, reason
        self.notes: list[str] = []

    def event(self, regarding: ObjectReference, **fields: Any) -> None:
        self.events.append((regarding.name, fields["type"], fields["reason"]))
        self.notes.append(fields["note"])
