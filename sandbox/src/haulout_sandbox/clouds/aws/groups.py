"""Auto Scaling groups with lifecycle hooks: an instance goes when somebody says so, or when nobody asks to wait."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from haulout.core.clock import Clock
from haulout.errors import CloudError

_BAD_REQUEST = 400
_LONGEST = timedelta(hours=48)
_BEATS = 100


@dataclass(slots=True)
class Action:
    """Auto Scaling waits to terminate an instance, or to put it into service."""

    instance: str
    group: str
    hook: str
    token: str
    transition: str
    until: datetime
    longest: datetime


@dataclass(slots=True)
class Groups:
    """All groups; `goes` is told of instances that are let go."""

    clock: Clock
    goes: Callable[[Action], object]
    hooks: dict[tuple[str, str], timedelta] = field(default_factory=dict)
    actions: dict[str, Action] = field(default_factory=dict)  # by token
    completed: list[str] = field(default_factory=list)  # tokens
    expired: list[str] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def begin(self, instance: str, *, group: str, hook: str, transition: str) -> Action:
        """Have Auto Scaling wait."""
        timeout = self.hooks.setdefault((group, hook), timedelta(minutes=2))
        now = self.clock.now()
        token = f"00000000-0000-4000-8000-{next(self._numbers):012}"
        longest = now + min(_LONGEST, _BEATS * timeout)
        action = Action(instance, group, hook, token, transition, now + timeout, longest)
        self.actions[token] = action
        return action

    def heartbeat(self, instance: str, *, group: str, hook: str, token: str) -> None:
        """Wait longer."""
        action = self._of(instance, token, hook)
        action.until = min(self.clock.now() + self.hooks[group, hook], action.longest)

    def complete(self, instance: str, *, group: str, hook: str, token: str) -> None:
        """Wait no longer."""
        del group
        action = self._of(instance, token, hook)
        self.completed.append(action.token)
        del self.actions[action.token]
        self.goes(action)

    def patience(self, *, group: str, hook: str) -> timedelta | None:
        """Return how long is waited for a heartbeat."""
        return self.hooks.get((group, hook))

    def termination_hooks(self, instance: str) -> tuple[str, list[str]]:
        """Return the group of an instance and the hooks that its termination waits for."""
        self.tick()
        waiting = [it for it in self.actions.values() if it.instance == instance and it.transition == "TERMINATING"]
        return waiting[0].group if waiting else "", [it.hook for it in waiting]

    def tick(self) -> None:
        """Let go what nobody has asked to wait for."""
        for action in [it for it in self.actions.values() if it.until <= self.clock.now()]:
            self.expired.append(action.token)
            del self.actions[action.token]
            self.goes(action)

    def _of(self, instance: str, token: str, hook: str) -> Action:
        self.tick()
        by_hook = (it for it in self.actions.values() if (it.instance, it.hook) == (instance, hook))
        action = self.actions.get(token) if token else next(by_hook, None)
        if action is None or action.instance != instance:
            message = f"No active Lifecycle Action found with instance ID {instance}"
            raise CloudError(message, doing="Auto Scaling", status=_BAD_REQUEST, code="ValidationError")
        return action
