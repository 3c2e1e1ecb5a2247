"""Calling an announced maintenance off: when that makes sense, and what is written. Pure.

A notice that a cloud wrote is the cloud's. Calling it off here does not keep the cloud from doing its work: it only
keeps us from getting out of its way. So that needs force. One that failed is different: its source waits for a person.
"""

from dataclasses import dataclass

from haulout.api.maintenancenotice import MaintenanceNotice, MaintenanceNoticeSpec, NoticeStage
from haulout.api.notice_phase import PhaseStatus
from haulout.kube.patches import Patch, merge_patch
from haulout.providers.aws.instance_events import SOURCE as AWS
from haulout.providers.azure.scheduled_events import SOURCE as AZURE
from haulout.providers.gcp import SOURCE as GCP
from haulout.providers.gke import SOURCE as GKE
from haulout.providers.oci import SOURCE as OCI

CLOUD_SOURCES = (AWS, AZURE, GCP, GKE, OCI)


@dataclass(frozen=True, slots=True)
class Objection:
    """Why something is better not said of a notice."""

    reason: str
    can_be_forced: bool = False
    forced_effect: str = ""  # what comes of it then


def is_from_event_source(spec: MaintenanceNoticeSpec) -> bool:
    """Tell whether somebody wrote a notice who goes on telling how it is: a cloud, not a person."""
    return spec.source in CLOUD_SOURCES or spec.reported_at is not None


def cancel_objection(notice: MaintenanceNotice, state: PhaseStatus) -> Objection | None:
    """Return why calling it off makes no sense; None if it does."""
    spec = notice.spec
    if state.phase.is_over:
        return Objection(f"is over, there is nothing to call off: {state.message}")
    if spec.stage == NoticeStage.FAILED:
        return Objection(f"failed; once its node is fit again: haulout notice end {notice.name}", can_be_forced=True)
    if is_from_event_source(spec):
        source = spec.source or "another"
        return Objection(
            f"is of {source}, which will do it nevertheless: call it off there, and it is called off here",
            can_be_forced=True,
            forced_effect="to have it ignored here, so that the node is not drained for it",
        )
    return None


def stage_patch(notice: MaintenanceNotice, stage: NoticeStage) -> Patch:
    """Return what says of a notice, and of no other of its name, that it is cancelled or has ended."""
    metadata = {"uid": notice.uid, "resourceVersion": notice.resource_version}
    return merge_patch({"metadata": metadata, "spec": {"stage": str(stage)}})
