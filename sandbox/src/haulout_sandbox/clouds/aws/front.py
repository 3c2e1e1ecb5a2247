"""The model of AWS over HTTP, as boto3 speaks to it: EC2 and Auto Scaling by the query protocol, SQS by the JSON one.

    async with serving(cloud, host="127.0.0.1") as port:
        ec2 = boto3.client("ec2", endpoint_url=f"http://127.0.0.1:{port}", …)

One address serves all of them. Requests have to be signed; whether the signature is right is not looked at.
"""

import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any
from xml.sax.saxutils import escape

import msgspec
from aiohttp import web

from haulout.errors import CloudError
from haulout_sandbox.clouds.answering import answering
from haulout_sandbox.clouds.aws.cloud import AwsCloud
from haulout_sandbox.front import listening

_SQS = "AmazonSQS."
_EC2_SETS = {
    "InstanceStatuses": "instanceStatusSet",
    "Events": "eventsSet",
    "Reservations": "reservationSet",
    "Instances": "instancesSet",
    "Tags": "tagSet",
    "State": "instanceState",
}


@asynccontextmanager
async def serving(cloud: AwsCloud, *, host: str, port: int = 0) -> AsyncIterator[int]:
    """Answer while the context lasts; yields the port."""
    app = web.Application()
    mount(app, cloud)
    async with answering(app, listening(host, port)) as at:
        yield at


def mount(app: web.Application, cloud: AwsCloud) -> None:
    """Have an application answer whatever is posted to it, wherever that is not for others."""
    app.router.add_post("/{path:.*}", _Front(cloud).handle)


