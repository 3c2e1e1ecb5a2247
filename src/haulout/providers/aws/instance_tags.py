"""Which instances are managed, by a tag: several clusters may share a queue."""

from collections.abc import Collection
from datetime import timedelta

from haulout.core.clock import Clock
from haulout.errors import CloudError
from haulout.providers.aws.api import Ec2, is_unknown_instance
from haulout.providers.retry import Retrier

_CACHE_TTL = timedelta(minutes=5)
_MAX_CACHED = 10_000


class InstanceTags:
    """Reads the tags of instances from EC2; without a tag to check every instance is managed."""

    def __init__(self, ec2: Ec2, *, tag: str, clock: Clock, retrier: Retrier) -> None:
        self._ec2 = ec2
        self._tag = tag
        self._clock = clock
        self._retrier = retrier
        self._cached: dict[str, tuple[bool, float]] = {}

    async def filter_managed(self, instances: Collection[str]) -> set[str]:
        """Return the managed ones of these instances; raise `CloudError` if that is unknown."""
        if not self._tag:
            return set(instances)
        return {instance for instance in instances if await self._is_managed(instance)}

    async def _is_managed(self, instance: str) -> bool:
        now = self._clock.monotonic()
        is_managed, until = self._cached.get(instance, (False, 0.0))
        if now < until:
            return is_managed
        is_managed = await self._has_tag(instance)
        if len(self._cached) >= _MAX_CACHED:
            self._cached.clear()
        self._cached[instance] = is_managed, now + _CACHE_TTL.total_seconds()
        return is_managed

    async def _has_tag(self, instance: str) -> bool:
        try:
            found = await self._retrier.call(lambda: self._ec2.instances([instance]), doing="asking EC2 for tags")
        except CloudError as error:
            if is_unknown_instance(error):
                return False
            raise
        tags = [tag.get("Key") for instance_document in found for tag in instance_document.get("Tags") or ()]
        return self._tag in tags
