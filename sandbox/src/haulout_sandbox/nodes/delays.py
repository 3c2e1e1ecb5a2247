"""How long things take on the sandbox's nodes: from seeded distributions, or as a pod's annotations say.

    sandbox.haulout.dev/start-seconds   from being seen by its kubelet to running: pulling images, mounting, starting
    sandbox.haulout.dev/ready-seconds   from running to ready
    sandbox.haulout.dev/run-seconds     after which its containers end by themselves
    sandbox.haulout.dev/exit-code       with which they then end; 0 if not given
    sandbox.haulout.dev/stop-seconds    from being asked to stop to having stopped, at most its grace period
    sandbox.haulout.dev/hang            "true": it never stops, not even after its grace period

Containers that end and are to be restarted are, with the kubelet's back-off: `run-seconds` with an `exit-code` in a pod
of a Deployment is a crash loop, in one of a Job a failure. An annotation that is no number counts as not there.

A delay depends on the seed and on the pod's uid alone. So a kubelet that was restarted comes to the same instants as
the one before it, a run repeats itself, and no pod gets another fate because another was looked at first.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from hashlib import blake2b
from statistics import NormalDist

from haulout_sandbox.nodes.view import PodView

_NORMAL = NormalDist()
_TAIL = _NORMAL.inv_cdf(0.99)
_FIRST_BACK_OFF = timedelta(seconds=10)
_LONGEST_BACK_OFF = timedelta(minutes=5)
_REMEMBERED = 65_536  # several of each of the pods that start in a large cluster
_GOOD_RUN = timedelta(minutes=10)  # a container that ran this long starts with a clean record


@dataclass(frozen=True, slots=True)
class Span:
    """A length of time left to chance: half are shorter than the median, one in a hundred is longer than `rare`."""

    median_seconds: float
    rare_seconds: float

    def at(self, chance: float) -> timedelta:
        """Return the length at `chance`, a number between 0 and 1, which the same share of lengths is below."""
        return _length(self.median_seconds, self.rare_seconds, chance)


@lru_cache(maxsize=_REMEMBERED)  # a pod is looked at several times
def _length(median: float, rare: float, chance: float) -> timedelta:
    if not 0 < median < rare:
        return timedelta(seconds=median)
    spread = math.log(rare / median) / _TAIL
    return timedelta(milliseconds=round(1000 * median * math.exp(spread * _NORMAL.inv_cdf(chance))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """How long things take; a `stubborn` share of pods does not stop before it is killed."""

    seed: int = 0
    start: Span = Span(3, 25)
    ready: Span = Span(4, 30)  # only where there is a readiness probe
    stop: Span = Span(1.5, 12)
    job: Span = Span(60, 900)  # how long the pods of Jobs run
    boot: Span = Span(5, 15)  # from a kubelet's start to its node being ready
    stubborn: float = 0.03

    @classmethod
    def none(cls) -> "Delays":
        """Return delays of no time at all, for tests that are about something else."""
        at_once = Span(0, 0)
        return cls(start=at_once, ready=at_once, stop=at_once, job=at_once, boot=at_once, stubborn=0)

    def to_start(self, pod: PodView) -> timedelta:
        """Return how long its containers take to start."""
        return _told(pod, "start-seconds", self.start.at(self._chance(pod.uid, "start")))

    def to_ready(self, pod: PodView) -> timedelta:
        """Return how long they take from there to being ready."""
        probes = [it.readiness_probe for it in pod.containers if it.readiness_probe]
        if not probes:
            return _told(pod, "ready-seconds", timedelta())
        first = timedelta(seconds=max(probe.initial_delay_seconds for probe in probes))
        return _told(pod, "ready-seconds", max(first, self.ready.at(self._chance(pod.uid, "ready"))))

    def to_run(self, pod: PodView, *, restarts: int) -> timedelta | None:
        """Return how long they run before they end by themselves; None if they do not."""
        told = _number(pod.annotations, "run-seconds")
        if told is not None:
            return timedelta(seconds=told)
        return self.job.at(self._chance(pod.uid, f"run {restarts}")) if pod.owner_kind == "Job" else None

    def to_stop(self, pod: PodView, *, grace: timedelta) -> timedelta | None:
        """Return how long they take to stop when they are asked to; None if they never do."""
        if pod.annotations.get("hang") == "true":
            return None
        stubborn = self._chance(pod.uid, "stubborn") < self.stubborn
        usual = grace if stubborn else self.stop.at(self._chance(pod.uid, "stop"))
        return min(_told(pod, "stop-seconds", usual), grace)

    def to_boot(self, node: str, boot: str) -> timedelta:
        """Return how long a kubelet takes from its start to a node that is ready."""
        return self.boot.at(self._chance(f"{node} {boot}", "boot"))

    def exit_code(self, pod: PodView) -> int:
        """Return with what code they end by themselves."""
        return int(_number(pod.annotations, "exit-code") or 0)

    def phase(self, node: str) -> float:
        """Return when within their period a machine's heartbeats fall, as a share of it."""
        return self._chance(node, "phase")

    def _chance(self, who: str, what: str) -> float:
        return _drawn(self.seed, who, what)


@lru_cache(maxsize=_REMEMBERED)  # a pod is looked at several times
def _drawn(seed: int, who: str, what: str) -> float:
    digest = blake2b(f"{seed} {who} {what}".encode(), digest_size=6).digest()
    return (int.from_bytes(digest, "big") + 0.5) / 2**48


def back_off(restarts: int, *, ran: timedelta) -> timedelta:
    """Return how long a kubelet waits before it starts a container again that ended after `ran`."""
    if restarts == 0 or ran >= _GOOD_RUN:
        return timedelta()
    doublings = min(restarts - 1, 10)
    return min(_FIRST_BACK_OFF * (1 << doublings), _LONGEST_BACK_OFF)


def _told(pod: PodView, name: str, usual: timedelta) -> timedelta:
    told = _number(pod.annotations, name)
    return usual if told is None else timedelta(seconds=told)


def _number(annotations: Mapping[str, str], name: str) -> float | None:
    if (text := annotations.get(name)) is None:
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number < math.inf else None
