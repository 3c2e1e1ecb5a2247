"""The sandbox's API server: a request and the store in, an answer out, at once.

It never waits and knows no faults; transports do. Where the real server would wait and look again it raises `NotYet`.
It finds out what a request is about and who may answer: `reads` and `writes`, or one of the modules about subresources.
"""

import copy
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random

from haulout.core.clock import Clock
from haulout.kube.transport import Request, Response
from haulout_sandbox.apiserver import (
    bodies,
    lifecycle_kinds,
    options,
    reviews,
    status,
)
from haulout_sandbox.apiserver.apply import APPLY_PATCH, apply
from haulout_sandbox.apiserver.binding import bind
from haulout_sandbox.apiserver.builtin_kinds import ALL, SERVICE_ACCOUNT
from haulout_sandbox.apiserver.calls import Call
from haulout_sandbox.apiserver.catalogue import Catalogue
from haulout_sandbox.apiserver.containers import about_containers, is_of_containers
from haulout_sandbox.apiserver.custom_versions import shape_for
from haulout_sandbox.apiserver.decoding import as_it_is
from haulout_sandbox.apiserver.definitions import Definitions
from haulout_sandbox.apiserver.deletion import is_dry
from haulout_sandbox.apiserver.discovery import AGGREGATED, VERSION, discovery
from haulout_sandbox.apiserver.eviction import evict
from haulout_sandbox.apiserver.gate import Gate
from haulout_sandbox.apiserver.kinds import KINDS, NAMESPACE, POD, JsonObject, Kind
from haulout_sandbox.apiserver.lane import Lane
from haulout_sandbox.apiserver.lease_renewals import LeaseRenewals
from haulout_sandbox.apiserver.lifecycle_kinds import EVICTION_REQUEST_API
from haulout_sandbox.apiserver.namespaces import FINALIZE, FIRST_NAMESPACES
from haulout_sandbox.apiserver.openapi import OPENAPI_V2, openapi, openapi_v2
from haulout_sandbox.apiserver.patches import MERGE_PATCH
from haulout_sandbox.apiserver.paths import (
    check_name,
    is_resource,
    is_true,
    parameters,
    path_parts,
)
from haulout_sandbox.apiserver.rbac import User
from haulout_sandbox.apiserver.rbac_defaults import bootstrap_objects
from haulout_sandbox.apiserver.reads import Reader
from haulout_sandbox.apiserver.scale import SCALE, SCALE_SUBRESOURCE, scale_of, scaled
from haulout_sandbox.apiserver.sent import (
    applied_by,
    body_of,
    check_patch,
    content_type_of,
    object_of,
    patched_by,
    unsupported,
)
from haulout_sandbox.apiserver.shapes import DEDUCED
from haulout_sandbox.apiserver.status import NotYet, Refused, answer, bad_request, warned
from haulout_sandbox.apiserver.store import Store
from haulout_sandbox.apiserver.tables import shown, shown_list
from haulout_sandbox.apiserver.targets import Asks, Case, Target
from haulout_sandbox.apiserver.tokens import Tokens, issue
from haulout_sandbox.apiserver.watch import Watch
from haulout_sandbox.apiserver.webhooks import NeedsAdmission
from haulout_sandbox.apiserver.writes import Change, Writer

log = logging.getLogger(__name__)


