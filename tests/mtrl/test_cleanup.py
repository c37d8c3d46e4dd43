"""What a project leaves in an account: found by name, project or tag, and removed in a safe order."""

import json
import subprocess
import sys
import threading

import pytest

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.mtrl.cleanup import Patience, remove
from rft_agent_sdk.mtrl.inventory import take_inventory
from rft_agent_sdk.mtrl.leftovers import KINDS, Scope, size, split_uri
from rft_agent_sdk.twins.cloud import Function, Runtime, StopRequested, WalkThrough
from rft_agent_sdk.twins.cloud.session_list import SessionEntry
from rft_agent_sdk.twins.cloud.stacks import Stack, StackResource
from tests.mtrl.cloud import ROOT, RUNTIME, account, rft

__all__ = ["account"]
STACK = "AgentCore-Wordle-default"
LOGS = f"/aws/bedrock-agentcore/runtimes/{RUNTIME}-DEFAULT"
PATIENCE = Patience(timeout_s=60.0, poll_s=0.02)


@pytest.fixture
def project(account):
    """A project named Wordle that has trained, beside things of somebody else."""
    cloud = account.cloud
    cloud.runtimes["Other_Agent-aBcDeFgHiJ"] = Runtime(name="Other_Agent")
    cloud.stacks[STACK] = Stack(resources=[StackResource("Runtime", RUNTIME)])
    cloud.stacks["AgentCore-Wordle2-default"] = Stack()
    account.create("training-1").wait(10)
    cloud.log(LOGS, "a", "line")
    cloud.log("/aws/bedrock-agentcore/runtimes/Other_Agent-aBcDeFgHiJ-DEFAULT", "a", "line")
    bucket = cloud.make_bucket("data")
    bucket["wordle/out/training-1/adapter"] = b"x" * 2000
    bucket["wordle/out2/else"] = b"y"
    return account


def names(inventory, *, removable=False):
    found = inventory.removable if removable else inventory.found
    return {(one.kind, one.name) for one in found}


def yes(kind, things):
    return True


def test_a_scope_that_would_be_the_whole_account_is_refused():
    with pytest.raises(UsageError, match="nothing is ever looked for in the whole account"):
        Scope()
    for uri in ("s3://bucket", "s3://bucket/", "bucket/x"):
        with pytest.raises(UsageError, match="wanted an S3 folder"):
            Scope(s3=(uri,))


def test_a_project_is_found_with_what_its_jobs_used_and_nothing_of_others(project):
    inventory = take_inventory(project.clients, Scope(project="Wordle"))
    assert inventory.problems == []
    assert names(inventory) == {
        ("stack", STACK),
        ("runtime", RUNTIME),
        ("log-group", LOGS),
        ("mlflow-app", "metrics"),
        ("package-group", "wordle-output"),
        ("package", "wordle-output/1"),
        ("package-group", "wordle-checkpoints"),
        *(("package", f"wordle-checkpoints/{number}") for number in (1, 2, 3)),
        ("s3", "s3://data/wordle/out"),
        ("dataset", "s3://data/wordle/train.jsonl"),
    }
    # what only the job's document names is kept, and so are datasets
    assert names(inventory, removable=True) == {
        ("stack", STACK),
        ("runtime", RUNTIME),
        ("log-group", LOGS),
    }
    (app,) = inventory.of("mlflow-app")
    assert app.is_billed
    assert "used by job training-1, perhaps by others too" in app.kept


def test_what_jobs_used_is_removable_on_request_with_its_size(project):
    scope = Scope(project="Wordle", include_used=True, include_datasets=True)
    inventory = take_inventory(project.clients, scope)
    assert {one.kind for one in inventory.removable} == set(KINDS) - {
        "job",
        "session",
        "endpoint",
        "function",
    }
    (output,) = inventory.of("s3")
    assert output.keys == ("wordle/out/training-1/adapter",)
    assert "1 objects, 2.0 kB" in output.detail


