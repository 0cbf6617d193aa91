"""`interlock doctor`: the report, and the problems in it."""

import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from interlock.cli.doctor import children
from interlock.extras import install_command
from tests.support.otlp_collector import collecting

BROKEN = {"command": "no-such-program"}


@pytest.fixture
def no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the server processes of other programs on this machine."""
    monkeypatch.setattr("interlock.cli.doctor.children", list)


@pytest.mark.slow("starts a program")
def test_doctor_without_problems_prints_its_findings(
    no_processes, interlock, servers, script, monkeypatch
):
    path = servers()
    monkeypatch.setenv("INTERLOCK_MODEL", model := script())
    monkeypatch.setenv("OPENAI_API_KEY", "sk-s3cr3t")
    ran = interlock("doctor")

    assert (ran.code, ran.err) == (0, "")
    rows = [re.split(r"  +", line, maxsplit=1) for line in ran.out.splitlines()]
    assert ["config", str(path)] in rows
    assert any(name == "server e" and text.startswith("ok, 2026-07-28") for name, text in rows)
    assert ["OPENAI_API_KEY", "set"] in rows
    assert ["GEMINI_API_KEY", "not set"] in rows
    assert ["model", model] in rows
    assert "conversations.db (created by the first conversation)" in ran.out
    assert "s3cr3t" not in ran.out


@pytest.mark.slow("starts a program")
def test_json_option_prints_the_report(no_processes, interlock, servers, script, monkeypatch):
    servers()
    monkeypatch.setenv("INTERLOCK_MODEL", script())
    report = interlock("doctor", "--json").json

    assert report["servers"][0]["state"] == "ok"
    assert report["problems"] == []
    assert report["keys"]["ANTHROPIC_API_KEY"] is False
    assert report["versions"]["python"].startswith("3.")


def test_a_missing_package_is_listed_with_the_command_that_installs_its_extra(
    no_processes, interlock, script, monkeypatch
):
    def version(name: str) -> str:
        if name == "keyring":
            raise metadata.PackageNotFoundError
        return "1"

    monkeypatch.setenv("INTERLOCK_MODEL", script())
    monkeypatch.setattr(metadata, "version", version)

    versions = interlock("doctor", "--json").json["versions"]

    assert versions["keyring"] == f"not installed; extra oauth: {install_command('oauth')}"


def test_doctor_shows_servers_from_variables_and_tracing_set_up_by_the_environment(
    no_processes, interlock, script, monkeypatch
):
    monkeypatch.setenv("INTERLOCK_MODEL", script())
    monkeypatch.setenv("MCP_SERVERS", "[]")
    monkeypatch.setenv("LANGCHAIN_TRACING", "true")
    monkeypatch.setenv("LANGSMITH_ENDPOINT", "https://user:s3cr3t@traces.example")
    effects = interlock("doctor", "--json").json["effects"]
    assert effects["MCP_SERVERS"] == "set and not used; set MCP_ENABLED=true to use it"
    assert "results of tools to https://traces.example" in effects["LANGCHAIN_TRACING"]

    monkeypatch.setenv("LANGSMITH_TRACING_V2", "false")  # which is stronger
    monkeypatch.setenv("MCP_ENABLED", "1")
    report = interlock("doctor", "--json").json
    assert report["effects"] == {}


@pytest.mark.slow("starts a program")
def test_doctor_reports_all_problems_at_once(interlock, servers, home: Path, monkeypatch):
    servers(broken=BROKEN)
    monkeypatch.setenv("INTERLOCK_MODEL", "nobody:x")
    (home / "file.db").write_text("not a database" * 100)
    monkeypatch.setenv("INTERLOCK_DATABASE", str(home / "file.db"))
    ran = interlock("doctor")

    assert ran.code == 1
    assert "warning: server 'broken' failed: cannot start 'no-such-program'" in ran.err
    assert "warning: unknown model provider 'nobody'" in ran.err
    assert f"warning: {home / 'file.db'}" in ran.err
    assert "Write the path of the program, or install it." in ran.err
    assert "docs/" not in ran.err  # an installed package has no pages
    assert "server e" in ran.out
    assert re.search(r"^server broken +failed, 0 tools$", ran.out, re.MULTILINE)


def test_doctor_with_an_invalid_configuration_checks_the_rest(
    interlock, servers, script, monkeypatch
):
    servers().write_text("{")
    monkeypatch.setenv("INTERLOCK_MODEL", model := script())
    ran = interlock("doctor")

    assert ran.code == 1
    assert "mcp.json, line 1" in ran.err
    assert model in ran.out


@pytest.fixture
def orphan():
    """A process with the mark of an interlock process that has ended."""
    environment = {**os.environ, "INTERLOCK_CHILD": f"{os.getpid()}-1-1"}
    program = ["sh", "-c", "sleep 60; :", "--token=s3cr3t", "--password", "s3cr3t"]
    started = subprocess.Popen(program, env=environment)
    yield started.pid
    started.kill()
    started.wait()


def test_doctor_reports_an_orphaned_server_process(interlock, script, monkeypatch, orphan: int):
    monkeypatch.setenv("INTERLOCK_MODEL", script())
    ran = interlock("doctor")

    assert ran.code == 1
    command = "sh -c sleep 60; : --token=*** --password ***"
    assert f"process {orphan} ({command}) outlived interlock" in ran.err
    assert f"end it with: kill {orphan}\n" in ran.err
    assert "s3cr3t" not in ran.out + ran.err


@pytest.mark.slow("starts two programs")
def test_a_server_of_a_running_interlock_is_not_an_orphan(program, servers, script):
    servers()
    chat = program("chat", "x", "--model", script({"wait": {}}))
    line = chat.stderr.readline()  # the call has started
    mine = [child for child in children() if child.parent == chat.pid]

    assert line.startswith("[TOOL] e:wait")
    assert [(child.orphan, sys.executable in child.command) for child in mine] == [(False, True)]


def test_doctor_shows_where_telemetry_goes_and_whether_the_collector_answers(
    interlock, monkeypatch
):
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=canary")
        ran = interlock("doctor", "--json")
        collector.script = [(403, {})]
        refused = interlock("doctor", "--json")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "xray")
    invalid = interlock("doctor", "--json")

    for signal in ("traces", "metrics"):
        assert ran.json[signal] == f"{collector.url}/v1/{signal}, with headers"
        assert not any(signal in each for each in ran.json["problems"])
    assert "canary" not in ran.out
    assert any(each.endswith("it answered 403") for each in refused.json["problems"])
    assert any("OTEL_TRACES_SAMPLER" in each for each in invalid.json["problems"])


def test_deployment_option_prints_checks_and_an_error_is_the_exit_code(interlock, tmp_path):
    file = tmp_path / "gateway.json"
    file.write_text('{"mcpServers": {}, "gateway": {"audit": {"mode": "off"}}}')
    ran = interlock("doctor", "--deployment", "--config", file)
    states = {each["id"]: each["state"] for each in interlock(*ran_with(file)).json["checks"]}

    assert (ran.code, states["audit"], states["configuration"]) == (1, "error", "ok")
    assert re.search("^error +audit +gateway.audit.mode is", ran.out, re.MULTILINE)
    file.write_text('{"mcpServers": {}}')
    assert interlock(*ran_with(file)).code == 0
    file.write_text("{")
    assert [each["state"] for each in interlock(*ran_with(file)).json["checks"]][-1] == "error"


def ran_with(file: Path) -> tuple[object, ...]:
    return ("doctor", "--deployment", "--json", "--config", file)
