"""Whether a host is to be on or off: by what it is told, and by annotations of whoever wants it off. Pure.

A plain `reboot.metal3.io` is one reboot, and is taken away when the host is off. With a suffix it keeps the host off
until all such annotations are gone, each by whoever set it. Both count only for a host that is provisioned, unless they
`force` it.
"""

from dataclasses import dataclass

import msgspec

from haulout.kinds.metal3 import REBOOT, REBOOTS
from haulout_sandbox.metal3.objects import EXTERNAL, PROVISIONED, Host

_HARD = "hard"


class _Value(msgspec.Struct, frozen=True):
    mode: str = "soft"
    force: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is wanted of a host's power."""

    is_on: bool
    is_hard: bool = False  # it is switched off, and not asked to shut down
    ends_reboot: bool = False  # the plain annotation has had its effect
    invalid: tuple[str, ...] = ()  # annotations whose value makes no sense: these count as soft


def wish(host: Host) -> Wish:
    """Return what is wanted now."""
    values: dict[str, _Value] = {}
    invalid: list[str] = []
    for name, text in sorted(host.metadata.annotations.items()):
        if name == REBOOT or name.startswith(REBOOTS):
            read = _read(text)
            values[name] = read or _Value()
            invalid += [] if read else [name]
    is_provisioned = host.state in (PROVISIONED, EXTERNAL)
    counting = {name: value for name, value in values.items() if is_provisioned or value.force}
    is_hard = any(value.mode == _HARD for value in counting.values())
    kept_off = any(name != REBOOT for name in counting)
    reboots = REBOOT in counting
    if host.spec.disable_power_off:
        # It can only be made to boot again, and is, for as long as somebody wants it off.
        is_on = not (counting and host.is_powered)
        return Wish(is_on=is_on, is_hard=is_hard, ends_reboot=reboots and not host.is_powered, invalid=tuple(invalid))
    if not host.spec.online or kept_off:
        return Wish(is_on=False, is_hard=is_hard, invalid=tuple(invalid))
    is_on = not (reboots and host.is_powered)
    return Wish(is_on=is_on, is_hard=is_hard, ends_reboot=reboots and not host.is_powered, invalid=tuple(invalid))


def _read(text: str) -> _Value | None:
    if not text:
        return _Value()
    try:
        return msgspec.json.decode(text, type=_Value)
    except msgspec.DecodeError:
        return None
