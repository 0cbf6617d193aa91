"""Commands whose text arguments must be UTF-8, because they become JSON."""

from __future__ import annotations

import click

from interlock.text.surrogates import repair_text


def prose(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    """Replace what is not UTF-8 in a text for a model, which understands the rest."""
    return None if text is None else repair_text(text)


class Utf8Command(click.Command):
    """A command that refuses text arguments that are not UTF-8. Paths may have any bytes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments as click does, then check that the texts are UTF-8."""
        rest = super().parse_args(ctx, args)
        for param in self.params:
            value = ctx.params.get(param.name or "")
            texts = value if isinstance(value, tuple) else (value,)
            for number, text in enumerate(texts, 1):
                if isinstance(text, str) and not _is_utf8(text):
                    position = number if isinstance(value, tuple) else None
                    raise click.UsageError(
                        f"{_label(param, ctx, text, position)} is not UTF-8", ctx
                    )
        return rest


def _is_utf8(text: str) -> bool:
    # Python decodes each byte of an argument that is not valid UTF-8 to a lone surrogate.
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _label(param: click.Parameter, ctx: click.Context, text: str, number: int | None) -> str:
    """Return a name for an argument in errors, without its value, which may be a secret."""
    name = param.opts[0] if isinstance(param, click.Option) else param.make_metavar(ctx)
    key, equals, _ = text.partition("=")
    if equals and _is_utf8(key):
        return f"{name} {key}=…" if isinstance(param, click.Option) else f"{key}=…"
    return name if number is None else f"{name} number {number}"
