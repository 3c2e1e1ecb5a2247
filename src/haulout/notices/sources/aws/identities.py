"""What EC2 calls instances in their network: for nodes that do not say on which instance they run.

EC2 is asked only about instances that no node names as its own, and only while there are nodes without a providerID.
"""

from datetime import datetime

from haulout.errors import CloudError
from haulout.kinds.notice import MaintenanceNotice
from haulout.kinds.reports import Report
from haulout.notices.finding import MACHINE_ADDRESS
from haulout.notices.sources.aws.cloud import Document, Ec2, is_wrong_instance
from haulout.notices.sources.aws.fleet import Fleet, Identity
from haulout.notices.sources.aws.readings import SOURCE
from haulout.notices.sources.calls import Patient

_LONGEST_NAME = 255


class Identities:
    """Asks EC2, and tells the fleet."""

    def __init__(self, ec2: Ec2, *, fleet: Fleet, patient: Patient) -> None:
        self._ec2 = ec2
        self._fleet = fleet
        self._patient = patient

    async def of(self, instance: str, notice: MaintenanceNotice | None = None) -> Identity:
        """Return what an instance is called, if that matters; raises `CloudError` if EC2 does not say.

        A notice that has it already spares the call.
        """
        if not self._fleet.is_doubtful(instance):
            return Identity()
        identity = (None if notice is None else _known(notice)) or await self._ask(instance)
        self._fleet.identify(instance, identity)
        return identity

    async def _ask(self, instance: str) -> Identity:
        doing = f"asking EC2 what {instance} is called"
        try:
            found = await self._patient.ask(lambda: self._ec2.instances([instance]), doing=doing)
        except CloudError as error:
            if is_wrong_instance(error):
                return Identity()
            raise
        return next((_identity(it) for it in found), Identity())


def identified(notice: MaintenanceNotice, identity: Identity, *, at: datetime) -> Report:
    """Return what the instance of a notice is called."""
    return Report(
        source=SOURCE,
        notice_id=notice.spec.notice_id,
        at=at,
        machine_name=identity.name,
        notes={MACHINE_ADDRESS: identity.address} if identity.address else {},
    )


def _known(notice: MaintenanceNotice) -> Identity | None:
    name, address = notice.spec.machine_name, notice.metadata.annotations.get(MACHINE_ADDRESS, "")
    return Identity(name, address) if name or address else None


def _identity(found: Document) -> Identity:
    name, address = (str(found.get(it) or "") for it in ("PrivateDnsName", "PrivateIpAddress"))
    return Identity(name if len(name) <= _LONGEST_NAME else "", address)
