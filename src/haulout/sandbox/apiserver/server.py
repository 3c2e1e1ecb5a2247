"""The sandbox's API server: a request and the store in, an answer out, at once.

It never waits and knows no faults; transports do. Where the real server would wait and look again it raises `NotYet`.
Reads follow `apiserver/pkg/storage/cacher` of Kubernetes 1.36: a list is exact, not older than, or latest by its
resourceVersion, resourceVersionMatch and limit, and its further pages show the revision of the first.
"""

import base64
import copy
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random

import msgspec

from haulout.core.clock import Clock
from haulout.kube.transport import Request, Response
from haulout.sandbox.apiserver import (
    bodies,
    custom_requests,
    fields,
    gojson,
    jsonpath,
    options,
    received,
    reviews,
    status,
    unknown_fields,
)
from haulout.sandbox.apiserver.apply import APPLY_PATCH, apply, manager_of
from haulout.sandbox.apiserver.binding import bind
from haulout.sandbox.apiserver.builtin_kinds import ALL, SERVICE_ACCOUNT
from haulout.sandbox.apiserver.catalogue import Catalogue
from haulout.sandbox.apiserver.containers import about_containers, is_of_containers
from haulout.sandbox.apiserver.custom_versions import shape_for, version_of
from haulout.sandbox.apiserver.definitions import Definitions
from haulout.sandbox.apiserver.deletion import is_dry, warnings_about
from haulout.sandbox.apiserver.discovery import AGGREGATED, VERSION, discovery
from haulout.sandbox.apiserver.eviction import evict
from haulout.sandbox.apiserver.gate import Gate
from haulout.sandbox.apiserver.kinds import KINDS, NAMESPACE, POD, JsonObject, Kind
from haulout.sandbox.apiserver.namespaces import FINALIZE, FIRST_NAMESPACES
from haulout.sandbox.apiserver.negotiation import check_accepted
from haulout.sandbox.apiserver.openapi import openapi
from haulout.sandbox.apiserver.patches import JSON_PATCH, MERGE_PATCH, patched
from haulout.sandbox.apiserver.paths import (
    BadPath,
    check_name,
    check_namespace,
    is_old_watch,
    is_resource,
    is_true,
    modern,
    parameters,
    path_parts,
)
from haulout.sandbox.apiserver.rbac import User
from haulout.sandbox.apiserver.rbac_defaults import bootstrap_objects
from haulout.sandbox.apiserver.scale import SCALE, SCALE_SUBRESOURCE, scale_of, scaled
from haulout.sandbox.apiserver.selectors import Selection, selection
from haulout.sandbox.apiserver.shapes import shape_of
from haulout.sandbox.apiserver.status import NotYet, Refused, answer, bad_request, warned, warning_headers
from haulout.sandbox.apiserver.store import Store
from haulout.sandbox.apiserver.strategic import STRATEGIC_MERGE_PATCH, strategic_merge
from haulout.sandbox.apiserver.tables import Column, asks_for_table, included, table, table_of
from haulout.sandbox.apiserver.targets import Asks, Case, Target
from haulout.sandbox.apiserver.tokens import Tokens, issue
from haulout.sandbox.apiserver.watch import Watch
from haulout.sandbox.apiserver.webhooks import NeedsAdmission
from haulout.sandbox.apiserver.writes import Change, Writer

log = logging.getLogger(__name__)

