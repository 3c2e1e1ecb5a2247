"""The request handler of the API server: takes a request and the store, returns a response at once.

It never waits and knows no faults; both are up to the transports. Where the real server waits and tries again, the
handler raises `RetryLater`. It authorizes and routes a request, then passes it to `reader`, `writer` or one of the
modules in `subresources`.
"""

import copy
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random

from haulout.core.clock import Clock
from haulout.kube.transport import Request, Response
from haulout_sandbox.apiserver import status
from haulout_sandbox.apiserver.admission.webhook import WebhookCallsNeeded
from haulout_sandbox.apiserver.apiextensions.crd_controller import CrdController
from haulout_sandbox.apiserver.apiextensions.custom_resource_version import merge_schema_for
from haulout_sandbox.apiserver.auth import reviews
from haulout_sandbox.apiserver.auth.access_control import AccessControl
from haulout_sandbox.apiserver.auth.bootstrap_policy import bootstrap_objects
from haulout_sandbox.apiserver.auth.rbac import User
from haulout_sandbox.apiserver.auth.tokens import TokenAuthenticator, issue_token
from haulout_sandbox.apiserver.discovery import AGGREGATED, VERSION, discovery_document
from haulout_sandbox.apiserver.handlers import request_options
from haulout_sandbox.apiserver.handlers.api_call import ApiCall
from haulout_sandbox.apiserver.handlers.fast_path import FastPath
from haulout_sandbox.apiserver.handlers.request_objects import (
    apply_sent_patch,
    check_patch,
    content_type_of,
    decode_applied_configuration,
    decode_body,
    decode_sent_object,
    unsupported_media_type,
)
from haulout_sandbox.apiserver.kinds.builtin import BUILTIN_KINDS, SERVICE_ACCOUNT
from haulout_sandbox.apiserver.kinds.kind import CORE_KINDS, NAMESPACE, POD, JsonObject, Kind
from haulout_sandbox.apiserver.kinds.rest_mapper import RestMapper
from haulout_sandbox.apiserver.openapi import OPENAPI_V2, openapi_document, openapi_v2
from haulout_sandbox.apiserver.patch.json_patch import MERGE_PATCH
from haulout_sandbox.apiserver.patch.merge_schema import DEDUCED
from haulout_sandbox.apiserver.patch.server_side_apply import APPLY_PATCH, apply
from haulout_sandbox.apiserver.registry.deletion import is_dry_run
from haulout_sandbox.apiserver.registry.namespaces import BOOTSTRAP_NAMESPACES, FINALIZE
from haulout_sandbox.apiserver.registry.reader import Reader
from haulout_sandbox.apiserver.registry.writer import Change, Writer
from haulout_sandbox.apiserver.request_paths import (
    check_path_segment,
    is_resource_path,
    is_true,
    path_parts,
    query_parameters,
)
from haulout_sandbox.apiserver.request_targets import AdmissionContext, AdmissionState, Target
from haulout_sandbox.apiserver.serializer import request_body
from haulout_sandbox.apiserver.status import RetryLater, StatusError, bad_request, json_response, with_warnings
from haulout_sandbox.apiserver.storage.store import Store
from haulout_sandbox.apiserver.storage.watch import Watch
from haulout_sandbox.apiserver.subresources.binding import bind
from haulout_sandbox.apiserver.subresources.eviction import evict
from haulout_sandbox.apiserver.subresources.pod_logs import handle_container_request, is_container_subresource
from haulout_sandbox.apiserver.subresources.scale import SCALE, SCALE_SUBRESOURCE, apply_scale_change, scale_of
from haulout_sandbox.apiserver.tables.table_convertor import convert_list, convert_object

log = logging.getLogger(__name__)


