"""The application: health, metrics and the routes, behind the guard."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import unquote_to_bytes

from fastapi import Body, FastAPI, Path, Query
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from acquit._version import version
from acquit.broker.admin.later import RequestFailure
from acquit.broker.admin.operations import operation
from acquit.broker.admin.requests import Deleted
from acquit.errors import ConfigurationError
from acquit.http import models
from acquit.http.bridge import Bridge
from acquit.http.console import add_console
from acquit.http.guard import Guard
from acquit.http.health import Health
from acquit.http.logins import Logins
from acquit.http.metrics import CONTENT_TYPE, Metrics
from acquit.http.problems import MEDIA_TYPE, Problem, ProblemResponse
from acquit.http.routes import PREFIX, ROUTES, Route
from acquit.protocol.jsonform import from_json
from acquit.transport.pump import endpoint_name

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from acquit.broker.options.http import Http
    from acquit.broker.server import Server

_PROBLEM: Final[dict[int | str, dict[str, Any]]] = {
    "default": {
        "description": "What was wrong (RFC 9457).",
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
}
LOGINS_AT_ONCE: Final = 64
DESCRIPTION: Final = (
    "Each route is one management operation of the broker, with the permission that it needs there. Names in paths are "
    "percent-encoded, slashes in them, too; a browser takes the names `.` and `..` out of a path, so `exact_name` can "
    "say them. Values of AMQP that JSON does not have are objects with one key: "
    '`{"base64": "..."}`, `{"uuid": "..."}`, `{"timestamp_ms": 0}`.'
)


def make_app(server: Server, options: Http) -> ASGIApp:
    """Return the application of a broker's HTTP interface. Belongs to the running loop."""
    timeout_s = options.request_timeout_ms / 1000
    bridge = Bridge(server, requests_max=options.requests_max, timeout_s=timeout_s)
    logins = Logins(Bridge(server, requests_max=LOGINS_AT_ONCE, timeout_s=timeout_s))
    health = Health(Bridge(server, requests_max=1, timeout_s=timeout_s))
    metrics = Metrics(bridge, health, options.metrics_queues_max)
    app = FastAPI(
        title="acquit",
        version=version(),
        description=DESCRIPTION,
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    for route in ROUTES:
        app.add_api_route(
            PREFIX + route.path,
            _endpoint(route, bridge),
            methods=[route.method],
            summary=route.summary,
            operation_id=_operation_id(route),
            response_model=route.answer,
            status_code=operation(route.verb, route.kind).success[0] if route.method == "PUT" else 200,
            responses=_PROBLEM,
            tags=[route.path.split("/")[1]],
        )

    # Those that balance load ask by HEAD.
    @app.head("/healthz", include_in_schema=False)
    @app.get("/healthz", response_model=models.ProcessHealth, tags=["health"], summary="Whether the process is there")
    async def healthz() -> Response:
        return JSONResponse({"status": "alive"})

    @app.head("/readyz", include_in_schema=False)
    @app.get(
        "/readyz",
        response_model=models.BrokerHealth,
        responses={503: {"model": models.BrokerHealth, "description": "Not ready, and why."}},
        tags=["health"],
        summary="Whether the broker takes messages",
    )
    async def readyz() -> Response:
        reasons = await health.reasons()
        return JSONResponse({"ready": not reasons, "reasons": reasons}, 503 if reasons else 200)

    @app.get(
        "/metrics",
        response_class=Response,
        responses={200: {"description": "Figures for Prometheus.", "content": {"text/plain": {}}}, **_PROBLEM},
        tags=["metrics"],
        summary="Figures for Prometheus",
    )
    async def figures(request: Request) -> Response:
        peer = endpoint_name(request.scope.get("client"))
        return Response(await metrics.render(request.state.user, peer), media_type=CONTENT_TYPE)

    add_console(app)
    _handle_failures(app)
    _complete_document(app)
    return Guard(app, logins, options)


def _operation_id(route: Route) -> str:
    verb = route.verb.lower()
    words = [word for word in route.path.split("/") if word and not word.startswith("{")]
    return "_".join([verb, *(word for word in words if word != verb)])


def _endpoint(route: Route, bridge: Bridge) -> Any:
    """Return the function behind a route, with the parameters that FastAPI is to read."""
    wanted = operation(route.verb, route.kind)
    named = "{name}" in route.path

    async def endpoint(**given: Any) -> Response:
        user, peer = given["request"].state.user, endpoint_name(given["request"].scope.get("client"))
        query, body = given.get("query"), given.get("body")
        name = _decoded(given["name"]) if named else None
        if isinstance(query, models.NamedQuery) and query.exact_name is not None:
            name = query.exact_name
        asked = query if route.body is None else body
        value = None if asked is None else from_json(asked.model_dump(exclude_none=True, exclude={"exact_name"}))
        if route.prepare is not None:
            value = route.prepare(value)
        result = await bridge.manage(wanted, user, name, value or None, peer)
        status = 200 if isinstance(result, Deleted) else wanted.success[0]
        return JSONResponse(route.shape(result, query), status)

    parameters: list[tuple[str, Any]] = [("request", Request)]
    if named:
        parameters.append(("name", Annotated[str, Path(description="The name, percent-encoded.")]))
    if route.query is not None:
        parameters.append(("query", Annotated[route.query, Query()]))
    if route.body is not None:
        parameters.append(("body", Annotated[_optional(route.body), Body()]))
    may_lack = route.body is not None and _optional(route.body) is not route.body
    endpoint.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # what FastAPI looks for
        [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                annotation=kind,
                default=None if name == "body" and may_lack else inspect.Parameter.empty,
            )
            for name, kind in parameters
        ]
    )
    endpoint.__name__ = _operation_id(route)
    return endpoint


