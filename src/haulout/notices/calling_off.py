"""Calling an announced maintenance off: when that makes sense, and what is written. Pure.

A notice that a cloud wrote is the cloud's. Calling it off here does not keep the cloud from doing its work: it only
keeps us from getting out of its way. So that needs force. One that failed is different: its source waits for a person.
"""

from dataclasses import dataclass

from haulout.kinds.notice import MaintenanceNotice, Spec, Stage
from haulout.kinds.standing import Standing
from haulout.kube.patches import Patch, merge_patch
from haulout.notices.sources.aws.readings import SOURCE as AWS
from haulout.notices.sources.azure.reading import SOURCE as AZURE
from haulout.notices.sources.gcp import SOURCE as GCP
from haulout.notices.sources.gke import SOURCE as GKE
from haulout.notices.sources.oci import SOURCE as OCI

CLOUDS = (AWS, AZURE, GCP, GKE, OCI)


@dataclass(frozen=True, slots=True)
class Objection:
    """Why something is better not said of a notice."""

    why: str
    yields_to_force: bool = False
    by_force: str = ""  # what comes of it then


def is_by_a_source(spec: Spec) -> bool:
    """Tell whether somebody wrote a notice who goes on telling how it is: a cloud, not a person."""
    return spec.source in CLOUDS or spec.reported_at is not None


def against_cancelling(notice: MaintenanceNotice, stands: Standing) -> Objection | None:
    """Return why calling it off makes no sense; None if it does."""
    spec = notice.spec
    if stands.phase.is_over:
        return Objection(f"is over, there is nothing to call off: {stands.why}")
    if spec.stage == Stage.FAILED:
        return Objection(f"failed; once its node is fit again: haulout notice end {notice.name}", yields_to_force=True)
    if is_by_a_source(spec):
        who = spec.source or "another"
        return Objection(
            f"is of {who}, which will do it nevertheless: call it off there, and it is called off here",
            yields_to_force=True,
            by_force="to have it ignored here, so that the node is not drained for it",
        )
    return None


def said(notice: MaintenanceNotice, stage: Stage) -> Patch:
    """Return what says of a notice, and of no other of its name, that it is cancelled or has ended."""
    basis = {"uid": notice.uid, "resourceVersion": notice.resource_version}
    return merge_patch({"metadata": basis, "spec": {"stage": str(stage)}})
