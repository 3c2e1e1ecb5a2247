"""The simulated vCenter over HTTPS, as far as pyVmomi needs it.

    async with serving(cloud, host="127.0.0.1", tls=context) as port:
        SmartConnect(host="127.0.0.1", port=port, user="maintenance", pwd="secret", …)

A session is a cookie, as in vCenter. Its `Secure` attribute is set only with TLS, because SDKs drop such a cookie
otherwise.
"""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from haulout.errors import CloudError
from haulout_sandbox.clouds.http_server import serve_app
from haulout_sandbox.clouds.vsphere.cloud import VsphereCloud, vim_fault
from haulout_sandbox.https_server import listen
from support.clouds.vsphere.property_collector import CollectedObject, Collector
from support.clouds.vsphere.soap import (
    Element,
    ManagedObjectRef,
    TypedValue,
    element,
    fault_envelope,
    parse,
    response_envelope,
    text_of,
)

PATH = "/sdk"
_COOKIE = "vmware_soap_session"
_VERSIONS = ("8.0.3.0", "8.0.2.0", "8.0.1.0", "8.0.0.0", "7.0.3.0", "6.7.3", "6.5", "6.0", "5.5")
_API = "8.0.3.0"
_PAGE = 100
_SERVICES = {
    "rootFolder": ManagedObjectRef("Folder", "group-d1"),
    "propertyCollector": ManagedObjectRef("PropertyCollector", "propertyCollector"),
    "viewManager": ManagedObjectRef("ViewManager", "ViewManager"),
    "about": {
        "name": "VMware vCenter Server",
        "fullName": "VMware vCenter Server 8.0.3 (a stand-in of Haulout's sandbox)",
        "vendor": "Haulout",
        "version": "8.0.3",
        "build": "0",
        "osType": "linux-x64",
        "productLineId": "vpx",
        "apiType": "VirtualCenter",
        "apiVersion": _API,
    },
    "sessionManager": ManagedObjectRef("SessionManager", "SessionManager"),
}
_WITHOUT_SESSION = ("RetrieveServiceContent", "CurrentTime", "Login")  # to who is not logged in

Handler = Callable[[Element, str], Awaitable[str]]


