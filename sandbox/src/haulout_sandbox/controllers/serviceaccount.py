"""ServiceAccount controller: creates the account `default` in each namespace, for pods that name no other.

Follows `pkg/controller/serviceaccount` of Kubernetes 1.36: a deleted account is created again, and a terminating
namespace gets none.
"""

from datetime import datetime
from random import Random

from haulout.api.objects import object_key
from haulout.errors import AlreadyExists
from haulout_sandbox.controllers.base import OwningController
from haulout_sandbox.controllers.informers import InformerFactory
from haulout_sandbox.controllers.object_control import WriteBarrier, create
from haulout_sandbox.controllers.objects import NAMESPACES, SERVICE_ACCOUNTS, OwnedObject

DEFAULT_SERVICE_ACCOUNT = "default"


class ServiceAccountController(OwningController):
    """Creates the default account of each namespace; its keys are names of namespaces."""

    name = "service accounts"

    def __init__(self, informers: InformerFactory, random: Random) -> None:
        super().__init__(informers, random)
        self._namespaces = informers.informer_for(NAMESPACES)
        self._service_accounts = informers.informer_for(SERVICE_ACCOUNTS)
        self.watch(self._namespaces)
        self._service_accounts.subscribe(self._on_service_account_change)

    def _on_service_account_change(self, old: OwnedObject | None, new: OwnedObject | None) -> None:
        if old is not None and new is None and old.name == DEFAULT_SERVICE_ACCOUNT:
            self.queue.add(old.namespace)

    async def sync(self, key: str) -> datetime | None:
        namespace = self._namespaces.get(key)
        existing = self._service_accounts.get(object_key(DEFAULT_SERVICE_ACCOUNT, key))
        if namespace is None or namespace.is_being_deleted or existing is not None:
            return None
        body = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": DEFAULT_SERVICE_ACCOUNT, "namespace": namespace.name},
        }
        try:
            async with WriteBarrier(self._service_accounts) as writes:
                writes.record(await create(self.client, SERVICE_ACCOUNTS, body))
        except AlreadyExists:
            return None
        return None
