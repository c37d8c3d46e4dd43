"""Jobs of the local cloud, by boto3: their life, what describes and lists them, how they end."""

import json
import threading

import pytest
from botocore.exceptions import ClientError

from rft_agent_sdk.twins.cloud import FailsWith, StopRequested, WalkThrough, trust
from tests.twins.cloud_play import ended, playing, refused


def service_output(described):
    return json.loads(described["JobConfigDocument"])["ServiceOutput"]


def test_a_job_walks_to_completed_and_leaves_a_model_package(play):
    answer = play.sagemaker.create_job(
        JobName="job",
        RoleArn=play.cloud.role_arn("JobRole"),
        JobCategory="AgentRFT",
        JobConfigSchemaVersion="1.0.0",
        JobConfigDocument=json.dumps(play.document(max_steps="2")),
        Tags=[{"Key": "team", "Value": "games"}],
    )
    assert answer["JobArn"] == "arn:aws:sagemaker:us-west-2:123456789012:job/AgentRFT/job"
    ended(play.cloud.jobs["job"])
    found = play.describe()
    assert (found["JobStatus"], found["SecondaryStatus"]) == ("Completed", "Completed")
    assert [step["Status"] for step in found["SecondaryStatusTransitions"]] == [
        "Starting",
        "Downloading",
        "Pending",
        "Training",
        "Uploading",
        "Completed",
    ]
    assert all("EndTime" in step for step in found["SecondaryStatusTransitions"])
    assert found["Tags"] == [{"Key": "team", "Value": "games"}]
    assert found["EndTime"] >= found["CreationTime"]
    output = service_output(found)
    assert output["ProgressInfo"] == {"CurrentStep": 2, "MaxSteps": 2}
    assert output["RolloutInfo"] == {"Completed": 1024, "Total": 1024}
    assert set(output["BillableTokenUsage"]) == {
        "TrainTokenCount",
        "PrefillTokenCount",
        "SampleTokenCount",
    }
    package = play.sagemaker.describe_model_package(
        ModelPackageName=output["OutputModelPackageArn"]
    )
    (container,) = package["InferenceSpecification"]["Containers"]
    assert container["IsCheckpoint"] is False
    assert len(play.checkpoints.packages) == 2


def test_the_document_comes_back_as_it_was_sent_with_what_the_service_adds(play):
    sent = play.document(max_steps="1")
    ended(play.create(document=sent))
    returned = json.loads(play.describe()["JobConfigDocument"])
    assert returned.pop("ServiceOutput")
    assert returned == sent


def test_a_job_that_fails_says_why(play):
    play.cloud.runner = FailsWith("The agent signaled that the trajectory failed")
    ended(play.create())
    found = play.describe()
    assert (found["JobStatus"], found["SecondaryStatus"]) == ("Failed", "Failed")
    assert found["FailureReason"] == "The agent signaled that the trajectory failed"
    assert found["SecondaryStatusTransitions"][-2]["Status"] == "Training"
    assert play.cloud.log_lines("/aws/sagemaker/Job/AgentRFT", "job/trainer") == [
        "ERROR The agent signaled that the trajectory failed"
    ]


def test_a_role_that_the_service_cannot_take_on_fails_the_job_after_it_was_created(play):
    play.cloud.roles["JobRole"].trust = trust(
        "job.sagemaker.amazonaws.com", actions=["sts:AssumeRole"]
    )
    assert "sts:TagSession" in ended(play.create()).failure_reason
    play.cloud.roles["JobRole"].trust = trust("sagemaker.amazonaws.com")
    assert ended(play.create("second")).failure_reason.startswith(
        "Could not assume role arn:aws:iam"
    )


def test_what_a_job_names_and_nobody_has_is_refused_at_once(play):
    for role in ("arn:aws:iam::123456789012:role/Nobody", "arn:aws:iam::999999999999:role/JobRole"):
        with pytest.raises(ClientError, match="is no role of account 123456789012"):
            play.create(RoleArn=role)
    document = play.document()
    document["AgentConfig"]["BedrockAgentCoreConfig"]["Qualifier"] = "training"
    with pytest.raises(ClientError, match="endpoint training of"):
        play.create(document=document)
    document = play.document()
    document["OutputDataConfig"]["S3OutputPath"] = "s3://nowhere/out"
    with pytest.raises(ClientError, match="'nowhere', which does not exist"):
        play.create(document=document)
    assert play.cloud.jobs == {}


