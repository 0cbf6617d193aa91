"""Reads a gateway's policy. Unknown keys are refused: a misspelled key may restrict a rule."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, cast, get_args

from interlock.config.gateway import (
    CALLER,
    EVERYBODY,
    GROUP,
    Effect,
    Issuer,
    Kind,
    PolicyRules,
    Record,
    Risk,
    Rule,
)
from interlock.config.patterns import read_patterns
from interlock.config.section import MAX_LONG, Section, nearest
from interlock.errors import SchemaError

if TYPE_CHECKING:
    from interlock.schema.condition import Condition

MAX_RULES = 10_000
_RULE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SUBJECT = re.compile(r"https?://[^\s#]+#.+")
_USER = re.compile(r"user:[^*\s]+")
_KINDS = get_args(Kind)
_RULE_KEYS = ("id", "effect", "who", *_KINDS, "risk", "view", "arguments", "claims", "record")
_ASK_KEYS = ("approvers", "expires")


def read_policy(section: Section, views: Collection[str], servers: Collection[str]) -> PolicyRules:
    """Return the rules in the member `policy`."""
    section.refuse_unknown(("readOnly", "rules"))
    rules: dict[str, Rule] = {}
    for entry in section.each("rules"):
        rule = _rule(entry, views, servers)
        if rule.id in rules:
            first = list(rules).index(rule.id)
            entry.refuse(f"is the id of rules[{first}] as well: rename one of them", "id")
        rules[rule.id] = rule
    if len(rules) > MAX_RULES:
        section.refuse(f"has {len(rules):,} rules, over the limit of {MAX_RULES:,}", "rules")
    return PolicyRules(rules=tuple(rules.values()), read_only=section.flag("readOnly", False))


def _rule(section: Section, views: Collection[str], servers: Collection[str]) -> Rule:
    section.refuse_unknown((*_RULE_KEYS, *_ASK_KEYS))
    section.need("id", "effect", "who")
    if not _RULE_ID.fullmatch(section.text("id")):
        section.refuse("must be 1 to 64 of A-Z, a-z, 0-9, . _ and -", "id")
    effect: Effect = section.choice("effect", get_args(Effect))
    kind = _kind(section)
    for key, of in (("risk", ("tools",)), ("arguments", ("tools", "prompts"))):
        if key in section.members and kind not in of:
            section.refuse(f"is for {' and '.join(of)} only", key)
    for key in _ASK_KEYS:
        if key in section.members and effect != "ask":
            section.refuse('is for a rule with "effect": "ask" only', key)
    if "view" in section.members and section.text("view") not in views:
        section.refuse(f"is not a view of this file{nearest(section.text('view'), views)}", "view")
    return Rule(
        id=section.text("id"),
        effect=effect,
        who=read_who(section, "who"),
        kind=kind,
        patterns=read_patterns(section, kind, servers),
        risk=section.optional_choice("risk", get_args(Risk)),
        view=section.optional("view"),
        arguments=read_conditions(section.within("arguments")),
        claims=read_conditions(section.within("claims")),
        approvers=_approvers(section),
        expires=section.duration("expires", 1, MAX_LONG) if "expires" in section.members else None,
        record=section.optional_choice("record", get_args(Record)),
    )


def _approvers(section: Section) -> tuple[str, ...]:
    return read_who(section, "approvers", CALLER) if "approvers" in section.members else (CALLER,)


def _kind(section: Section) -> Kind:
    kinds = [kind for kind in _KINDS if kind in section.members]
    if len(kinds) != 1:
        section.refuse(f"needs one of {', '.join(_KINDS)}")
    if not section.texts(kinds[0]):
        section.refuse('must not be empty: write ["*:*"] for all', kinds[0])
    return cast("Kind", kinds[0])


def read_who(section: Section, key: str, *words: str) -> tuple[str, ...]:
    """Return the callers that a member lists, as in a rule's "who"; `words` may be among them."""
    who = section.texts(key)
    if not who:
        section.refuse('must not be empty: write ["*"] for all callers', key)
    for index, each in enumerate(who):
        is_group = each.startswith(GROUP) and len(each) > len(GROUP)
        if not (each in (EVERYBODY, *words) or is_group or is_principal(each)):
            allowed = ", ".join(f'"{word}"' for word in (EVERYBODY, *words))
            section.refuse(
                f'must be one of {allowed}, "user:NAME", "ISSUER#SUBJECT" or "group:NAME"',
                key,
                index,
            )
    return who


def is_principal(text: str) -> bool:
    """Return whether a text names a principal: "user:NAME" or "ISSUER#SUBJECT"."""
    return bool(_USER.fullmatch(text) or _SUBJECT.fullmatch(text))


def check_groups(
    section: Section, policy: PolicyRules, groups: Collection[str], issuers: Sequence[Issuer]
) -> None:
    """Check the groups of rules that the configuration's own groups lack.

    A group that no issuer gives has no members, which is a warning. A group without the name of an
    issuer is refused if several issuers give groups, because each of them could give it.

    Raises:
        ConfigError: A rule names a group that several issuers can give, or an unknown issuer.
    """
    for index, rule in enumerate(policy.rules):
        for key, principals in (("who", rule.who), ("approvers", rule.approvers)):
            check_listed_groups(section, principals, groups, issuers, "rules", index, key)


def check_listed_groups(
    section: Section,
    principals: Sequence[str],
    groups: Collection[str],
    issuers: Sequence[Issuer],
    *where: str | int,
) -> None:
    """Check the groups in a list of principals at `where` in a section; see `check_groups`."""
    giving = [each.name for each in issuers if each.groups]
    for place, each in enumerate(principals):
        name = each.removeprefix(GROUP)
        if not each.startswith(GROUP) or name in groups:
            continue
        issuer, separator, _ = name.partition("/")
        if not giving:
            text = f'names a group that "groups" lacks{nearest(name, groups)}'
            section.warn(text, *where, place)
        elif len(giving) > 1 and not (separator and issuer in giving):
            ways = " or ".join(f'"{GROUP}{other}/{name}"' for other in giving)
            section.refuse(f"is a group that several issuers can give; write {ways}", *where, place)


def read_conditions(section: Section) -> dict[str, Condition]:
    """Return conditions on values, keyed by the value's name."""
    conditions: dict[str, Condition] = {}
    if not section.members:
        return conditions
    from interlock.schema import condition  # imported here, because it loads the validation engine

    for name, document in section.members.items():
        if not name.isprintable():
            section.refuse("must be a name without control characters", name)
        try:
            conditions[name] = condition.compile(document)
        except SchemaError as error:
            section.refuse(str(error), name)
    return conditions
