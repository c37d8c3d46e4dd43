"""Imports point down only: who may import whom, read from the source and never guessed."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple, TypeGuard

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = "rft_agent_sdk"

LAYERS = (
    {"errors", "types", "trajectory"},
    {
        "admission",
        "bodies",
        "credentials",
        "estimates",
        "payload",
        "region",
        "reward",
        "recovery",
        "environment",
        "context",
        "calls",
        "tls",
        "tracing",
    },
    {"auth", "endpoint", "local", "server_thread", "testing", "transport"},
    {"policy", "job_runtime"},
    {"rollout"},
    {"faults", "shutdown"},
    {"life", "response", "self_check", "spans"},
    {"handler", "agent", "serving"},
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
ROOMS = {"gateway", "training", "mtrl", "report", "twins"}
"""Each stands on the layers below `rollout`, and on no other room."""
ROOMS_MAY_USE = {name for name, rank in RANK.items() if rank < RANK["rollout"]}
ROOM_EXCEPTIONS = {("training", f"{PACKAGE}.gateway.server")}
"""The training loop opens a gateway; that one door is the only one between two rooms."""
PUBLIC = {"errors", "types", "reward", "recovery", "environment", "testing"}
"""What an environment may import, besides the names of the package itself."""
HEAVY = {
    "torch",
    "transformers",
    "numpy",
    "boto3",
    "botocore",
    "starlette",
    "uvicorn",
    "strands",
    "openai",
    "anthropic",
    "httpx",
    "requests",
    "bedrock_agentcore",
    "opentelemetry",
}


class Import(NamedTuple):
    source: str
    target: str
    line: int
    at_module_level: bool

    def __str__(self) -> str:
        return f"{self.source}, line {self.line}: imports {self.target}"


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules_of(package: str) -> dict[str, Path]:
    return {module_name(path): path for path in sorted((ROOT / package).rglob("*.py"))}


MODULES = modules_of(PACKAGE)
ENVIRONMENTS = modules_of("environments")
KNOWN = set(MODULES) | set(ENVIRONMENTS)


def is_type_checking(node: ast.AST) -> TypeGuard[ast.If]:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def statements(node: ast.AST, *, top: bool = True) -> Iterator[tuple[ast.stmt, bool]]:
    """Every import statement that can run, and whether importing the module runs it."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield node, top
        return
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        top = False
    children = node.orelse if is_type_checking(node) else ast.iter_child_nodes(node)
    for child in children:
        yield from statements(child, top=top)


def targets(statement: ast.stmt, source: str, path: Path) -> Iterator[str]:
    if isinstance(statement, ast.Import):
        yield from (alias.name for alias in statement.names)
        return
    assert isinstance(statement, ast.ImportFrom)
    base = statement.module or ""
    if statement.level:
        package = source if path.name == "__init__.py" else source.rpartition(".")[0]
        base = ".".join(filter(None, [package, base]))
    for alias in statement.names:
        submodule = f"{base}.{alias.name}"
        yield submodule if submodule in KNOWN else base


def imports_of(source: str, path: Path) -> list[Import]:
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    return [
        Import(source, target, statement.lineno, top)
        for statement, top in statements(tree)
        for target in targets(statement, source, path)
    ]


IMPORTS = [found for name, path in MODULES.items() for found in imports_of(name, path)]
OURS = [found for found in IMPORTS if found.target.split(".")[0] == PACKAGE]


def room(module: str) -> str:
    """The first name below the package: `gateway` for every module of the gateway."""
    return module.split(".")[1] if "." in module else ""


def may_import(found: Import) -> bool:
    here, there = room(found.source), room(found.target)
    if here == there or here == "":
        return True
    if here == "cli":
        return not found.at_module_level or there not in ROOMS
    if here in ROOMS:
        return there in ROOMS_MAY_USE or (here, found.target) in ROOM_EXCEPTIONS
    return RANK.get(there, 9) <= RANK.get(here, 9)


def test_every_module_has_a_place_in_the_layers():
    known = set(RANK) | ROOMS | {"cli", ""}
    assert {room(name) for name in MODULES} <= known


def test_imports_point_down_only():
    assert [str(found) for found in OURS if not may_import(found)] == []


def test_no_module_of_the_package_imports_the_package_s_own_list_of_names():
    assert [
        str(found) for found in OURS if found.target == PACKAGE and found.source != PACKAGE
    ] == []


def test_no_two_modules_import_each_other_even_inside_functions():
    graph: dict[str, set[str]] = {name: set() for name in MODULES}
    for found in OURS:
        if found.target != found.source:
            graph[found.source].add(found.target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"import cycle: {' -> '.join(error.args[1])}")


def test_the_package_names_neither_an_environment_nor_the_deployed_agent():
    foreign = {"environments", "agentcore", "main", "tests"}
    assert [str(found) for found in IMPORTS if found.target.split(".")[0] in foreign] == []


def test_environments_import_only_public_modules_of_the_package():
    allowed = {PACKAGE, *(f"{PACKAGE}.{name}" for name in PUBLIC)}
    found = [item for name, path in ENVIRONMENTS.items() for item in imports_of(name, path)]
    ours = [item for item in found if item.target.split(".")[0] == PACKAGE]
    assert [str(item) for item in ours if item.target not in allowed] == []


def test_an_environment_imports_no_other_environment():
    found = [item for name, path in ENVIRONMENTS.items() for item in imports_of(name, path)]
    others = [
        str(item)
        for item in found
        if item.target.startswith("environments.") and room(item.target) != room(item.source)
    ]
    assert others == []


@pytest.mark.parametrize("module", [PACKAGE, f"{PACKAGE}.environment", f"{PACKAGE}.cli"])
def test_the_import_stays_light(module):
    program = f"import sys, {module}; print(*sorted({{m.split('.')[0] for m in sys.modules}}))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) & HEAVY == set()


def test_the_walk_sees_imports_in_functions_and_passes_over_type_checking(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(
        "import a\n"
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    import b\nelse:\n    import c\n"
        "def f():\n    from d import e\n"
    )
    found = {item.target: item.at_module_level for item in imports_of("module", path)}
    assert found == {"a": True, "typing": True, "c": True, "d": False}
