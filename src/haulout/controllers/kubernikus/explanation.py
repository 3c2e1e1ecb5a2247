"""What the settings in a kubernikus.yaml do, for `haulout check`."""

from collections.abc import Iterator

from haulout.compat.openstack_config import DEFAULT_FILE, SECRET_KEY
from haulout.controllers.kubernikus.labels import DELETE_NODE, NEEDS_UPDATE
from haulout.controllers.kubernikus.settings import KubernikusSettings
from haulout.core import duration


def explanation_lines(settings: KubernikusSettings) -> Iterator[str]:
    """Yield lines for people."""
    every, policy = duration.format(settings.interval), settings.policy
    yield f"Label {NEEDS_UPDATE} says whether the version of a kubelet differs from that of the API server,"
    yield f"whose version is read every {every}."
    yield f"A node with the label {DELETE_NODE}=true is cordoned and drained, and its server deleted."
    if policy.eviction_timeout is None or policy.deletion_timeout is None:
        yield "Its pods are evicted without a time limit: PodDisruptionBudgets are respected."
    else:
        evicts, deletes = duration.format(policy.eviction_timeout), duration.format(policy.deletion_timeout)
        yield f"A pod that could not be evicted for {evicts} is deleted regardless of its PodDisruptionBudget, and one"
        yield f"that takes longer than its grace period and {deletes} to terminate is deleted by force."
    credentials_place = f"{SECRET_KEY} of Secret {settings.secret}" if settings.secret else f"file {DEFAULT_FILE}"
    yield f"The credentials for OpenStack are in {credentials_place}."
