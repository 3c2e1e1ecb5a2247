"""How long pods and nodes take to start, run and stop: from seeded distributions, or from a pod's annotations.

    sandbox.haulout.dev/start-seconds   from being seen by its kubelet to running: pulling images, mounting, starting
    sandbox.haulout.dev/ready-seconds   from running to ready
    sandbox.haulout.dev/run-seconds     after which its containers end by themselves
    sandbox.haulout.dev/exit-code       with which they then end; default 0
    sandbox.haulout.dev/stop-seconds    from SIGTERM to having stopped, at most the grace period
    sandbox.haulout.dev/hang            "true": the pod never stops, not even after its grace period

Containers that end are restarted according to the restartPolicy, with the kubelet's backoff: `run-seconds` with an
`exit-code` is a crash loop in a pod of a Deployment, and a failure in one of a Job. An annotation that is not a number
is ignored.

A delay depends only on the seed and the pod's uid. So a restarted kubelet computes the same instants as before, runs
are reproducible, and the order in which pods are handled has no effect.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from hashlib import blake2b
from statistics import NormalDist

from haulout_sandbox.nodes.informers import PodView

_NORMAL = NormalDist()
_P99 = _NORMAL.inv_cdf(0.99)
_INITIAL_BACKOFF = timedelta(seconds=10)
_MAX_BACKOFF = timedelta(minutes=5)
_MAX_CACHED = 65_536  # several per pod that starts in a large cluster
_BACKOFF_RESET_AFTER = timedelta(minutes=10)  # a container that ran this long restarts without backoff


@dataclass(frozen=True, slots=True)
class DelayDistribution:
    """A random duration: half are shorter than the median, one in a hundred is longer than `p99`."""

    median_seconds: float
    p99_seconds: float

    def quantile(self, probability: float) -> timedelta:
        """Return the duration at this quantile, a number between 0 and 1."""
        return _log_normal_quantile(self.median_seconds, self.p99_seconds, probability)


@lru_cache(maxsize=_MAX_CACHED)  # each pod is looked up several times
def _log_normal_quantile(median: float, p99: float, probability: float) -> timedelta:
    if not 0 < median < p99:
        return timedelta(seconds=median)
    spread = math.log(p99 / median) / _P99
    return timedelta(milliseconds=round(1000 * median * math.exp(spread * _NORMAL.inv_cdf(probability))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """Delays of pods and nodes. The share `ignores_sigterm` of pods stops only when killed."""

    seed: int = 0
    start: DelayDistribution = DelayDistribution(3, 25)
    ready: DelayDistribution = DelayDistribution(4, 30)  # only with a readiness probe
    stop: DelayDistribution = DelayDistribution(1.5, 12)
    job: DelayDistribution = DelayDistribution(60, 900)  # how long pods of Jobs run
    boot: DelayDistribution = DelayDistribution(5, 15)  # from the start of a kubelet to its node being ready
    ignores_sigterm: float = 0.03

    @classmethod
    def zero(cls) -> "Delays":
        """Return delays of zero, for tests about something else."""
        no_delay = DelayDistribution(0, 0)
        return cls(start=no_delay, ready=no_delay, stop=no_delay, job=no_delay, boot=no_delay, ignores_sigterm=0)

    def start_delay(self, pod: PodView) -> timedelta:
        """Return how long its containers take to start."""
        return _annotated_delay(pod, "start-seconds", self.start.quantile(self._probability(pod.uid, "start")))

    def ready_delay(self, pod: PodView) -> timedelta:
        """Return how long the containers take from running to ready."""
        probes = [container.readiness_probe for container in pod.containers if container.readiness_probe]
        if not probes:
            return _annotated_delay(pod, "ready-seconds", timedelta())
        initial_delay = timedelta(seconds=max(probe.initial_delay_seconds for probe in probes))
        return _annotated_delay(
            pod, "ready-seconds", max(initial_delay, self.ready.quantile(self._probability(pod.uid, "ready")))
        )

    def run_duration(self, pod: PodView, *, restarts: int) -> timedelta | None:
        """Return how long the containers run before they end by themselves; None if they do not."""
        seconds = _annotation_number(pod.annotations, "run-seconds")
        if seconds is not None:
            return timedelta(seconds=seconds)
        return self.job.quantile(self._probability(pod.uid, f"run {restarts}")) if pod.owner_kind == "Job" else None

    def stop_delay(self, pod: PodView, *, grace: timedelta) -> timedelta | None:
        """Return how long the containers take to stop after SIGTERM; None if they never do."""
        if pod.annotations.get("hang") == "true":
            return None
        ignores_sigterm = self._probability(pod.uid, "stubborn") < self.ignores_sigterm
        default = grace if ignores_sigterm else self.stop.quantile(self._probability(pod.uid, "stop"))
        return min(_annotated_delay(pod, "stop-seconds", default), grace)

    def boot_delay(self, node: str, boot: str) -> timedelta:
        """Return how long a kubelet takes from its start to its node being ready."""
        return self.boot.quantile(self._probability(f"{node} {boot}", "boot"))

    def exit_code(self, pod: PodView) -> int:
        """Return the exit code of containers that end by themselves."""
        return int(_annotation_number(pod.annotations, "exit-code") or 0)

    def heartbeat_phase(self, node: str) -> float:
        """Return the phase of a machine's heartbeats, as a share of their period."""
        return self._probability(node, "phase")

    def _probability(self, subject: str, purpose: str) -> float:
        return _random_fraction(self.seed, subject, purpose)


@lru_cache(maxsize=_MAX_CACHED)  # each pod is looked up several times
def _random_fraction(seed: int, subject: str, purpose: str) -> float:
    digest = blake2b(f"{seed} {subject} {purpose}".encode(), digest_size=6).digest()
    return (int.from_bytes(digest, "big") + 0.5) / 2**48


def crash_loop_backoff(restarts: int, *, ran: timedelta) -> timedelta:
    """Return how long a kubelet waits before it restarts a container that ended after `ran`."""
    if restarts == 0 or ran >= _BACKOFF_RESET_AFTER:
        return timedelta()
    doublings = min(restarts - 1, 10)
    return min(_INITIAL_BACKOFF * (1 << doublings), _MAX_BACKOFF)


def _annotated_delay(pod: PodView, name: str, default: timedelta) -> timedelta:
    seconds = _annotation_number(pod.annotations, name)
    return default if seconds is None else timedelta(seconds=seconds)


def _annotation_number(annotations: Mapping[str, str], name: str) -> float | None:
    if (text := annotations.get(name)) is None:
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number < math.inf else None
