"""A link that is the scenario itself: YAML, packed, in the part of an address that is never sent anywhere."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping
from typing import Final

from clustersim.config.yaml_text import yaml_text
from clustersim.documents.text import Data, parse_document
from clustersim.errors import ScenarioError

PREFIX: Final = "#scenario="
_MOST_BYTES: Final = 200_000
"""Most bytes of the unpacked text: no scenario comes near, and a link of a thousand characters can unpack to megabytes."""


def link_of(document: Mapping[str, Data]) -> str:
    """Return the end of an address that holds a scenario: ``#scenario=`` and the YAML text, deflated, in URL-safe base 64.

    Examples
    --------
    >>> document_of(link_of({"model": "llama3-8b"}))
    {'model': 'llama3-8b'}
    """
    packed = zlib.compress(yaml_text(document).encode(), 9)
    return PREFIX + base64.urlsafe_b64encode(packed).decode("ascii").rstrip("=")


def document_of(link: str) -> dict[str, Data]:
    """Return the scenario of a link, not yet checked.

    Raises
    ------
    ScenarioError
        When it is no such link, or is damaged.
    """
    packed = link.removeprefix(PREFIX)
    if packed == link:
        raise ScenarioError("the address holds no scenario", hint=f"copy the whole link, with {PREFIX} in it")
    try:
        raw = base64.b64decode(packed + "=" * (-len(packed) % 4), altchars=b"-_", validate=True)
        unpacking = zlib.decompressobj()
        text = unpacking.decompress(raw, _MOST_BYTES).decode()
    except (binascii.Error, zlib.error, ValueError) as error:
        raise ScenarioError("the scenario in the address is damaged", hint="copy the whole link again") from error
    if not unpacking.eof:
        raise ScenarioError("the scenario in the address is cut off or too long", hint="copy the whole link again")
    return parse_document(text, "link").data
