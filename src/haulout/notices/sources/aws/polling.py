"""Asks EC2 how instances are: a hundred in a call.

All of them are asked about every few minutes, and some at once when a message names them. What cannot be asked now is
asked in the next round, and says nothing: only an answer says that an event is gone, and only a second one a little
later makes it so, because EC2 answers from several places that do not always agree. An instance that EC2 does not know
spoils the whole call, so it is taken out and the others are asked again.
"""

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from haulout.core.clock import Clock
from haulout.errors import CloudError
from haulout.notices.sources.aws.cloud import MOST_INSTANCES, Document, Ec2, explained, is_wrong_instance
from haulout.notices.sources.aws.desk import Desk
from haulout.notices.sources.aws.fleet import Fleet
from haulout.notices.sources.aws.statuses import Status, read_status
from haulout.notices.sources.calls import Patient
from haulout.notices.sources.quarantine import Quarantine

log = logging.getLogger(__name__)

_SECOND_LOOK = timedelta(seconds=10)
_DOING = "asking EC2 how instances are"
_IDS = re.compile(r"i-[0-9a-zA-Z]+")


@dataclass(slots=True)
class Answers:
    """What EC2 said, each with when it was asked; and why it did not say more."""

    statuses: list[tuple[Status, datetime]] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)


class Poll:
    """Looks at instances."""

    def __init__(self, ec2: Ec2, *, clock: Clock, patient: Patient, fleet: Fleet, quarantine: Quarantine) -> None:
        self._ec2 = ec2
        self._clock = clock
        self._patient = patient
        self._fleet = fleet
        self._quarantine = quarantine

    async def hear(self, desk: Desk, instances: Iterable[str]) -> Sequence[str]:
        """Have notices say what EC2 plans for instances; return what went wrong."""
        answers = await self._asked(instances)
        for status, _ in answers.statuses:
            await desk.take(status.readings)
        return answers.troubles

    async def look(self, desk: Desk, instances: Iterable[str]) -> Sequence[str]:
        """Do so, and end what EC2 does not plan any more."""
        answers = await self._asked(instances)
        unsure = []
        for status, at in answers.statuses:
            await desk.take(status.readings)
            if desk.has_leftovers(status, at=at, has_node=self._has_node(status)):
                unsure.append(status.instance)
        if unsure:
            await self._clock.sleep(_SECOND_LOOK)
            again = await self._asked(unsure)
            answers.troubles += again.troubles
            for status, at in again.statuses:
                await desk.settle(status, at=at, has_node=self._has_node(status))
        return answers.troubles

    def _has_node(self, status: Status) -> bool:
        return bool(self._fleet.nodes(status.instance))

    async def _asked(self, instances: Iterable[str]) -> Answers:
        wanted = sorted(set(instances))
        answers = Answers()
        for first in range(0, len(wanted), MOST_INSTANCES):
            await self._ask(wanted[first : first + MOST_INSTANCES], answers)
        return answers

    async def _ask(self, instances: Sequence[str], answers: Answers) -> None:
        """Ask about some, and again without those that EC2 does not know."""
        at = self._clock.now()
        try:
            documents = await self._pages(instances)
        except CloudError as error:
            if not is_wrong_instance(error):
                answers.troubles.append(explained(error))
                return
            unknown, parts = _parts(instances, error.message)
            answers.statuses += [(Status(instance=it), at) for it in unknown]
            for part in parts:
                await self._ask(part, answers)
            return
        for document in documents:
            self._read(document, at, answers)

    async def _pages(self, instances: Sequence[str]) -> list[Document]:
        documents: list[Document] = []
        page = ""
        while True:
            found, page = await self._page(instances, page)
            documents += found
            if not page:
                return documents

    async def _page(self, instances: Sequence[str], page: str) -> tuple[Sequence[Document], str]:
        return await self._patient.ask(lambda: self._ec2.statuses(instances, page=page), doing=_DOING)

    def _read(self, document: Document, at: datetime, answers: Answers) -> None:
        status = read_status(document, at=at)
        if status is None:
            why = "expected an InstanceId"
            self._quarantine.put(where="DescribeInstanceStatus", why=why, what=document)
            return
        for why in status.nonsense:
            self._quarantine.put(where=f"DescribeInstanceStatus of {status.instance}", why=why, what=document)
        answers.statuses.append((status, at))


def _parts(instances: Sequence[str], message: str) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Return the instances that EC2 says it does not know, and the others in parts that are asked about anew."""
    named = set(_IDS.findall(message)) if len(instances) > 1 else set(instances)
    unknown = [it for it in instances if it in named]
    others = [it for it in instances if it not in named]
    if unknown:
        return unknown, [others] if others else []
    middle = len(others) // 2
    return (), [others[:middle], others[middle:]]
