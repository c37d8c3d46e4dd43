"""The tracking server behind an MLflow app of the local cloud: what a job logged, over plain HTTP."""

import pytest
import requests

from tests.twins.cloud_play import ended, refused


@pytest.fixture
def session(play):
    """A browser's session that came in by the presigned URL, and the app's root."""
    url = play.sagemaker.create_presigned_mlflow_app_url(Arn=play.app.arn)["AuthorizedUrl"]
    with requests.Session() as session:
        root = session.get(url).url.rstrip("/")
        yield session, f"{root}/api/2.0/mlflow"


def test_a_job_logs_its_metrics_where_its_document_says(play, session):
    document = play.document(max_steps="2")
    document["TrainingConfig"]["MlflowConfig"] |= {
        "MlflowExperimentName": "wordle",
        "MlflowRunName": "first",
    }
    details = ended(play.create(document=document)).service_output["MlflowDetails"]
    assert (details["ExperimentName"], details["RunName"]) == ("wordle", "first")
    client, root = session
    found = client.get(f"{root}/experiments/get-by-name", params={"experiment_name": "wordle"})
    assert found.json()["experiment"]["experiment_id"] == details["ExperimentId"]
    run = client.get(f"{root}/runs/get", params={"run_id": details["RunId"]}).json()["run"]
    last = {metric["key"]: metric["value"] for metric in run["data"]["metrics"]}
    assert last["rollout/reward/mean"] == pytest.approx(0.7)
    asked = {"run_id": details["RunId"], "metric_key": "rollout/reward/mean"}
    history = client.get(f"{root}/metrics/get-history", params=asked).json()["metrics"]
    assert [(point["step"], round(point["value"], 2)) for point in history] == [(1, 0.45), (2, 0.7)]
    query = {
        "experiment_ids": [details["ExperimentId"]],
        "filter": 'tags.mlflow.runName = "first"',
    }
    runs = client.post(f"{root}/runs/search", json=query).json()["runs"]
    assert [one["info"]["run_id"] for one in runs] == [details["RunId"]]
    query["filter"] = 'tags.mlflow.runName = "second"'
    assert client.post(f"{root}/runs/search", json=query).json()["runs"] == []


def test_what_was_never_logged_does_not_exist(session):
    client, root = session
    for path, asked in (
        ("experiments/get-by-name", {"experiment_name": "none"}),
        ("runs/get", {"run_id": "none"}),
        ("runs/delete", {}),
    ):
        answer = client.get(f"{root}/{path}", params=asked)
        assert answer.status_code == 404
        assert answer.json()["error_code"] in ("RESOURCE_DOES_NOT_EXIST", "ENDPOINT_NOT_FOUND")


def test_nothing_is_told_to_whom_has_no_key(play, session):
    _, root = session
    assert requests.get(f"{root}/runs/get").status_code == 403
    entrance = root.removesuffix("/api/2.0/mlflow")
    assert requests.get(f"{entrance}/auth").status_code == 403


def test_another_run_may_be_put_in_by_hand(play, session):
    run = play.cloud.mlflow.make_run("wordle", "by hand")
    run.log(3, {"val/reward/mean": 0.25})
    client, root = session
    found = client.get(f"{root}/runs/get", params={"run_id": run.run_id}).json()["run"]
    assert found["data"]["metrics"][0]["step"] == 3
    assert found["info"]["run_name"] == "by hand"


def test_an_app_that_is_gone_has_no_address(play):
    play.sagemaker.delete_mlflow_app(Arn=play.app.arn)
    with refused("ResourceNotFound"):
        play.sagemaker.create_presigned_mlflow_app_url(Arn=play.app.arn)
