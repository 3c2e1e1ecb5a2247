"""Actions of the Compute API, and their operations."""

import itertools
from collections.abc import Mapping

from haulout.core.clock import Clock
from haulout_sandbox.clouds.gcp.instances import Document, Instance, api_error, format_time

PERFORM_MAINTENANCE, SIMULATE_MAINTENANCE_EVENT = "performMaintenance", "simulateMaintenanceEvent"


class Operations:
    """Starts maintenance on request. An operation is RUNNING until it is read."""

    def __init__(self, clock: Clock) -> None:
        self.performed: list[str] = []  # instances whose maintenance was started by request
        self.failure_message = ""  # if set, new operations fail with this message
        self._clock = clock
        self._operations: dict[str, Document] = {}
        self._operations_by_request: dict[str, Document] = {}  # by requestId
        self._numbers = itertools.count(1)

    def start_operation(self, instance: Instance, operation_type: str, query: Mapping[str, str]) -> Document:
        """Start an action on an instance; a repeated request has no further effect."""
        request_id = query.get("requestId", "")
        if request_id in self._operations_by_request:
            return self._operations_by_request[request_id]
        if operation_type == SIMULATE_MAINTENANCE_EVENT:
            instance.set_maintenance_event(instance.maintenance_event_value)
        else:
            self._perform_maintenance(instance)
        name = f"operation-{next(self._numbers)}"
        operation = {"kind": "compute#operation", "name": name, "operationType": operation_type, "status": "RUNNING"}
        self._operations[name] = operation
        if request_id:
            self._operations_by_request[request_id] = operation
        return operation

    def get(self, name: str) -> Document:
        """Return an operation, which is done by then."""
        if name not in self._operations:
            raise api_error(f"The resource 'operations/{name}' was not found", status=404, code="notFound")
        error_fields = (
            {"error": {"errors": [{"code": "FAILED", "message": self.failure_message}]}} if self.failure_message else {}
        )
        self._operations[name] = self._operations[name] | {"status": "DONE", "progress": 100} | error_fields
        return self._operations[name]

    def _perform_maintenance(self, instance: Instance) -> None:
        if instance.upcoming_maintenance is None or not instance.upcoming_maintenance["canReschedule"]:
            message = f"Instance '{instance.name}' has no maintenance that can be performed now."
            raise api_error(message, status=400, code="badRequest")
        self.performed.append(instance.name)
        if not self.failure_message:
            now = format_time(self._clock.now())
            instance.update_upcoming(maintenanceStatus="ONGOING", canReschedule=False, windowStartTime=now)
