"""The chart, as Helm renders it: a cluster would accept each object, and the gateway its file."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from interlock.config import gateway_reading, load
from tests.docs.page import ROOT
from tests.support.rows import each_row

CHART = ROOT / "deploy" / "chart"
HELM = ROOT / "build" / "helm" / "helm" / "helm"
VALIDATE = Path(sys.executable).with_name("kubernetes-validate")
CLUSTERS = ("1.29", "1.32", "1.35")
SECRET = "existingSecret=interlock"
REPLICAS = "database=postgresql,replicas=3"
EVERYTHING = (
    f"{SECRET},{REPLICAS},imagePullSecrets[0].name=registry,podLabels.team=tools,podAnnotations.a=b"
    ",networkPolicy.clients[0].podSelector.matchLabels.team=tools,service.annotations.a=b"
    ",networkPolicy.operators[0].ipBlock.cidr=10.0.0.0/8,nodeSelector.zone=a,affinity.nodeAffinity=null"
    ",tolerations[0].operator=Exists"
)


def helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([HELM, *arguments], capture_output=True, text=True)


def rendered(values: str = SECRET) -> str:
    ran = helm("template", "interlock", CHART, "--set", values)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def objects(text: str) -> dict[str, Any]:
    """Return the rendered objects by kind, of which each is unique."""
    found = [each for each in yaml.safe_load_all(text) if each]
    assert len({each["kind"] for each in found}) == len(found)
    return {each["kind"]: each for each in found}


def problems(text: str, cluster: str, folder: Path) -> str:
    """Return what a cluster of a version would refuse; "" for nothing."""
    file = folder / "rendered.yaml"
    file.write_text(text)
    command = [VALIDATE, "--strict", "--kubernetes-version", cluster, file]
    ran = subprocess.run(command, capture_output=True, text=True)
    return ran.stdout + ran.stderr if ran.returncode else ""


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_chart_is_clean_and_each_cluster_accepts_its_objects(cluster: str, tmp_path: Path):
    for values in (SECRET, EVERYTHING):
        linted = helm("lint", "--strict", CHART, "--set", values)
        assert linted.returncode == 0, linted.stdout
        assert problems(rendered(values), cluster, tmp_path) == ""


def test_chart_installs_the_image_of_its_own_release():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert chart["version"] == chart["appVersion"] == project["version"]


@each_row(
    "right, wrong",
    [
        ("readinessProbe:", "readinesProbe:"),
        ("readOnlyRootFilesystem: true", "readOnlyRootFilesystem: yess"),
        ("imagePullPolicy: IfNotPresent", "imagePullPolicy: [IfNotPresent]"),
    ],
)
def test_misspelt_field_or_value_of_a_template_is_refused(right: str, wrong: str, tmp_path: Path):
    text = rendered()
    assert right in text
    for cluster in CLUSTERS:
        assert problems(text.replace(right, wrong), cluster, tmp_path)


@each_row(
    "values, error",
    [
        ("replicas=1", "existingSecret"),
        (f"{SECRET},replica=2", "'replica' not allowed"),
        (f"{SECRET},image.pullPolicy=Allways", "/image/pullPolicy"),
        (f"{SECRET},database=postgres", "/database"),
        (f"{SECRET},replicas=two", "/replicas"),
        (f"{SECRET},replicas=2", "more than one needs PostgreSQL"),
        (f"{SECRET},config.gateway.listen=0.0.0.0:1", "remove listen"),
        (f"{SECRET},config.gateway.admin.listen=0.0.0.0:1", "remove listen and admin.listen"),
        (f"{SECRET},config.gateway.database=a.db", "set the value database"),
        (f"{SECRET},networkPolicy.operators[0].podSelecter.a=b", "'podSelecter' not allowed"),
        (f"{SECRET},key=secret", "'key' not allowed"),
    ],
)
def test_wrong_value_is_refused_with_its_name(values: str, error: str):
    ran = helm("template", "interlock", CHART, "--set", values)

    assert (ran.returncode, error in ran.stderr) == (1, True), ran.stderr


def test_one_replica_has_a_file_and_several_have_postgresql_and_a_budget():
    one, several = objects(rendered()), objects(rendered(EVERYTHING))

    assert {*one} == {
        "ConfigMap",
        "Deployment",
        "NetworkPolicy",
        "PersistentVolumeClaim",
        "Service",
    }
    assert one["Deployment"]["spec"]["strategy"] == {"type": "Recreate"}
    assert {*several} - {*one} == {"Job", "PodDisruptionBudget"}
    assert {*one} - {*several} == {"PersistentVolumeClaim"}
    assert several["Deployment"]["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert several["Job"]["metadata"]["annotations"]["helm.sh/hook"] == "pre-upgrade"


def test_pod_has_no_rights_asks_the_admin_port_and_restarts_with_its_configuration(tmp_path: Path):
    found = objects(rendered(f"{SECRET},config.gateway.drain.calls=20s"))
    template = found["Deployment"]["spec"]["template"]
    pod, (container,) = template["spec"], template["spec"]["containers"]
    (tmp_path / "mcp.json").write_text(found["ConfigMap"]["data"]["mcp.json"])
    config = load(tmp_path / "mcp.json")
    settings = gateway_reading.resolve(config, {})

    assert config.warnings == ()
    assert (str(settings.listen), str(settings.admin)) == ("0.0.0.0:8080", "0.0.0.0:8081")
    assert (settings.drain.delay, settings.drain.calls) == (5.0, 20.0)
    assert settings.drain.delay + settings.drain.calls < pod["terminationGracePeriodSeconds"] == 45
    assert {each["httpGet"]["port"] for name, each in container.items() if "Probe" in name} == {
        "admin"
    }
    assert [each["targetPort"] for each in found["Service"]["spec"]["ports"]] == ["mcp"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert pod["securityContext"]["runAsUser"] == 65532
    other = objects(rendered(f"{SECRET},config.gateway.instructions=servers"))
    checksums = [
        each["metadata"]["annotations"]["checksum/config"]
        for each in (template, other["Deployment"]["spec"]["template"])
    ]
    assert checksums[0] != checksums[1]
    waiting = objects(rendered(f"{SECRET},maintenance=true"))["Deployment"]
    (idle,) = waiting["spec"]["template"]["spec"]["containers"]
    assert {*idle} - {*container} == {"command"}
    assert not [name for name in idle if "Probe" in name]
    assert "interlock" not in json.dumps(container["env"])  # secrets are in the Secret alone