def _optional(body: type[BaseModel]) -> Any:
    """Return the type of a body, which may be left out where all of it may."""
    return body if any(field.is_required() for field in body.model_fields.values()) else body | None


def _decoded(name: str) -> str:
    """Return a name of a path, which is still percent-encoded. Raises RequestFailure where it is no UTF-8."""
    try:
        return unquote_to_bytes(name).decode()
    except UnicodeDecodeError:
        raise RequestFailure(400, "expected a name in UTF-8, percent-encoded") from None


def _handle_failures(app: FastAPI) -> None:
    @app.exception_handler(RequestFailure)
    async def failed(request: Request, error: RequestFailure) -> Response:
        return ProblemResponse(error.status, str(error), {"retry-after": "1"} if error.status == 503 else None)

    @app.exception_handler(ConfigurationError)
    async def no_value(request: Request, error: ConfigurationError) -> Response:
        return ProblemResponse(400, str(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        faults = [f"{'.'.join(map(str, fault['loc'])):.100}: {fault['msg']:.200}" for fault in error.errors()[:5]]
        return ProblemResponse(400, "; ".join(faults))

    @app.exception_handler(Exception)
    async def mistake(request: Request, error: Exception) -> Response:  # which goes on to the guard, and into the log
        return ProblemResponse(500, "this is a mistake of the broker's: see its log")

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> Response:
        return ProblemResponse(error.status_code, str(error.detail), error.headers)


def _complete_document(app: FastAPI) -> None:
    """Add to the OpenAPI document what FastAPI does not see: who may ask, and how failures look."""
    made = app.openapi()
    components = made.setdefault("components", {})
    components.setdefault("schemas", {})["Problem"] = Problem.model_json_schema()
    components["securitySchemes"] = {"basic": {"type": "http", "scheme": "basic"}}
    made["security"] = [{"basic": []}, {}]
    for asked in (
        one["requestBody"] for path in made["paths"].values() for one in path.values() if "requestBody" in one
    ):
        content = asked["content"]["application/json"]
        if "anyOf" in content["schema"]:  # a body that may be left out, which generators understand; and null is none
            content["schema"] = content["schema"]["anyOf"][0]
    for path in ("/healthz", "/readyz"):
        made["paths"][path]["get"]["security"] = []


__all__ = ["make_app"]
