"""The clouds whose machines are nodes of a scenario: one way to speak to the models of either.

    instance = aws.launch("large-01", pool="large", zone="zone-a")
    event = aws.announce(instance.called, "Reboot", start=…, lasts=…, movable=True)
    aws.end(event)

Whoever listens to the cloud hears of it as in life: by messages of a stream or a queue, or by asking.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from haulout.core.clock import Clock
from haulout_sandbox.clouds.aws import AwsCloud
from haulout_sandbox.clouds.azure import AzureCloud
from haulout_sandbox.clouds.azure.cloud import SUBSCRIPTION
from haulout_sandbox.clouds.gcp import GcpCloud
from haulout_sandbox.clouds.oci import OciCloud
from haulout_sandbox.clouds.oci.cloud import COMPARTMENT
from haulout_sandbox.clouds.oci.written import instant
from haulout_sandbox.scenarios.model import Cloud

_OCI_ACTIONS = {"Reboot": "REBOOT_MIGRATION", "Stop": "STOP", "Terminate": "TERMINATE", "Migrate": "NONE"}
_AWS_CODES = {
    "Reboot": "system-reboot",
    "Stop": "instance-stop",
    "Terminate": "instance-retirement",
    "Freeze": "system-maintenance",
}
_AWS_WORDS = {"Freeze": "The network of the host needs maintenance"}
_MOVABLE_BY = timedelta(days=7)

KINDS: Mapping[Cloud, tuple[str, ...]] = {  # what each announces
    "oci": tuple(_OCI_ACTIONS),
    "aws": tuple(_AWS_CODES),
    "azure": ("Reboot", "Terminate", "Freeze"),
    "gcp": ("Reboot", "Stop", "Migrate"),
}
TITLES: Mapping[Cloud, str] = {  # what people call them
    "oci": "OCI",
    "aws": "AWS",
    "azure": "Azure",
    "gcp": "Google Cloud",
}


@dataclass(frozen=True, slots=True)
class Instance:
    """A machine as its cloud knows it, and what its node says of that."""

    called: str
    provider_id: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str] = field(default_factory=dict)


class Provider(Protocol):
    """A cloud."""

    @property
    def title(self) -> str:
        """What people call it."""
        ...

    def launch(self, name: str, *, pool: str, zone: str) -> Instance:
        """Return a new instance."""
        ...

    def announce(self, instance: str, kind: str, *, start: datetime, lasts: timedelta, movable: bool) -> str:
        """Plan a maintenance; return its name."""
        ...

    def start_of(self, event: str) -> datetime:
        """Return when a maintenance is to begin; whoever listens to the cloud may have asked for another time."""
        ...

    def move(self, event: str, *, start: datetime) -> None:
        """Have it begin at another time."""
        ...

    def cancel(self, event: str) -> None:
        """Have it not take place."""
        ...

    def drop(self, event: str) -> None:
        """Have it be over, as the machine is gone."""
        ...

    def begin(self, event: str) -> None:
        """Say that it has begun, if the cloud says that."""
        ...

    def end(self, event: str) -> None:
        """Say that it is over."""
        ...

    def stop(self, instance: str) -> None:
        """Have an instance be stopped."""
        ...

    def start(self, instance: str) -> None:
        """Have it run again."""
        ...

    def terminate(self, instance: str) -> None:
        """Have it gone for good."""
        ...


class Oci:
    """Oracle Cloud Infrastructure."""

    title = TITLES["oci"]

    def __init__(self, clock: Clock) -> None:
        self.cloud = OciCloud(clock)

    def launch(self, name: str, *, pool: str, zone: str) -> Instance:
        """Return a new instance."""
        del zone  # which is not part of its name
        called = self.cloud.launch(name)
        labels = {"hostname": name, "displayName": name, "name": pool}
        return Instance(called, called, labels, {"oci.oraclecloud.com/compartment-id": COMPARTMENT})

    def announce(self, instance: str, kind: str, *, start: datetime, lasts: timedelta, movable: bool) -> str:
        """Plan a maintenance; return its name."""
        return self.cloud.schedule(
            instance, start=start, window=None, estimate=lasts, action=_OCI_ACTIONS[kind], movable=movable
        )

    def start_of(self, event: str) -> datetime:
        """Return when a maintenance is to begin."""
        return instant(self.cloud.machines.events[event]["timeWindowStart"])

    def move(self, event: str, *, start: datetime) -> None:
        """Have it begin at another time."""
        self.cloud.reschedule(event, start)

    def cancel(self, event: str) -> None:
        """Have it not take place."""
        self.cloud.end(event, state="CANCELED")

    def drop(self, event: str) -> None:
        """Have it not take place, as the machine is gone."""
        self.cancel(event)

    def begin(self, event: str) -> None:
        """Say that it has begun."""
        self.cloud.begin(event)

    def end(self, event: str) -> None:
        """Say that it is over."""
        self.cloud.end(event)

    def stop(self, instance: str) -> None:
        """Have an instance be stopped."""
        self._change(instance, "STOPPED")

    def start(self, instance: str) -> None:
        """Have it run again."""
        self._change(instance, "RUNNING")

    def terminate(self, instance: str) -> None:
        """Have it gone for good."""
        self.cloud.terminate(instance)

    def _change(self, instance: str, state: str) -> None:
        known = self.cloud.machines.instances
        known[instance] = known[instance] | {"lifecycleState": state}


class Aws:
    """Amazon Web Services."""

    title = TITLES["aws"]

    def __init__(self, clock: Clock, *, realm: str) -> None:
        self.cloud = AwsCloud(clock, realm=realm)
        self._instances: dict[str, str] = {}  # by event

    def launch(self, name: str, *, pool: str, zone: str) -> Instance:
        """Return a new instance."""
        called = self.cloud.launch(tags={"Name": name, "aws:autoscaling:groupName": pool})
        return Instance(called, f"aws:///{zone}/{called}", {"eks.amazonaws.com/nodegroup": pool})

    def announce(self, instance: str, kind: str, *, start: datetime, lasts: timedelta, movable: bool) -> str:
        """Plan a maintenance; return its name."""
        event = self.cloud.schedule(
            instance,
            _AWS_CODES[kind],
            start=start,
            last=2 * lasts,  # it is over somewhere within its time
            deadline=start + _MOVABLE_BY if movable else None,
            description=_AWS_WORDS.get(kind, "The host needs maintenance"),
        )
        self._instances[event] = instance
        return event

    def start_of(self, event: str) -> datetime:
        """Return when a maintenance is to begin."""
        (status,), _ = self.cloud.machines.statuses([self._instances[event]], page="")
        found: datetime = next(it["NotBefore"] for it in status["Events"] if it["InstanceEventId"] == event)
        return found

    def move(self, event: str, *, start: datetime) -> None:
        """Have it begin at another time."""
        self.cloud.reschedule(self._instances[event], event, start=start)

    def cancel(self, event: str) -> None:
        """Have it not take place."""
        self.cloud.cancel(self._instances[event], event)

    def drop(self, event: str) -> None:
        """Have it be over: for EC2 it is completed once the instance is off the host."""
        self.end(event)

    def begin(self, event: str) -> None:
        """Say nothing: EC2 never does."""

    def end(self, event: str) -> None:
        """Say that it is over."""
        self.cloud.finish(self._instances[event], event)

    def stop(self, instance: str) -> None:
        """Have an instance be stopped."""
        self.cloud.change(instance, "stopped")

    def start(self, instance: str) -> None:
        """Have it run again."""
        self.cloud.change(instance, "running")

    def terminate(self, instance: str) -> None:
        """Have it gone for good."""
        self.cloud.change(instance, "terminated")


class Azure:
    """Azure. Each pool is a scale set, whose machines all see what is planned for any of them."""

    title = TITLES["azure"]

    def __init__(self, clock: Clock, *, realm: str) -> None:
        self.cloud = AzureCloud(clock, realm=realm)
        self._numbers: dict[str, int] = {}  # of machines so far, by pool

    def launch(self, name: str, *, pool: str, zone: str) -> Instance:
        """Return a new instance."""
        del name, zone  # which are not part of what Azure calls it
        number = self._numbers[pool] = self._numbers.get(pool, -1) + 1
        scale_set = f"aks-{pool}-31415926-vmss"
        called = self.cloud.launch(f"{scale_set}_{number}", group=scale_set)
        where = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/sandbox/providers/Microsoft.Compute"
        provider_id = f"azure://{where}/virtualMachineScaleSets/{scale_set}/virtualMachines/{number}"
        return Instance(called, provider_id, {"kubernetes.azure.com/agentpool": pool})

    def announce(self, instance: str, kind: str, *, start: datetime, lasts: timedelta, movable: bool) -> str:
        """Plan a maintenance; return its name. It can never be moved, but it can begin early."""
        del movable
        return self.cloud.schedule([instance], kind, start=start, seconds=round(lasts.total_seconds()))

    def start_of(self, event: str) -> datetime:
        """Return when a maintenance begins: whoever listens may have had it begin early."""
        found = self.cloud.events[event]
        return min(found.start, self.cloud.clock.now()) if found.has_begun else found.start

    def move(self, event: str, *, start: datetime) -> None:
        """Have it begin at another time."""
        self.cloud.reschedule(event, start)

    def cancel(self, event: str) -> None:
        """Have it not take place."""
        self.cloud.finish(event)

    def drop(self, event: str) -> None:
        """Have it not take place, as the machine is gone."""
        self.cancel(event)

    def begin(self, event: str) -> None:
        """Say that it has begun."""
        self.cloud.begin(event)

    def end(self, event: str) -> None:
        """Say that it is over."""
        self.cloud.finish(event)

    def stop(self, instance: str) -> None:
        """Say nothing: nobody hears of it by scheduled events."""

    def start(self, instance: str) -> None:
        """Say nothing, either."""

    def terminate(self, instance: str) -> None:
        """Have it gone for good."""
        self.cloud.delete(instance)


class Gcp:
    """Google Cloud. What maintenance does to a machine is a setting of it there, which is set when one is announced.

    A machine has one maintenance at most, which goes by the name of the machine.
    """

    title = TITLES["gcp"]

    def __init__(self, clock: Clock) -> None:
        self.cloud = GcpCloud(clock)

    def launch(self, name: str, *, pool: str, zone: str) -> Instance:
        """Return a new instance."""
        called = self.cloud.launch(name, zone=zone, labels={"goog-k8s-node-pool-name": pool})
        return Instance(called, self.cloud.provider_id(called), {"cloud.google.com/gke-nodepool": pool})

    def announce(self, instance: str, kind: str, *, start: datetime, lasts: timedelta, movable: bool) -> str:
        """Plan a maintenance; return its name. It can never be moved, but it can begin early."""
        machine = self.cloud.machines.by_name[instance]
        machine.migrates, machine.is_spot = kind == "Migrate", kind == "Stop"
        self.cloud.schedule(instance, start=start, last=2 * lasts, can_begin_early=movable)
        return instance

    def start_of(self, event: str) -> datetime:
        """Return when a maintenance is to begin: whoever listens may have had it begin early."""
        upcoming = self.cloud.machines.by_name[event].upcoming or {}
        return instant(upcoming["windowStartTime"])

    def move(self, event: str, *, start: datetime) -> None:
        """Have it begin at another time."""
        self.cloud.reschedule(event, start=start)

    def cancel(self, event: str) -> None:
        """Have it not take place."""
        self.cloud.cancel(event)

    def drop(self, event: str) -> None:
        """Say nothing: it is gone with the machine."""

    def begin(self, event: str) -> None:
        """Say that it has begun."""
        self.cloud.begin(event)

    def end(self, event: str) -> None:
        """Say that it is over."""
        if event in self.cloud.machines.by_name:
            self.cloud.end(event)

    def stop(self, instance: str) -> None:
        """Have an instance be stopped."""
        self.cloud.change(instance, "TERMINATED")

    def start(self, instance: str) -> None:
        """Have it run again."""
        self.cloud.change(instance, "RUNNING")

    def terminate(self, instance: str) -> None:
        """Have it gone for good."""
        self.cloud.drop(instance)