def test_names_that_begin_alike_are_found_by_a_prefix(project):
    cloud = project.cloud
    cloud.training_sessions["wordle-s1"] = SessionEntry()
    cloud.training_sessions["wordle-s2"] = SessionEntry(status="Stopped")
    cloud.training_sessions["else"] = SessionEntry()
    cloud.functions["wordle-forward"] = Function()
    cloud.make_mlflow_app("wordle-app")
    project.scripted("wordle-now")
    inventory = take_inventory(project.clients, Scope(prefix="wordle-"))
    assert {
        ("session", "wordle-s1"),
        ("function", "wordle-forward"),
        ("mlflow-app", "wordle-app"),
        ("package-group", "wordle-output"),
        ("job", "wordle-now"),
    } <= names(inventory, removable=True)
    found = names(inventory)
    assert ("session", "wordle-s2") not in found
    assert ("session", "else") not in found
    assert ("stack", STACK) not in found


def test_a_tag_narrows_and_alone_suffices(project):
    cloud = project.cloud
    tagged = cloud.make_mlflow_app("tagged")
    cloud.tags[tagged.arn] = {"project": "wordle"}
    cloud.tags[cloud.runtime_arn(RUNTIME)] = {"project": "wordle"}
    cloud.stacks[STACK].tags = {"project": "wordle"}
    alone = take_inventory(project.clients, Scope(tag=("project", "wordle")))
    assert names(alone, removable=True) == {
        ("stack", STACK),
        ("runtime", RUNTIME),
        ("mlflow-app", "tagged"),
        ("log-group", LOGS),
    }
    both = take_inventory(project.clients, Scope(project="Other", tag=("project", "wordle")))
    assert names(both) == set()


def test_a_folder_in_s3_is_that_folder_and_spares_datasets_in_it(project):
    bucket = project.cloud.make_bucket("data")
    bucket["wordle/val.jsonl"] = b"{}"
    inventory = take_inventory(project.clients, Scope(project="Wordle", s3=("s3://data/wordle/",)))
    (folder,) = [one for one in inventory.of("s3") if not one.kept]
    assert "wordle/train.jsonl" not in folder.keys  # a job trained on it
    assert "wordle/out/training-1/adapter" in folder.keys
    alone = take_inventory(project.clients, Scope(s3=("s3://data/wordle/out",)))
    (folder,) = alone.found
    assert folder.keys == ("wordle/out/training-1/adapter",)
    assert take_inventory(project.clients, Scope(s3=("s3://data/none",))).found == []


def test_a_service_that_refuses_is_told_of_and_the_others_are_listed(project):
    project.cloud.faults.add(
        "cloudformation", "DescribeStacks", "AccessDenied", times=None, status=403
    )
    project.cloud.faults.add("s3", "ListObjectsV2", "AccessDenied", times=None, status=403)
    inventory = take_inventory(project.clients, Scope(project="Wordle"))
    assert ("runtime", RUNTIME) in names(inventory)
    assert len(inventory.problems) >= 2
    assert "CloudFormation stacks cannot be listed: AccessDenied" in inventory.problems[0]


def test_all_of_it_is_removed_in_order_and_nothing_else(project):
    project.cloud.training_sessions["Wordle-s1"] = SessionEntry()
    project.cloud.functions["Wordle-forward"] = Function()
    runtime = project.cloud.runtimes[RUNTIME]
    runtime.endpoints = ("DEFAULT", "training")
    project.scripted("training-2")
    scope = Scope(project="Wordle", include_used=True)
    inventory = take_inventory(project.clients, scope)
    asked = []

    def confirm(kind, things):
        asked.append(kind)
        return True

    project.cloud.calls.clear()
    removal = remove(project.clients, inventory, confirm=confirm, patience=PATIENCE)
    assert removal.left == []
    assert asked == [kind for kind in KINDS if kind != "dataset"]
    cloud = project.cloud
    assert cloud.jobs["training-2"].status == "Stopped"
    assert cloud.training_sessions["Wordle-s1"].status == "Stopped"
    assert list(cloud.runtimes) == ["Other_Agent-aBcDeFgHiJ"]
    assert cloud.functions == {}
    assert cloud.mlflow_apps == {}
    assert cloud.model_package_groups == {}
    assert set(cloud.buckets["data"].objects) == {
        "wordle/train.jsonl",
        "wordle/val.jsonl",
        "wordle/out2/else",
    }
    operations = [call.operation for call in cloud.mutations]
    assert operations.index("StopJob") < operations.index("DeleteStack")
    assert operations.index("DeleteModelPackage") < operations.index("DeleteModelPackageGroup")
    again = take_inventory(project.clients, scope)
    assert names(again) == {("dataset", "s3://data/wordle/train.jsonl")}