@asynccontextmanager
async def serving(
    cloud: VsphereCloud, *, host: str, port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Answer while the context lasts; yields the port."""
    app = web.Application()
    Front(cloud, is_secure=tls is not None).mount(app)
    async with serve_app(app, listen(host, port), tls=tls) as at:
        yield at


class Front:
    """Answers for one vCenter."""

    def __init__(self, cloud: VsphereCloud, *, is_secure: bool = False) -> None:
        self.collector = Collector(cloud)
        self._cloud = cloud
        self._is_secure = is_secure
        self._pages: dict[str, list[CollectedObject]] = {}
        self._views = 0
        self._calls: Mapping[str, Handler] = {
            "RetrieveServiceContent": self._service_content,
            "CurrentTime": self._current_time,
            "Logout": self._log_out,
            "CreateContainerView": self._create_view,
            "RetrievePropertiesEx": self._retrieve,
            "ContinueRetrievePropertiesEx": self._continue,
            "Fetch": self._fetch,
            "PowerOnVM_Task": self._power_on,
            "PowerOffVM_Task": self._power_off,
            "ShutdownGuest": self._shut_down,
            "EnterMaintenanceMode_Task": self._enter,
            "ExitMaintenanceMode_Task": self._leave,
        }

    def mount(self, app: web.Application) -> None:
        """Add its routes to an application."""
        app.router.add_get(f"{PATH}/vimServiceVersions.xml", self._versions)
        app.router.add_post(PATH, self.handle)

    async def handle(self, request: web.Request) -> web.Response:
        """Answer a call."""
        try:
            call = parse(await request.read())
            return await self._answer(call, request.cookies.get(_COOKIE, "").strip('"'))
        except ValueError as error:
            return _response(fault_envelope(vim_fault("InvalidRequest", str(error))), status=500)
        except CloudError as error:
            if not error.status:
                if request.transport is not None:
                    request.transport.abort()  # no answer at all
                return web.Response()
            return _response(fault_envelope(error), status=error.status)

    async def _answer(self, call: Element, session: str) -> web.Response:
        if call.name == "Login":
            return await self._log_in(call)
        handler = self._calls.get(call.name)
        if handler is None:
            raise vim_fault("MethodNotFound", f"there is no {call.name} here")
        if call.name not in _WITHOUT_SESSION:
            self._cloud.check_session(session)
        return _response(response_envelope(call.name, await handler(call, session)))

    async def _versions(self, _: web.Request) -> web.Response:
        await self._cloud.faults.call("vimServiceVersions", lambda: None)
        newest, *others = _VERSIONS
        prior = "".join(f"<version>{other}</version>" for other in others)
        namespace = f"<name>urn:vim25</name><version>{newest}</version><priorVersions>{prior}</priorVersions>"
        text = f'<?xml version="1.0" encoding="UTF-8"?>\n<namespaces version="1.0"><namespace>{namespace}</namespace>'
        return _response(f"{text}</namespaces>")

    # Sessions

    async def _log_in(self, call: Element) -> web.Response:
        username = text_of(call, "userName")
        session = await self._cloud.log_in(username, text_of(call, "password"))
        now = self._cloud.clock.now()
        user_session = {
            "key": session,
            "userName": username,
            "fullName": username,
            "loginTime": now,
            "lastActiveTime": now,
        }
        returned = element("returnval", {**user_session, "locale": "en", "messageLocale": "en"})
        response = _response(response_envelope("Login", returned))
        response.set_cookie(_COOKIE, session, path="/", secure=self._is_secure, httponly=True)
        return response

    async def _log_out(self, _: Element, session: str) -> str:
        await self._cloud.log_out(session)
        return ""

    async def _service_content(self, _: Element, __: str) -> str:
        await self._cloud.faults.call("RetrieveServiceContent", lambda: None)
        return element("returnval", _SERVICES)

    async def _current_time(self, _: Element, __: str) -> str:
        return element("returnval", self._cloud.clock.now())

    # What is read

    async def _create_view(self, call: Element, session: str) -> str:
        await self._cloud.faults.call("CreateContainerView", lambda: None)
        self._views += 1
        moid = f"{session}-view-{self._views}"
        self.collector.views[moid] = text_of(call, "type")
        return element("returnval", ManagedObjectRef("ContainerView", moid))

    async def _retrieve(self, call: Element, session: str) -> str:
        await self._cloud.read(session)
        found = [collected for spec in call.findall("specSet") for collected in self.collector.collect(spec)]
        options = call.find("options")
        most = int((text_of(options, "maxObjects") if options else "") or _PAGE)
        return self._page(found, most)

    async def _continue(self, call: Element, session: str) -> str:
        await self._cloud.read(session)
        token = text_of(call, "token")
        if token not in self._pages:
            raise vim_fault("InvalidProperty", "there is no such page")
        return self._page(self._pages.pop(token), _PAGE)

    def _page(self, found: list[CollectedObject], page_size: int) -> str:
        if not found:
            return ""
        page, remaining = found[:page_size], found[page_size:]
        token = ""
        if remaining:
            self._views += 1
            token = element("token", f"page-{self._views}")
            self._pages[f"page-{self._views}"] = remaining
        return f"<returnval>{token}{''.join(map(_object, page))}</returnval>"

    async def _fetch(self, call: Element, session: str) -> str:
        """Return one property of an object, as SDKs ask for it when somebody reads an attribute."""
        await self._cloud.read(session)
        this = call.find("_this")
        wanted = Element(
            "propSet",
            {},
            [_text_element("type", this.get("type") if this else ""), _text_element("pathSet", text_of(call, "prop"))],
        )
        start = Element(
            "objectSet", {}, [Element("obj", this.attributes if this else {}, [], this.text if this else "")]
        )
        (found,) = self.collector.collect(Element("specSet", {}, [wanted, start]))
        return "".join(element("returnval", value, typed=True) for value in found.values.values())

    # What is done

    async def _power_on(self, call: Element, session: str) -> str:
        return _task((await self._cloud.power_on(session, text_of(call, "_this"))).moref)

    async def _power_off(self, call: Element, session: str) -> str:
        return _task((await self._cloud.power_off(session, text_of(call, "_this"))).moref)

    async def _shut_down(self, call: Element, session: str) -> str:
        await self._cloud.shut_down(session, text_of(call, "_this"))
        return ""

    async def _enter(self, call: Element, _: str) -> str:
        host = self._cloud.hosts[text_of(call, "_this")]
        return _task(self._cloud.enter_maintenance(host.name).moref)

    async def _leave(self, call: Element, _: str) -> str:
        host = self._cloud.hosts[text_of(call, "_this")]
        return _task(self._cloud.exit_maintenance(host.name).moref)


def _response(text: str, *, status: int = 200) -> web.Response:
    return web.Response(status=status, text=text, content_type="text/xml", charset="utf-8")


def _object(found: CollectedObject) -> str:
    values = "".join(
        f"<propSet>{element('name', name)}{element('val', value, typed=True)}</propSet>"
        for name, value in found.values.items()
    )
    missing = "".join(
        f"<missingSet>{element('path', path)}"
        f"{element('fault', {'fault': TypedValue(reason, {}), 'localizedMessage': reason})}</missingSet>"
        for path, reason in found.missing.items()
    )
    return f"<objects>{element('obj', found.ref)}{values}{missing}</objects>"


def _task(moid: str) -> str:
    return element("returnval", ManagedObjectRef("Task", moid))


def _text_element(name: str, text: Any) -> Element:
    return Element(name, {}, [], str(text))