def test_a_job_without_data_fails_where_it_downloads(play):
    del play.cloud.buckets["data"].objects["train.jsonl"]
    assert "s3://data/train.jsonl" in ended(play.create()).failure_reason
    assert play.describe()["SecondaryStatusTransitions"][-2]["Status"] == "Downloading"


def test_stopping_interrupts_the_runner():
    with playing(runner=WalkThrough(step_s=60)) as play:
        job = play.create()
        play.sagemaker.stop_job(JobName="job", JobCategory="AgentRFT")
        ended(job)
        found = play.describe()
        assert (found["JobStatus"], found["SecondaryStatus"]) == ("Stopped", "Stopped")
        assert "Stopping" in [step["Status"] for step in found["SecondaryStatusTransitions"]]
        with refused("ValidationException", "Stopped"):
            play.sagemaker.stop_job(JobName="job", JobCategory="AgentRFT")


def test_a_runner_of_ones_own_sees_the_stop_and_may_end_its_work_first():
    seen, may_go = threading.Event(), threading.Event()

    def runner(job):
        job.move("Training")
        try:
            job.sleep(60)
        except StopRequested:
            seen.set()
            may_go.wait(10)
            raise

    with playing(runner=runner) as play:
        job = play.create()
        play.sagemaker.stop_job(JobName="job", JobCategory="AgentRFT")
        assert seen.wait(10)
        assert job.is_stopping
        assert play.describe()["JobStatus"] == "Stopping"
        play.sagemaker.stop_job(JobName="job", JobCategory="AgentRFT")  # asking twice is no error
        may_go.set()
        assert ended(job).status == "Stopped"


def test_a_runner_that_raises_or_just_returns_fails_its_job(play):
    def breaks(job):
        raise RuntimeError("out of memory")

    play.cloud.runner = breaks
    assert ended(play.create()).failure_reason == "RuntimeError: out of memory"
    play.cloud.runner = lambda job: None
    assert "without ending" in ended(play.create("second")).failure_reason


def test_what_a_runner_reports_is_what_describe_shows(play):
    reported, gate = threading.Event(), threading.Event()

    def runner(job):
        job.move("Training", "step 3 of 9")
        job.progress(current_step=3, max_steps=9, rollouts_completed=100, rollouts_total=1024)
        job.progress(train_tokens=10)
        reported.set()
        gate.wait(10)
        job.complete()

    play.cloud.runner = runner
    job = play.create()
    assert reported.wait(10)
    found = play.describe()
    assert found["SecondaryStatusTransitions"][-1]["StatusMessage"] == "step 3 of 9"
    assert "EndTime" not in found["SecondaryStatusTransitions"][-1]
    assert service_output(found) == {
        "ProgressInfo": {"CurrentStep": 3, "MaxSteps": 9},
        "RolloutInfo": {"Completed": 100, "Total": 1024},
        "BillableTokenUsage": {"TrainTokenCount": 10},
    }
    gate.set()
    ended(job)


def test_a_runner_may_tell_any_other_part_of_the_output(play):
    def runner(job):
        job.tell("ResumableCheckpoint", {"ModelPackageArn": job.publish("checkpoint")})
        job.complete()

    play.cloud.runner = runner
    ended(play.create())
    told = service_output(play.describe())["ResumableCheckpoint"]
    assert told == {"ModelPackageArn": play.checkpoints.packages[1].arn}


def test_a_job_may_go_on_from_a_package_that_was_there_before(play):
    arn = play.cloud.make_model_package("checkpoints", "s3://data/earlier/")
    document = play.document()
    document["ModelPackageConfig"]["InputModelPackageArn"] = arn
    assert ended(play.create(document=document)).status == "Completed"


