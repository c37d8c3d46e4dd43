"""`@rft_handler`: the life of one rollout.

    parse → run under the deadline → outcome → CompleteRollout → UpdateReward → response

Put it under `@app.entrypoint`. Whatever the function does (return, raise, hang, exit, be cancelled),
the rollout ends with exactly one report and one finite reward. Synchronous functions run on a thread of
their own, so that many play at once and AgentCore's `/ping`, which shares its small pool with
synchronous entrypoints, stays fast.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import threading
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, overload

from rft_agent_sdk.errors import PayloadError, RolloutExit, UsageError
from rft_agent_sdk.life import Life
from rft_agent_sdk.payload import RolloutRequest, is_self_check, parse_request
from rft_agent_sdk.reward import DEFAULT_FLOOR, as_reward
from rft_agent_sdk.rollout import MAX_BUDGET_S, Rollout
from rft_agent_sdk.shutdown import Running, report_on_sigterm
from rft_agent_sdk.types import JSON, Outcome

logger = logging.getLogger(__name__)

UserFunction = Callable[..., Any]
Entrypoint = Callable[..., Coroutine[Any, Any, JSON]]
"""What `@app.entrypoint` registers: `async (payload, context=None) -> response`."""


@overload
def rft_handler(function: UserFunction, /) -> Entrypoint: ...
@overload
def rft_handler(
    *,
    floor: float = DEFAULT_FLOOR,
    budget_s: float | None = None,
    background: bool = False,
    app: Any = None,
    allow_hosts: Iterable[str] = (),
) -> Callable[[UserFunction], Entrypoint]: ...
def rft_handler(
    function: UserFunction | None = None,
    /,
    *,
    floor: float = DEFAULT_FLOOR,
    budget_s: float | None = None,
    background: bool = False,
    app: Any = None,
    allow_hosts: Iterable[str] = (),
) -> Entrypoint | Callable[[UserFunction], Entrypoint]:
    """Make a function the handler of rollouts.

    The function takes a `Rollout`, or the payload as a `dict` if its parameter is annotated so or not at
    all, and AgentCore's context if its second parameter is named `context`. It returns a number, a list
    with one reward per model call, a `Reward`, or a dict with one of these under `reward`.

    Args:
        function: The function, when the decorator is used bare.
        floor: Reward of a rollout that has none of its own; finite.
        budget_s: Seconds the function may take; `None` reads `ROLLOUT_BUDGET_SECONDS`, else 420. A
            trainer's `deadline_s` goes before it.
        background: Answer at once and finish under `app.add_async_task`, for rollouts longer than
            AgentCore's 15-minute limit on a synchronous call. Needs `app`.
        app: The `BedrockAgentCoreApp`; with it, SIGTERM makes running rollouts report before the
            server stops.
        allow_hosts: Hosts besides the Job Runtime's own that may be sent a bearer token.

    Raises:
        UsageError: The function or an argument does not fit.
    """
    floor = as_reward(floor).total  # raises for anything but one finite number
    if budget_s is not None and not 0 < budget_s <= MAX_BUDGET_S:
        raise UsageError(f"budget_s must be seconds up to {MAX_BUDGET_S:g}, got {budget_s!r}")
    if isinstance(allow_hosts, str):
        raise UsageError(f"allow_hosts must be a list of hosts, got the text {allow_hosts!r}")
    allow_hosts = tuple(allow_hosts)
    if background and app is None:
        raise UsageError(
            "background=True needs app=, the BedrockAgentCoreApp that keeps the session busy"
        )
    if function is None:
        return functools.partial(
            rft_handler,
            floor=floor,
            budget_s=budget_s,
            background=background,
            app=app,
            allow_hosts=allow_hosts,
        )
    call = _caller(function)
    running = Running()
    if app is not None:
        report_on_sigterm(app, running)
    tasks: set[asyncio.Task[JSON]] = set()

    async def invoke(payload: Any, context: Any = None) -> JSON:
        if is_self_check(payload):
            from rft_agent_sdk.self_check import self_check  # a cold start needs none of it

            return await self_check(floor=floor, budget_s=budget_s, allow_hosts=allow_hosts)
        session_id = getattr(context, "session_id", None)
        refused: PayloadError | None = None
        try:
            request = parse_request(payload)
        except PayloadError as error:
            refused = error
            request = RolloutRequest("", "", error.job, raw=_as_dict(payload))
        rollout = Rollout(
            request, budget_s=budget_s, session_id=session_id, allow_hosts=allow_hosts
        )
        life = Life(rollout, floor, running)
        if refused is not None:
            with running.holding(rollout), life.span:
                return await life.end(Outcome.INFRASTRUCTURE_ERROR, error=refused)
        work = functools.partial(call, rollout, context)
        if not background or not _can_report(request):
            return await _guarded(life.run(work))
        task_id = app.add_async_task("rollout", {"rollout_id": request.rollout_id})
        task = asyncio.create_task(_guarded(life.run(work)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # it was logged
        task.add_done_callback(lambda _: app.complete_async_task(task_id))
        return {"status": "accepted", "_rft": {"background": True}}

    functools.update_wrapper(invoke, function)
    # AgentCore reads the signature to decide whether to pass the context, and would read the inner
    # function's through these.
    del invoke.__wrapped__  # type: ignore[attr-defined]
    invoke.__annotations__ = {}
    if hasattr(invoke, "__signature__"):  # copied with the function's attributes
        del invoke.__signature__
    invoke.running = running  # type: ignore[attr-defined]  # for serving.serve
    return invoke


sagemaker_rft_handler = rft_handler
"""Alias: code written for the SageMaker SDK's decorator changes one import."""


