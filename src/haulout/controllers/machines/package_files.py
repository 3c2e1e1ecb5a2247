"""Machines in the alerts."""

from haulout.runtime.package_files import Alert, Packaging

_ALERTS = (
    Alert(
        name="HauloutMachinesNotReplaced",
        expr='max(haulout_machine_maintenances{phase="Refused"}) > 0 or max(haulout_machine_maintenances_late) > 0',
        for_="15m",
        summary="{{ $value }} Machines are not replaced, or not in time",
        description="`kubectl get machinemaintenances -A` shows the reason.",
    ),
)

PACKAGING = Packaging(alerts=_ALERTS)
