"""Taking reports, if they say anything new.

    await take(inbox, known, report, quarantine)

A list that says the same again is no news: to write down that nothing has changed would be a write every time.
"""

from dataclasses import replace

from haulout.core.walltime import TICK
from haulout.errors import BadRequest, Invalid
from haulout.kinds.notice import MaintenanceNotice
from haulout.kinds.reports import Report, merged, noted, planned
from haulout.notices.inbox import Inbox
from haulout.notices.sources.quarantine import Quarantine

_UNPLANNED = ("stage", "provider_id", "machine_name", "node_name")


async def take(
    inbox: Inbox, known: MaintenanceNotice | None, report: Report, quarantine: Quarantine
) -> MaintenanceNotice | None:
    """Return the notice, once it says what is reported; None if the API server refuses it, which is put aside."""
    if known is not None and not says_more(known, report):
        return known
    try:
        return await inbox.take(later_than(known, report))
    except (Invalid, BadRequest) as error:
        quarantine.put(where=report.notice_id, why=f"the API server refuses it: {error}", what=report)
        return None


def later_than(known: MaintenanceNotice | None, report: Report) -> Report:
    """Return a report that outdoes what is known: how things are now counts, also if a clock was wrong before."""
    told = None if known is None else known.spec.reported_at
    return report if told is None or told < report.at else replace(report, at=told + TICK)


def says_more(known: MaintenanceNotice, report: Report) -> bool:
    """Tell whether a report changes more than when it was said."""
    after = merged(known.spec, report)
    is_as_planned = report.plan is None or report.plan == planned(known.spec)
    is_known = is_as_planned and all(getattr(after, it) == getattr(known.spec, it) for it in _UNPLANNED)
    return not is_known or bool(noted(known.metadata.annotations, report))