class Server:
    """Answers requests from a store."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        random: Random,
        *,
        watch_lists: bool,
        defaulting: bool,
        rbac: bool,
        namespaces: Iterable[str] = (),
        features: Iterable[str] = (),
    ) -> None:
        self.kinds = Catalogue([*KINDS, *ALL])
        self.writer = Writer(store, clock, random, defaulting=defaulting)
        self._reader = Reader(store, clock, random, watch_lists=watch_lists)
        self.is_down = False  # it answers nobody then: transports see to that
        self._namespaces = tuple(namespaces)
        self._has_begun = False
        self._store = store
        self._clock = clock
        self._definitions = Definitions(self.writer, self.kinds)
        self._gate = lifecycle_kinds.gated if EVICTION_REQUEST_API in features else as_it_is
        for crd in lifecycle_kinds.definitions() if EVICTION_REQUEST_API in features else ():
            self._definitions.build_in(crd)
        self._lane = Lane(store, self.writer, self.kinds, gate=self._gate) if defaulting else None
        self._renewals = LeaseRenewals(store, self.writer)
        self.given_tokens: dict[str, User] = {}
        tokens = Tokens(secret=random.randbytes(32), find_account=self._find_account, given=self.given_tokens)
        self.gate = Gate(store, tokens, enforces=rbac)
        self._has_begun = False

    def begin(self) -> None:
        """Have what every cluster has from its first moment: the one in which somebody first looks."""
        if self._has_begun:
            return
        self._has_begun = True
        for kind, obj in bootstrap_objects(self._clock.now()):
            self._store.seed(kind, obj)
        for name in dict.fromkeys((*FIRST_NAMESPACES, *self._namespaces)):
            made = self.writer.create(_making(NAMESPACE, name), {"metadata": {"name": name}})
            self._store.seed(NAMESPACE, made)

    def answer(
        self,
        request: Request,
        *,
        user: User,
        attempt: int = 0,
        as_of: int | None = None,
        case: Case | None = None,
        trusted: bool = False,
    ) -> Response | Watch:
        """Return the answer; raises only `NotYet`, and `NeedsAdmission` with the `case` to come back with.

        Who is `trusted` sends nothing that must be looked at from all sides (`lane`).
        """
        self.begin()
        self._store.expire()
        try:
            if trusted and self._lane is not None and (given := self._lane.answered(request, who=user.name)):
                return given
            user = self.gate.admitted(user, request)
            renewed = self._renewals.answer(request, who=user.name)
            case = Case() if case is None else case
            return renewed or self._answered(request, user=user, attempt=attempt, as_of=as_of, case=case)
        except Refused as refused:
            return answer(refused.status["code"], refused.status)
        except _NoSuchPath:
            return Response(404, {"content-type": _TEXT}, b"404 page not found\n")
        except (NotYet, NeedsAdmission):
            raise
        except Exception:  # the real server survives its bugs, too, and says as much
            log.exception("%s %s", request.method, request.path)
            return answer(500, status.generic(500))

    def _answered(
        self, request: Request, *, user: User, attempt: int, as_of: int | None, case: Case
    ) -> Response | Watch:
        parts = path_parts(request.path)
        if not is_resource(parts) and (found := self._about_itself(request)):
            return found
        if review := self._review(request, parts, user):
            return review
        target, collection = self._routed(request, parts, user, case)
        call = Call(
            request=request,
            target=target,
            user=user,
            query=parameters(request),
            attempt=attempt,
            as_of=as_of,
            gate=self._gate,
        )
        return self._answer(call, collection=collection)

    def _answer(self, call: Call, *, collection: bool) -> Response | Watch:
        """Answer, or refuse, with what there is to warn of."""
        try:
            given = self._collection(call) if collection else self._object(call)
        except Refused as refused:
            given = answer(refused.status["code"], refused.status)
        except RecursionError:  # deeper than we can follow; the real server gives up at ten thousand levels
            given = answer(400, bad_request("exceeded max depth").status)
        return warned(given, call.target.warnings) if isinstance(given, Response) else given

    def _about_itself(self, request: Request) -> Response | None:
        path = request.path.removesuffix("/")
        if path in ("/livez", "/readyz", "/healthz", "/livez/ping", "/readyz/ping", "/healthz/ping"):
            return Response(200, {"content-type": _TEXT}, b"ok")
        if path == OPENAPI_V2 and request.method == "GET":
            return openapi_v2(VERSION["gitVersion"], accept=request.accept)
        kinds = list(self.kinds)
        aggregated = "as=APIGroupDiscoveryList" in request.accept and path in ("/api", "/apis")
        found: JsonObject | None = VERSION if path == "/version" else None
        if path.startswith("/openapi/"):
            found = openapi(kinds, path, custom=self._definitions.documents)
        found = found or discovery([*kinds, *reviews.KINDS], path, aggregated=aggregated)
        if found and request.method != "GET":
            raise Refused(status.generic(405))
        return answer(200, found, content_type=AGGREGATED if aggregated else status.JSON) if found else None

    def _review(self, request: Request, parts: list[str], user: User) -> Response | None:
        """Answer what is asked rather than stored: may I, who am I, whose is this token."""
        match parts:
            case ["apis", group, "v1", plural] if (group, plural) in _REVIEWS:
                kind = _REVIEWS[group, plural]
            case _:
                return None
        if request.method != "POST":
            raise Refused(status.generic(405))
        sent = bodies.from_request(
            request.body or b"", request.content_type, api_version=kind.api_version, kind=kind.kind
        )
        body = reviews.answer(
            plural,
            sent,
            caller=user,
            authorizer=self.gate.authorizer,
            tokens=self.gate.tokens,
            now=self._clock.now(),
        )
        return None if body is None else answer(201, body)

    def _find_account(self, namespace: str, name: str) -> JsonObject | None:
        kind = self.kinds.named("serviceaccounts")
        return self._store.get(kind, kind.key(namespace, name)) if kind else None

    def _routed(self, request: Request, parts: list[str], user: User, case: Case) -> tuple[Target, bool]:
        """Return what the path names, and whether that is a collection."""
        match parts:
            case ["api", version, *rest]:
                group = ""
            case ["apis", group, version, *rest]:
                pass
            case _:
                raise _NoSuchPath
        if not (self.kinds.has_group(group) or group in _REVIEW_GROUPS):
            raise _NoSuchPath
        namespace = ""
        match rest:
            case ["namespaces", name, inside, *deeper] if inside not in _OF_NAMESPACES:
                namespace, rest = name, [inside, *deeper]
        plural, name, subresource = (*rest, "", "", "")[:3]
        kind = self.kinds.find(group, version, plural)
        misplaced = kind is None or (bool(namespace) != kind.namespaced and (bool(name) or bool(namespace)))
        if kind is None or misplaced or rest[3:] or "" in parts:
            own = self.kinds.is_own(group) or group in _REVIEW_GROUPS
            raise Refused(status.generic(404)) if own else _NoSuchPath
        target = Target(
            kind=kind,
            namespace=namespace,
            name=name,
            subresource=subresource,
            who=user.name,
            verb=_VERBS.get(request.method, ""),
            dry_run=("dryRun", "All") in request.query,
            asks=None if request.method == "GET" else _asks(request, user, case),
        )
        return target, not name

    def _collection(self, call: Call) -> Response | Watch:
        kind, everywhere = call.target.kind, call.target.kind.namespaced and not call.target.namespace
        _check_place(call)
        match call.request.method:
            case "GET" if is_true(call.query, "watch"):
                return self._reader.watch(call)
            case "GET":
                return answer(200, shown_list(call, self._reader.list(call), now=self._clock.now()))
            case "POST" if not everywhere:
                return answer(201, self.writer.create(call.target, object_of(call)))
            case "DELETE" if not everywhere and kind is not NAMESPACE:
                return self._delete_collection(call)
            case _:
                raise Refused(status.generic(405))

    def _object(self, call: Call) -> Response:
        target = call.target
        _check_place(call)
        if found := self._apart(target):
            return found(call)
        if target.subresource == FINALIZE and target.kind is NAMESPACE and call.request.method != "PUT":
            raise Refused(status.generic(405))
        known = (target.kind.has_status and "status", target.kind is NAMESPACE and FINALIZE)
        if target.subresource and target.subresource not in known:
            raise status.not_found(target.kind, target.name) if target.kind.rules else Refused(status.generic(404))
        match call.request.method:
            case "GET":
                return answer(200, shown(call, self._reader.get(call), now=self._clock.now()))
            case "PUT":
                self._check_may_create(call)
                result, created = self.writer.put(target, object_of(call))
                return answer(201 if created else 200, result)
            case "PATCH":
                return self._patch(call)
            case "DELETE" if not target.subresource:
                return self._delete(call)
            case _:
                raise Refused(status.generic(405))

    def _apart(self, target: Target) -> Callable[[Call], Response] | None:
        """Return who answers for a subresource that is no part of its object."""
        kind, subresource = target.kind, target.subresource
        if (kind, subresource) == (SERVICE_ACCOUNT, "token"):
            return self._issue_token
        if kind is POD and (subresource in _POD_ACTIONS or is_of_containers(subresource)):
            return self._act_on_pod
        return self._scale if subresource == SCALE_SUBRESOURCE and kind.scale else None

    def _delete(self, call: Call) -> Response:
        target, deletion = call.target, options.deletion(call.request)
        deleted = self.writer.delete(replace(target, dry_run=is_dry(deletion)), deletion)
        # Only who asked in the old way not to orphan is told that it will take time.
        waits = deletion.get("orphanDependents") is False and self._store.get(target.kind, target.key) is not None
        return answer(202 if waits else 200, deleted)

    def _scale(self, call: Call) -> Response:
        target, kind = call.target, call.target.kind
        inner, heard = replace(call, target=replace(target, kind=SCALE)), replace(target, asks=None)
        match call.request.method:
            case "GET":
                return answer(200, shown(inner, scale_of(kind, self._reader.get(call)), now=self._clock.now()))
            case "PUT":
                body = object_of(inner)
                changed, _ = self.writer.put(heard, body, change=self._rescales(call, lambda _: body))
            case "PATCH":
                check_patch(call)
                if content_type_of(call) == APPLY_PATCH:
                    raise unsupported()
                changed = self.writer.update(heard, self._rescales(call, lambda scale: patched_by(inner, scale)))
            case _:
                raise Refused(status.generic(405))
        return answer(200, scale_of(kind, changed))

    def _rescales(self, call: Call, change: Change) -> Change:
        """Return what `change` of its Scale makes of an object, if those who have a say agree to the Scale."""

        def agreed(scale: JsonObject) -> JsonObject:
            new = change(scale)
            admitted = self.writer.admission.admitted
            return admitted(call.target, new, api_version=SCALE.api_version, kind=SCALE.kind, old=scale)

        return lambda obj: scaled(call.target.kind, obj, agreed)

    def _act_on_pod(self, call: Call) -> Response:
        target = call.target
        if is_of_containers(target.subresource):
            return about_containers(
                self._reader.get(call), call.request.method, target.subresource, call.query, now=self._clock.now()
            )
        if call.request.method != "POST":
            raise Refused(status.generic(405))
        self.writer.check_open(target, {})
        admitted = self.writer.admission.admitted
        if target.subresource == "binding":
            binds = replace(target, subresource="", verb="bind", asks=None)
            body = admitted(target, body_of(call, kind="Binding"), api_version="v1", kind="Binding")
            return answer(201, bind(self.writer, binds, body))
        body = body_of(call, expect=None, kind="Eviction")
        body = admitted(target, body, api_version="policy/v1", kind="Eviction")
        deletion = body.get("deleteOptions") or {}
        dry_run = target.dry_run or deletion.get("dryRun") == ["All"]
        evicts = replace(target, subresource="", verb="evict", dry_run=dry_run, asks=None)
        return answer(201, evict(self.writer, evicts, body, attempt=call.attempt))

    def _issue_token(self, call: Call) -> Response:
        """Give a service account a token."""
        if call.request.method != "POST":
            raise Refused(status.generic(405))
        account, sent = self.writer.read(call.target), call.request.body or b""
        content_type, version = call.request.content_type, reviews.AUTHENTICATION_V1
        body = bodies.from_request(sent, content_type, api_version=version, kind="TokenRequest")
        issued = issue(self.gate.tokens, account, body, now=self._clock.now(), token_id=self.writer.new_uid())
        return answer(201, issued)

    def _check_may_create(self, call: Call) -> None:
        """Refuse an update that would create, from somebody who may only update."""
        target = call.target
        if not target.subresource and self._store.get(target.kind, target.key) is None:
            self.gate.check_may_create(call.user, call.request)

    def _patch(self, call: Call) -> Response:
        check_patch(call)
        if content_type_of(call) == APPLY_PATCH:
            return self._apply(call)

        in_place = content_type_of(call) != MERGE_PATCH
        return answer(200, self.writer.update(call.target, lambda obj: patched_by(call, obj), in_place=in_place))

    def _apply(self, call: Call) -> Response:
        target, applied = call.target, applied_by(call)
        self._check_may_create(call)

        def change(current: JsonObject | None) -> JsonObject:
            return apply(
                current,
                copy.deepcopy(applied),
                shape=shape_for(target.kind) or DEDUCED,
                manager=call.query.get("fieldManager", ""),
                now=self.writer.now(),
                force=is_true(call.query, "force"),
                subresource=target.subresource,
            )

        if self._store.get(target.kind, target.key) is None and not target.subresource:
            return answer(201, self.writer.create(target, change(None)))
        return answer(200, self.writer.update(target, change))

    def _delete_collection(self, call: Call) -> Response:
        deletion = options.deletion(call.request)
        target = replace(call.target, dry_run=is_dry(deletion))
        asks = target.asks and replace(target.asks, names_objects=False)
        listed = target.once("listed", lambda: self._reader.list(call))
        gone = target.once("gone", set[str])
        for name in [item["metadata"]["name"] for item in listed["items"]]:
            if name not in gone and self._store.get(target.kind, replace(target, name=name).key):
                self.writer.delete(replace(target, name=name, asks=asks), deletion)
                gone.add(name)
        return answer(200, listed)


class _NoSuchPath(Exception):
    """Not even a group."""


_TEXT = "text/plain; charset=utf-8"
_POD_ACTIONS = {"eviction", "binding"}
_OF_NAMESPACES = {"status", FINALIZE}
_REVIEW_GROUPS = {kind.group for kind in reviews.KINDS}
_REVIEWS = {(kind.group, kind.plural): kind for kind in reviews.KINDS}
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def _asks(request: Request, user: User, case: Case) -> Asks:
    """Return who asks for a write, with its options as webhooks see them."""
    query = parameters(request)
    told: JsonObject = {"dryRun": ["All"]} if query.get("dryRun") == "All" else {}
    told |= {name: query[name] for name in ("fieldManager", "fieldValidation") if query.get(name)}
    return Asks(user=user, case=case, options=told)


def _making(kind: Kind, name: str) -> Target:
    """Return how to have an object made without storing it."""
    return Target(kind=kind, namespace="", name=name, who="", verb="create", dry_run=True)


def _check_place(call: Call) -> None:
    """Refuse names and namespaces that can be none."""
    check_name(call.target.name)
    check_name(call.target.namespace)