class RequestHandler:
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
        self.kinds = RestMapper([*CORE_KINDS, *BUILTIN_KINDS])
        self.writer = Writer(store, clock, random, defaulting=defaulting)
        self._reader = Reader(store, clock, random, watch_lists=watch_lists)
        self.is_down = False  # transports then drop requests unanswered
        self._namespaces = tuple(namespaces)
        self._is_bootstrapped = False
        self._store = store
        self._clock = clock
        self._crd_controller = CrdController(self.writer, self.kinds)
        self._fast_path = FastPath(store, self.writer, self.kinds) if defaulting else None
        self.static_tokens: dict[str, User] = {}
        tokens = TokenAuthenticator(
            secret=random.randbytes(32),
            find_service_account=self._find_service_account,
            static_tokens=self.static_tokens,
        )
        self.access_control = AccessControl(store, tokens, enforces_rbac=rbac)
        self._is_bootstrapped = False

    def ensure_bootstrapped(self) -> None:
        """Create the objects that every cluster has from the start, at the first request."""
        if self._is_bootstrapped:
            return
        self._is_bootstrapped = True
        for kind, obj in bootstrap_objects(self._clock.now()):
            self._store.seed(kind, obj)
        for name in dict.fromkeys((*BOOTSTRAP_NAMESPACES, *self._namespaces)):
            namespace = self.writer.create(_dry_run_target(NAMESPACE, name), {"metadata": {"name": name}})
            self._store.seed(NAMESPACE, namespace)

    def handle(
        self,
        request: Request,
        *,
        user: User,
        attempt: int = 0,
        as_of: int | None = None,
        state: AdmissionState | None = None,
        is_trusted: bool = False,
    ) -> Response | Watch:
        """Return the response.

        Raise only `RetryLater`, or `WebhookCallsNeeded` with the `state` to pass to the next attempt. Requests of a
        trusted transport may take the fast path, which validates less (`fast_path`).
        """
        self.ensure_bootstrapped()
        self._store.expire_objects()
        try:
            if (
                is_trusted
                and self._fast_path is not None
                and (response := self._fast_path.try_handle(request, username=user.name))
            ):
                return response
            user = self.access_control.authorize(user, request)
            state = AdmissionState() if state is None else state
            return self._handle(request, user=user, attempt=attempt, as_of=as_of, state=state)
        except StatusError as error:
            return json_response(error.status["code"], error.status)
        except _UnknownPath:
            return Response(404, {"content-type": _TEXT}, b"404 page not found\n")
        except (RetryLater, WebhookCallsNeeded):
            raise
        except Exception:  # the real server also survives its bugs and answers 500
            log.exception("%s %s", request.method, request.path)
            return json_response(500, status.generic_status(500))

    def _handle(
        self, request: Request, *, user: User, attempt: int, as_of: int | None, state: AdmissionState
    ) -> Response | Watch:
        parts = path_parts(request.path)
        if not is_resource_path(parts) and (response := self._handle_server_path(request)):
            return response
        if review := self._handle_review(request, parts, user):
            return review
        target, collection = self._route(request, parts, user, state)
        call = ApiCall(
            request=request,
            target=target,
            user=user,
            query=query_parameters(request),
            attempt=attempt,
            as_of=as_of,
        )
        return self._handle_resource(call, collection=collection)

    def _handle_resource(self, call: ApiCall, *, collection: bool) -> Response | Watch:
        """Answer or refuse, and add warnings to the response."""
        try:
            response = self._handle_collection(call) if collection else self._handle_object(call)
        except StatusError as error:
            response = json_response(error.status["code"], error.status)
        except RecursionError:  # deeper than Python can recurse; the real server's limit is ten thousand levels
            response = json_response(400, bad_request("exceeded max depth").status)
        return with_warnings(response, call.target.warnings) if isinstance(response, Response) else response

    def _handle_server_path(self, request: Request) -> Response | None:
        path = request.path.removesuffix("/")
        if path in ("/livez", "/readyz", "/healthz", "/livez/ping", "/readyz/ping", "/healthz/ping"):
            return Response(200, {"content-type": _TEXT}, b"ok")
        if path == OPENAPI_V2 and request.method == "GET":
            return openapi_v2(VERSION["gitVersion"], accept=request.accept)
        kinds = list(self.kinds)
        aggregated = "as=APIGroupDiscoveryList" in request.accept and path in ("/api", "/apis")
        document: JsonObject | None = VERSION if path == "/version" else None
        if path.startswith("/openapi/"):
            document = openapi_document(kinds, path, custom=self._crd_controller.schemas)
        document = document or discovery_document([*kinds, *reviews.REVIEW_KINDS], path, aggregated=aggregated)
        if document and request.method != "GET":
            raise StatusError(status.generic_status(405))
        return (
            json_response(200, document, content_type=AGGREGATED if aggregated else status.JSON) if document else None
        )

    def _handle_review(self, request: Request, parts: list[str], user: User) -> Response | None:
        """Answer reviews, which are evaluated and not stored: SubjectAccessReviews, SelfSubjectReview, TokenReview."""
        match parts:
            case ["apis", group, "v1", plural] if (group, plural) in _REVIEWS:
                kind = _REVIEWS[group, plural]
            case _:
                return None
        if request.method != "POST":
            raise StatusError(status.generic_status(405))
        sent = request_body.decode_object(
            request.body or b"", request.content_type, api_version=kind.api_version, kind=kind.kind
        )
        body = reviews.handle_review(
            plural,
            sent,
            caller=user,
            authorizer=self.access_control.authorizer,
            tokens=self.access_control.tokens,
            now=self._clock.now(),
        )
        return None if body is None else json_response(201, body)

    def _find_service_account(self, namespace: str, name: str) -> JsonObject | None:
        kind = self.kinds.kind_for_name("serviceaccounts")
        return self._store.get(kind, kind.key(namespace, name)) if kind else None

    def _route(self, request: Request, parts: list[str], user: User, state: AdmissionState) -> tuple[Target, bool]:
        """Return the target of a path, and whether it is a collection."""
        match parts:
            case ["api", version, *rest]:
                group = ""
            case ["apis", group, version, *rest]:
                pass
            case _:
                raise _UnknownPath
        if not (self.kinds.has_group(group) or group in _REVIEW_GROUPS):
            raise _UnknownPath
        namespace = ""
        match rest:
            case ["namespaces", name, inner, *deeper] if inner not in _NAMESPACE_SUBRESOURCES:
                namespace, rest = name, [inner, *deeper]
        plural, name, subresource = (*rest, "", "", "")[:3]
        kind = self.kinds.kind_for_path(group, version, plural)
        is_misplaced = kind is None or (bool(namespace) != kind.namespaced and (bool(name) or bool(namespace)))
        if kind is None or is_misplaced or rest[3:] or "" in parts:
            is_builtin = self.kinds.is_builtin_group(group) or group in _REVIEW_GROUPS
            raise StatusError(status.generic_status(404)) if is_builtin else _UnknownPath
        target = Target(
            kind=kind,
            namespace=namespace,
            name=name,
            subresource=subresource,
            username=user.name,
            verb=_VERBS.get(request.method, ""),
            dry_run=("dryRun", "All") in request.query,
            admission=None if request.method == "GET" else _admission_context(request, user, state),
        )
        return target, not name

    def _handle_collection(self, call: ApiCall) -> Response | Watch:
        kind, is_all_namespaces = call.target.kind, call.target.kind.namespaced and not call.target.namespace
        _check_path_names(call)
        match call.request.method:
            case "GET" if is_true(call.query, "watch"):
                return self._reader.watch(call)
            case "GET":
                return json_response(200, convert_list(call, self._reader.list(call), now=self._clock.now()))
            case "POST" if not is_all_namespaces:
                return json_response(201, self.writer.create(call.target, decode_sent_object(call)))
            case "DELETE" if not is_all_namespaces and kind is not NAMESPACE:
                return self._delete_collection(call)
            case _:
                raise StatusError(status.generic_status(405))

    def _handle_object(self, call: ApiCall) -> Response:
        target = call.target
        _check_path_names(call)
        if handle := self._subresource_handler(target):
            return handle(call)
        if target.subresource == FINALIZE and target.kind is NAMESPACE and call.request.method != "PUT":
            raise StatusError(status.generic_status(405))
        known_subresources = (target.kind.has_status and "status", target.kind is NAMESPACE and FINALIZE)
        if target.subresource and target.subresource not in known_subresources:
            raise (
                status.not_found(target.kind, target.name)
                if target.kind.custom_resource
                else StatusError(status.generic_status(404))
            )
        match call.request.method:
            case "GET":
                return json_response(200, convert_object(call, self._reader.get(call), now=self._clock.now()))
            case "PUT":
                self._check_may_create(call)
                result, created = self.writer.put(target, decode_sent_object(call))
                return json_response(201 if created else 200, result)
            case "PATCH":
                return self._patch(call)
            case "DELETE" if not target.subresource:
                return self._delete(call)
            case _:
                raise StatusError(status.generic_status(405))

    def _subresource_handler(self, target: Target) -> Callable[[ApiCall], Response] | None:
        """Return the handler of a subresource that is not part of its object."""
        kind, subresource = target.kind, target.subresource
        if (kind, subresource) == (SERVICE_ACCOUNT, "token"):
            return self._issue_token
        if kind is POD and (subresource in _POD_ACTIONS or is_container_subresource(subresource)):
            return self._handle_pod_subresource
        return self._handle_scale if subresource == SCALE_SUBRESOURCE and kind.scale_paths else None

    def _delete(self, call: ApiCall) -> Response:
        target, deletion = call.target, request_options.delete_options(call.request)
        deleted = self.writer.delete(replace(target, dry_run=is_dry_run(deletion)), deletion)
        # Only the deprecated `orphanDependents: false` answers that deletion is pending.
        is_pending = deletion.get("orphanDependents") is False and self._store.get(target.kind, target.key) is not None
        return json_response(202 if is_pending else 200, deleted)

    def _handle_scale(self, call: ApiCall) -> Response:
        target, kind = call.target, call.target.kind
        scale_call, target_without_admission = (
            replace(call, target=replace(target, kind=SCALE)),
            replace(target, admission=None),
        )
        match call.request.method:
            case "GET":
                return json_response(
                    200, convert_object(scale_call, scale_of(kind, self._reader.get(call)), now=self._clock.now())
                )
            case "PUT":
                body = decode_sent_object(scale_call)
                changed, _ = self.writer.put(
                    target_without_admission, body, change=self._scale_change(call, lambda _: body)
                )
            case "PATCH":
                check_patch(call)
                if content_type_of(call) == APPLY_PATCH:
                    raise unsupported_media_type()
                changed = self.writer.update(
                    target_without_admission,
                    self._scale_change(call, lambda scale: apply_sent_patch(scale_call, scale)),
                )
            case _:
                raise StatusError(status.generic_status(405))
        return json_response(200, scale_of(kind, changed))

    def _scale_change(self, call: ApiCall, change: Change) -> Change:
        """Return the change of the object that `change` of its Scale means, after admission of the Scale."""

        def admitted_change(scale: JsonObject) -> JsonObject:
            changed = change(scale)
            admit = self.writer.admission.admit_subresource
            return admit(call.target, changed, api_version=SCALE.api_version, kind=SCALE.kind, old=scale)

        return lambda obj: apply_scale_change(call.target.kind, obj, admitted_change)

    def _handle_pod_subresource(self, call: ApiCall) -> Response:
        target = call.target
        if is_container_subresource(target.subresource):
            return handle_container_request(self._reader.get(call), call.request.method, target.subresource, call.query)
        if call.request.method != "POST":
            raise StatusError(status.generic_status(405))
        self.writer.check_namespace_active(target, {})
        admit = self.writer.admission.admit_subresource
        if target.subresource == "binding":
            bind_target = replace(target, subresource="", verb="bind", admission=None)
            body = admit(target, decode_body(call, kind="Binding"), api_version="v1", kind="Binding")
            return json_response(201, bind(self.writer, bind_target, body))
        body = decode_body(call, expected_version=None, kind="Eviction")
        body = admit(target, body, api_version="policy/v1", kind="Eviction")
        deletion = body.get("deleteOptions") or {}
        dry_run = target.dry_run or deletion.get("dryRun") == ["All"]
        evict_target = replace(target, subresource="", verb="evict", dry_run=dry_run, admission=None)
        return json_response(201, evict(self.writer, evict_target, body, attempt=call.attempt))

    def _issue_token(self, call: ApiCall) -> Response:
        """Issue a token for a service account."""
        if call.request.method != "POST":
            raise StatusError(status.generic_status(405))
        account, sent = self.writer.read(call.target), call.request.body or b""
        content_type, version = call.request.content_type, reviews.AUTHENTICATION_V1
        body = request_body.decode_object(sent, content_type, api_version=version, kind="TokenRequest")
        issued = issue_token(
            self.access_control.tokens, account, body, now=self._clock.now(), token_id=self.writer.new_uid()
        )
        return json_response(201, issued)

    def _check_may_create(self, call: ApiCall) -> None:
        """Refuse an update that would create the object if the user has no permission to create."""
        target = call.target
        if not target.subresource and self._store.get(target.kind, target.key) is None:
            self.access_control.check_may_create(call.user, call.request)

    def _patch(self, call: ApiCall) -> Response:
        check_patch(call)
        if content_type_of(call) == APPLY_PATCH:
            return self._apply(call)

        in_place = content_type_of(call) != MERGE_PATCH
        return json_response(
            200, self.writer.update(call.target, lambda obj: apply_sent_patch(call, obj), in_place=in_place)
        )

    def _apply(self, call: ApiCall) -> Response:
        target, applied = call.target, decode_applied_configuration(call)
        self._check_may_create(call)

        def change(current: JsonObject | None) -> JsonObject:
            return apply(
                current,
                copy.deepcopy(applied),
                schema=merge_schema_for(target.kind) or DEDUCED,
                manager=call.query.get("fieldManager", ""),
                now=self.writer.now(),
                force=is_true(call.query, "force"),
                subresource=target.subresource,
            )

        if self._store.get(target.kind, target.key) is None and not target.subresource:
            return json_response(201, self.writer.create(target, change(None)))
        return json_response(200, self.writer.update(target, change))

    def _delete_collection(self, call: ApiCall) -> Response:
        deletion = request_options.delete_options(call.request)
        target = replace(call.target, dry_run=is_dry_run(deletion))
        admission = target.admission and replace(target.admission, is_named=False)
        listed = target.memoize("listed", lambda: self._reader.list(call))
        deleted_names = target.memoize("gone", set[str])
        for name in [item["metadata"]["name"] for item in listed["items"]]:
            if name not in deleted_names and self._store.get(target.kind, replace(target, name=name).key):
                self.writer.delete(replace(target, name=name, admission=admission), deletion)
                deleted_names.add(name)
        return json_response(200, listed)


