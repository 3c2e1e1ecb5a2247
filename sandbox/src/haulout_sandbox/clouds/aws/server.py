"""The AWS model over HTTP, for boto3: the query protocol of EC2 and Auto Scaling, and the JSON protocol of SQS.

    async with serve(cloud, host="127.0.0.1") as port:
        ec2 = boto3.client("ec2", endpoint_url=f"http://127.0.0.1:{port}", …)

One address serves all of them. Requests must be signed; signatures are not verified.
"""

import itertools
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import partial
from http import HTTPStatus
from typing import Any
from xml.sax.saxutils import escape

import msgspec
from aiohttp import web

from haulout.errors import CloudError
from haulout_sandbox.clouds.aws.cloud import AwsCloud
from haulout_sandbox.clouds.http_server import abort, serve_routes

_SQS_TARGET_PREFIX = "AmazonSQS."
_EC2_ELEMENT_NAMES = {
    "InstanceStatuses": "instanceStatusSet",
    "Events": "eventsSet",
    "Reservations": "reservationSet",
    "Instances": "instancesSet",
    "Tags": "tagSet",
    "State": "instanceState",
}


def add_routes(app: web.Application, cloud: AwsCloud) -> None:
    """Add the AWS routes, which take every POST that no other route takes."""
    app.router.add_post("/{path:.*}", _RequestHandler(cloud).handle)


serve = partial(serve_routes, add_routes)