def test_what_came_after_the_list_is_left_alone(project):
    inventory = take_inventory(project.clients, Scope(project="Wordle", include_used=True))
    project.cloud.make_bucket("data")["wordle/out/new"] = b"z"
    project.cloud.runtimes["Wordle_New-aBcDeFgHiJ"] = Runtime(name="Wordle_New")
    remove(project.clients, inventory, confirm=yes, patience=PATIENCE)
    assert "wordle/out/new" in project.cloud.make_bucket("data")
    assert "Wordle_New-aBcDeFgHiJ" in project.cloud.runtimes


def test_a_failure_leaves_one_thing_and_goes_on(project):
    project.cloud.stacks[STACK].delete_fails = "the bucket is not empty"
    project.cloud.faults.add(
        "sagemaker", "DeleteMlflowApp", "AccessDeniedException", status=403, message="not you"
    )
    inventory = take_inventory(project.clients, Scope(project="Wordle", include_used=True))
    told = []
    removal = remove(
        project.clients,
        inventory,
        confirm=yes,
        patience=PATIENCE,
        tell=lambda one, outcome: told.append((one.kind, outcome.split(":")[0])),
    )
    assert [(one.what.kind, one.why) for one in removal.left] == [
        ("stack", f"{STACK} was not removed: the bucket is not empty"),
        (
            "mlflow-app",
            "metrics cannot be removed: AccessDeniedException: not you (DeleteMlflowApp)",
        ),
    ]
    assert ("runtime", "removed") in told
    assert ("stack", "left") in told
    assert RUNTIME not in project.cloud.runtimes


def test_a_refusal_in_the_middle_of_a_folder_tells_how_much_is_gone(project):
    bucket = project.cloud.make_bucket("data")
    for number in range(1005):
        bucket[f"many/{number:04}"] = b""
    inventory = take_inventory(project.clients, Scope(s3=("s3://data/many",)))
    count = 0

    def confirm(kind, things):
        return True

    def second(params, **_):
        nonlocal count
        count += 1
        if count == 2:
            project.cloud.faults.add("s3", "DeleteObjects", "AccessDenied", status=403)

    project.clients("s3").meta.events.register("provide-client-params.s3.DeleteObjects", second)
    removal = remove(project.clients, inventory, confirm=confirm, patience=PATIENCE)
    assert removal.left[0].why.startswith(
        "1000 of 1005 objects of s3://data/many were removed, the next ones were not: AccessDenied"
    )
    assert sum(key.startswith("many/") for key in bucket.objects) == 5


def test_what_is_gone_already_is_no_failure(project):
    inventory = take_inventory(project.clients, Scope(project="Wordle"))
    removal = remove(project.clients, inventory, confirm=yes, patience=PATIENCE)
    # the stack took its runtime with it
    assert removal.left == []
    assert project.calls("DeleteAgentRuntime")


def test_what_a_running_job_needs_stays_until_it_has_stopped(project):
    is_over = threading.Event()

    def stubborn(job):
        is_over.wait(20)
        raise StopRequested

    project.cloud.runner = stubborn
    project.create("training-2")
    inventory = take_inventory(project.clients, Scope(project="Wordle"))
    removal = remove(
        project.clients, inventory, confirm=yes, patience=Patience(timeout_s=0.2, poll_s=0.05)
    )
    assert {(one.what.kind, one.why) for one in removal.left} == {
        ("job", "it is still stopping"),
        ("stack", "job training-2 has not ended yet: repeat this command later"),
        ("runtime", "job training-2 has not ended yet: repeat this command later"),
    }
    assert RUNTIME in project.cloud.runtimes
    assert {one.kind for one in removal.removed} == {"log-group"}
    is_over.set()


