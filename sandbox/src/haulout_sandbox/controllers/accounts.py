"""Service accounts: every namespace has one called `default`, which its pods run as unless they name another.

Follows `pkg/controller/serviceaccount` of Kubernetes 1.36: one that is deleted comes back, a namespace that is being
deleted gets none.
"""

from datetime import datetime
from random import Random

from haulout.errors import AlreadyExists
from haulout.kube.objects import object_key
from haulout_sandbox.controllers.base import OwningController
from haulout_sandbox.controllers.caches import Caches
from haulout_sandbox.controllers.edge import Writes, create
from haulout_sandbox.controllers.objects import SERVICE_ACCOUNTS, Owned

DEFAULT = "default"


class ServiceAccounts(OwningController):
    """Gives each namespace its account; a key is the name of a namespace."""

    name = "service accounts"

    def __init__(self, caches: Caches, random: Random) -> None:
        super().__init__(caches, random)
        self._namespaces, self._accounts = caches.namespaces, caches.of(SERVICE_ACCOUNTS)
        self.follow(self._namespaces)
        self._accounts.subscribe(self._note_account)

    def _note_account(self, old: Owned | None, new: Owned | None) -> None:
        if old is not None and new is None and old.name == DEFAULT:
            self.queue.add(old.namespace)

    async def sync(self, key: str) -> datetime | None:
        """Create the account if there is none."""
        namespace = self._namespaces.get(key)
        known = self._accounts.get(object_key(DEFAULT, key))
        if namespace is None or namespace.deleting or known is not None:
            return None
        body = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": DEFAULT, "namespace": namespace.name},
        }
        try:
            async with Writes(self._accounts) as writes:
                writes.made(await create(self.client, SERVICE_ACCOUNTS, body))
        except AlreadyExists:
            return None
        return None
