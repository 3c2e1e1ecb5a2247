"""That a source was told to begin before its time, as its node is empty: written down on the notice itself.

    record = early_of(notice)           # None: nobody has told it

It stands in an annotation, and not in the status, because whoever tells a cloud may be an agent on the node, which may
write what is said about its own node and nothing of what is made of that. The operator shows it as the condition
EarlyStart, and in the history.
"""

from datetime import datetime
from enum import StrEnum

import msgspec

from haulout.api.maintenancenotice import MaintenanceNotice
from haulout.api.objects import RawObject

ANNOTATION = "haulout.dev/early-start"


class EarlyStartAnswer(StrEnum):
    """What came of it; the reasons of the condition EarlyStart."""

    ASKING = "Asking"
    AGREED = "Agreed"
    REFUSED = "Refused"


class EarlyStart(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The source was told, or is about to be."""

    start: datetime | None = None  # before which it is to begin
    asked_at: datetime | None = None
    answer: EarlyStartAnswer = EarlyStartAnswer.ASKING
    said: str = ""  # for people

    @property
    def metadata_patch(self) -> RawObject:
        """The change of metadata that writes it down."""
        return {"annotations": {ANNOTATION: msgspec.json.encode(self).decode()}}


def early_start_of(notice: MaintenanceNotice) -> EarlyStart | None:
    """Return what is written down about the start that is planned now; what makes no sense was written by nobody."""
    annotation = notice.metadata.annotations.get(ANNOTATION)
    if annotation is None:
        return None
    try:
        found = msgspec.json.decode(annotation, type=EarlyStart)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    return found if found.start == notice.spec.start else None


def may_have_started(notice: MaintenanceNotice) -> bool:
    """Tell whether a source was told to begin and did not say no: what came of that may never be seen."""
    early_start = early_start_of(notice)
    return early_start is not None and early_start.answer is not EarlyStartAnswer.REFUSED
