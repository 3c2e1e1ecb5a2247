"""One round: a control plane, two replicas, users at work, one fault, and the result.

    result = await run_round("kill-leader", seed=7, folder=Path("out"))

The folder keeps the audit log, the watches and the logs of the replicas, for the analysis of violations.
"""

import asyncio
import random
import ssl
from datetime import datetime, timedelta
from pathlib import Path

import aiohttp
import yaml

from chaos import faults
from chaos.api_client import ApiClient
from chaos.invariants import (
    Rules,
    Violation,
    find_violations,
    leftovers,
    missing_history,
    missing_profile_history,
    recovery,
)
from chaos.observer import Observer
from chaos.recording import AUDIT, WATCHED, Recording, WatchEvent, load, save_watched
from chaos.replicas import GROUP, NAMESPACE, USERS, Replica, two_replicas
from chaos.report import Round
from chaos.workload import BUDGET, PROBE_NOTICE_NODE, Workload
from chaos.world import RoundCluster
from controlplane import ControlPlane
from haulout.api.leases import LEADER_LEASE, PROFILES_LEASE
from haulout.budget.slots import LEDGER
from haulout.core.clock import RealClock
from haulout.kube.slot_ledger import ledger_name

RULES = Rules(
    replicas=frozenset(USERS),
    namespace=NAMESPACE,
    budget=BUDGET,
    leader_leases=frozenset({LEADER_LEASE, PROFILES_LEASE}),
    ledger=ledger_name(LEDGER),
)
PROBE = "probe"
_PEOPLE = "people"
_MASTERS = ("system:masters",)
_LEADER_TIMEOUT = timedelta(seconds=90)
_CONVERGENCE_TIMEOUT = timedelta(seconds=120)
_SETTLE_TIME = timedelta(seconds=2)
_RECORDED_WITHIN_SECONDS = 60  # a record is written in the background, and again later if the server refuses it
_AUDITED = [
    {"group": "", "resources": ["nodes", "nodes/status", "pods", "pods/eviction", "configmaps"]},
    {"group": "coordination.k8s.io", "resources": ["leases"]},
    {"group": "nodemaintenance.medik8s.io"},
    {"group": "haulout.dev"},
]
_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "omitManagedFields": True,
    "rules": [
        {"level": "None", "verbs": ["get", "list", "watch"]},
        {"level": "RequestResponse", "resources": _AUDITED},
        {"level": "Metadata"},
    ],
}


async def run_round(fault: str, *, seed: int, folder: Path, sabotage: str = "") -> Round:
    """Run a round and check its invariants; `sabotage` breaks the operator on purpose."""
    policy, audit_log = folder / "policy.yaml", folder / AUDIT
    await asyncio.to_thread(_write_policy, policy)
    flags = [f"--audit-policy-file={policy}", f"--audit-log-path={audit_log}"]
    users = dict.fromkeys(USERS, (GROUP,)) | {_PEOPLE: _MASTERS}
    control_plane = ControlPlane(users=users, apiserver_flags=flags)
    await asyncio.to_thread(control_plane.start)
    try:
        outcome = await _run(control_plane, fault, seed=seed, folder=folder, audit_log=audit_log, sabotage=sabotage)
    finally:
        await asyncio.to_thread(control_plane.stop)
    recording, since, tracebacks = outcome
    found = [*find_violations(recording, RULES), *tracebacks]
    recovery_time = recovery(recording, RULES, since, maintenance=PROBE, node=PROBE_NOTICE_NODE)
    if recovery_time is None:
        found.append(Violation(invariant="convergence", what="no operator acts on what was ordered after the fault"))
    seconds = None if recovery_time is None else recovery_time.total_seconds()
    return Round(fault=fault, seed=seed, violations=[str(violation) for violation in found], recovery_seconds=seconds)


async def _run(
    control_plane: ControlPlane, fault: str, *, seed: int, folder: Path, audit_log: Path, sabotage: str
) -> tuple[Recording, datetime, list[Violation]]:
    """Return the recording of a round, when the fault was over, and the tracebacks in the logs of the replicas."""
    rng = random.Random(f"{fault}/{seed}")
    tls = ssl.create_default_context(cadata=control_plane.ca.decode())
    clock = RealClock()
    connector = aiohttp.TCPConnector(limit=0)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        two_replicas(control_plane, tls, folder=folder, rng=rng, sabotage=sabotage) as replicas,
        asyncio.TaskGroup() as group,
    ):
        api = ApiClient(session, control_plane.server, control_plane.token(_PEOPLE), tls)
        observer = Observer(api, group)
        workload = Workload(api, observer, random.Random(rng.random()), group)
        world = RoundCluster(
            control_plane=control_plane,
            api=api,
            replicas=replicas,
            observer=observer,
            workload=workload,
            rng=rng,
            audit_log=audit_log,
            group=group,
            clock=clock,
        )
        await workload.install()
        observer.start()
        await workload.populate()
        for candidate in replicas:
            candidate.start()
        if not await observer.wait_until(lambda: _has_leader(observer), within=_LEADER_TIMEOUT):
            raise RuntimeError(f"no replica leads after {_LEADER_TIMEOUT}; their logs are in {folder}")
        workload.start()
        await world.pause(4, 10)
        await faults.CLASSES[fault](world)
        since = clock.now()
        await workload.probe(PROBE)
        await world.pause(3, 6)
        workload.stop_creating()
        await observer.wait_until(lambda: _has_converged(world), within=_CONVERGENCE_TIMEOUT)
        await clock.sleep(_SETTLE_TIME)
        await _wait_until_recorded(world)
        await workload.stop()
        await observer.stop()
        await asyncio.to_thread(save_watched, folder / WATCHED, observer.events, observer.restore_times)
        tracebacks = [candidate for replica in replicas for candidate in await asyncio.to_thread(_tracebacks, replica)]
        return await asyncio.to_thread(load, folder), since, tracebacks


def _tracebacks(replica: Replica) -> list[Violation]:
    """Return a violation for each traceback in the log: no fault of a network or a server is a defect of ours."""
    return [
        Violation(invariant="log", what=f"{replica.user} logs a traceback: {traceback}")
        for traceback in replica.tracebacks()
    ]


async def _wait_until_recorded(world: RoundCluster) -> None:
    """Return when the records are complete, or will not be."""
    for _ in range(_RECORDED_WITHIN_SECONDS):
        recording = Recording((), tuple(world.observer.events))
        if not any([*missing_history(recording, RULES), *missing_profile_history(recording, RULES)]):
            return
        await world.clock.sleep(timedelta(seconds=1))


def _write_policy(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(_POLICY))


def _has_leader(observer: Observer) -> bool:
    lease = observer.objects["leases"].get(f"{NAMESPACE}/{LEADER_LEASE}") or {}
    return bool((lease.get("spec") or {}).get("holderIdentity"))


def _has_converged(world: RoundCluster) -> bool:
    """Tell whether people have finished, and nothing is left of what they ordered."""
    observer = world.observer
    if not world.workload.is_finished or observer.objects["nodemaintenances"]:
        return False
    now = world.clock.now()
    current = tuple(
        WatchEvent(resource=resource, type="LISTED", object=obj, at=now)
        for resource in ("nodes", "configmaps", "leases")
        for obj in observer.objects[resource].values()
    )
    return not any(leftover.invariant == "residue" for leftover in leftovers(Recording((), current), RULES))
