"""The sandbox's API server: answers as a real one does, from memory, at once.

`ApiServer` is the way in. Behind it, `server` routes and reads, `writes` changes, `store` remembers every revision,
`watch` tells of it; `kinds` has a row for each kind there is. `transport` is how a client reaches it in-process, and
`faults` what can happen on that way.
"""

from haulout_sandbox.apiserver.api import ApiServer
from haulout_sandbox.apiserver.faults import Faults, Rule
from haulout_sandbox.apiserver.kinds import JsonObject, Kind
from haulout_sandbox.apiserver.rbac import User, account_user
from haulout_sandbox.apiserver.store import Write
from haulout_sandbox.apiserver.transport import Asked, InProcessTransport

__all__ = [
    "ApiServer",
    "Asked",
    "Faults",
    "InProcessTransport",
    "JsonObject",
    "Kind",
    "Rule",
    "User",
    "Write",
    "account_user",
]
