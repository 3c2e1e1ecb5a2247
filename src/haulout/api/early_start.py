"""Early starts: records on a notice that its source was asked to begin early, because the node is empty.

    record = early_start_of(notice)           # None: the source was not asked

The record is an annotation, not part of the status: an agent on the node may be the one who asks the cloud, and agents
may write notices about their own node but not their status. The operator shows the record as the condition EarlyStart,
and in the history.
"""

from datetime import datetime
from enum import StrEnum

import msgspec

from haulout.api.maintenancenotice import MaintenanceNotice
from haulout.api.objects import RawObject

ANNOTATION = "haulout.dev/early-start"


class EarlyStartAnswer(StrEnum):
    """The answer of the source; also the reason of the condition EarlyStart."""

    ASKING = "Asking"
    AGREED = "Agreed"
    REFUSED = "Refused"


class EarlyStart(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The source was asked, or is about to be asked."""

    start: datetime | None = None  # the planned start; the source was asked to begin before it
    asked_at: datetime | None = None
    answer: EarlyStartAnswer = EarlyStartAnswer.ASKING
    said: str = ""  # the answer's text, for users

    @property
    def metadata_patch(self) -> RawObject:
        """The metadata patch that writes this record."""
        return {"annotations": {ANNOTATION: msgspec.json.encode(self).decode()}}


def early_start_of(notice: MaintenanceNotice) -> EarlyStart | None:
    """Return the record for the notice's current start; None if there is none or if it cannot be decoded."""
    annotation = notice.metadata.annotations.get(ANNOTATION)
    if annotation is None:
        return None
    try:
        found = msgspec.json.decode(annotation, type=EarlyStart)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    return found if found.start == notice.spec.start else None


def may_have_started(notice: MaintenanceNotice) -> bool:
    """Return whether a source was asked to begin and did not refuse. The result may never be observed."""
    early_start = early_start_of(notice)
    return early_start is not None and early_start.answer is not EarlyStartAnswer.REFUSED
