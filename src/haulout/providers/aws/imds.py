"""The instance metadata service of EC2 (IMDSv2), as far as it reports maintenance.

    metadata = Ec2InstanceMetadata(http_fetch("http://169.254.169.254"), clock=clock)
    body = await metadata.get(SPOT)         # None: 404, nothing is announced

Each request needs a token, which is valid for hours; it is renewed before it expires, and after it was rejected.
IMDSv1, which needs none, is never used. The response with the token has a hop limit, by default 1: a pod outside the
host network gets no response at all.
"""

from datetime import timedelta

from haulout.core.clock import Clock
from haulout.errors import CloudError
from haulout.providers.aws.instance_events import parse_instance_id
from haulout.providers.http_fetch import Fetch, FetchedResponse, checked

ADDRESS = "http://169.254.169.254"
TOKEN = "/latest/api/token"  # noqa: S105 - a path
SPOT = "/latest/meta-data/spot/instance-action"
REBALANCE = "/latest/meta-data/events/recommendations/rebalance"
SCHEDULED = "/latest/meta-data/events/maintenance/scheduled"
HISTORY = "/latest/meta-data/events/maintenance/history"
TARGET_STATE = "/latest/meta-data/autoscaling/target-lifecycle-state"
INSTANCE = "/latest/meta-data/instance-id"
TTL_HEADER = "X-aws-ec2-metadata-token-ttl-seconds"
TOKEN_HEADER = "X-aws-ec2-metadata-token"  # noqa: S105 - the name of a header

_TTL = timedelta(hours=6)  # the maximum
_RENEW_BEFORE = timedelta(minutes=1)
_TIMEOUT = timedelta(seconds=2)
_OK, _UNAUTHORIZED, _NOT_FOUND = 200, 401, 404
_MAX_TOKEN = 1024
_NO_ANSWER = "does the agent run with hostNetwork? By default other pods get no answer (hop limit 1)"


class Ec2InstanceMetadata:
    """Calls the service; raises `CloudError`, with status 0 if there is no response."""

    def __init__(self, fetch: Fetch, *, clock: Clock) -> None:
        self._fetch = fetch
        self._clock = clock
        self._token = ""
        self._token_expires = 0.0  # on the monotonic clock

    async def instance(self) -> str:
        body = await self.get(INSTANCE)
        found = parse_instance_id((body or b"").decode("ascii", "replace"))
        if found is None:
            raise CloudError(f"expected an instance ID, found {body!r:.100}", doing=_description(INSTANCE), status=_OK)
        return found

    async def get(self, path: str) -> bytes | None:
        """Return the body at a path; None for 404."""
        answer = await self._request(path)
        if answer.status == _UNAUTHORIZED:
            self._token = ""
            answer = await self._request(path)
        if answer.status == _NOT_FOUND:
            return None
        return checked(answer, doing=_description(path)).body

    async def _request(self, path: str) -> FetchedResponse:
        token = await self._current_token()
        return await self._fetch("GET", path, headers={TOKEN_HEADER: token}, within=_TIMEOUT)

    async def _current_token(self) -> str:
        if self._token and self._clock.monotonic() < self._token_expires:
            return self._token
        requested_at = self._clock.monotonic()
        try:
            answer = await self._fetch(
                "PUT", TOKEN, headers={TTL_HEADER: f"{_TTL.total_seconds():.0f}"}, body=b"", within=_TIMEOUT
            )
        except CloudError as error:
            raise CloudError(f"{error.message} ({_NO_ANSWER})", doing=_description(TOKEN)) from error
        token = checked(answer, doing=_description(TOKEN)).body.decode("ascii", "replace").strip()
        if not token.isprintable() or not 0 < len(token) <= _MAX_TOKEN:
            raise CloudError(f"expected a token, found {token!r:.40}", doing=_description(TOKEN), status=_OK)
        self._token, self._token_expires = token, requested_at + (_TTL - _RENEW_BEFORE).total_seconds()
        return token


def _description(path: str) -> str:
    return f"asking the metadata service of the instance for {path}"
