"""An in-memory Kubernetes API server that answers like a real one, without waiting.

`ApiServer` is the entry point. Behind it, `handlers.request_handler` authorizes and routes, `registry` reads and
writes, `storage` keeps every revision and serves watches, and `kinds` has one entry per kind. `transport.in_process` is
a client's connection within the process, and `transport.faults` are the faults that tests can inject into it.
"""

from haulout_sandbox.apiserver.api_server import ApiServer
from haulout_sandbox.apiserver.auth.rbac import User, service_account_user
from haulout_sandbox.apiserver.kinds.kind import JsonObject, Kind
from haulout_sandbox.apiserver.storage.store import Write
from haulout_sandbox.apiserver.transport.faults import FaultRule, Faults
from haulout_sandbox.apiserver.transport.in_process import InProcessTransport, SentRequest

__all__ = [
    "ApiServer",
    "FaultRule",
    "Faults",
    "InProcessTransport",
    "JsonObject",
    "Kind",
    "SentRequest",
    "User",
    "Write",
    "service_account_user",
]
