"""Validate actions strictly: no superfluous fields, and only valid names. Pure."""

import re
from collections.abc import Mapping

from haulout.dashboard.api.query import bad_request
from haulout.dashboard.api.types import Action, ActionType

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_MAX_NAME_LENGTH = 253
_MAX_REASON_LENGTH = 1000
_ALLOWED_FIELDS: Mapping[ActionType, tuple[str, ...]] = {
    ActionType.APPROVE: ("node", "profile", "check", "reason"),
    ActionType.HOLD: ("node", "reason", "until"),
    ActionType.RELEASE: ("node", "reason"),
    ActionType.START: ("node", "reason"),
    ActionType.CANCEL: ("node", "maintenance", "notice", "reason"),
}
_REQUIRED_FIELDS: Mapping[ActionType, tuple[str, ...]] = {
    ActionType.APPROVE: ("node", "profile", "check"),
    ActionType.HOLD: ("node",),
    ActionType.RELEASE: ("node",),
    ActionType.START: ("node",),
    ActionType.CANCEL: (),
}


def validate(action: Action) -> Action:
    """Return a valid action; raise `HttpError`."""
    allowed = _ALLOWED_FIELDS[action.action]
    for name in ("node", "profile", "check", "maintenance", "notice", "reason", "until"):
        value = getattr(action, name)
        if value and name not in allowed:
            raise bad_request(f"{action.action} takes no `{name}`")
        if not value and name in _REQUIRED_FIELDS[action.action]:
            raise bad_request(f"{action.action} needs `{name}`")
    if action.action is ActionType.CANCEL and bool(action.maintenance) == bool(action.notice):
        raise bad_request(f"{action.action} needs either `maintenance` or `notice`")
    for name in ("node", "maintenance", "notice"):
        value = getattr(action, name)
        if value and (len(value) > _MAX_NAME_LENGTH or not _NAME.fullmatch(value)):
            raise bad_request(f"`{name}` is not a valid name of a Kubernetes object: {value!r:.80}")
    if action.until is not None and action.until.tzinfo is None:
        raise bad_request("`until` needs a time zone, as in 2026-05-01T10:00:00Z")
    if len(action.reason) > _MAX_REASON_LENGTH or not _is_text(action.reason):
        raise bad_request(f"`reason` must be text of at most {_MAX_REASON_LENGTH} characters")
    return action


def _is_text(text: str) -> bool:
    return all(character.isprintable() or character in "\n\t" for character in text)
