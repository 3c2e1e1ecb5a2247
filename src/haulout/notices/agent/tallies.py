"""What an agent counts, for `/metrics` on its node."""

from collections.abc import Iterator, Mapping
from datetime import timedelta

from haulout.core.metering import Kind, Metric, Tally
from haulout.errors import CloudError
from haulout.notices.sources import Source
from haulout.notices.sources.fetching import Fetch, Fetched

_CLOUD = ("cloud",)
_NONE = "none"

UP = Metric("haulout_agent_up", "1 if an agent hears what its cloud says.", _CLOUD, kind=Kind.GAUGE)
SILENT = Metric(
    "haulout_agent_silent_seconds",
    "How long ago the metadata service of its machine last answered an agent.",
    _CLOUD,
    kind=Kind.GAUGE,
    unit="seconds",
    more="from its first answer on",
)
ASKED = Metric(
    "haulout_agent_requests_total",
    "How often an agent asked the metadata service of its machine.",
    ("cloud", "code"),
    more="`code` is the status of the answer, and `none` if none came",
    most=50,
)
WRITTEN = Metric("haulout_agent_notices_written_total", "How often an agent wrote a notice.", _CLOUD)
ASIDE = Metric("haulout_agent_quarantined_total", "How many answers made no sense to an agent.", _CLOUD)
METRICS = (UP, SILENT, ASKED, WRITTEN, ASIDE)


class AgentTallies:
    """All that is counted."""

    def __init__(self) -> None:
        self._asked = Tally(ASKED)

    def counting(self, cloud: str, fetch: Fetch) -> Fetch:
        """Return the same way to a metadata service, on which questions are counted."""

        async def counted(
            method: str,
            target: str,
            *,
            headers: Mapping[str, str],
            body: bytes | None = None,
            within: timedelta = timedelta(seconds=10),
        ) -> Fetched:
            try:
                answer = await fetch(method, target, headers=headers, body=body, within=within)
            except CloudError:
                self._asked.add(cloud, _NONE)
                raise
            self._asked.add(cloud, str(answer.status))
            return answer

        return counted

    def all(self, source: Source | None) -> Iterator[Tally]:
        """Yield all of them, as they are now; of a source only once there is one."""
        yield self._asked
        if source is None:
            return
        silence = source.silence()
        numbers: dict[Metric, float] = {UP: source.is_up, WRITTEN: source.taken, ASIDE: source.quarantine.count}
        numbers |= {} if silence is None else {SILENT: silence.total_seconds()}
        for metric, number in numbers.items():
            tally = Tally(metric)
            tally.set(source.name, to=number)
            yield tally