_FRESHNESS_WAIT = timedelta(seconds=3)
_SHORTEST_WATCH_SECONDS = 1800.0  # the real server ends a watch without a timeout after one to two times this
_TOO_OLD_LIST = "The resourceVersion for the provided list is too old."
_TOO_OLD_CONTINUE = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request about a resource, taken apart."""

    request: Request
    target: Target
    user: User
    query: Mapping[str, str]
    attempt: int  # how often the server has already said NotYet
    as_of: int | None  # a stale server: the revision its reads show

    @property
    def manager(self) -> str:
        """Return who is said to write."""
        agents = (value for name, value in self.request.headers if name.lower() == "user-agent")
        return manager_of(self.query.get("fieldManager", ""), next(agents, self.target.who))

    @property
    def selection(self) -> Selection:
        """Return what the selectors of the query select."""
        labels, fields = self.query.get("labelSelector", ""), self.query.get("fieldSelector", "")
        return selection(self.target.kind, self.target.namespace, labels=labels, fields=fields)


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
    ) -> None:
        self.kinds = Catalogue([*KINDS, *ALL])
        self.writer = Writer(store, clock, random, kinds=lambda: self.kinds, defaulting=defaulting)
        self.watch_lists = watch_lists
        self.is_down = False  # it answers nobody then: transports see to that
        self._namespaces = tuple(namespaces)
        self._has_begun = False
        self._store = store
        self._clock = clock
        self._random = random
        self._definitions = Definitions(self.writer, self.kinds)
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
        self, request: Request, *, user: User, attempt: int = 0, as_of: int | None = None, case: Case | None = None
    ) -> Response | Watch:
        """Return the answer; raises only `NotYet`, and `NeedsAdmission` with the `case` to come back with."""
        self.begin()
        self._store.expire()
        try:
            asked = modern(request)
            user = self.gate.admitted(user, request)
            case = Case() if case is None else case
            return self._answered(asked, user=user, attempt=attempt, as_of=as_of, case=case)
        except Refused as refused:
            return answer(refused.status["code"], refused.status)
        except _NoSuchPath:
            return Response(404, {"content-type": _TEXT}, b"404 page not found\n")
        except BadPath as problem:
            said = f'Internal Server Error: "{request.path}": failed to create RequestInfo: {problem}\n'
            return Response(500, {"content-type": _TEXT}, said.encode())
        except (NotYet, NeedsAdmission):
            raise
        except Exception:  # the real server survives its bugs, too, and says as much
            log.exception("%s %s", request.method, request.path)
            return answer(500, status.panicked())

    def _answered(
        self, request: Request, *, user: User, attempt: int, as_of: int | None, case: Case
    ) -> Response | Watch:
        parts = path_parts(request.path)
        if is_old_watch(parts):  # and no GET, which would be in today's form by now
            raise Refused(status.generic(405))
        if not is_resource(parts) and (found := self._about_itself(request)):
            return found
        if review := self._review(request, parts, user):
            return review
        target, collection = self._routed(request, parts, user, case)
        call = Call(request=request, target=target, user=user, query=parameters(request), attempt=attempt, as_of=as_of)
        check_accepted(request.accept, lists=collection and request.method == "GET")
        return self._answer(call, collection=collection)

    def _answer(self, call: Call, *, collection: bool) -> Response | Watch:
        """Answer, or refuse, with what there is to warn of."""
        if (version := version_of(call.target.kind)) and version.now.deprecation:
            call.target.warnings.append(version.now.deprecation)
        call.target.warnings.extend(received.deprecations(call.target.kind))
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
        kinds = list(self.kinds)
        aggregated = "as=APIGroupDiscoveryList" in request.accept and path in ("/api", "/apis")
        found = VERSION if path == "/version" else openapi(kinds, path, custom=self._definitions.documents)
        found = found or discovery([*kinds, *reviews.KINDS], path, aggregated=aggregated)
        if found and request.method != "GET":
            raise Refused(status.generic(405))
        return answer(200, found, content_type=AGGREGATED if aggregated else status.JSON) if found else None

    def _review(self, request: Request, parts: list[str], user: User) -> Response | None:
        """Answer what is asked rather than stored: may I, who am I, whose is this token."""
        match parts:
            case ["apis", group, "v1", plural] if (group, plural, False) in _REVIEWS:
                namespace = ""
            case ["apis", group, "v1", "namespaces", namespace, plural] if (group, plural, True) in _REVIEWS:
                pass
            case _:
                return None
        if request.method != "POST":
            raise Refused(status.generic(405))
        kind = _REVIEWS[group, plural, bool(namespace)]
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
            namespace=namespace,
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
                return self._watch(call)
            case "GET":
                return answer(200, self._shown_list(call, self._list(call)))
            case "POST" if not everywhere:
                return answer(201, self.writer.create(call.target, self._granted(call, _received(call))))
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
                return answer(200, self._shown(call, self._get(call)))
            case "PUT":
                self._check_may_create(call)
                current = self._store.get(target.kind, target.key)
                body = self._granted(call, _received(call), old=current)
                result, created = self.writer.put(target, body, manager=call.manager)
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
        target.warnings.extend(warnings_about(target.kind, deletion))
        return answer(202 if waits else 200, deleted)

    def _scale(self, call: Call) -> Response:
        target, kind = call.target, call.target.kind
        inner, heard = replace(call, target=replace(target, kind=SCALE)), replace(target, asks=None)
        match call.request.method:
            case "GET":
                return answer(200, self._shown(inner, scale_of(kind, self._get(call))))
            case "PUT":
                body = _received(inner)
                change = self._rescales(call, self._tracks(inner, lambda _: body))
                changed, _ = self.writer.put(heard, body, change=change, manager=None)
            case "PATCH":
                _check_patch(call)
                applies = _content_type(call) == APPLY_PATCH
                changes = self._applies(inner) if applies else self._tracks(inner, lambda obj: _patched(inner, obj))
                changed = self.writer.update(heard, self._rescales(call, changes))
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
                self._get(call), call.request.method, target.subresource, call.query, now=self._clock.now()
            )
        if call.request.method != "POST":
            raise Refused(status.generic(405))
        self.writer.check_open(target, {})
        admitted = self.writer.admission.admitted
        if target.subresource == "binding":
            binds = replace(target, subresource="", verb="bind", asks=None)
            body = admitted(target, _body(call, kind="Binding"), api_version="v1", kind="Binding")
            return answer(201, bind(self.writer, binds, body))
        body = _body(call, expect=None, kind="Eviction")
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

    def _granted(self, call: Call, obj: JsonObject, *, old: JsonObject | None = None) -> JsonObject:
        """Return `obj` unless it is a role or binding by which its author would grant what they lack."""
        self.gate.check_grant(call.user, call.request, obj, kind=call.target.kind, old=old)
        return obj

    def _check_may_create(self, call: Call) -> None:
        """Refuse an update that would create, from somebody who may only update."""
        target = call.target
        if not target.subresource and self._store.get(target.kind, target.key) is None:
            self.gate.check_may_create(call.user, call.request)

    def _patch(self, call: Call) -> Response:
        _check_patch(call)
        if _content_type(call) == APPLY_PATCH:
            return self._apply(call)

        def change(obj: JsonObject) -> JsonObject:
            old = self._store.get(call.target.kind, call.target.key)  # `obj` is changed by some patches
            return self._granted(call, _patched(call, obj), old=old)

        in_place = _content_type(call) != MERGE_PATCH
        changed = self.writer.update(call.target, change, manager=call.manager, in_place=in_place)
        return answer(200, changed)

    def _apply(self, call: Call) -> Response:
        target, change = call.target, self._applies(call)
        self._check_may_create(call)
        if self._store.get(target.kind, target.key) is None and not target.subresource:
            return answer(201, self.writer.create(target, change(None)))
        return answer(200, self.writer.update(target, change))

    def _applies(self, call: Call) -> Callable[[JsonObject | None], JsonObject]:
        """Return what the configuration that is applied makes of an object."""
        kind = call.target.kind
        applied, shape, version = bodies.from_yaml(call.request.body or b""), shape_for(kind), version_of(kind)
        if shape is None:
            raise _unsupported()

        def change(current: JsonObject | None) -> JsonObject:
            result = apply(
                current,
                applied,
                kind=kind,
                shape=shape,
                manager=call.query.get("fieldManager", ""),
                now=self.writer.now(),
                force=is_true(call.query, "force"),
                subresource=call.target.subresource,
            )
            new = result if version is None else custom_requests.applied(result, version)
            return self._granted(call, new, old=current)

        return change

    def _tracks(self, call: Call, change: Change) -> Change:
        """Return `change` of a Scale, whose fields then belong to the caller, where that is tracked."""
        target = call.target

        def changed(scale: JsonObject) -> JsonObject:
            return self.writer.tracked(target, scale, change(copy.deepcopy(scale)), call.manager)

        return changed

    def _shown(self, call: Call, obj: JsonObject) -> JsonObject:
        """Return the object as the caller wants to see it: as it is, or as a row of a table."""
        if not asks_for_table(call.request.accept):
            return obj
        include = included(call.query.get("includeObject", ""))
        return table_of(
            call.target.kind,
            obj,
            now=self._clock.now(),
            include=include,
            columns=_columns(call),
            evaluate=jsonpath.find,
        )

    def _shown_list(self, call: Call, listed: JsonObject) -> JsonObject:
        if not asks_for_table(call.request.accept):
            return listed
        include = included(call.query.get("includeObject", ""))
        kind, typed = call.target.kind, {"apiVersion": call.target.kind.api_version, "kind": call.target.kind.kind}
        rows, meta = [typed | item for item in listed["items"]], {k: v for k, v in listed["metadata"].items() if v}
        return table(
            kind,
            rows,
            now=self._clock.now(),
            list_metadata=meta,
            include=include,
            columns=_columns(call),
            evaluate=jsonpath.find,
        )

    def _shown_events(self, call: Call) -> Callable[[JsonObject], JsonObject] | None:
        """Return how a watch shows objects; columns are told in its first event only."""
        if not asks_for_table(call.request.accept):
            return None
        include, first, columns = included(call.query.get("includeObject", "")), iter((True,)), _columns(call)

        def show(obj: JsonObject) -> JsonObject:
            headers = next(first, False)
            return table_of(
                call.target.kind,
                obj,
                now=self._clock.now(),
                include=include,
                columns=columns,
                evaluate=jsonpath.find,
                headers=headers,
            )

        return show

    def _get(self, call: Call) -> JsonObject:
        target = call.target
        self._wait_for(call, _revision(call.query.get("resourceVersion", "")))
        if call.as_of is None:
            return self.writer.read(target)
        found = self._store.at(target.kind, call.as_of).get(target.key)
        if found is None:
            raise status.not_found(target.kind, target.name)
        return found

    def _wait_for(self, call: Call, revision: int) -> None:
        if revision <= self._store.revision:
            return
        if not call.attempt:
            raise NotYet(_FRESHNESS_WAIT)
        raise status.too_large(revision, self._store.revision)

    def _list(self, call: Call) -> JsonObject:
        query, kind, chosen = call.query, call.target.kind, call.selection
        _check_list_options(query)
        revision, start = self._page(call)
        objects = [
            (key, obj)
            for key, obj in self._store.at(kind, revision).items()
            if key >= start and (not chosen.namespace or key.startswith(f"{chosen.namespace}/"))
        ]
        limit = 0 if query.get("resourceVersion") == "0" else max(options.number(query, "limit"), 0)
        items: list[JsonObject] = []
        meta: JsonObject = {"resourceVersion": str(revision)} | ({"continue": ""} if kind.rules else {})
        for count, (key, obj) in enumerate(objects, start=1):
            if chosen.matches(obj):
                items.append(obj if kind.custom else _without_type(obj))
            # As in the real server more objects, matching or not, make more pages: the last may be empty.
            if limit and len(items) == limit and count < len(objects):
                meta["continue"] = _token(revision, f"{key}\0")
                if not chosen.selects:
                    meta["remainingItemCount"] = len(objects) - limit
                break
        return {"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": meta, "items": items}

    def _page(self, call: Call) -> tuple[int, str]:
        """Return the revision that the list shows, and the key it starts at."""
        query, version = call.query, call.query.get("resourceVersion", "")
        if query.get("continue"):
            revision, start = _from_token(query["continue"])
            if version not in ("", "0"):
                raise bad_request("specifying resource version is not allowed when using continue")
            if revision < 0:
                return self._store.revision, start
            if revision < self._store.compacted:
                raise status.expired(_TOO_OLD_CONTINUE, go_on=_token(-1, start))
            return revision, start
        wanted = _revision(version, lists=True)
        self._wait_for(call, wanted)
        match = query.get("resourceVersionMatch", "")
        if match == "Exact" or (not match and wanted and options.number(query, "limit")):
            if wanted < self._store.compacted:
                raise status.expired(_TOO_OLD_LIST)
            return wanted, ""
        return self._store.revision if call.as_of is None else call.as_of, ""

    def _delete_collection(self, call: Call) -> Response:
        deletion = options.deletion(call.request)
        target = replace(call.target, dry_run=is_dry(deletion))
        asks = target.asks and replace(target.asks, names_objects=False)
        listed = target.once("listed", lambda: self._list(call))
        gone = target.once("gone", set[str])
        for name in [item["metadata"]["name"] for item in listed["items"]]:
            if name not in gone and self._store.get(target.kind, replace(target, name=name).key):
                self.writer.delete(replace(target, name=name, asks=asks), deletion)
                gone.add(name)
        target.warnings.extend(warnings_about(target.kind, deletion))
        return answer(200, listed)

    def _watch(self, call: Call) -> Watch:
        query, version = call.query, call.query.get("resourceVersion", "")
        wanted, chosen = _revision(version), call.selection
        initial, bookmarks = self._initial_events(call), is_true(query, "allowWatchBookmarks")
        fresh = self._store.revision if call.as_of is None else call.as_of
        now = self._clock.monotonic()
        seconds = options.number(query, "timeoutSeconds") or _SHORTEST_WATCH_SECONDS * (1 + self._random.random())
        since = fresh if initial or not wanted else wanted
        watch = Watch(
            self._store,
            chosen,
            since=since,
            bookmarks=bookmarks,
            now=now,
            ends_at=now + seconds,
            show=self._shown_events(call),
            headers=warning_headers(call.target.warnings),
        )
        if initial:
            try:
                self._wait_for(call, wanted)
            except Refused as refused:
                watch.fail(refused.status)
                return watch
            objects = self._store.at(chosen.kind, fresh).values()
            # Without watch lists there are legacy initial events, but their end is not marked.
            watch.begin((obj for obj in objects if chosen.matches(obj)), mark_end=bookmarks and self.watch_lists)
        elif since < self._store.oldest_watch:
            said = f"too old resource version: {since} ({self._store.oldest_watch})"
            watch.fail(status.expired(said).status)
        return watch

    def _initial_events(self, call: Call) -> bool:
        query, asked = call.query, call.query.get("sendInitialEvents")
        match = query.get("resourceVersionMatch", "")
        causes = []
        if asked is not None and match != "NotOlderThan":
            rule = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            causes.append(_forbidden("resourceVersionMatch", rule))
        if asked is not None and not self.watch_lists:
            rule = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
            causes.append(_forbidden("sendInitialEvents", rule))
        if match and asked is None:
            rule = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            causes.append(_forbidden("resourceVersionMatch", rule))
        if causes:
            raise status.invalid("meta.k8s.io", "ListOptions", "", causes)
        if asked is None:
            return query.get("resourceVersion", "") in ("", "0")
        return is_true(query, "sendInitialEvents")


class _NoSuchPath(Exception):
    """Not even a group."""


_TEXT = "text/plain; charset=utf-8"
_CONTINUE_VERSION = "meta.k8s.io/v1"
_DIGITS = re.compile(r"[0-9]+")
_MOST_DIGITS = 19  # of a resource version
_NOT_BASE64 = re.compile(r"[^A-Za-z0-9_-]")
_PATCHES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, APPLY_PATCH)
_POD_ACTIONS = {"eviction", "binding"}
_OF_NAMESPACES = {"status", FINALIZE}
_REVIEW_GROUPS = {kind.group for kind in reviews.KINDS}
_REVIEWS = {(kind.group, kind.plural, kind.namespaced): kind for kind in reviews.KINDS}
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


def _body(call: Call, *, kind: str, expect: str | None = "") -> JsonObject:
    """Return what is asked for; `expect` is the API version it may name, the target's by default, None for any."""
    target = call.target.kind
    sent, content_type = call.request.body or b"", call.request.content_type
    bodies.check(sent, content_type)
    options.check_write(call.request)
    body = bodies.from_request(sent, content_type, api_version=target.api_version, kind=kind)
    _check_strictly(call, kind)
    version = call.target.kind.api_version if expect == "" else expect
    _check_type(body, version)
    if problem := bodies.type_problem(body, kind=kind, version=target.version, custom=target.custom):
        said = f'{kind} in version "{target.version}" cannot be handled as a {kind}'
        raise bad_request(f"{said}: {problem}")
    body["metadata"] = dict(body.get("metadata") or {})
    return body