async def _guarded(life: Coroutine[Any, Any, JSON]) -> JSON:
    """Keep a `SystemExit` of user code from ending an event loop that other rollouts share.

    On the main thread it propagates as it is: there it means what it says. On any other thread it could
    only end the thread, and with it every rollout and request on its loop.
    """
    try:
        return await life
    except (SystemExit, KeyboardInterrupt) as error:
        if threading.current_thread() is threading.main_thread():
            raise
        raise RolloutExit(
            f"the rollout's function raised {error!r}; the rollout was reported"
        ) from error


def _can_report(request: RolloutRequest) -> bool:
    """Whether a result can reach the trainer without the HTTP response."""
    if request.job is not None or (request.gateway is not None and request.gateway.report):
        return True
    logger.warning("background rollout without a way to report | running it synchronously instead")
    return False


def _as_dict(payload: object) -> JSON:
    return dict(payload) if isinstance(payload, dict) else {}


def _caller(function: UserFunction) -> Callable[[Rollout, Any], Any]:
    """Return `(rollout, context) -> result` for a user function of any accepted shape.

    Raises:
        UsageError: The function cannot be called with a payload.
    """
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(f"{function!r} streams; a rollout returns its reward once, so use return")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"@rft_handler needs a function of one payload, got {function!r}"
        ) from error
    parameters = list(signature.parameters.values())
    takes_context = len(parameters) > 1 and parameters[1].name == "context"
    try:
        signature.bind(*((None, None) if takes_context else (None,)))
    except TypeError as error:
        raise UsageError(
            f"@rft_handler function {function!r} must be callable as f(payload) or f(payload, context): {error}"
        ) from None
    takes_rollout = _is_rollout(parameters[0], function)

    def call(rollout: Rollout, context: Any) -> Any:
        first = rollout if takes_rollout else dict(rollout.request.raw)
        return function(first, context) if takes_context else function(first)

    if _is_async(function):

        async def acall(rollout: Rollout, context: Any) -> Any:
            return await call(rollout, context)

        return acall
    return call


def _is_async(function: UserFunction) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - a callable object with an async __call__
    )


def _is_rollout(parameter: inspect.Parameter, function: UserFunction) -> bool:
    """Whether a parameter is annotated as a `Rollout`, also where annotations are strings."""
    annotation = parameter.annotation
    if isinstance(annotation, str):
        names = getattr(inspect.unwrap(function), "__globals__", {})
        name = annotation.rpartition(".")[2]
        annotation = names.get(name, Rollout if name == "Rollout" else None)
    return inspect.isclass(annotation) and issubclass(annotation, Rollout)
