"""Desired power state of a host, from its spec and its reboot annotations. Pure.

A plain `reboot.metal3.io` means one reboot, and is removed once the host is off. With a suffix, it keeps the host off
until all such annotations are removed by their owners. Both count only for a provisioned host, unless they have
`force`.
"""

from dataclasses import dataclass

import msgspec

from haulout.api.clusterapi import REBOOT_ANNOTATION, REBOOT_ANNOTATION_PREFIX
from haulout_sandbox.metal3.objects import EXTERNALLY_PROVISIONED, PROVISIONED, BareMetalHost

_HARD_MODE = "hard"


class _RebootAnnotationValue(msgspec.Struct, frozen=True):
    mode: str = "soft"
    force: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerDecision:
    is_on: bool
    is_hard: bool = False  # power off without a shutdown of the operating system
    removes_reboot_annotation: bool = False  # the plain annotation has had its effect
    invalid_annotations: tuple[str, ...] = ()  # annotations with an invalid value; these count as soft


def decide_power(host: BareMetalHost) -> PowerDecision:
    values: dict[str, _RebootAnnotationValue] = {}
    invalid: list[str] = []
    for name, text in sorted(host.metadata.annotations.items()):
        if name == REBOOT_ANNOTATION or name.startswith(REBOOT_ANNOTATION_PREFIX):
            value = _parse_value(text)
            values[name] = value or _RebootAnnotationValue()
            invalid += [] if value else [name]
    is_provisioned = host.provisioning_state in (PROVISIONED, EXTERNALLY_PROVISIONED)
    effective = {name: value for name, value in values.items() if is_provisioned or value.force}
    is_hard = any(value.mode == _HARD_MODE for value in effective.values())
    is_kept_off = any(name != REBOOT_ANNOTATION for name in effective)
    has_reboot = REBOOT_ANNOTATION in effective
    if host.spec.disable_power_off:
        # With disablePowerOff the host can only be rebooted, again and again while an annotation wants it off.
        is_on = not (effective and host.is_powered)
        return PowerDecision(
            is_on=is_on,
            is_hard=is_hard,
            removes_reboot_annotation=has_reboot and not host.is_powered,
            invalid_annotations=tuple(invalid),
        )
    if not host.spec.online or is_kept_off:
        return PowerDecision(is_on=False, is_hard=is_hard, invalid_annotations=tuple(invalid))
    is_on = not (has_reboot and host.is_powered)
    return PowerDecision(
        is_on=is_on,
        is_hard=is_hard,
        removes_reboot_annotation=has_reboot and not host.is_powered,
        invalid_annotations=tuple(invalid),
    )


def _parse_value(text: str) -> _RebootAnnotationValue | None:
    if not text:
        return _RebootAnnotationValue()
    try:
        return msgspec.json.decode(text, type=_RebootAnnotationValue)
    except msgspec.DecodeError:
        return None