class _UnknownPath(Exception):
    """The path names no known group."""


_TEXT = "text/plain; charset=utf-8"
_POD_ACTIONS = {"eviction", "binding"}
_NAMESPACE_SUBRESOURCES = {"status", FINALIZE}
_REVIEW_GROUPS = {kind.group for kind in reviews.REVIEW_KINDS}
_REVIEWS = {(kind.group, kind.plural): kind for kind in reviews.REVIEW_KINDS}
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def _admission_context(request: Request, user: User, state: AdmissionState) -> AdmissionContext:
    """Return the user and options of a write, as webhooks receive them."""
    query = query_parameters(request)
    admission_options: JsonObject = {"dryRun": ["All"]} if query.get("dryRun") == "All" else {}
    admission_options |= {name: query[name] for name in ("fieldManager", "fieldValidation") if query.get(name)}
    return AdmissionContext(user=user, state=state, options=admission_options)


def _dry_run_target(kind: Kind, name: str) -> Target:
    """Return a target for a dry run, which creates an object without storing it."""
    return Target(kind=kind, namespace="", name=name, username="", verb="create", dry_run=True)


def _check_path_names(call: ApiCall) -> None:
    """Refuse invalid names and namespaces in the path."""
    check_path_segment(call.target.name)
    check_path_segment(call.target.namespace)
