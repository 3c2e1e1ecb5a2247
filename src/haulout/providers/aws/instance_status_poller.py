"""Poll EC2 for the statuses of instances, a hundred per call.

All instances are polled every few minutes, and some at once when a message names them. A failed request changes
nothing and is repeated in the next round. A missing event ends its notice only if a second response some seconds later
confirms it, since EC2 is eventually consistent. An unknown instance fails the whole call, so it is removed and the
others are requested again.
"""

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from haulout.core.clock import Clock
from haulout.errors import CloudError
from haulout.providers.aws.api import MAX_INSTANCES, Document, Ec2, explain_error, is_unknown_instance
from haulout.providers.aws.instance_status import InstanceStatus, parse_status
from haulout.providers.aws.node_index import NodeIndex
from haulout.providers.aws.notice_writer import AwsNoticeWriter
from haulout.providers.cloud_calls import CloudCaller
from haulout.providers.quarantine import Quarantine

log = logging.getLogger(__name__)

_CONFIRM_AFTER = timedelta(seconds=10)
_DOING = "asking EC2 for the status of instances"
_INSTANCE_IDS = re.compile(r"i-[0-9a-zA-Z]+")


@dataclass(slots=True)
class PollResult:
    """The statuses, each with the time of its request, and the problems."""

    statuses: list[tuple[InstanceStatus, datetime]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class InstanceStatusPoller:
    """Polls EC2. It never ends a notice by one response alone."""

    def __init__(
        self, ec2: Ec2, *, clock: Clock, caller: CloudCaller, node_index: NodeIndex, quarantine: Quarantine
    ) -> None:
        self._ec2 = ec2
        self._clock = clock
        self._caller = caller
        self._node_index = node_index
        self._quarantine = quarantine

    async def write_events(self, writer: AwsNoticeWriter, instances: Iterable[str]) -> Sequence[str]:
        """Write the scheduled events of these instances; return the problems."""
        result = await self._query(instances)
        for status, _ in result.statuses:
            await writer.write(status.events)
        return result.problems

    async def reconcile(self, writer: AwsNoticeWriter, instances: Iterable[str]) -> Sequence[str]:
        """Write the scheduled events of these instances, and end those that EC2 no longer lists.

        Return the problems.
        """
        result = await self._query(instances)
        unsure = []
        for status, at in result.statuses:
            await writer.write(status.events)
            if writer.has_stale_notices(status, at=at, has_node=self._has_node(status)):
                unsure.append(status.instance)
        if unsure:
            await self._clock.sleep(_CONFIRM_AFTER)
            again = await self._query(unsure)
            result.problems += again.problems
            for status, at in again.statuses:
                await writer.write_status(status, at=at, has_node=self._has_node(status))
        return result.problems

    def _has_node(self, status: InstanceStatus) -> bool:
        return bool(self._node_index.nodes(status.instance))

    async def _query(self, instances: Iterable[str]) -> PollResult:
        ids = sorted(set(instances))
        result = PollResult()
        for first in range(0, len(ids), MAX_INSTANCES):
            await self._query_batch(ids[first : first + MAX_INSTANCES], result)
        return result

    async def _query_batch(self, instances: Sequence[str], result: PollResult) -> None:
        """Request the statuses of one batch; repeat it without instances that EC2 does not know."""
        at = self._clock.now()
        try:
            documents = await self._pages(instances)
        except CloudError as error:
            if not is_unknown_instance(error):
                result.problems.append(explain_error(error))
                return
            unknown, batches = _without_unknown(instances, error.message)
            result.statuses += [(InstanceStatus(instance=instance), at) for instance in unknown]
            for batch in batches:
                await self._query_batch(batch, result)
            return
        for document in documents:
            self._add_status(document, at, result)

    async def _pages(self, instances: Sequence[str]) -> list[Document]:
        documents: list[Document] = []
        page = ""
        while True:
            found, page = await self._page(instances, page)
            documents += found
            if not page:
                return documents

    async def _page(self, instances: Sequence[str], page: str) -> tuple[Sequence[Document], str]:
        return await self._caller.call(lambda: self._ec2.statuses(instances, page=page), doing=_DOING)

    def _add_status(self, document: Document, at: datetime, result: PollResult) -> None:
        status = parse_status(document, at=at)
        if status is None:
            reason = "expected an InstanceId"
            self._quarantine.add(where="DescribeInstanceStatus", why=reason, what=document)
            return
        for reason in status.unreadable:
            self._quarantine.add(where=f"DescribeInstanceStatus of {status.instance}", why=reason, what=document)
        result.statuses.append((status, at))


def _without_unknown(instances: Sequence[str], message: str) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Return the instances that EC2 does not know, and batches of the others to request again."""
    # The error names the unknown instances. If its text changes one day, halving the batch finds them, too.
    named_ids = set(_INSTANCE_IDS.findall(message)) if len(instances) > 1 else set(instances)
    unknown = [instance for instance in instances if instance in named_ids]
    others = [instance for instance in instances if instance not in named_ids]
    if unknown:
        return unknown, [others] if others else []
    middle = len(others) // 2
    return (), [others[:middle], others[middle:]]
