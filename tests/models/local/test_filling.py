import json
from typing import Any

from interlock.models.local.filling import Filling, fill, parameters
from interlock.models.local.spans import find_spans
from tests.support.rows import each_row

STRING = {"type": "string"}


def filled(request: str, required: list[str] | None = None, **properties: Any) -> Filling:
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required is None else required,
    }
    return fill(request, find_spans(request), parameters(schema))


@each_row(
    ("schema", "kind"),
    [
        ({"type": "integer"}, "number"),
        ({"type": ["number", "null"]}, "number"),
        ({"anyOf": [{"type": "null"}, {"type": "boolean"}]}, "boolean"),
        ({"type": "array", "items": STRING}, "list"),
        ({"type": "string", "format": "uri"}, "url"),
        ({"type": "string", "description": "IANA timezone name"}, "zone"),
        ({"type": "string", "description": "The path to the folder"}, "path"),
        ({"type": "string", "description": "Date as YYYY-MM-DD"}, "date"),
        ({"type": "string", "enum": ["open", "closed"]}, "choice"),
        ({"type": "string", "description": "Either 'red' or 'blue'"}, "choice"),
        ({"type": "string", "description": "A colour (e.g., 'red', 'blue')"}, "text"),
        ({}, "text"),
    ],
)
def test_the_kind_of_a_parameter_comes_from_its_schema(schema: dict[str, Any], kind: str) -> None:
    assert [p.kind for p in parameters({"properties": {"thing": schema}})] == [kind]


@each_row("schema", [{}, {"properties": []}, {"properties": {"a": True}}])
def test_schemas_of_unusual_form_yield_no_parameters(schema: dict[str, Any]) -> None:
    assert parameters(schema) == []


@each_row("properties", [{"a": {"items": {"items": {}}}}, {"a": {"type": 7}}])
def test_malformed_properties_are_tolerated(properties: dict[str, Any]) -> None:
    assert len(parameters({"properties": properties, "required": "a"})) == 1


def test_from_and_to_assign_two_values_of_one_kind() -> None:
    arguments = filled(
        "To Paris, at 18:45, from Tokyo",
        target_timezone=STRING,
        time=STRING,
        source_timezone=STRING,
    ).arguments

    assert arguments == {
        "target_timezone": "Europe/Paris",
        "time": "18:45",
        "source_timezone": "Asia/Tokyo",
    }


def test_values_without_from_and_to_are_assigned_in_order() -> None:
    arguments = filled("/tmp/a and /tmp/b", first_path=STRING, second_path=STRING).arguments

    assert arguments == {"first_path": "/tmp/a", "second_path": "/tmp/b"}


def test_word_after_a_parameter_name_becomes_its_value() -> None:
    assert filled("describe the table customers", table_name=STRING).arguments == {
        "table_name": "customers"
    }
    assert filled("a branch called fix", branch_name=STRING).arguments == {"branch_name": "fix"}


def test_numbers_given_by_name_are_assigned_by_name() -> None:
    number = {"type": "number"}

    arguments = filled("with c = 2, b = -3 and a = 1.5", a=number, b=number, c=number).arguments

    assert arguments == {"a": 1.5, "b": -3, "c": 2}


def test_a_list_collects_all_values_of_its_kind() -> None:
    numbers = {"type": "array", "items": {"type": "integer"}}
    files = {"type": "array", "items": STRING}

    assert filled("the sum of 4, 8 and 15", numbers=numbers).arguments == {"numbers": [4, 8, 15]}
    assert filled("add a.py and b.py in /srv/app", repo_path=STRING, files=files).arguments == {
        "repo_path": "/srv/app",
        "files": ["a.py", "b.py"],
    }


def test_a_choice_is_filled_when_the_request_has_its_word() -> None:
    state = {"type": "string", "enum": ["open", "closed"]}

    assert filled("list the CLOSED issues", state=state).arguments == {"state": "closed"}
    assert filled("list the issues that reopened", [], state=state).arguments == {}


def test_an_optional_number_is_filled_only_if_the_request_mentions_it() -> None:
    count, lines = {"type": "integer"}, {"type": "integer"}

    filling = filled("the last 5 commits", [], max_count=count, context_lines=lines)

    assert filling.arguments == {"max_count": 5}


def test_a_number_for_a_text_parameter_stays_text() -> None:
    assert filled("write 255 down", number=STRING).arguments == {"number": "255"}


def test_a_fraction_is_not_assigned_to_an_integer() -> None:
    filling = filled("is 2.5 prime?", n={"type": "integer"})

    assert filling.arguments == {}
    assert [parameter.name for parameter in filling.missing] == ["n"]


def test_a_default_in_the_description_is_used() -> None:
    zone = {"type": "string", "description": "Time zone. Use 'Etc/UTC' if none is given."}

    filling = filled("what time is it?", timezone=zone)

    assert filling.arguments == {"timezone": "Etc/UTC"}
    assert filling.assumed == ()


def test_missing_path_argument_is_filled_with_the_current_folder() -> None:
    filling = filled("show the status", repo_path=STRING)

    assert filling.arguments == {"repo_path": "."}
    assert [parameter.name for parameter in filling.assumed] == ["repo_path"]


@each_row(
    ("request_", "cities"),
    [
        ("Weather in Hamburg and Paris", ["Hamburg", "Paris"]),
        ("Wetter in Paris, Berlin und Oslo", ["Paris", "Berlin", "Oslo"]),
        ("Météo à Paris et à Genève", ["Paris", "Genève"]),
        ("Weather in Paris for Berlin", ["Paris"]),
    ],
)
def test_each_value_of_a_list_becomes_a_separate_call(request_: str, cities: list[str]) -> None:
    filling = filled(request_, city=STRING)

    assert [each["city"] for each in (filling.arguments, *filling.further)] == cities


def test_a_second_parameter_gets_the_second_value_of_a_list() -> None:
    filling = filled("from Tokyo and Paris", zone=STRING, other_zone=STRING)

    assert list(filling.arguments.values()) == ["Asia/Tokyo", "Europe/Paris"]
    assert filling.further == ()


@each_row(
    ("request_", "found"),
    [
        ("Send it to Anna and Peter", ["Anna"]),
        ("The distance between Anna and Peter", ["Anna", "Peter"]),
    ],
)
def test_names_of_a_list_fill_several_texts_only_if_they_are_a_pair(
    request_: str, found: list[str]
) -> None:
    filling = filled(request_, first=STRING, second=STRING)

    assert [each for each in filling.arguments.values() if each[0].isupper()] == found


def test_path_without_a_cue_is_only_a_guess_for_a_text_parameter() -> None:
    assert filled("How many words does notes.txt have?", query=STRING).guesses == 1
    assert filled("Use the branch feature/x", branch=STRING).guesses == 0


def test_arguments_keep_the_order_of_the_schema() -> None:
    arguments = filled("/tmp/x has 3", n={"type": "integer"}, path=STRING).arguments

    assert json.dumps(arguments) == '{"n": 3, "path": "/tmp/x"}'
