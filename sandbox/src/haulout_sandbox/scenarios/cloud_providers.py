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
from haulout_sandbox.clouds.oci.time_format import parse_time
from haulout_sandbox.scenarios.model import Cloud

_OCI_ACTIONS = {"Reboot": "REBOOT_MIGRATION", "Stop": "STOP", "Terminate": "TERMINATE", "Migrate": "NONE"}
_AWS_CODES = {
    "Reboot": "system-reboot",
    "Stop": "instance-stop",
    "Terminate": "instance-retirement",
    "Freeze": "system-maintenance",
}
_AWS_DESCRIPTIONS = {"Freeze": "The network of the host needs maintenance"}
_RESCHEDULE_WINDOW = timedelta(days=7)

SUPPORTED_KINDS: Mapping[Cloud, tuple[str, ...]] = {  # what each announces
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
class LaunchedInstance:
    """A machine as its cloud knows it, and what its node says of that."""

    instance_id: str
    provider_id: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str] = field(default_factory=dict)


class CloudProvider(Protocol):
    """A cloud."""

    @property
    def title(self) -> str:
        """What people call it."""
        ...

    def launch_instance(self, name: str, *, pool: str, zone: str) -> LaunchedInstance:
        """Return a new instance."""
        ...

    def announce_maintenance(
        self, instance: str, kind: str, *, start: datetime, duration: timedelta, can_reschedule: bool
    ) -> str:
        """Plan a maintenance; return its name."""
        ...

    def maintenance_start(self, event: str) -> datetime:
        """Return when a maintenance is to begin; whoever listens to the cloud may have asked for another time."""
        ...

    def reschedule(self, event: str, *, start: datetime) -> None:
        """Have it begin at another time."""
        ...

    def cancel_maintenance(self, event: str) -> None:
        """Have it not take place."""
        ...

    def discard_maintenance(self, event: str) -> None:
        """Have it be over, as the machine is gone."""
        ...

    def start_maintenance(self, event: str) -> None:
        """Say that it has begun, if the cloud says that."""
        ...

    def end_maintenance(self, event: str) -> None:
        """Say that it is over."""
        ...

    def stop_instance(self, instance: str) -> None:
        """Have an instance be stopped."""
        ...

    def start_instance(self, instance: str) -> None:
        """Have it run again."""
        ...

    def terminate_instance(self, instance: str) -> None:
        """Have it gone for good."""
        ...


class OciProvider:
    """Oracle Cloud Infrastructure."""

    title = TITLES["oci"]

    def __init__(self, clock: Clock) -> None:
        self.cloud = OciCloud(clock)

    def launch_instance(self, name: str, *, pool: str, zone: str) -> LaunchedInstance:
        """Return a new instance."""
        del zone  # which is not part of its name
        instance_id = self.cloud.launch(name)
        labels = {"hostname": name, "displayName": name, "name": pool}
        return LaunchedInstance(instance_id, instance_id, labels, {"oci.oraclecloud.com/compartment-id": COMPARTMENT})

    def announce_maintenance(
        self, instance: str, kind: str, *, start: datetime, duration: timedelta, can_reschedule: bool
    ) -> str:
        """Plan a maintenance; return its name."""
        return self.cloud.schedule(
            instance,
            start=start,
            window=None,
            estimate=duration,
            action=_OCI_ACTIONS[kind],
            can_reschedule=can_reschedule,
        )

    def maintenance_start(self, event: str) -> datetime:
        """Return when a maintenance is to begin."""
        return parse_time(self.cloud.compute_service.events[event]["timeWindowStart"])

    def reschedule(self, event: str, *, start: datetime) -> None:
        """Have it begin at another time."""
        self.cloud.reschedule(event, start)

    def cancel_maintenance(self, event: str) -> None:
        """Have it not take place."""
        self.cloud.end_maintenance(event, state="CANCELED")

    def discard_maintenance(self, event: str) -> None:
        """Have it not take place, as the machine is gone."""
        self.cancel_maintenance(event)

    def start_maintenance(self, event: str) -> None:
        """Say that it has begun."""
        self.cloud.start_maintenance(event)

    def end_maintenance(self, event: str) -> None:
        """Say that it is over."""
        self.cloud.end_maintenance(event)

    def stop_instance(self, instance: str) -> None:
        """Have an instance be stopped."""
        self._set_state(instance, "STOPPED")

    def start_instance(self, instance: str) -> None:
        """Have it run again."""
        self._set_state(instance, "RUNNING")

    def terminate_instance(self, instance: str) -> None:
        """Have it gone for good."""
        self.cloud.terminate(instance)

    def _set_state(self, instance: str, state: str) -> None:
        instances = self.cloud.compute_service.instances
        instances[instance] = instances[instance] | {"lifecycleState": state}


