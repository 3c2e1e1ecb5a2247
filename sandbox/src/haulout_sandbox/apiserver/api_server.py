"""A Kubernetes API server in memory.

    cluster = ApiServer(clock)
    transport = cluster.transport()                 # one per process; see faults for what can be injected
    cluster.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    …
    assert cluster.get("nodes", "n1")["spec"]["unschedulable"]

It uses no sockets, no threads and only seeded randomness, so that runs are reproducible. Status codes and reasons are
those of Kubernetes 1.36; some messages are shorter. No controller runs here: pods stay terminating until
`finish_deletion`, finalizers for owners and namespaces stay until a client removes them, and the status of a
PodDisruptionBudget is what a test wrote.
"""

import copy
from collections.abc import Iterable, Mapping
from datetime import timedelta
from random import Random

from haulout.core.clock import Clock
from haulout_sandbox.apiserver.admission.webhook_client import LocalWebhooks, WebhookClient
from haulout_sandbox.apiserver.auth.access_control import admin_user
from haulout_sandbox.apiserver.auth.rbac import User
from haulout_sandbox.apiserver.handlers.request_handler import RequestHandler
from haulout_sandbox.apiserver.kinds.kind import NAMESPACE, POD, JsonObject, Kind
from haulout_sandbox.apiserver.request_targets import Target
from haulout_sandbox.apiserver.selectors import selection
from haulout_sandbox.apiserver.storage.store import Store, Write
from haulout_sandbox.apiserver.transport.in_process import DEFAULT_LATENCY, InProcessTransport

_TEST_USER = "test"
_KEPT_METADATA = ("name", "namespace", "labels", "annotations", "ownerReferences", "finalizers")