def test_one_job_of_a_category_runs_at_a_time():
    with playing(runner=WalkThrough(step_s=60)) as play:
        play.create("first")
        with refused("ResourceLimitExceeded", "1"):
            play.create("second")
        evaluation = json.dumps(play.evaluation())
        play.create("third", JobCategory="AgentRFTEvaluation", JobConfigDocument=evaluation)
        play.cloud.job_concurrency = 2
        play.create("second")
        assert list(play.cloud.jobs) == ["first", "third", "second"]


def test_a_name_is_taken_once(play):
    ended(play.create())
    with refused("ResourceInUse", "job"):
        play.create()


def test_an_evaluation_job_completes_without_a_package(play):
    evaluation = json.dumps(play.evaluation(eval_group_size="4", temperature="0.5"))
    job = play.create(JobCategory="AgentRFTEvaluation", JobConfigDocument=evaluation)
    ended(job)
    found = play.describe(category="AgentRFTEvaluation")
    assert found["JobStatus"] == "Completed"
    assert "OutputModelPackageArn" not in service_output(found)
    with refused("ResourceNotFound"):
        play.describe(category="AgentRFT")


def test_jobs_are_listed_by_category_name_status_and_time(play):
    for name in ("b-one", "a-one", "two"):
        ended(play.create(name))
    play.cloud.runner = FailsWith()
    ended(play.create("broken"))

    def names(**asked):
        pages = play.sagemaker.list_jobs(JobCategory="AgentRFT", **asked)["JobSummaries"]
        return [entry["JobName"] for entry in pages]

    assert names() == ["broken", "two", "a-one", "b-one"]
    assert names(NameContains="one", SortBy="Name", SortOrder="Ascending") == ["a-one", "b-one"]
    assert names(StatusEquals="Failed") == ["broken"]
    assert names(CreationTimeAfter=play.cloud.jobs["two"].created) == ["broken"]
    first = play.sagemaker.list_jobs(JobCategory="AgentRFT", MaxResults=3)
    assert first["JobSummaries"][0]["JobSecondaryStatus"] == "Failed"
    assert names(MaxResults=3, NextToken=first["NextToken"]) == ["b-one"]
    pages = play.sagemaker.get_paginator("list_jobs").paginate(
        JobCategory="AgentRFT", PaginationConfig={"PageSize": 1}
    )
    assert sum(len(page["JobSummaries"]) for page in pages) == 4
    assert play.sagemaker.list_jobs(JobCategory="AgentRFTEvaluation")["JobSummaries"] == []


def test_a_job_is_deleted_once_it_has_ended():
    with playing(runner=WalkThrough(step_s=60)) as play:
        job = play.create()
        with refused("ResourceInUse"):
            play.sagemaker.delete_job(JobName="job", JobCategory="AgentRFT")
        play.sagemaker.stop_job(JobName="job", JobCategory="AgentRFT")
        ended(job)
        play.sagemaker.delete_job(JobName="job", JobCategory="AgentRFT")
        with refused("ResourceNotFound", "job"):
            play.describe()
        with refused("ResourceNotFound"):
            play.sagemaker.delete_job(JobName="job", JobCategory="AgentRFT")


def test_schemas_are_listed_and_described(play):
    listed = play.sagemaker.list_job_schema_versions(JobCategory="AgentRFT")
    assert listed["JobConfigSchemas"] == [{"JobConfigSchemaVersion": "1.0.0"}]
    for category, part in (
        ("AgentRFT", "TrainingConfig"),
        ("AgentRFTEvaluation", "EvaluationConfig"),
    ):
        found = play.sagemaker.describe_job_schema_version(JobCategory=category)
        assert part in json.loads(found["JobConfigSchema"])["required"]
    with refused("ResourceNotFound", "2.0.0"):
        play.sagemaker.describe_job_schema_version(
            JobCategory="AgentRFT", JobConfigSchemaVersion="2.0.0"
        )
    with refused("ResourceNotFound", "DataTransformation"):
        play.sagemaker.list_job_schema_versions(JobCategory="DataTransformation")


def test_the_cloud_closes_while_a_job_runs():
    with playing(runner=WalkThrough(step_s=60)) as play:
        job = play.create()
    assert job.status == "Stopped"