def _received(call: Call) -> JsonObject:
    """Return the object to be stored, as far as its kind knows what it has."""
    request, kind = call.request, call.target.kind
    body, version = request.body or b"", version_of(kind)
    bodies.check(body, request.content_type)
    options.check_write(request)
    sent = bodies.from_request(body, request.content_type, api_version=kind.api_version, kind=kind.kind)
    if version is None:
        received.check_type(sent, kind)
        obj = received.received(kind, sent, body, query=call.query, warnings=call.target.warnings)
        return obj | {"metadata": dict(obj.get("metadata") or {})}
    custom_requests.check_type(sent, body, kind)
    return custom_requests.received(sent, request, version, query=call.query, warnings=call.target.warnings)


def _columns(call: Call) -> tuple[Column, ...]:
    version = version_of(call.target.kind)
    return version.now.columns if version else ()


def _check_strictly(call: Call, kind: str) -> None:
    """Warn of keys that come twice, or refuse them, whatever the caller wants."""
    is_json = bodies.media_type(call.request.content_type) == status.JSON
    twice = unknown_fields.duplicates(call.request.body or b"") if is_json else []
    if strict := unknown_fields.complain(twice, call.query, call.target.warnings):
        said = f'{kind} in version "{call.target.kind.version}" cannot be handled as a {kind}'
        raise bad_request(f"{said}: {strict}")


