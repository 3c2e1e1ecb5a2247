"""Which instances are ours, if a tag says so: several clusters may share a queue."""

from collections.abc import Collection
from datetime import timedelta

from haulout.core.clock import Clock
from haulout.errors import CloudError
from haulout.notices.sources.aws.cloud import Ec2, is_wrong_instance
from haulout.notices.sources.calls import Patient

_BELIEVED_FOR = timedelta(minutes=5)
_REMEMBERED = 10_000


class Tags:
    """Asks EC2 for the tags of instances; without a tag to look for, all instances are ours."""

    def __init__(self, ec2: Ec2, *, tag: str, clock: Clock, patient: Patient) -> None:
        self._ec2 = ec2
        self._tag = tag
        self._clock = clock
        self._patient = patient
        self._known: dict[str, tuple[bool, float]] = {}

    async def managed(self, instances: Collection[str]) -> set[str]:
        """Return those that are ours; raises `CloudError` if that is not known."""
        if not self._tag:
            return set(instances)
        return {it for it in instances if await self._is_managed(it)}

    async def _is_managed(self, instance: str) -> bool:
        now = self._clock.monotonic()
        is_managed, until = self._known.get(instance, (False, 0.0))
        if now < until:
            return is_managed
        is_managed = await self._ask(instance)
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[instance] = is_managed, now + _BELIEVED_FOR.total_seconds()
        return is_managed

    async def _ask(self, instance: str) -> bool:
        try:
            found = await self._patient.ask(lambda: self._ec2.instances([instance]), doing="asking EC2 for tags")
        except CloudError as error:
            if is_wrong_instance(error):
                return False
            raise
        tags = [tag.get("Key") for it in found for tag in it.get("Tags") or ()]
        return self._tag in tags
