"""Writes the reports of event sources as MaintenanceNotice objects.

    await notice_writer.write(report)   # returns when the object is written; only then acknowledge the message
    await write_if_changed(notice_writer, existing, report, quarantine)

A report may be written any number of times, by several processes at once and in any order
(`haulout.api.notice_reports`). Each write uses the resourceVersion that was read; on a conflict the notice is read
again. The result is the same in every order. `write_if_changed` is for polls: one that returns the same events must not
cause a write per event.
"""

from dataclasses import replace
from datetime import timedelta

import msgspec

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceNotice, MaintenanceNoticeSpec
from haulout.api.notice_reports import NoticeReport, merge_report, missing_annotations, plan_of
from haulout.api.objects import RawObject
from haulout.core.backoff import Backoff
from haulout.core.retry import Retry
from haulout.core.walltime import TICK
from haulout.errors import AlreadyExists, BadRequest, Conflict, Invalid, NotFound
from haulout.kube.client import Client
from haulout.kube.patches import difference, merge_patch
from haulout.providers.quarantine import Quarantine

_CONFLICT_BACKOFF = Backoff(first=timedelta(milliseconds=20), limit=timedelta(seconds=5), jitter=0.5)

_UNPLANNED_FIELDS = ("stage", "provider_id", "machine_name", "node_name")


class NoticeWriter:
    """Writes notices. It caches nothing: several processes write notices of the same source."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def write(self, report: NoticeReport) -> MaintenanceNotice:
        """Write a report and return the notice; raise `KubeError` if it cannot be written now."""
        retry = Retry(self._client.clock, self._client.random, _CONFLICT_BACKOFF)
        while True:
            found = await self.find(report.name)
            try:
                if found is None:
                    return await self._create(report)
                return await self._update(found, report)
            except (AlreadyExists, Conflict, NotFound) as error:
                if found is None and isinstance(error, NotFound):
                    raise  # the CRD is not installed
                await retry.wait(error)  # another writer created, changed or deleted the notice

    async def list_by_source(self, source: str, *, node: str = "") -> list[MaintenanceNotice]:
        """Return all notices of a source that still exist, of one node or of all nodes."""
        found = await self._client.list(MAINTENANCE_NOTICES, fields=node_field_selector(node) if node else "")
        return [notice for notice in found.items if notice.spec.source == source]

    async def find(self, name: str) -> MaintenanceNotice | None:
        """Return the notice as it is in the API server; None if there is none."""
        return await self._client.find(MAINTENANCE_NOTICES, name)

    async def _create(self, report: NoticeReport) -> MaintenanceNotice:
        body: RawObject = {
            "apiVersion": MAINTENANCE_NOTICES.api_version,
            "kind": MAINTENANCE_NOTICES.kind,
            "metadata": {"name": report.name, "annotations": dict(report.notes)},
            "spec": _to_builtins(merge_report(MaintenanceNoticeSpec(), report)),
        }
        return await self._client.create(MAINTENANCE_NOTICES, body)

    async def _update(self, found: MaintenanceNotice, report: NoticeReport) -> MaintenanceNotice:
        change = difference(_to_builtins(found.spec), _to_builtins(merge_report(found.spec, report)))
        annotations = missing_annotations(found.metadata.annotations, report)
        if not change and not annotations:
            return found
        # The merge of a report depends on what was read. Without the resourceVersion, of two concurrent writers the
        # later would overwrite a newer stage with an older one.
        metadata: RawObject = {"annotations": annotations} if annotations else {}
        patch = merge_patch({"metadata": found.preconditions | metadata, "spec": change})
        return await self._client.patch(MAINTENANCE_NOTICES, found.name, patch)


def node_field_selector(node: str) -> str:
    return f"spec.nodeName={node}"


def _to_builtins(spec: MaintenanceNoticeSpec) -> RawObject:
    builtins: RawObject = msgspec.to_builtins(spec)
    return builtins


async def write_if_changed(
    notice_writer: NoticeWriter, existing: MaintenanceNotice | None, report: NoticeReport, quarantine: Quarantine
) -> MaintenanceNotice | None:
    """Return the notice as reported; None if the API server rejects the report, which is then quarantined."""
    if existing is not None and not changes_notice(existing, report):
        return existing
    try:
        return await notice_writer.write(outweighing(existing, report))
    # These do not pass with time. A retry would block all other events of the source behind this one.
    except (Invalid, BadRequest) as error:
        quarantine.add(where=report.notice_id, why=f"the API server refuses it: {error}", what=report)
        return None


def outweighing(existing: MaintenanceNotice | None, report: NoticeReport) -> NoticeReport:
    """Return the report with a time after the notice's, so that it applies even if a clock was wrong before."""
    reported_at = None if existing is None else existing.spec.reported_at
    return report if reported_at is None or reported_at < report.at else replace(report, at=reported_at + TICK)


def changes_notice(existing: MaintenanceNotice, report: NoticeReport) -> bool:
    """Return whether a report changes anything except the time of the report."""
    after = merge_report(existing.spec, report)
    is_as_planned = report.plan is None or report.plan == plan_of(existing.spec)
    is_known = is_as_planned and all(
        getattr(after, field) == getattr(existing.spec, field) for field in _UNPLANNED_FIELDS
    )
    return not is_known or bool(missing_annotations(existing.metadata.annotations, report))