class AwsProvider:
    """Amazon Web Services."""

    title = TITLES["aws"]

    def __init__(self, clock: Clock, *, realm: str) -> None:
        self.cloud = AwsCloud(clock, id_seed=realm)
        self._instance_by_event: dict[str, str] = {}  # by event

    def launch_instance(self, name: str, *, pool: str, zone: str) -> LaunchedInstance:
        """Return a new instance."""
        instance_id = self.cloud.launch(tags={"Name": name, "aws:autoscaling:groupName": pool})
        return LaunchedInstance(instance_id, f"aws:///{zone}/{instance_id}", {"eks.amazonaws.com/nodegroup": pool})

    def announce_maintenance(
        self, instance: str, kind: str, *, start: datetime, duration: timedelta, can_reschedule: bool
    ) -> str:
        """Plan a maintenance; return its name."""
        event = self.cloud.schedule(
            instance,
            _AWS_CODES[kind],
            start=start,
            duration=2 * duration,  # it is over somewhere within its time
            deadline=start + _RESCHEDULE_WINDOW if can_reschedule else None,
            description=_AWS_DESCRIPTIONS.get(kind, "The host needs maintenance"),
        )
        self._instance_by_event[event] = instance
        return event

    def maintenance_start(self, event: str) -> datetime:
        """Return when a maintenance is to begin."""
        (status,), _ = self.cloud.ec2_instances.statuses([self._instance_by_event[event]], page="")
        start: datetime = next(
            event_document["NotBefore"]
            for event_document in status["Events"]
            if event_document["InstanceEventId"] == event
        )
        return start

    def reschedule(self, event: str, *, start: datetime) -> None:
        """Have it begin at another time."""
        self.cloud.reschedule(self._instance_by_event[event], event, start=start)

    def cancel_maintenance(self, event: str) -> None:
        """Have it not take place."""
        self.cloud.cancel_event(self._instance_by_event[event], event)

    def discard_maintenance(self, event: str) -> None:
        """Have it be over: for EC2 it is completed once the instance is off the host."""
        self.end_maintenance(event)

    def start_maintenance(self, event: str) -> None:
        """Say nothing: EC2 never does."""

    def end_maintenance(self, event: str) -> None:
        """Say that it is over."""
        self.cloud.complete_event(self._instance_by_event[event], event)

    def stop_instance(self, instance: str) -> None:
        """Have an instance be stopped."""
        self.cloud.set_state(instance, "stopped")

    def start_instance(self, instance: str) -> None:
        """Have it run again."""
        self.cloud.set_state(instance, "running")

    def terminate_instance(self, instance: str) -> None:
        """Have it gone for good."""
        self.cloud.set_state(instance, "terminated")


