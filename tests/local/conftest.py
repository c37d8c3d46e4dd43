"""Everything here needs torch; elsewhere it is not even collected."""

import importlib.util

if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["test_*.py"]
else:
    import torch

    # Models this small gain nothing by a second thread, and where others keep the cores busy each waits for the other.
    torch.set_num_threads(1)
