"""The dashboard backend of the leader: the source of `/api/v2`. Its failures do not affect maintenance.

`LeaderOperatorBackend` provides health, configuration and banners to the API. There is one per term of leadership:

    backend = LeaderOperatorBackend(client, status, informers, namespace=…, identity=…)
    NodeBackend(client, informers, operator_info=OperatorInfo(banners=backend.banners, …), operator=backend)
"""

from collections.abc import Collection, Iterator
from datetime import timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING

from haulout import __version__
from haulout.api.leases import LEADER_LEASE, PROFILES_LEASE
from haulout.api.maintenancenotice import NoticeCondition
from haulout.api.resources import LEASES
from haulout.app.operator_status import OperatorStatus
from haulout.controllers.profiles import default_profile
from haulout.controllers.profiles.config.forbidden_plugins import format_refusals
from haulout.controllers.profiles.config.model import Configuration
from haulout.controllers.profiles.plugin import ExternalQuery
from haulout.controllers.profiles.plugins.registry import registries
from haulout.dashboard.api import health
from haulout.dashboard.api.backend import TimelineQuery
from haulout.dashboard.api.banners import BannerInputs, banners
from haulout.dashboard.api.nodes.informers import Informers
from haulout.dashboard.api.notices import notice_to_api
from haulout.dashboard.api.types import (
    Banner,
    ComponentHealth,
    ConfigurationEdit,
    ConfigurationPreview,
    Health,
    LeaseHealth,
    NodeList,
    Notice,
    Timeline,
)
from haulout.dashboard.api.types import Configuration as ConfigurationTold
from haulout.errors import KubeError
from haulout.httpserver import metrics
from haulout.kube.client import Client
from haulout.providers.component import EventSourceComponent

if TYPE_CHECKING:
    from haulout.dashboard.api.configuration.preview import NextStep
    from haulout.dashboard.api.configuration.reader import ConfigurationReader
    from haulout.dashboard.api.configuration.view import ConfigurationFile
    from haulout.dashboard.api.history.timeline import TimelineBuilder