class AzureProvider:
    """Azure. Each pool is a scale set, whose machines all see what is planned for any of them."""

    title = TITLES["azure"]

    def __init__(self, clock: Clock, *, realm: str) -> None:
        self.cloud = AzureCloud(clock, id_seed=realm)
        self._last_numbers: dict[str, int] = {}  # of machines so far, by pool

    def launch_instance(self, name: str, *, pool: str, zone: str) -> LaunchedInstance:
        """Return a new instance."""
        del name, zone  # which are not part of what Azure calls it
        number = self._last_numbers[pool] = self._last_numbers.get(pool, -1) + 1
        scale_set = f"aks-{pool}-31415926-vmss"
        instance_id = self.cloud.launch(f"{scale_set}_{number}", group=scale_set)
        resource_prefix = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/sandbox/providers/Microsoft.Compute"
        provider_id = f"azure://{resource_prefix}/virtualMachineScaleSets/{scale_set}/virtualMachines/{number}"
        return LaunchedInstance(instance_id, provider_id, {"kubernetes.azure.com/agentpool": pool})

    def announce_maintenance(
        self, instance: str, kind: str, *, start: datetime, duration: timedelta, can_reschedule: bool
    ) -> str:
        """Plan a maintenance; return its name. It can never be moved, but it can begin early."""
        del can_reschedule
        return self.cloud.schedule([instance], kind, start=start, duration_seconds=round(duration.total_seconds()))

    def maintenance_start(self, event: str) -> datetime:
        """Return when a maintenance begins: whoever listens may have had it begin early."""
        scheduled = self.cloud.events[event]
        return min(scheduled.start, self.cloud.clock.now()) if scheduled.has_started else scheduled.start

    def reschedule(self, event: str, *, start: datetime) -> None:
        """Have it begin at another time."""
        self.cloud.reschedule(event, start)

    def cancel_maintenance(self, event: str) -> None:
        """Have it not take place."""
        self.cloud.remove_event(event)

    def discard_maintenance(self, event: str) -> None:
        """Have it not take place, as the machine is gone."""
        self.cancel_maintenance(event)

    def start_maintenance(self, event: str) -> None:
        """Say that it has begun."""
        self.cloud.start_event(event)

    def end_maintenance(self, event: str) -> None:
        """Say that it is over."""
        self.cloud.remove_event(event)

    def stop_instance(self, instance: str) -> None:
        """Say nothing: nobody hears of it by scheduled events."""

    def start_instance(self, instance: str) -> None:
        """Say nothing, either."""

    def terminate_instance(self, instance: str) -> None:
        """Have it gone for good."""
        self.cloud.delete(instance)


class GcpProvider:
    """Google Cloud. What maintenance does to a machine is a setting of it there, which is set when one is announced.

    A machine has one maintenance at most, which goes by the name of the machine.
    """

    title = TITLES["gcp"]

    def __init__(self, clock: Clock) -> None:
        self.cloud = GcpCloud(clock)

    def launch_instance(self, name: str, *, pool: str, zone: str) -> LaunchedInstance:
        """Return a new instance."""
        instance_id = self.cloud.launch(name, zone=zone, labels={"goog-k8s-node-pool-name": pool})
        return LaunchedInstance(
            instance_id, self.cloud.provider_id(instance_id), {"cloud.google.com/gke-nodepool": pool}
        )

    def announce_maintenance(
        self, instance: str, kind: str, *, start: datetime, duration: timedelta, can_reschedule: bool
    ) -> str:
        """Plan a maintenance; return its name. It can never be moved, but it can begin early."""
        gcp_instance = self.cloud.instances.by_name[instance]
        gcp_instance.live_migrates, gcp_instance.is_spot = kind == "Migrate", kind == "Stop"
        self.cloud.schedule(instance, start=start, duration=2 * duration, can_start_early=can_reschedule)
        return instance

    def maintenance_start(self, event: str) -> datetime:
        """Return when a maintenance is to begin: whoever listens may have had it begin early."""
        upcoming = self.cloud.instances.by_name[event].upcoming_maintenance or {}
        return parse_time(upcoming["windowStartTime"])

    def reschedule(self, event: str, *, start: datetime) -> None:
        """Have it begin at another time."""
        self.cloud.reschedule(event, start=start)

    def cancel_maintenance(self, event: str) -> None:
        """Have it not take place."""
        self.cloud.cancel_maintenance(event)

    def discard_maintenance(self, event: str) -> None:
        """Say nothing: it is gone with the machine."""

    def start_maintenance(self, event: str) -> None:
        """Say that it has begun."""
        self.cloud.start_maintenance(event)

    def end_maintenance(self, event: str) -> None:
        """Say that it is over."""
        if event in self.cloud.instances.by_name:
            self.cloud.end_maintenance(event)

    def stop_instance(self, instance: str) -> None:
        """Have an instance be stopped."""
        self.cloud.set_status(instance, "TERMINATED")

    def start_instance(self, instance: str) -> None:
        """Have it run again."""
        self.cloud.set_status(instance, "RUNNING")

    def terminate_instance(self, instance: str) -> None:
        """Have it gone for good."""
        self.cloud.remove(instance)
