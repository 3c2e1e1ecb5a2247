"""That a source was told to begin before its time, as its node is empty: written down on the notice itself.

    record = early_of(notice)           # None: nobody has told it

It stands in an annotation, and not in the status, because whoever tells a cloud may be an agent on the node, which may
write what is said about its own node and nothing of what is made of that. The operator shows it as the condition
EarlyStart, and in the history.
"""

from datetime import datetime
from enum import StrEnum

import msgspec

from haulout.kinds.notice import MaintenanceNotice
from haulout.kube.objects import RawObject

ANNOTATION = "haulout.dev/early-start"


class Answer(StrEnum):
    """What came of it; the reasons of the condition EarlyStart."""

    ASKING = "Asking"
    AGREED = "Agreed"
    REFUSED = "Refused"


class Early(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The source was told, or is about to be."""

    start: datetime | None = None  # before which it is to begin
    asked_at: datetime | None = None
    answer: Answer = Answer.ASKING
    said: str = ""  # for people

    @property
    def change(self) -> RawObject:
        """The change of metadata that writes it down."""
        return {"annotations": {ANNOTATION: msgspec.json.encode(self).decode()}}


def early_of(notice: MaintenanceNotice) -> Early | None:
    """Return what is written down about the start that is planned now; what makes no sense was written by nobody."""
    written = notice.metadata.annotations.get(ANNOTATION)
    if written is None:
        return None
    try:
        found = msgspec.json.decode(written, type=Early)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    return found if found.start == notice.spec.start else None


def may_have_begun(notice: MaintenanceNotice) -> bool:
    """Tell whether a source was told to begin and did not say no: what came of that may never be seen."""
    early = early_of(notice)
    return early is not None and early.answer is not Answer.REFUSED