def test_declining_to_stop_a_job_keeps_what_it_needs(project):
    project.scripted("training-2")
    inventory = take_inventory(project.clients, Scope(project="Wordle"))
    removal = remove(
        project.clients, inventory, confirm=lambda kind, things: kind != "job", patience=PATIENCE
    )
    assert [one.name for one in removal.declined] == ["training-2"]
    assert project.cloud.jobs["training-2"].status == "InProgress"
    assert RUNTIME in project.cloud.runtimes


def test_the_verb_takes_no_agent_from_a_job_that_runs(project):
    project.scripted("training-2")
    done = rft("cleanup", "--project", "Wordle", "--yes", "--only", "runtime", "--poll", "0.05")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == f"left\truntime\t{RUNTIME}\tjob training-2 runs"
    assert RUNTIME in project.cloud.runtimes


@pytest.mark.parametrize("operation", ["ListJobs", "DescribeJob"])
def test_what_jobs_may_need_stays_where_nobody_can_see_which_run(project, operation):
    project.scripted("training-2")
    project.cloud.faults.add("sagemaker", operation, "AccessDeniedException", times=None)
    done = rft("cleanup", "--project", "Wordle", "--yes", "--poll", "0.05")
    assert done.returncode == 1
    assert RUNTIME in project.cloud.runtimes
    assert project.cloud.stacks[STACK].status == "CREATE_COMPLETE"
    why = "which jobs run is not known, and one of them may need it"
    assert f"left\truntime\t{RUNTIME}\t{why}" in done.stdout
    assert [call.operation for call in project.cloud.mutations[-1:]] == ["DeleteLogGroup"]


@pytest.mark.parametrize(
    ("folder", "how"),
    [
        ("s3://data/wordle/out", "writes under"),
        ("s3://data/wordle/out/training-1", "writes under"),
        ("s3://data/wordle", "writes under"),
        ("s3://other/sets", "reads"),
    ],
)
def test_a_folder_that_a_running_job_uses_stays(project, folder, how):
    bucket = project.cloud.make_bucket("other")
    bucket["sets/a.jsonl"] = b'{"prompt": "play"}\n'
    document = project.document()
    document["InputDataConfig"][0]["DataSource"]["S3DataSource"]["S3Uri"] = "s3://other/sets/a"
    project.scripted("somebody-s", document=document)
    before = {name: set(one.objects) for name, one in project.cloud.buckets.items()}
    done = rft("cleanup", "--s3", folder, "--yes")
    assert done.returncode == 1, done.stdout
    assert f"left\ts3\t{folder}\tjob somebody-s runs and {how} it" in done.stdout
    assert {name: set(one.objects) for name, one in project.cloud.buckets.items()} == before


def test_a_folder_beside_that_of_a_running_job_goes(project):
    project.scripted("somebody-s")
    done = rft("cleanup", "--s3", "s3://data/wordle/out2", "--yes")
    assert done.returncode == 0, done.stdout
    assert "wordle/out2/else" not in project.cloud.buckets["data"]


def test_what_somebody_else_s_running_job_uses_stays(project):
    """Its name is not in scope, and neither is its agent's; the groups and the app are."""
    document = project.document()
    agent = project.cloud.runtime_arn("Other_Agent-aBcDeFgHiJ")
    document["AgentConfig"]["BedrockAgentCoreConfig"]["AgentRuntimeArn"] = agent
    project.scripted("somebody-s", document=document)
    inventory = take_inventory(project.clients, Scope(prefix="wordle-"))
    removal = remove(project.clients, inventory, confirm=yes, patience=PATIENCE)
    assert ("package-group", "wordle-output") in {
        (one.what.kind, one.what.name) for one in removal.left
    }
    assert "wordle-output" in project.cloud.model_package_groups


def test_a_protected_stack_is_left_with_the_service_s_reason(project):
    project.cloud.stacks[STACK].is_protected = True
    inventory = take_inventory(project.clients, Scope(project="Wordle"))
    removal = remove(project.clients, inventory, confirm=yes, patience=PATIENCE)
    assert "TerminationProtection" in removal.left[0].why


