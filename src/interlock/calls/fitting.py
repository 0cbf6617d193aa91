"""Makes a call's arguments fit its tool's schema, or refuses the call."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice

from interlock.calls.call import Call
from interlock.errors import InvalidArguments
from interlock.schema.conversion import convert
from interlock.schema.validator import Validator

MAX_CONVERTED = 20  # arguments that `Call.converted` names
MAX_NAME = 200  # characters of each name


def check_arguments(
    call: Call, validator: Validator, keep_null: Collection[str] = (), *, echo: bool = True
) -> None:
    """Convert arguments that do not fit as `schema.conversion` describes; set `call.converted`.

    Args:
        call: The call. Its arguments are replaced, not changed.
        validator: The validator for the tool's schema.
        keep_null: The arguments in which null is never left out.
        echo: Whether the error shows values.

    Raises:
        InvalidArguments: The arguments do not fit; the text names each one and shows it as given,
            or as converted.
    """
    arguments, converted = convert(call.arguments, validator, keep_null)
    if errors := validator.errors(arguments, echo=echo):
        raise InvalidArguments(f"{call.entry.address}: {'; '.join(errors)}")
    call.arguments = arguments
    call.converted = {
        name[:MAX_NAME]: read for name, read in islice(converted.items(), MAX_CONVERTED)
    }