def _check_type(body: JsonObject, version: str | None) -> None:
    sent = body.get("apiVersion") or version
    if version is not None and sent != version:
        raise bad_request(f"the API version in the data ({sent}) does not match the expected API version ({version})")


def _patched(call: Call, obj: JsonObject) -> JsonObject:
    merged, sent = _content_type(call) == STRATEGIC_MERGE_PATCH, call.request.body or b""
    if merged:
        shape = None if call.target.kind.custom else shape_of(call.target.kind.api_version, call.target.kind.kind)
        if shape is None:
            raise _unsupported()
        new = strategic_merge(obj, bodies.from_json(sent), shape)
    else:
        new = patched(obj, sent, call.request.content_type)
    if version := version_of(call.target.kind):
        return custom_requests.patched(new, version, query=call.query, warnings=call.target.warnings)
    _check_type(new, call.target.kind.api_version)
    query, warnings = call.query, call.target.warnings
    # A merge patch shares what it leaves alone, which was looked at when it was written.
    shares = _content_type(call) == MERGE_PATCH
    changed = {name: part for name, part in new.items() if not shares or part is not obj.get(name)}
    fitting = received.patched(call.target.kind, changed, sent, merged=merged, query=query, warnings=warnings)
    if fitting is not changed:
        new = {name: part for name, part in new.items() if name not in changed} | fitting
    return new if isinstance(new.get("metadata"), dict) else new | {"metadata": {}}