def test_a_job_that_wrote_to_a_whole_bucket_takes_no_bucket_with_it(project):
    document = project.document()
    document["OutputDataConfig"]["S3OutputPath"] = "s3://data"
    project.cloud.runner = WalkThrough()
    project.create("training-3", document).wait(10)
    inventory = take_inventory(project.clients, Scope(project="Wordle", include_used=True))
    (whole,) = [one for one in inventory.of("s3") if one.name == "s3://data"]
    assert "name folders in it with --s3" in whole.kept


@pytest.mark.parametrize(
    ("uri", "parts"),
    [
        ("s3://b/k/", ("b", "k")),
        ("s3://b/k/l.txt", ("b", "k/l.txt")),
        ("s3://b", ("b", "")),
        ("x", ("", "")),
    ],
)
def test_an_s3_uri_has_a_bucket_and_a_key(uri, parts):
    assert split_uri(uri) == parts


def test_sizes_are_told_for_people():
    assert [size(count) for count in (0, 999, 1400, 1_400_000_000, 2 * 10**15)] == [
        "0 B",
        "999 B",
        "1.4 kB",
        "1.4 GB",
        "2000.0 TB",
    ]


def test_the_verb_lists_by_default_and_says_the_two_ways(project, tmp_path):
    before = len(project.cloud.mutations)
    done = rft("cleanup", "--project", "Wordle")
    assert done.returncode == 0, done.stderr
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert [line[0] for line in lines] == sorted((line[0] for line in lines), key=list(KINDS).index)
    assert lines[1][:2] == ["runtime", RUNTIME]
    assert "billed" in lines[1][3]
    assert "git checkout -- agentcore/" in done.stderr
    assert "deletes the CloudFormation stack and leaves the project's" in done.stderr
    assert len(project.cloud.mutations) == before


def test_the_verb_takes_the_project_of_the_working_directory(project, tmp_path):
    (tmp_path / "agentcore").mkdir()
    (tmp_path / "agentcore/agentcore.json").write_text('{"name": "Wordle"}')
    found = json.loads(rft("cleanup", "--json", cwd=tmp_path).stdout)
    assert STACK in {one["name"] for one in found}
    nothing = rft("cleanup", cwd=tmp_path / "agentcore")
    assert nothing.returncode == 2
    assert "wanted what to look for" in nothing.stderr
    assert (ROOT / "agentcore/agentcore.json").is_file()


def test_the_verb_removes_on_request_and_tells_what_is_left(project):
    project.cloud.stacks[STACK].delete_fails = "the bucket is not empty"
    done = rft("cleanup", "--project", "Wordle", "--yes", "--poll", "0.05")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == (
        f"left\tstack\t{STACK}\t{STACK} was not removed: the bucket is not empty"
    )
    assert "removed 2, declined 0, left 1" in done.stderr
    project.cloud.stacks[STACK].delete_fails = None
    assert rft("cleanup", "--project", "Wordle", "--yes", "--only", "stack").returncode == 0
    assert project.cloud.stacks[STACK].status == "DELETE_COMPLETE"


def test_the_verb_asks_before_each_kind_and_takes_no_for_an_answer(project):

    answered = subprocess.run(
        [
            *(sys.executable, "-m", "rft_agent_sdk.cli", "mtrl", "cleanup"),
            *("--project", "Wordle", "--remove", "--poll", "0.05"),
        ],
        input="n\ny\nn\n",
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
        check=False,
    )
    assert answered.returncode == 0, answered.stderr
    assert f"Remove 1 CloudFormation stacks: {STACK}?" in answered.stderr
    assert "removed 1, declined 2, left 0" in answered.stderr
    assert project.cloud.stacks[STACK].status == "CREATE_COMPLETE"
    assert RUNTIME not in project.cloud.runtimes


def test_the_verb_refuses_what_makes_no_sense(project):
    for words, *args in (
        ("wanted --dry-run or --remove", "--dry-run", "--yes", "--prefix", "x"),
        ("--tag: wanted KEY=VALUE", "--tag", "x"),
        ("--only: wanted kinds of job,", "--only", "bucket", "--prefix", "x"),
    ):
        refused = rft("cleanup", *args)
        assert refused.returncode == 2
        assert words in refused.stderr
