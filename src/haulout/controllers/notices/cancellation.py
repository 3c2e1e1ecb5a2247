"""Cancel an announced maintenance: when that makes sense, and what to write. Pure.

A notice that a cloud wrote belongs to the cloud. Cancelling it here does not stop the cloud; it only stops the drain.
That needs force. Failed maintenance is different: its source waits for a person.
"""

from dataclasses import dataclass

from haulout.api.maintenancenotice import MaintenanceNotice, MaintenanceNoticeSpec, NoticeStage, PhaseStatus
from haulout.kube.patches import Patch, merge_patch
from haulout.providers.aws.instance_events import SOURCE as AWS
from haulout.providers.azure.scheduled_events import SOURCE as AZURE
from haulout.providers.gcp import SOURCE as GCP
from haulout.providers.gke import SOURCE as GKE
from haulout.providers.oci import SOURCE as OCI

CLOUD_SOURCES = (AWS, AZURE, GCP, GKE, OCI)


@dataclass(frozen=True, slots=True)
class Objection:
    """Why a change of a notice's stage is rejected."""

    reason: str
    can_be_forced: bool = False
    forced_effect: str = ""  # what happens if the change is forced


def is_from_event_source(spec: MaintenanceNoticeSpec) -> bool:
    """Return whether an event source keeps reporting this maintenance: a cloud, not a person."""
    return spec.source in CLOUD_SOURCES or spec.reported_at is not None


def cancel_objection(notice: MaintenanceNotice, state: PhaseStatus) -> Objection | None:
    """Return why the notice should not be cancelled; None if it may be."""
    spec = notice.spec
    if state.phase.is_over:
        return Objection(f"is over, so it cannot be cancelled: {state.message}")
    if spec.stage == NoticeStage.FAILED:
        return Objection(
            f"failed; when its node works again, run: haulout notice end {notice.name}", can_be_forced=True
        )
    if is_from_event_source(spec):
        source = spec.source or "another"
        return Objection(
            f"comes from {source}, which carries it out anyway: cancel it there, then this notice is cancelled, too",
            can_be_forced=True,
            forced_effect="to ignore it here, so that the node is not drained for it",
        )
    return None


def stage_patch(notice: MaintenanceNotice, stage: NoticeStage) -> Patch:
    """Return the patch that sets the stage of exactly this notice, guarded by uid and resourceVersion."""
    return merge_patch({"metadata": notice.preconditions, "spec": {"stage": str(stage)}})
