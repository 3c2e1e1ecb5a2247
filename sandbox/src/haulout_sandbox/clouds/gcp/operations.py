"""What the Compute API does when it is asked to, and tells of by operations."""

import itertools
from collections.abc import Mapping

from haulout.core.clock import Clock
from haulout_sandbox.clouds.gcp.instances import Document, Instance, refused, written

PERFORM, SIMULATE = "performMaintenance", "simulateMaintenanceEvent"


class Operations:
    """Begins maintenance. An operation runs until it is asked for."""

    def __init__(self, clock: Clock) -> None:
        self.begun: list[str] = []  # instances whose maintenance somebody asked for
        self.problem = ""  # with which those end that begin from now on
        self._clock = clock
        self._all: dict[str, Document] = {}
        self._requests: dict[str, Document] = {}  # by requestId
        self._numbers = itertools.count(1)

    def operate(self, instance: Instance, what: str, query: Mapping[str, str]) -> Document:
        """Do something with an instance; the same request again is not done again."""
        request = query.get("requestId", "")
        if request in self._requests:
            return self._requests[request]
        if what == SIMULATE:
            instance.happen(instance.word)
        else:
            self._perform(instance)
        name = f"operation-{next(self._numbers)}"
        operation = {"kind": "compute#operation", "name": name, "operationType": what, "status": "RUNNING"}
        self._all[name] = operation
        if request:
            self._requests[request] = operation
        return operation

    def get(self, name: str) -> Document:
        """Return an operation, which is done by then."""
        if name not in self._all:
            raise refused(f"The resource 'operations/{name}' was not found", status=404, code="notFound")
        failed = {"error": {"errors": [{"code": "FAILED", "message": self.problem}]}} if self.problem else {}
        self._all[name] = self._all[name] | {"status": "DONE", "progress": 100} | failed
        return self._all[name]

    def _perform(self, instance: Instance) -> None:
        if instance.upcoming is None or not instance.upcoming["canReschedule"]:
            message = f"Instance '{instance.name}' has no maintenance that can be performed now."
            raise refused(message, status=400, code="badRequest")
        self.begun.append(instance.name)
        if not self.problem:
            now = written(self._clock.now())
            instance.plan_else(maintenanceStatus="ONGOING", canReschedule=False, windowStartTime=now)
