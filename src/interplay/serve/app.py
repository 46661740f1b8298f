"""The server of `interplay open`: pages and JSON over HTTP on loopback. Read-only: every route answers GET alone, reads below
results/ and logs/ by a digest or by a name that was listed, and writes nothing."""

import re
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jinja2
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from interplay.core import artifact, model
from interplay.kinds.table import KINDS
from interplay.results import progress
from interplay.serve import data
from interplay.study.plan import Plan

HOST = "127.0.0.1"
HOSTS = (HOST, "localhost")
"""Names under which the page answers: a page of another origin that resolves to this machine has another one."""
TEMPLATES = Path(__file__).parent / "templates"
FILES = {"open.js": "text/javascript", "open.css": "text/css"}
DIGEST = re.compile(r"[0-9a-f]{12}")
OWN = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; form-action 'self'"
REPORT = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
REPORT += "sandbox allow-scripts allow-downloads allow-popups"
"""Of a report, a file with its scripts inlined: it runs with an origin of its own, and reaches nothing of this server."""
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

PAGES = jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined)


def make_app(place: data.Place) -> Starlette:
    """The application over a project's folders."""

    def route(path: str, answer: Callable[[data.Place, Request], Response]) -> Route:
        def endpoint(request: Request) -> Response:
            try:
                response = answer(place, request)
            except (model.UserError, OSError, KeyError, ValueError) as error:  # pyarrow's of a damaged file is a ValueError
                response = _refusal(request, error)
            response.headers.update({"Content-Security-Policy": OWN, **HEADERS, **response.headers})
            return response

        return Route(path, endpoint, methods=["GET"])

    routes = [
        route("/", lambda place, request: _page("index.html.jinja")),
        route("/study", _study),
        route("/stage/{digest}", _stage),
        route("/compare", _compare),
        route("/report/{digest}", _report),
        route("/static/{name}", _static),
        route("/api/studies", lambda place, request: JSONResponse(list(data.study_rows(place)))),
        route("/api/state", lambda place, request: JSONResponse(data.live_state(place, _plan(place, request.query_params)))),
        route("/api/curves", _curves),
        route("/api/stage/{digest}", _stage_state),
        route("/api/rollouts/{digest}", _rollouts),
        route("/api/compare", _comparison),
    ]
    return Starlette(routes=routes, middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(HOSTS), www_redirect=False)])