class _Front:
    def __init__(self, cloud: AwsCloud) -> None:
        self._cloud = cloud
        self._requests = itertools.count(1)

    async def handle(self, request: web.Request) -> web.Response:
        target = request.headers.get("X-Amz-Target", "")
        form = {} if target else {key: str(value) for key, value in (await request.post()).items()}
        action = target.removeprefix(_SQS) or form.get("Action", "")
        speaks = _Json() if target.startswith(_SQS) else _Ec2() if form.get("Version") == "2016-11-15" else _Groups()
        called = f"request-{next(self._requests)}"
        try:
            if not request.headers.get("Authorization", "").startswith("AWS4-HMAC-SHA256"):
                raise _refused("MissingAuthenticationToken", "The request is not signed", status=HTTPStatus.FORBIDDEN)
            asked = msgspec.json.decode(await request.read()) if target else {}
            answer = await self._answer(action, asked, form)
        except (KeyError, ValueError, TypeError) as problem:
            error = _refused("ValidationError", f"{action}: {type(problem).__name__} {problem}")
        except CloudError as refused:
            error = refused
        else:
            return web.Response(text=speaks.answer(action, answer, called), content_type=speaks.content_type)
        if not error.status:
            if request.transport is not None:
                request.transport.abort()  # no answer at all
            return web.Response()
        headers = {"Retry-After": str(int(error.retry_after.total_seconds()))} if error.retry_after else {}
        text = speaks.error(error, called)
        return web.Response(status=error.status, text=text, content_type=speaks.content_type, headers=headers)

    async def _answer(self, action: str, asked: Mapping[str, Any], form: Mapping[str, str]) -> Mapping[str, Any]:
        match action:
            case "ReceiveMessage" | "DeleteMessage" | "ChangeMessageVisibility" | "SendMessage":
                return await self._queue(action, asked)
            case "DescribeInstanceStatus" | "DescribeInstances" | "ModifyInstanceEventStartTime":
                return await self._ec2(action, form)
            case "CompleteLifecycleAction" | "RecordLifecycleActionHeartbeat" | "DescribeLifecycleHooks":
                return await self._groups(action, form)
            case "DescribeAutoScalingInstances":
                instance = form["InstanceIds.member.1"]
                group, _ = await self._cloud.termination_hooks(instance)
                found = {"InstanceId": instance, "AutoScalingGroupName": group, "LifecycleState": "Terminating:Wait"}
                return {"AutoScalingInstances": [found] if group else []}
        raise _refused("InvalidAction", f"The action {action} is not valid for this web service.")

    async def _queue(self, action: str, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        if action == "ReceiveMessage":
            found = await self._cloud.receive(
                most=asked.get("MaxNumberOfMessages", 1),
                wait=timedelta(seconds=asked.get("WaitTimeSeconds", 0)),
                hidden=timedelta(seconds=asked.get("VisibilityTimeout", 30)),
            )
            return {"Messages": found} if found else {}
        if action == "DeleteMessage":
            await self._cloud.delete(asked["ReceiptHandle"])
        elif action == "ChangeMessageVisibility":
            await self._cloud.hide(asked["ReceiptHandle"], hidden=timedelta(seconds=asked["VisibilityTimeout"]))
        else:
            self._cloud.queue.send(asked["MessageBody"])
            return {"MessageId": self._cloud.queue.messages[-1].called}
        return {}

    async def _ec2(self, action: str, form: Mapping[str, str]) -> Mapping[str, Any]:
        if action == "ModifyInstanceEventStartTime":
            to = datetime.fromisoformat(form["NotBefore"])
            return {"Event": await self._cloud.move_event(form["InstanceId"], form["InstanceEventId"], to=to)}
        instances = [value for key, value in form.items() if key.startswith("InstanceId.")]
        if action == "DescribeInstances":
            return {"Reservations": [{"Instances": [it]} for it in await self._cloud.instances(instances)]}
        found, page = await self._cloud.statuses(instances, page=form.get("NextToken", ""))
        if form.get("IncludeAllInstances") != "true":
            found = [it for it in found if it["InstanceState"]["Name"] == "running"]
        return {"InstanceStatuses": found} | ({"NextToken": page} if page else {})

    async def _groups(self, action: str, form: Mapping[str, str]) -> Mapping[str, Any]:
        group = form["AutoScalingGroupName"]
        if action == "DescribeLifecycleHooks":
            hook = form.get("LifecycleHookNames.member.1", "")
            if not hook:
                names = [name for of, name in self._cloud.groups.hooks if of == group]
                same = {"AutoScalingGroupName": group, "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING"}
                return {"LifecycleHooks": [same | {"LifecycleHookName": it} for it in names]}
            timeout = await self._cloud.patience(group=group, hook=hook)
            found = {"LifecycleHookName": hook, "AutoScalingGroupName": group}
            seconds = timeout and int(timeout.total_seconds())
            return {"LifecycleHooks": [] if seconds is None else [found | {"HeartbeatTimeout": seconds}]}
        call = self._cloud.complete if action == "CompleteLifecycleAction" else self._cloud.heartbeat
        hook, token = form["LifecycleHookName"], form.get("LifecycleActionToken", "")
        await call(form["InstanceId"], group=group, hook=hook, token=token)
        return {}


class _Json:
    content_type = "application/x-amz-json-1.0"

    def answer(self, _: str, answer: Mapping[str, Any], __: str) -> str:
        return msgspec.json.encode(answer).decode()

    def error(self, error: CloudError, _: str) -> str:
        return msgspec.json.encode({"__type": f"com.amazonaws.sqs#{error.code}", "message": error.message}).decode()


class _Ec2:
    content_type = "text/xml"

    def answer(self, action: str, answer: Mapping[str, Any], called: str) -> str:
        return f"<{action}Response><requestId>{called}</requestId>{_ec2_fields(answer)}</{action}Response>"

    def error(self, error: CloudError, called: str) -> str:
        told = f"<Code>{escape(error.code)}</Code><Message>{escape(error.message)}</Message>"
        return f"<Response><Errors><Error>{told}</Error></Errors><RequestID>{called}</RequestID></Response>"


class _Groups:
    content_type = "text/xml"

    def answer(self, action: str, answer: Mapping[str, Any], called: str) -> str:
        result = f"<{action}Result>{_fields(answer)}</{action}Result>"
        metadata = f"<ResponseMetadata><RequestId>{called}</RequestId></ResponseMetadata>"
        return f"<{action}Response>{result}{metadata}</{action}Response>"

    def error(self, error: CloudError, called: str) -> str:
        told = f"<Type>Sender</Type><Code>{escape(error.code)}</Code><Message>{escape(error.message)}</Message>"
        return f"<ErrorResponse><Error>{told}</Error><RequestId>{called}</RequestId></ErrorResponse>"


def _ec2_fields(values: Mapping[str, Any]) -> str:
    renamed = {_EC2_SETS.get(key, key[0].lower() + key[1:]): value for key, value in values.items()}
    return "".join(f"<{key}>{_value(value, item='item', fields=_ec2_fields)}</{key}>" for key, value in renamed.items())


def _fields(values: Mapping[str, Any]) -> str:
    return "".join(f"<{key}>{_value(value, item='member', fields=_fields)}</{key}>" for key, value in values.items())


def _value(value: Any, *, item: str, fields: Any) -> str:
    if isinstance(value, Mapping):
        return str(fields(value))
    if isinstance(value, list):
        return "".join(f"<{item}>{_value(it, item=item, fields=fields)}</{item}>" for it in value)
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%S}.000Z"
    return escape(str(value))


def _refused(code: str, message: str, *, status: int = HTTPStatus.BAD_REQUEST) -> CloudError:
    return CloudError(message, doing="AWS", status=status, code=code)
