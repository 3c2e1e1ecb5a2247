"""Metrics of an agent, for `/metrics` on its node."""

from collections.abc import Iterator, Mapping
from datetime import timedelta

from haulout.core.metrics import Metric, MetricVec, counter, gauge
from haulout.errors import CloudError
from haulout.providers.event_source import EventSource
from haulout.providers.http_fetch import Fetch, FetchedResponse

_NONE = "none"

UP = gauge("haulout_agent_up", "1 if an agent receives the events of its cloud.", "cloud")
SILENT_SECONDS = gauge(
    "haulout_agent_silent_seconds",
    "How long ago the metadata service of its machine last answered an agent.",
    "cloud",
    details="absent until the first answer",
)
REQUESTS = counter(
    "haulout_agent_requests_total",
    "How many requests an agent sent to the metadata service of its machine.",
    "cloud",
    "code",
    details="`code` is the HTTP status of the answer, `none` if there was no answer",
    max_series=50,
)
NOTICES_WRITTEN = counter(
    "haulout_agent_notices_written_total", "How many times an agent wrote a MaintenanceNotice.", "cloud"
)
QUARANTINED = counter("haulout_agent_quarantined_total", "How many answers an agent could not read.", "cloud")
METRICS = (UP, SILENT_SECONDS, REQUESTS, NOTICES_WRITTEN, QUARANTINED)


class AgentMetrics:
    """The metrics of an agent. Only requests are counted here; the event source knows the rest."""

    def __init__(self) -> None:
        self._requests = MetricVec(REQUESTS)

    def count_requests(self, cloud: str, fetch: Fetch) -> Fetch:
        """Return a `Fetch` that counts the requests it forwards."""

        async def counting_fetch(
            method: str,
            target: str,
            *,
            headers: Mapping[str, str],
            body: bytes | None = None,
            within: timedelta = timedelta(seconds=10),
        ) -> FetchedResponse:
            try:
                answer = await fetch(method, target, headers=headers, body=body, within=within)
            except CloudError:
                self._requests.add(cloud, _NONE)
                raise
            self._requests.add(cloud, str(answer.status))
            return answer

        return counting_fetch

    def collect(self, source: EventSource | None) -> Iterator[MetricVec]:
        """Yield all metrics; those of the event source only once it exists."""
        yield self._requests
        if source is None:
            return
        since_last_answer = source.time_since_last_answer()
        numbers: dict[Metric, float] = {
            UP: source.is_up,
            NOTICES_WRITTEN: source.messages_processed,
            QUARANTINED: source.quarantine.count,
        }
        numbers |= {} if since_last_answer is None else {SILENT_SECONDS: since_last_answer.total_seconds()}
        for metric, number in numbers.items():
            metric_vec = MetricVec(metric)
            metric_vec.set(source.name, to=number)
            yield metric_vec