class _RequestHandler:
    def __init__(self, cloud: AwsCloud) -> None:
        self._cloud = cloud
        self._request_numbers = itertools.count(1)

    async def handle(self, request: web.Request) -> web.Response:
        target = request.headers.get("X-Amz-Target", "")
        form = {} if target else {key: str(value) for key, value in (await request.post()).items()}
        action = target.removeprefix(_SQS_TARGET_PREFIX) or form.get("Action", "")
        protocol = (
            _SqsJsonProtocol()
            if target.startswith(_SQS_TARGET_PREFIX)
            else _Ec2QueryProtocol()
            if form.get("Version") == "2016-11-15"
            else _AutoScalingQueryProtocol()
        )
        request_id = f"request-{next(self._request_numbers)}"
        try:
            if not request.headers.get("Authorization", "").startswith("AWS4-HMAC-SHA256"):
                raise _client_error(
                    "MissingAuthenticationToken", "The request is not signed", status=HTTPStatus.FORBIDDEN
                )
            body = msgspec.json.decode(await request.read()) if target else {}
            answer = await self._dispatch(action, body, form)
        except (KeyError, ValueError, TypeError) as invalid:
            error = _client_error("ValidationError", f"{action}: {type(invalid).__name__} {invalid}")
        except CloudError as cloud_error:
            error = cloud_error
        else:
            return web.Response(
                text=protocol.encode_response(action, answer, request_id), content_type=protocol.content_type
            )
        if not error.status:
            return abort(request)
        headers = {"Retry-After": str(int(error.retry_after.total_seconds()))} if error.retry_after else {}
        text = protocol.encode_error(error, request_id)
        return web.Response(status=error.status, text=text, content_type=protocol.content_type, headers=headers)

    async def _dispatch(self, action: str, body: Mapping[str, Any], form: Mapping[str, str]) -> Mapping[str, Any]:
        match action:
            case "ReceiveMessage" | "DeleteMessage" | "ChangeMessageVisibility" | "SendMessage":
                return await self._call_sqs(action, body)
            case "DescribeInstanceStatus" | "DescribeInstances" | "ModifyInstanceEventStartTime":
                return await self._call_ec2(action, form)
            case "CompleteLifecycleAction" | "RecordLifecycleActionHeartbeat" | "DescribeLifecycleHooks":
                return await self._call_auto_scaling(action, form)
            case "DescribeAutoScalingInstances":
                instance = form["InstanceIds.member.1"]
                group, _ = await self._cloud.termination_hooks(instance)
                instance_fields = {
                    "InstanceId": instance,
                    "AutoScalingGroupName": group,
                    "LifecycleState": "Terminating:Wait",
                }
                return {"AutoScalingInstances": [instance_fields] if group else []}
        raise _client_error("InvalidAction", f"The action {action} is not valid for this web service.")

    async def _call_sqs(self, action: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        if action == "ReceiveMessage":
            messages = await self._cloud.receive(
                max_messages=body.get("MaxNumberOfMessages", 1),
                wait=timedelta(seconds=body.get("WaitTimeSeconds", 0)),
                visibility_timeout=timedelta(seconds=body.get("VisibilityTimeout", 30)),
            )
            return {"Messages": messages} if messages else {}
        if action == "DeleteMessage":
            await self._cloud.delete(body["ReceiptHandle"])
        elif action == "ChangeMessageVisibility":
            await self._cloud.change_visibility(
                body["ReceiptHandle"], visibility_timeout=timedelta(seconds=body["VisibilityTimeout"])
            )
        else:
            self._cloud.queue.send(body["MessageBody"])
            return {"MessageId": self._cloud.queue.messages[-1].message_id}
        return {}

    async def _call_ec2(self, action: str, form: Mapping[str, str]) -> Mapping[str, Any]:
        if action == "ModifyInstanceEventStartTime":
            start = datetime.fromisoformat(form["NotBefore"])
            return {"Event": await self._cloud.move_event(form["InstanceId"], form["InstanceEventId"], to=start)}
        instances = [value for key, value in form.items() if key.startswith("InstanceId.")]
        if action == "DescribeInstances":
            return {"Reservations": [{"Instances": [instance]} for instance in await self._cloud.instances(instances)]}
        statuses, page = await self._cloud.statuses(instances, page=form.get("NextToken", ""))
        if form.get("IncludeAllInstances") != "true":
            statuses = [instance for instance in statuses if instance["InstanceState"]["Name"] == "running"]
        return {"InstanceStatuses": statuses} | ({"NextToken": page} if page else {})

    async def _call_auto_scaling(self, action: str, form: Mapping[str, str]) -> Mapping[str, Any]:
        group = form["AutoScalingGroupName"]
        if action == "DescribeLifecycleHooks":
            hook = form.get("LifecycleHookNames.member.1", "")
            if not hook:
                hook_names = [name for hook_group, name in self._cloud.auto_scaling.hooks if hook_group == group]
                common_fields = {
                    "AutoScalingGroupName": group,
                    "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
                }
                return {
                    "LifecycleHooks": [common_fields | {"LifecycleHookName": hook_name} for hook_name in hook_names]
                }
            timeout = await self._cloud.heartbeat_timeout(group=group, hook=hook)
            hook_fields = {"LifecycleHookName": hook, "AutoScalingGroupName": group}
            seconds = timeout and int(timeout.total_seconds())
            return {"LifecycleHooks": [] if seconds is None else [hook_fields | {"HeartbeatTimeout": seconds}]}
        call = self._cloud.complete if action == "CompleteLifecycleAction" else self._cloud.heartbeat
        hook, token = form["LifecycleHookName"], form.get("LifecycleActionToken", "")
        await call(form["InstanceId"], group=group, hook=hook, token=token)
        return {}


class _SqsJsonProtocol:
    content_type = "application/x-amz-json-1.0"

    def encode_response(self, _: str, answer: Mapping[str, Any], __: str) -> str:
        return msgspec.json.encode(answer).decode()

    def encode_error(self, error: CloudError, _: str) -> str:
        return msgspec.json.encode({"__type": f"com.amazonaws.sqs#{error.code}", "message": error.message}).decode()


class _Ec2QueryProtocol:
    content_type = "text/xml"

    def encode_response(self, action: str, answer: Mapping[str, Any], request_id: str) -> str:
        return f"<{action}Response><requestId>{request_id}</requestId>{_encode_ec2_fields(answer)}</{action}Response>"

    def encode_error(self, error: CloudError, request_id: str) -> str:
        fields = f"<Code>{escape(error.code)}</Code><Message>{escape(error.message)}</Message>"
        return f"<Response><Errors><Error>{fields}</Error></Errors><RequestID>{request_id}</RequestID></Response>"


class _AutoScalingQueryProtocol:
    content_type = "text/xml"

    def encode_response(self, action: str, answer: Mapping[str, Any], request_id: str) -> str:
        result = f"<{action}Result>{_encode_fields(answer)}</{action}Result>"
        metadata = f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata>"
        return f"<{action}Response>{result}{metadata}</{action}Response>"

    def encode_error(self, error: CloudError, request_id: str) -> str:
        fields = f"<Type>Sender</Type><Code>{escape(error.code)}</Code><Message>{escape(error.message)}</Message>"
        return f"<ErrorResponse><Error>{fields}</Error><RequestId>{request_id}</RequestId></ErrorResponse>"


def _encode_ec2_fields(values: Mapping[str, Any]) -> str:
    renamed = {_EC2_ELEMENT_NAMES.get(key, key[0].lower() + key[1:]): value for key, value in values.items()}
    return "".join(
        f"<{key}>{_encode_value(value, item='item', encode_fields=_encode_ec2_fields)}</{key}>"
        for key, value in renamed.items()
    )


def _encode_fields(values: Mapping[str, Any]) -> str:
    return "".join(
        f"<{key}>{_encode_value(value, item='member', encode_fields=_encode_fields)}</{key}>"
        for key, value in values.items()
    )


def _encode_value(value: Any, *, item: str, encode_fields: Any) -> str:
    if isinstance(value, Mapping):
        return str(encode_fields(value))
    if isinstance(value, list):
        return "".join(
            f"<{item}>{_encode_value(element, item=item, encode_fields=encode_fields)}</{item}>" for element in value
        )
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%S}.000Z"
    return escape(str(value))


def _client_error(code: str, message: str, *, status: int = HTTPStatus.BAD_REQUEST) -> CloudError:
    return CloudError(message, doing="AWS", status=status, code=code)
