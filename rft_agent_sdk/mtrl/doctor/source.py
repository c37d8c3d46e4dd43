"""What an entrypoint's source says, read and never run: its decorators, in order, and what it returns."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

OURS = frozenset({"rft_handler", "sagemaker_rft_handler"})
_FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Entrypoint:
    """A function that is registered as the entrypoint, or handles rollouts."""

    name: str
    line: int
    is_registered: bool
    """Whether it is under `@app.entrypoint`, or given to it."""
    handler: str | None
    """The handler's decorator as it is imported, such as `rft_agent_sdk.rft_handler`; `None` without one."""
    is_in_order: bool
    """Whether registering is outermost, so that what is registered handles rollouts."""
    parameters: int
    """How many it takes by position."""
    handler_options: Mapping[str, object]
    """The handler's arguments by name, as far as they are constants."""


@dataclass(frozen=True, slots=True)
class Source:
    """An entrypoint's file."""

    entrypoints: tuple[Entrypoint, ...]
    error_lines: tuple[int, ...]
    """Lines at which a function returns a dict with the status error."""


def read_source(text: str) -> Source:
    """Read a file's source.

    Raises:
        SyntaxError: It is no Python.
    """
    tree = ast.parse(text)
    names = dict(_imported(tree))
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, _FunctionNode)}
    found = [_decorated(node, names) for node in functions.values()]
    found += _called(tree, functions, names)
    return Source(
        entrypoints=tuple(one for one in found if one.is_registered or one.handler),
        error_lines=tuple(sorted(_error_lines(functions.values()))),
    )


def _imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield each imported name as it is here, and in full."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((item.asname or item.name, item.name) for item in node.names)
        elif isinstance(node, ast.ImportFrom):
            for item in node.names:
                yield item.asname or item.name, f"{node.module or ''}.{item.name}"


def _decorated(node: _FunctionNode, names: dict[str, str]) -> Entrypoint:
    """Tell of a function by its decorators, of which the first is the outermost."""
    registers = [i for i, one in enumerate(node.decorator_list) if _is_entrypoint(one)]
    handles = [(i, _handler(one, names)) for i, one in enumerate(node.decorator_list)]
    handles = [(i, full) for i, full in handles if full]
    options = _options(node.decorator_list[handles[0][0]]) if handles else {}
    return Entrypoint(
        name=node.name,
        line=node.lineno,
        is_registered=bool(registers),
        handler=handles[0][1] if handles else None,
        is_in_order=not registers or not handles or registers[0] < handles[0][0],
        parameters=len(node.args.posonlyargs) + len(node.args.args),
        handler_options=options,
    )


def _called(
    tree: ast.AST, functions: dict[str, _FunctionNode], names: dict[str, str]
) -> Iterator[Entrypoint]:
    """Yield what is registered by a call: `app.entrypoint(rft_handler(play))`."""
    decorators = {id(one) for node in functions.values() for one in node.decorator_list}
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or id(call) in decorators or not call.args:
            continue
        if not _is_entrypoint(call.func):
            continue
        given = call.args[0]
        if isinstance(given, ast.Name) and given.id in functions:
            inner = _decorated(functions[given.id], names)
            yield Entrypoint(
                given.id, call.lineno, True, inner.handler, True, inner.parameters, inner.handler_options
            )  # fmt: skip
        else:
            handler = _handler(given, names) if isinstance(given, ast.Call) else None
            yield Entrypoint(
                ast.unparse(given)[:60], call.lineno, True, handler or "?", True, 1, _options(given)
            )


def _is_entrypoint(node: ast.expr) -> bool:
    target = node.func if isinstance(node, ast.Call) else node
    return isinstance(target, ast.Attribute) and target.attr == "entrypoint"


def _handler(node: ast.expr, names: dict[str, str]) -> str | None:
    """Return a handler's decorator in full, also of `rft_handler(...)` and `rft_handler(...)(play)`."""
    while isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Name):
        full = names.get(node.id, node.id)
    elif isinstance(node, ast.Attribute):
        whole = ast.unparse(node)
        head, _, rest = whole.partition(".")
        full = f"{names.get(head, head)}.{rest}"
    else:
        return None
    return full if full.rpartition(".")[2] in OURS else None


def _options(node: ast.expr) -> dict[str, object]:
    found: dict[str, object] = {}
    while isinstance(node, ast.Call):
        for one in node.keywords:
            if one.arg and isinstance(one.value, ast.Constant):
                found[one.arg] = one.value.value
        node = node.func
    return found


def _error_lines(functions: Iterable[_FunctionNode]) -> set[int]:
    """Return the lines of `return {"status": "error", ...}` without a reward beside it."""
    returns = (
        node
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Dict)
    )
    return {node.lineno for node in returns if _is_error(node.value)}


def _is_error(value: ast.expr | None) -> bool:
    if not isinstance(value, ast.Dict):
        return False
    pairs = {
        key.value: item
        for key, item in zip(value.keys, value.values, strict=True)
        if isinstance(key, ast.Constant)
    }
    status = pairs.get("status")
    is_error = isinstance(status, ast.Constant) and status.value == "error"
    return is_error and "reward" not in pairs
