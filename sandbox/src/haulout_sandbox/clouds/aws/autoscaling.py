"""Auto Scaling groups with lifecycle hooks: an instance continues when its action is completed or times out."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from haulout.core.clock import Clock
from haulout.errors import CloudError

_BAD_REQUEST = 400
_MAX_WAIT = timedelta(hours=48)
_MAX_HEARTBEATS = 100


@dataclass(slots=True)
class LifecycleAction:
    """A lifecycle action: Auto Scaling waits to terminate an instance, or to put it into service."""

    instance: str
    group: str
    hook: str
    token: str
    transition: str
    expires_at: datetime
    latest_end: datetime


@dataclass(slots=True)
class AutoScaling:
    """All groups; `on_released` is called for instances whose action has ended."""

    clock: Clock
    on_released: Callable[[LifecycleAction], object]
    hooks: dict[tuple[str, str], timedelta] = field(default_factory=dict)
    actions: dict[str, LifecycleAction] = field(default_factory=dict)  # by token
    completed: list[str] = field(default_factory=list)  # tokens
    expired: list[str] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def start_action(self, instance: str, *, group: str, hook: str, transition: str) -> LifecycleAction:
        timeout = self.hooks.setdefault((group, hook), timedelta(minutes=2))
        now = self.clock.now()
        token = f"00000000-0000-4000-8000-{next(self._numbers):012}"
        latest_end = now + min(_MAX_WAIT, _MAX_HEARTBEATS * timeout)
        action = LifecycleAction(instance, group, hook, token, transition, now + timeout, latest_end)
        self.actions[token] = action
        return action

    def heartbeat(self, instance: str, *, group: str, hook: str, token: str) -> None:
        action = self._active_action(instance, token, hook)
        action.expires_at = min(self.clock.now() + self.hooks[group, hook], action.latest_end)

    def complete(self, instance: str, *, group: str, hook: str, token: str) -> None:
        del group
        action = self._active_action(instance, token, hook)
        self.completed.append(action.token)
        del self.actions[action.token]
        self.on_released(action)

    def heartbeat_timeout(self, *, group: str, hook: str) -> timedelta | None:
        return self.hooks.get((group, hook))

    def termination_hooks(self, instance: str) -> tuple[str, list[str]]:
        """Return the group of an instance and its termination hooks."""
        self.expire_actions()
        waiting_actions = [
            action
            for action in self.actions.values()
            if action.instance == instance and action.transition == "TERMINATING"
        ]
        return waiting_actions[0].group if waiting_actions else "", [action.hook for action in waiting_actions]

    def expire_actions(self) -> None:
        """End all actions whose timeout has passed."""
        for action in [candidate for candidate in self.actions.values() if candidate.expires_at <= self.clock.now()]:
            self.expired.append(action.token)
            del self.actions[action.token]
            self.on_released(action)

    def _active_action(self, instance: str, token: str, hook: str) -> LifecycleAction:
        self.expire_actions()
        by_hook = (
            candidate for candidate in self.actions.values() if (candidate.instance, candidate.hook) == (instance, hook)
        )
        action = self.actions.get(token) if token else next(by_hook, None)
        if action is None or action.instance != instance:
            message = f"No active Lifecycle Action found with instance ID {instance}"
            raise CloudError(message, doing="Auto Scaling", status=_BAD_REQUEST, code="ValidationError")
        return action
