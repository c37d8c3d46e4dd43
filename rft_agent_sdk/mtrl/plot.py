"""Evaluations as a picture: pass@1 and mean reward of each model in each setting, with their intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.estimates import Interval
from rft_agent_sdk.mtrl.evaluation_results import INTERVALS, Result, value_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = (".png", ".svg", ".pdf")
_COLOURS = ("#8a8f98", "#2b6cb0", "#c05621", "#2f855a", "#6b46c1")
"""Of the models in order; the first is the base model's."""
_STROKES = ("-", "--", ":", "-.")
"""Of the settings in order."""


def plot(results: Sequence[Result], path: Path, *, title: str = "") -> None:
    """Draw results into a file, whose folder is made.

    A third panel shows pass@k over k, where some result has more than pass@1.

    Args:
        results: Of one series.
        path: Where to; its ending says the format.
        title: Above the picture.

    Raises:
        UsageError: There is nothing to draw, matplotlib is missing, or the ending is of no format.
    """
    if path.suffix not in FORMATS:
        raise UsageError(
            f"plot: wanted a file that ends in {', '.join(FORMATS)}, got {str(path)!r}"
        )
    if not results:
        raise UsageError("plot: there is no result to draw yet")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError("a plot needs matplotlib: pip install 'rft-agent-sdk[plot]'") from error
    # A figure of its own, without pyplot: no window, no global state, any thread.
    has_curve = any(len(one.pass_at) > 1 for one in results)
    figure = Figure(figsize=(5.5 * (3 if has_curve else 2), 4.8), layout="constrained")
    axes = figure.subplots(1, 3 if has_curve else 2, squeeze=False)[0]
    _bars(axes[0], results, lambda one: one.pass_at.get(1))
    axes[0].set(title="solved: pass@1", ylim=(0, 1))
    _bars(axes[1], results, lambda one: one.mean_reward)
    axes[1].set(title="mean reward")
    axes[1].axhline(0, color="black", linewidth=0.8)
    if has_curve:
        _curves(axes[2], results)
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="y", alpha=0.3)
        axis.set_axisbelow(True)
    axes[0].legend(frameon=False)
    figure.suptitle(title)
    figure.supxlabel(INTERVALS, fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=160)


def _bars(
    axis: Axes, results: Sequence[Result], of: Callable[[Result], Interval | float | None]
) -> None:
    """Draw a bar for each model in each setting."""
    settings = _settings(results)
    labels = list(dict.fromkeys(one.label for one in results))
    width = 0.8 / len(labels)
    for number, label in enumerate(labels):
        for one in results:
            found = of(one)
            if one.label != label or found is None:
                continue
            place = settings.index(one.setting) + (number - (len(labels) - 1) / 2) * width
            axis.bar(
                place,
                value_of(found),
                width * 0.92,
                yerr=_error(found),
                capsize=3,
                color=_COLOURS[number % len(_COLOURS)],
            )
        axis.bar(0, 0, color=_COLOURS[number % len(_COLOURS)], label=label)
    axis.set_xticks(range(len(settings)), [one.replace(", ", ",\n") for one in settings])


def _curves(axis: Axes, results: Sequence[Result]) -> None:
    """Draw pass@k over k for each result."""
    labels = list(dict.fromkeys(one.label for one in results))
    settings = _settings(results)
    for one in results:
        ks = list(one.pass_at)
        line = axis.plot(
            ks,
            [value_of(one.pass_at[k]) for k in ks],
            marker="o",
            color=_COLOURS[labels.index(one.label) % len(_COLOURS)],
            linestyle=_STROKES[settings.index(one.setting) % len(_STROKES)],
            label=f"{one.label}, {one.setting}",
        )[0]
        low = [found.low if isinstance(found := one.pass_at[k], Interval) else found for k in ks]
        high = [found.high if isinstance(found := one.pass_at[k], Interval) else found for k in ks]
        axis.fill_between(ks, low, high, color=line.get_color(), alpha=0.1)
    axis.set_xscale("log", base=2)
    ticks = sorted({k for one in results for k in one.pass_at})
    axis.set_xticks(ticks, [str(k) for k in ticks])
    axis.set(title="pass@k", xlabel="k", ylim=(0, 1))
    # Beside the curves, which leave no room for it.
    axis.legend(frameon=False, fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))


def _settings(results: Sequence[Result]) -> list[str]:
    ordered = sorted(results, key=lambda one: (one.effort, one.temperature))
    return list(dict.fromkeys(one.setting for one in ordered))


def _error(found: Interval | float) -> list[list[float]] | None:
    if not isinstance(found, Interval):
        return None
    return [[found.value - found.low], [found.high - found.value]]
