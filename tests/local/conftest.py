"""Everything here needs torch; elsewhere it is not even collected."""

import importlib.util

import pytest

if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["test_*.py"]
else:
    import torch

    @pytest.fixture(autouse=True)
    def one_thread():
        """Tests share the machine's cores; two threads that wait for each other gain nothing here."""
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        yield
        torch.set_num_threads(before)
