"""A rehearsal's curves in a real MLflow, where it is installed."""

from pathlib import Path
from typing import Any

import pytest

from rft_agent_sdk.cli.mtrl._rehearsal_settings import Settings
from rft_agent_sdk.cli.mtrl._rehearsing import rehearse
from tests.mtrl.rehearsal_agents import plain_agent, plays_well
from tests.servers import serving

pytestmark = pytest.mark.sagemaker


@pytest.mark.filterwarnings("default")
def test_metrics_are_in_a_local_mlflow_under_the_service_s_names(tmp_path: Path):
    mlflow: Any = pytest.importorskip("mlflow")
    with serving(plain_agent(plays_well)) as url:
        settings = Settings(tmp_path / "run", "", agent_url=url, batch=2, group=2, speed=60.0)
        report = rehearse(settings, print)
    assert any(note.startswith("curves: mlflow ui") for note in report.notes)
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'run' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("rehearsal")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    rewards = client.get_metric_history(run.info.run_id, "rollout/reward/mean")
    assert [(point.step, point.value) for point in rewards] == [(1, 1.0), (2, 1.0)]
    solved = client.get_metric_history(run.info.run_id, "val/reward/pass_at_1")
    assert [point.step for point in solved] == [0, 2]
