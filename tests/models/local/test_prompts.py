from interlock.models import ToolDefinition
from interlock.models.local.prompts import abilities


def test_system_prompt_names_each_server_once() -> None:
    names = ["time__now", "git__log", "git__show"]
    tools = [ToolDefinition(name, "", b"{}") for name in names]

    assert abilities(tools) == "My tools are those of time, git."
    assert abilities([]) == "I have no tools here."