def serve(place: data.Place, port: int, ready: Callable[[str], None]) -> None:
    """Answer on loopback until Ctrl-C; port 0 takes a free one. `ready` is called with the address. Raises UserError where the
    port is taken."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen()  # before the address is printed, so that it can be asked at once
    except OSError as error:
        raise model.UserError(f"--port {port}: {error.strerror}; leave it out for a free one") from None
    ready(f"http://{HOST}:{listener.getsockname()[1]}/")
    server = uvicorn.Server(uvicorn.Config(make_app(place), log_level="warning", access_log=False, server_header=False))
    server.run(sockets=[listener])


def _refusal(request: Request, error: Exception) -> Response:
    """What is not there, or cannot be read, in one line."""
    said = f"missing {error}" if isinstance(error, KeyError) else str(error)
    if request.url.path.startswith("/api/"):
        return JSONResponse({"error": said}, status_code=404)
    return _page("message.html.jinja", 404, title="Not here", message=said)


def _page(name: str, status: int = 200, **values: Any) -> HTMLResponse:
    return HTMLResponse(PAGES.get_template(name).render(**values), status)


# -- what a request names ----------------------------------------------------------------------------------------------


def _plan(place: data.Place, given: Mapping[str, str]) -> Plan:
    """The launched plan of `study` and `scale`: a look-up among those that were launched, never a path."""
    return data.launched_plan(place, given["study"], given["scale"])


def _folder(place: data.Place, request: Request) -> Path:
    """The folder of the digest in a path. Raises UserError for what is none."""
    digest = request.path_params["digest"]
    found = [
        place.results / kind / digest for kind in KINDS if DIGEST.fullmatch(digest) and (place.results / kind / digest).is_dir()
    ]
    if not found:
        raise model.UserError(f"no stage {digest!r} in results/")
    return found[0]


def _planned_stage(place: data.Place, request: Request) -> tuple[Plan, Path]:
    """The plan that a request names, and the folder of its stage. Raises UserError for a stage of others."""
    folder, plan = _folder(place, request), _plan(place, request.query_params)
    if folder.name not in plan.stages:
        raise model.UserError(f"{folder.name} is no stage of {plan.study} at scale {plan.scale}")
    return plan, folder


def _arm(place: data.Place, address: str) -> tuple[Plan, str]:
    """The plan and the name of an arm, given as `study/arm`."""
    known = {one["address"]: one for one in data.arm_names(place)}
    if address not in known:
        raise model.UserError(f"no arm {address!r} of a launched study{model.nearest_name(address, known)}")
    return _plan(place, known[address]), known[address]["arm"]


# -- answers -----------------------------------------------------------------------------------------------------------


def _static(place: data.Place, request: Request) -> Response:
    name = request.path_params["name"]
    if name not in FILES:
        raise model.UserError("no such file")
    return Response((TEMPLATES / name).read_bytes(), media_type=FILES[name])


def _study(place: data.Place, request: Request) -> Response:
    plan = _plan(place, request.query_params)
    spec = plan.report_spec()
    return _page("study.html.jinja", plan=plan, question=spec.question, checks=progress.CHECKS, equal=data.equal_arms(spec))


def _curves(place: data.Place, request: Request) -> Response:
    given = request.query_params
    if "study" in given:
        plan = _plan(place, given)
        plans = dict.fromkeys(data.series_of(plan), plan)
    else:
        plans = {one: plan for plan, arm in (_arm(place, given[side]) for side in "ab") for one in data.series_of(plan, arm)}
    return JSONResponse(data.curves(place, plans, given.get("stage", ""), given.get("metric", "")))


def _stage(place: data.Place, request: Request) -> Response:
    from interplay.report.inspect import stage_view

    plan, folder = _planned_stage(place, request)
    known = plan.stages_json()
    text = stage_view.stage_card(folder.name, None, known, [f"{plan.study}.{plan.scale}"], place.results, place.logs, False)
    stage = plan.stages[folder.name]
    return _page("stage.html.jinja", plan=plan, stage=stage, address=plan.address(stage), card=text)


def _stage_state(place: data.Place, request: Request) -> Response:
    """State, cause and log of a stage."""
    plan, folder = _planned_stage(place, request)
    seen = progress.watch_stages(plan, place.results, place.logs)
    rows = data.live_rows(plan, [one for one in seen if one.stage.digest == folder.name])
    return JSONResponse({**rows[0], "log": data.log_tail(place, folder.parent.name, folder.name)})


def _rollouts(place: data.Place, request: Request) -> Response:
    from interplay.report.inspect import stage_view

    def number(name: str) -> int | None:
        text = request.query_params.get(name, "")
        return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None

    choice = stage_view.Choice(request.query_params.get("error") or None, number("step"), number("problem"), number("page") or 0)
    return JSONResponse(stage_view.browse_rollouts(_folder(place, request), choice))


def _compare(place: data.Place, request: Request) -> Response:
    names = [one["address"] for one in data.arm_names(place)]
    given = request.query_params
    chosen = [given.get(side) or next(iter(names[at : at + 1]), "") for at, side in enumerate("ab")]
    return _page("compare.html.jinja", names=names, a=chosen[0], b=chosen[1])


def _comparison(place: data.Place, request: Request) -> Response:
    given = request.query_params
    text = data.compare_arms(place, _arm(place, given["a"]), _arm(place, given["b"]), given.get("metric") or "strict_pass@1")
    return JSONResponse({"text": text})


def _report(place: data.Place, request: Request) -> Response:
    """The static page of a finished study, as it lies in its artifact."""
    folder = _folder(place, request)
    if folder.parent.name != "report" or not artifact.done(folder):
        raise model.UserError(f"{folder.name} is no finished report")
    return HTMLResponse((folder / "report.html").read_bytes(), headers={"Content-Security-Policy": REPORT})
