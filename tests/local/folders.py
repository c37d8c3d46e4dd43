"""Small random models as folders, with the tokenizer of the tiny policy."""

from pathlib import Path

import pytest

from rft_agent_sdk.cli import main


def tiny_folder(path: Path) -> Path:
    """A Qwen 3 of one layer and width 32."""
    sizes = ["--hidden", "32", "--layers", "1", "--heads", "2", "--inner", "64"]
    with pytest.raises(SystemExit) as exit_:
        main(["local", "init-tiny", "--out", str(path), *sizes])
    assert exit_.value.code == 0
    return path