def _content_type(call: Call) -> str:
    return call.request.content_type.partition(";")[0]


def _unsupported() -> Refused:
    return Refused(status.failure(415, "UnsupportedMediaType", "415: Unsupported Media Type", {}))


def _check_place(call: Call) -> None:
    """Refuse names and namespaces that can be none."""
    target = call.target
    if target.name:
        check_name(target.name)
    creates = call.request.method == "POST" and not target.name
    check_namespace(target.namespace, plural=target.kind.plural, name=target.name, creates=creates)


def _check_patch(call: Call) -> None:
    custom_requests.check_patch(call.target.kind, _content_type(call))
    if _content_type(call) not in _PATCHES:
        raise _unsupported()
    bodies.check_size(call.request.body or b"")
    options.check_write(call.request)


def _check_list_options(query: Mapping[str, str]) -> None:
    match, version = query.get("resourceVersionMatch", ""), query.get("resourceVersion", "")
    causes = []
    for name in ("limit", "timeoutSeconds"):
        options.number(query, name)
    if match and not version:
        rule = "resourceVersionMatch is forbidden unless resourceVersion is provided"
        causes.append(_forbidden("resourceVersionMatch", rule))
    if match and query.get("continue"):
        causes.append(_forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided"))
    if match not in ("", "Exact", "NotOlderThan"):
        causes.append(fields.not_supported("resourceVersionMatch", match, ("Exact", "NotOlderThan", "")))
    if match == "Exact" and version == "0":
        rule = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        causes.append(_forbidden("resourceVersionMatch", rule))
    if "sendInitialEvents" in query:
        causes.append(_forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    if causes:
        raise status.invalid("meta.k8s.io", "ListOptions", "", causes)


def _forbidden(field: str, rule: str) -> JsonObject:
    return status.field_error("FieldValueForbidden", field, f"Forbidden: {rule}")


def _revision(text: str, *, lists: bool = False) -> int:
    problem = "" if not text or _DIGITS.fullmatch(text) else "invalid syntax"
    if not problem and len(text) > _MOST_DIGITS:
        problem = "value out of range"
    if problem:
        shown = fields.quoted(text)
        said = f"resourceVersion: Invalid value: {shown}: strconv.ParseUint: parsing {shown}: {problem}"
        if lists:
            raise bad_request(f"invalid resource version: {said}")
        raise Refused(status.failure(500, "", said))
    return int(text or 0)


def _token(revision: int, start: str) -> str:
    raw = msgspec.json.encode({"v": _CONTINUE_VERSION, "rv": revision, "start": start})
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _from_token(token: str) -> tuple[int, str]:
    try:
        raw = gojson.decode(_from_base64(token))
        version, revision, start = raw["v"], raw["rv"], raw["start"]
    except gojson.Malformed as problem:
        raise _invalid_token(str(problem)) from None
    except (KeyError, TypeError):
        raise _invalid_token("it lacks a part") from None
    if version != _CONTINUE_VERSION or not isinstance(revision, int) or not (isinstance(start, str) and start):
        raise _invalid_token("it is of another server")
    return revision, start


def _from_base64(text: str) -> bytes:
    bad = _NOT_BASE64.search(text)
    at = bad.start() if bad else len(text) if len(text) % 4 == 1 else -1
    if at >= 0:
        raise gojson.Malformed(f"illegal base64 data at input byte {at}")
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _invalid_token(why: str) -> Refused:
    return bad_request(f"invalid continue token: continue key is not valid: {why}")


def _without_type(obj: JsonObject) -> JsonObject:
    """Return a list item as built-in kinds have it: their kind is told once, by the list."""
    return {name: value for name, value in obj.items() if name not in ("kind", "apiVersion")}
