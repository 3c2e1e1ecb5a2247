"""The sandbox's API server: answers as a real one does, from memory, at once.

`ApiServer` is the way in. Behind it, `server` routes and reads, `writes` changes, `store` remembers every revision,
`watch` tells of it; `kinds` has a row for each kind there is. `transport` is how a client reaches it in-process, and
`faults` what can happen on that way.
"""

from haulout.sandbox.apiserver.api import ApiServer
from haulout.sandbox.apiserver.faults import Faults, Rule
from haulout.sandbox.apiserver.kinds import JsonObject, Kind
from haulout.sandbox.apiserver.rbac import User, account_user
from haulout.sandbox.apiserver.store import Write
from haulout.sandbox.apiserver.transport import Asked, InProcessTransport

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