class ApiServer:
    """The API server. Its methods bypass transports, validation and faults: tests use them to set up and inspect.

    Watches may start at most `window` writes ago. Without `watch_lists` it behaves as an older server, which refuses
    `sendInitialEvents`. Without `defaulting` it stores objects as they are sent. Admission webhooks are those served by
    `webhooks`, and those reachable through `network`, if given. With `rbac`, roles and bindings limit what users may
    do; without it, everything is allowed. `namespaces` exist from the start, besides those of every cluster. Without
    `keep_history` it keeps only the revisions that clients may still ask for, and no requests, so that it can run for
    days. Kinds are named by their plural, or by `plural.group` where the plural is ambiguous.
    """

    def __init__(  # noqa: PLR0913 - one switch each, and all have their usual place
        self,
        clock: Clock,
        *,
        random: Random | None = None,
        window: int = 10_000,
        watch_lists: bool = True,
        defaulting: bool = True,
        network: WebhookClient | None = None,
        rbac: bool = False,
        namespaces: Iterable[str] = (),
        keep_history: bool = True,
    ) -> None:
        random = Random(0) if random is None else random
        self.webhooks = LocalWebhooks(fallback=network)
        self._clock = clock
        self._backing_store = Store(clock, window=window, keep_history=keep_history)
        self._keep_history = keep_history
        self._server = RequestHandler(
            self._backing_store,
            clock,
            random,
            watch_lists=watch_lists,
            defaulting=defaulting,
            rbac=rbac,
            namespaces=namespaces,
        )
        self._transports: list[InProcessTransport] = []

    @property
    def _store(self) -> Store:
        self._server.ensure_bootstrapped()
        return self._backing_store

    @property
    def revision(self) -> int:
        return self._backing_store.revision

    @property
    def history(self) -> list[Write]:
        """Return all writes, also compacted ones, for invariants that hold at every revision.

        Without `keep_history`, return only the latest.
        """
        return self._backing_store.history

    def transport(
        self,
        name: str = "",
        *,
        user: User | None = None,
        latency: timedelta = DEFAULT_LATENCY,
        request_log_size: int = 10_000,
        is_trusted: bool = False,
    ) -> InProcessTransport:
        """Return a transport for one process.

        `user` is recorded in the history and is authorized where `rbac` is on; `service_account_user` returns that of a
        service account. The default is an administrator called `name`. The transport keeps the latest
        `request_log_size` requests. A transport with `is_trusted` belongs to the cluster itself, and its usual requests
        skip validation that cannot fail.
        """
        name = name or (user.name if user else f"client-{len(self._transports) + 1}")
        user = user or admin_user(name)
        transport = InProcessTransport(
            self._server,
            self._backing_store,
            self._clock,
            name=name,
            user=user,
            latency=latency,
            webhooks=self.webhooks,
            request_log_size=request_log_size if self._keep_history else 0,
        )
        transport.is_trusted = is_trusted
        self._transports.append(transport)
        return transport

    def add_token(self, token: str, user: User) -> None:
        """Accept `token` as a bearer token of `user`."""
        self._server.static_tokens[token] = user

    def revoke_token(self, token: str) -> None:
        self._server.static_tokens.pop(token, None)

    def authenticate(self, authorization: str) -> User:
        """Return the user of an `Authorization` header; raise `StatusError` if it authenticates nobody."""
        return self._server.access_control.authenticate(authorization, now=self._clock.now())

    def add_kind(self, kind: Kind) -> None:
        """Serve another kind; a kind that is already served is not replaced."""
        if kind not in self._server.kinds:
            self._server.kinds.update(add=[kind])

    def put(self, obj: JsonObject) -> JsonObject:
        """Create or replace an object including its status, and its namespace if missing; return the stored object."""
        kind = self._kind_of(obj)
        new = copy.deepcopy(obj)
        if kind is NAMESPACE:
            new.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])
            new.setdefault("status", {}).setdefault("phase", "Active")
        meta = new.setdefault("metadata", {})
        if kind.namespaced and not self.has(NAMESPACE.plural, meta.setdefault("namespace", "default")):
            self.put({"apiVersion": "v1", "kind": NAMESPACE.kind, "metadata": {"name": meta["namespace"]}})
        key = kind.key_of(new)
        current = self._store.get(kind, key)
        previous = current["metadata"] if current else {}
        writer = self._server.writer
        meta.setdefault("uid", previous.get("uid") or writer.new_uid())
        meta.setdefault("creationTimestamp", previous.get("creationTimestamp") or writer.now())
        writer.apply_defaults(kind, new)
        return copy.deepcopy(self._store.write(kind, key, kind.normalize(new), username=_TEST_USER, verb="put"))

    def remove(self, plural: str, name: str, namespace: str = "default") -> None:
        """Delete an object at once, ignoring its finalizers."""
        kind, key = self._kind_and_key(plural, name, namespace)
        self._get_existing(kind, key)
        self._store.write(kind, key, None, username=_TEST_USER, verb="remove")

    def get(self, plural: str, name: str, namespace: str = "default") -> JsonObject:
        """Return an object; raise KeyError if there is none."""
        return copy.deepcopy(self._get_existing(*self._kind_and_key(plural, name, namespace)))

    def has(self, plural: str, name: str, namespace: str = "default") -> bool:
        return self._store.get(*self._kind_and_key(plural, name, namespace)) is not None

    def objects(
        self, plural: str, *, namespace: str = "", labels: str = "", revision: int | None = None
    ) -> list[JsonObject]:
        """Return the objects of a kind, now or at the given revision."""
        kind = self._kind(plural)
        selected = selection(kind, namespace, labels=labels)
        found = self._store.objects_at(kind, self.revision if revision is None else revision)
        return [copy.deepcopy(obj) for obj in found.values() if selected.matches(obj)]

    def objects_by_key(self, plural: str) -> Mapping[str, JsonObject]:
        """Return the stored objects of a kind by key. Do not change them."""
        return self._store.objects_at(self._kind(plural), self.revision)

    def compact(self) -> None:
        """Compact: a watch or a list page at any revision so far gets 410 Gone. Open watches continue."""
        self._store.compact()

    async def restart(self, *, downtime: timedelta = timedelta(seconds=3)) -> None:
        """Stop, which breaks all connections, and start again.

        Objects are kept; watches from older revisions get 410 Gone.
        """
        self._server.is_down = True
        for transport in self._transports:
            transport.disconnect()
        await self._clock.sleep(downtime)
        self._store.restart()
        self._server.is_down = False

    def recreate(self, plural: str, name: str, namespace: str = "default") -> JsonObject:
        """Delete an object and create it again with the same name and content, but another uid."""
        old = self.get(plural, name, namespace)
        self.remove(plural, name, namespace)
        old["metadata"] = {field: old["metadata"][field] for field in _KEPT_METADATA if field in old["metadata"]}
        return self.put(old)

    def finish_deletion(self, name: str = "", namespace: str = "default") -> None:
        """Delete a terminating pod as the kubelet does after its containers have stopped; without a name, all."""
        for pod in self.objects(POD.plural):
            meta = pod["metadata"]
            is_selected = not name or (meta["namespace"], meta["name"]) == (namespace, name)
            if is_selected and "deletionTimestamp" in meta:
                target = Target(
                    kind=POD, namespace=meta["namespace"], name=meta["name"], username="kubelet", verb="delete"
                )
                self._server.writer.delete(target, {"gracePeriodSeconds": 0})

    def _kind(self, plural: str) -> Kind:
        self._server.ensure_bootstrapped()
        if kind := self._server.kinds.kind_for_name(plural):
            return kind
        raise KeyError(f"no kind {plural}; tell the cluster with know(Kind(…))")

    def _kind_of(self, obj: JsonObject) -> Kind:
        self._server.ensure_bootstrapped()
        if kind := self._server.kinds.kind_for_type(obj["apiVersion"], obj["kind"]):
            return kind
        raise KeyError(f"no kind {obj['apiVersion']} {obj['kind']}; tell the cluster with know(Kind(…))")

    def _kind_and_key(self, plural: str, name: str, namespace: str) -> tuple[Kind, str]:
        kind = self._kind(plural)
        return kind, kind.key(namespace, name)

    def _get_existing(self, kind: Kind, key: str) -> JsonObject:
        obj = self._store.get(kind, key)
        if obj is None:
            raise KeyError(f"no {kind.resource} {key} in the cluster")
        return obj
