"""Private DNS names and addresses of instances, for nodes without a provider ID.

EC2 is asked only about instances that are no node's provider ID, and only while there are nodes without one.
"""

from datetime import datetime

from haulout.api.maintenancenotice import MaintenanceNotice
from haulout.api.notice_reports import NoticeReport
from haulout.controllers.notices.node_lookup import MACHINE_ADDRESS
from haulout.errors import CloudError
from haulout.providers.aws.api import Document, Ec2, is_unknown_instance
from haulout.providers.aws.instance_events import SOURCE
from haulout.providers.aws.node_index import NetworkIdentity, NodeIndex
from haulout.providers.retry import Retrier

_MAX_NAME = 255


class NetworkIdentities:
    """Reads identities from EC2, and adds them to the node index."""

    def __init__(self, ec2: Ec2, *, node_index: NodeIndex, retrier: Retrier) -> None:
        self._ec2 = ec2
        self._node_index = node_index
        self._retrier = retrier

    async def resolve(self, instance: str, notice: MaintenanceNotice | None = None) -> NetworkIdentity:
        """Return the identity of an instance, if it matters; raise `CloudError` if EC2 does not answer.

        If the notice has the identity already, EC2 is not asked.
        """
        if not self._node_index.may_have_unidentified_node(instance):
            return NetworkIdentity()
        identity = (None if notice is None else _known_identity(notice)) or await self._describe_instance(instance)
        self._node_index.set_identity(instance, identity)
        return identity

    async def _describe_instance(self, instance: str) -> NetworkIdentity:
        doing = f"asking EC2 for the DNS name of {instance}"
        try:
            found = await self._retrier.call(lambda: self._ec2.instances([instance]), doing=doing)
        except CloudError as error:
            if is_unknown_instance(error):
                return NetworkIdentity()
            raise
        return next((_identity(document) for document in found), NetworkIdentity())


def identity_report(notice: MaintenanceNotice, identity: NetworkIdentity, *, at: datetime) -> NoticeReport:
    """Return the report that adds the identity to a notice."""
    return NoticeReport(
        source=SOURCE,
        notice_id=notice.spec.notice_id,
        at=at,
        machine_name=identity.name,
        notes={MACHINE_ADDRESS: identity.address} if identity.address else {},
    )


def _known_identity(notice: MaintenanceNotice) -> NetworkIdentity | None:
    name, address = notice.spec.machine_name, notice.metadata.annotations.get(MACHINE_ADDRESS, "")
    return NetworkIdentity(name, address) if name or address else None


def _identity(found: Document) -> NetworkIdentity:
    name, address = (str(found.get(field) or "") for field in ("PrivateDnsName", "PrivateIpAddress"))
    return NetworkIdentity(name if len(name) <= _MAX_NAME else "", address)
