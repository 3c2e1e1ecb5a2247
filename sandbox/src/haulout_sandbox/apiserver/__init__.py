"""The sandbox's API server: answers as a real one does, from memory, at once.

`ApiServer` is the way in. Behind it, `request_handler` routes and reads, `writer` changes, `store` remembers every
revision, `watch` tells of it; `kind` has a row for each kind there is. `in_process` is how a client reaches it
in-process, and `faults` what can happen on that way.
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
