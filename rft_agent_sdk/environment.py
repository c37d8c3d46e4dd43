"""What an environment is, and how one is found by name.

An `Environment` reads a task string and starts an `Episode`; an episode is one play, used once. An
environment imports nothing but the public names of this package, and this package imports no
environment by name: `load_environment` finds it.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import pkgutil
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from rft_agent_sdk.errors import UnknownEnvironmentError, UsageError
from rft_agent_sdk.recovery import recover_calls
from rft_agent_sdk.reward import Reward
from rft_agent_sdk.types import Message, Outcome, ToolCall, ToolResult, ToolSpec

ENTRY_POINT_GROUP = "rft_agent_sdk.environments"

PolicyFunction = Callable[[Sequence[Message], Sequence[ToolSpec]], Message]
"""A reference policy: the history and the tools in, the assistant's next message out. It must tell
everything from the history, so that one function serves any number of rollouts."""


@runtime_checkable
class Episode(Protocol):
    """One play of one task. It is made for one rollout and never reset.

    Calls come one at a time, but from any thread.
    """

    system_prompt: str
    """The system message; empty for none."""
    prompt: str
    """The first user message."""
    tools: Sequence[ToolSpec]
    """The tools the policy may call."""
    credits: Sequence[float] | None = None
    """What each call earned by itself, in order, one for every `call`; `None` leaves all of it to the end.

    With them `play` reports a reward for each model call: the credits of the calls it made. The last one gets what
    they leave of the reward, so that all add up to it.
    """

    @property
    @abstractmethod
    def done(self) -> bool:
        """Whether the play is over; no further model call is made once it is."""
        ...

    @property
    @abstractmethod
    def acted(self) -> bool:
        """Whether the policy has acted at all; one that never did gets a second conversation."""
        ...

    @abstractmethod
    def call(
        self, name: str, arguments: Mapping[str, Any], *, recovered: bool = False
    ) -> ToolResult:
        """Run one tool call and return what the policy is to read.

        `arguments` are parsed JSON but not validated: bad ones are answered with an error text, never
        raised. `recovered` says the call was written as plain text and found there. A call after the
        end changes nothing.
        """
        ...

    @abstractmethod
    def reward(self, outcome: Outcome) -> Reward:
        """Score the play as it stands, given why it ended. May be asked for at any moment."""
        ...

    @property
    def retry_prompt(self) -> str:
        """The user message of the second conversation, after a first one that never acted."""
        return f"{self.prompt}\n\nAct now: answer with a call of a tool and nothing else."

    @property
    def board(self) -> Sequence[tuple[str, str]]:
        """The play as rows to display: a text, and one mark for each of its characters.

        Marks are `G`, `Y` and `X` as in Wordle, or a space. Empty when there is nothing to draw.
        """
        return ()

    def recover(self, text: str) -> list[ToolCall]:
        """Find tool calls that the policy wrote as plain text; override for formats of your own."""
        return recover_calls(text, self.tools)


@runtime_checkable
class Environment(Protocol):
    """A kind of task: reads its task strings, plays and scores them."""

    name: str
    floor: float
    """The reward of a rollout that never played: finite, and below every reward of one that did."""

    @abstractmethod
    def start(self, task: str) -> Episode:
        """Read a task string and start a play of it.

        Raises:
            TaskError: The string is no task of this environment.
        """
        ...

    def tasks(self, split: str, count: int, seed: int = 0) -> list[str]:
        """Return task strings of this environment's own dataset; the same arguments give the same ones.

        Args:
            split: `train` or `validation`; the two share no task.
            count: How many.
            seed: Which ones.

        Raises:
            UsageError: There are none, or not so many.
        """
        raise UsageError(f"environment {self.name!r} ships no tasks of its own; give one")

    def policies(self) -> Mapping[str, PolicyFunction]:
        """Reference policies by name, such as a solver, for demos, tests and baselines."""
        return {}


def load_environment(name: str) -> Environment:
    """Return the environment called `name`.

    `name` is `module:object`, an environment shipped in the `environments` package, or an entry point
    of the group `rft_agent_sdk.environments`, tried in that order. The object may be an environment,
    or a class or function that makes one without arguments.

    Raises:
        UnknownEnvironmentError: Nothing by that name, or what was found is no environment.
    """
    if ":" in name:
        module_name, _, attribute = name.partition(":")
        return _from_module(name, module_name, attribute)
    if name in _shipped():
        return _from_module(name, f"environments.{name}", "environment")
    for entry in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
        if entry.name == name:
            return _checked(name, entry.load())
    known = ", ".join(available_environments()) or "none"
    raise UnknownEnvironmentError(
        f"no environment {name!r}; there are: {known}. Another one is named as module:object"
    )


def available_environments() -> list[str]:
    """Return the names that `load_environment` knows, sorted; `module:object` names aside."""
    entries = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
    return sorted({*_shipped(), *(entry.name for entry in entries)})


def _shipped() -> list[str]:
    try:
        package = importlib.import_module("environments")
    except ModuleNotFoundError as error:
        if error.name != "environments":
            raise
        return []
    path = getattr(package, "__path__", [])  # absent where somebody's environments.py comes first
    return [module.name for module in pkgutil.iter_modules(path) if module.ispkg]


def _from_module(name: str, module_name: str, attribute: str) -> Environment:
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise UnknownEnvironmentError(
            f"environment {name!r}: wanted module:object with the module's full name"
        )
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name + ".").startswith(error.name + "."):
            raise  # the environment exists, but something it imports does not
        raise UnknownEnvironmentError(
            f"environment {name!r}: there is no module {error.name!r}; is its folder on PYTHONPATH?"
        ) from None
    if not hasattr(module, attribute):
        raise UnknownEnvironmentError(
            f"environment {name!r}: module {module_name!r} has no object {attribute!r}"
        )
    return _checked(name, getattr(module, attribute))


def _takes_nothing(factory: Callable[..., object]) -> bool:
    try:
        inspect.signature(factory).bind()
    except (TypeError, ValueError):  # it has parameters, or is not written in Python and tells none
        return False
    return True


def _checked(name: str, found: object) -> Environment:
    if not isinstance(found, Environment) or isinstance(found, type):
        if callable(found) and _takes_nothing(found):
            found = found()
        if not isinstance(found, Environment) or isinstance(found, type):
            wanted = ("name", "floor", "start", "tasks", "policies")
            missing = ", ".join(part for part in wanted if not hasattr(found, part))
            lack = f"has no {missing}" if missing else "takes arguments to be made"
            raise UnknownEnvironmentError(
                f"environment {name!r} is no Environment: a {type(found).__name__} that {lack}; "
                "a subclass of Environment inherits what has a default"
            )
    return found