class LeaderOperatorBackend:
    """Health, configuration, timeline and banners of this replica, which leads."""

    def __init__(
        self, client: Client, status: OperatorStatus, informers: Informers, *, namespace: str, identity: str
    ) -> None:
        self._client = client
        self._clock = client.clock
        self._status = status
        self._namespace = namespace
        self._identity = identity
        self._informers = informers

    # Created, and imported, at the first use: most of the time nobody opens these pages.

    @cached_property
    def _timelines(self) -> "TimelineBuilder":
        from haulout.dashboard.api.history.timeline import TimelineBuilder

        return TimelineBuilder(self._client, self._informers)

    @cached_property
    def _configurations(self) -> "ConfigurationReader":
        from haulout.dashboard.api.configuration.reader import ConfigurationReader

        return ConfigurationReader(
            file=self._profiles_file,
            in_force=self._configuration_in_force,
            with_defaults=self._with_default_profile,
            nodes=self._node_names,
            make_next_step=self._step_preview,
            registries=registries,
            clock=self._clock,
        )

    async def timeline(self, query: TimelineQuery, fleet: NodeList) -> Timeline:
        from haulout.dashboard.api.history.timeline import LIMIT, resolve_time_range

        time_range = resolve_time_range(query.start, query.end, now=self._clock.now())
        profiles = self._status.profiles
        answers = None if profiles is None else profiles.answers
        return await self._timelines.build(
            query.node_filter.apply(fleet.nodes),
            time_range,
            profiles=self._with_default_profile(self._configuration_in_force()).profiles,
            lookup=_no_answer if answers is None else answers.cached_result,
            limit=LIMIT if query.limit is None else query.limit,
        )

    async def configuration(self) -> ConfigurationTold:
        return await self._configurations.current()

    async def check(self, edit: ConfigurationEdit) -> ConfigurationPreview:
        """Return what would change with another configuration."""
        return await self._configurations.preview(edit.text)

    async def health(self, *, viewers: int) -> Health:
        status, usage = self._status, metrics.resource_usage()
        return Health(
            identity=self._identity,
            version=__version__,
            started=status.started or self._clock.now(),
            python=usage.python,
            memory_bytes=usage.memory_bytes,
            cpu_seconds=usage.cpu_seconds,
            viewers=viewers,
            leases=tuple([await self._lease(name) for name in (LEADER_LEASE, PROFILES_LEASE)]),
            watches=health.watches(self._client.metrics),
            queues=health.queues(self._client.metrics),
            requests=health.calls(self._client.request_metrics, now=self._clock.monotonic()),
            components=(*self._component_health(), *self._source_health()),
            warnings=() if status.recent_warnings is None else status.recent_warnings.to_api(self._redact),
        )

    def banners(self) -> tuple[Banner, ...]:
        failing, sources = tuple(self._failing_components()), tuple(self._source_health())
        profiles = self._status.profiles
        controller = None if profiles is None else profiles.controller
        missing_permissions = None if profiles is None else profiles.missing_permissions
        state = BannerInputs(
            leader=self._identity,
            file="" if profiles is None else str(profiles.file.path),
            problem=None if profiles is None else profiles.file.problem,
            has_last_good=profiles is not None and profiles.file.is_loaded,
            missing_permissions=""
            if missing_permissions is None or not missing_permissions.missing
            else format_refusals(missing_permissions.missing),
            components=failing,
            sources=sources,
            watches=health.watches(self._client.metrics),
            notices=self._late_notices(),
            freezes=self._informers.freezes.current().active(self._clock.now()),
            other_warnings=tuple(self._other_warnings()),
            skipped_nodes=0 if controller is None else sum(bool(item.problem) for item in controller.statuses.all()),
        )
        return banners(state)

    # Status

    def _late_notices(self) -> list[Notice]:
        """Return the notices whose nodes will not be empty in time."""
        notices = self._informers.notices()
        found = () if notices is None else notices.notices.all()
        on_time_conditions = ((notice, notice.status.condition(NoticeCondition.ON_TIME)) for notice in found)
        return [
            notice_to_api(notice, now=self._clock.now())
            for notice, on_time in on_time_conditions
            if on_time and on_time.status == "False"
        ]

    def _failing_components(self) -> Iterator[ComponentHealth]:
        for component in self._status.components:
            is_webhook = component is self._status.webhook
            problems = [*component.unready(), *component.problems()] if is_webhook else [*component.failures()]
            if problems and not isinstance(component, EventSourceComponent):
                yield ComponentHealth(name=component.title, is_healthy=False, message="; ".join(problems))

    def _other_warnings(self) -> Iterator[str]:
        """Yield the problems of components that have no banner of their own."""
        status = self._status
        components = [item for item in status.components if item not in (status.webhook, status.profiles)]
        problems = {
            problem: None
            for component in components
            if not isinstance(component, EventSourceComponent)
            for problem in component.problems()
            if problem not in component.failures()
        }
        yield from problems

    async def _lease(self, name: str) -> LeaseHealth:
        try:
            return health.lease(name, await self._client.find(LEASES, name, namespace=self._namespace))
        except KubeError as error:
            return LeaseHealth(name=name, holder=f"unknown: {error}")

    def _component_health(self) -> Iterator[ComponentHealth]:
        for component in self._status.components:
            if not isinstance(component, EventSourceComponent):
                problems = [*component.unready(), *component.problems()]
                yield ComponentHealth(name=component.title, is_healthy=not problems, message="; ".join(problems))

    def _source_health(self) -> Iterator[ComponentHealth]:
        for component in self._status.components:
            if isinstance(component, EventSourceComponent):
                yield self._health_of_source(component)

    def _health_of_source(self, component: EventSourceComponent) -> ComponentHealth:
        source, problems = component.source, tuple(component.problems())
        silence = None if source is None else source.time_since_last_answer()
        waiting_text = "waiting until MaintenanceNotices can be written" if source is None else ""
        return ComponentHealth(
            name=component.title,
            is_healthy=not any(component.failures()) and (component.is_up or source is None),
            message="; ".join(problems) or waiting_text,
            last_response=None if silence is None else self._clock.now() - silence,
        )

    def _redact(self, text: str) -> str:
        from haulout.dashboard.api.configuration.edit import secrets_of

        # A logged warning may contain a secret of the configuration.
        for secret in secrets_of(self._configuration_in_force()):
            text = text.replace(secret, "(hidden)")
        return text

    # Configuration

    def _profiles_file(self) -> "ConfigurationFile":
        from haulout.dashboard.api.configuration.view import ConfigurationFile

        profiles = self._status.profiles
        if profiles is None:
            return ConfigurationFile(path="", newest=None, last_good=None)
        profiles_file = profiles.file
        return ConfigurationFile(
            path=str(profiles_file.path),
            newest=profiles_file.content,
            last_good=profiles_file.last_good_content,
            problem=profiles_file.problem,
            warnings=tuple(profiles_file.warnings),
            environ=profiles_file.environ,
        )

    def _configuration_in_force(self) -> Configuration:
        profiles = self._status.profiles
        return default_profile.configuration() if profiles is None else profiles.file.configuration

    def _recovery(self) -> timedelta | None:
        profiles = self._status.profiles
        return None if profiles is None else default_profile.recovery_timeout(profiles.file.environ)

    def _with_default_profile(self, configuration: Configuration) -> Configuration:
        is_unfinished = any(map(default_profile.is_unfinished_on, self._informers.nodes.all()))
        return default_profile.effective_configuration(
            configuration, has_unfinished_nodes=is_unfinished, recovery=self._recovery()
        )

    def _node_names(self) -> Collection[str]:
        return sorted(node.name for node in self._informers.nodes.all())

    def _step_preview(self) -> "NextStep":
        """Return the function that previews a node's next step, from the profiles controller's view if it runs here."""
        from haulout.controllers.profiles.view import partial_snapshot

        profiles = self._status.profiles
        if profiles is not None and profiles.controller is not None and profiles.informers is not None:
            return partial(profiles.controller.preview, view_of=profiles.informers.passive_view)
        notices = self._informers.notices()
        announced = () if notices is None else tuple(notices.notices.all())
        return partial_snapshot.next_step_of(
            tuple(self._informers.nodes.all()),
            announced,
            self._clock.now(),
            freezes=self._informers.freezes.current(),
        )


def _no_answer(_: ExternalQuery) -> None:
    """Return no cached result: no profiles controller runs here."""
