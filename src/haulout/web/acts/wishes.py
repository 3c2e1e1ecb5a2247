"""What somebody wants done, read strictly: what an act does not need is not there, and names are names. Pure."""

import re
from collections.abc import Mapping

from haulout.web.api.asking import bad
from haulout.web.api.shapes import Act, ActKind

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_NAME = 253
_LONGEST_REASON = 1000
_FIELDS: Mapping[ActKind, tuple[str, ...]] = {
    ActKind.APPROVE: ("node", "profile", "check", "reason"),
    ActKind.HOLD: ("node", "reason", "until"),
    ActKind.RELEASE: ("node", "reason"),
    ActKind.START: ("node", "reason"),
    ActKind.CANCEL: ("node", "maintenance", "notice", "reason"),
}
_NEEDED: Mapping[ActKind, tuple[str, ...]] = {
    ActKind.APPROVE: ("node", "profile", "check"),
    ActKind.HOLD: ("node",),
    ActKind.RELEASE: ("node",),
    ActKind.START: ("node",),
    ActKind.CANCEL: (),
}


def checked(act: Act) -> Act:
    """Return an act that makes sense; raises `Unanswerable`."""
    known = _FIELDS[act.act]
    for name in ("node", "profile", "check", "maintenance", "notice", "reason", "until"):
        value = getattr(act, name)
        if value and name not in known:
            raise bad(f"{act.act} takes no `{name}`")
        if not value and name in _NEEDED[act.act]:
            raise bad(f"{act.act} needs `{name}`")
    if act.act is ActKind.CANCEL and bool(act.maintenance) == bool(act.notice):
        raise bad(f"{act.act} needs either `maintenance` or `notice`")
    for name in ("node", "maintenance", "notice"):
        value = getattr(act, name)
        if value and (len(value) > _LONGEST_NAME or not _NAME.fullmatch(value)):
            raise bad(f"`{name}` is no name of Kubernetes: {value!r:.80}")
    if act.until is not None and act.until.tzinfo is None:
        raise bad("`until` must say its time zone, as 2026-05-01T10:00:00Z does")
    if len(act.reason) > _LONGEST_REASON or not _is_text(act.reason):
        raise bad(f"`reason` must be text of at most {_LONGEST_REASON} characters")
    return act


def _is_text(text: str) -> bool:
    return all(it.isprintable() or it in "\n\t" for it in text)
