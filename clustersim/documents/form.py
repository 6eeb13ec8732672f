"""Keys of a file, and the attributes that they fill."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, get_type_hints

if TYPE_CHECKING:
    from pydantic import ConfigDict, GetCoreSchemaHandler
    from pydantic_core import CoreSchema

_UNIT: Final = re.compile("^n_|(_bytes_per)?_s$|_bytes$|_w$")
"""Parts of attributes in SI units that their keys do not have: a value of a file comes with its unit."""


def key_of(attribute: str) -> str:
    """Return the key of an attribute.

    Examples
    --------
    >>> key_of("latency_s"), key_of("bandwidth_bytes_per_s"), key_of("n_ports")
    ('latency', 'bandwidth', 'ports')
    """
    return _UNIT.sub("", attribute)


def keys_of(owner: type) -> Mapping[str, str]:
    """Return the attributes of a dataclass by their keys, but for the sources."""
    return {key_of(name): name for name in inspect.get_annotations(owner) if name != "sources"}


def attribute_of(whole: object, key: str) -> str | None:
    """Return the attribute that a key fills; None without one."""
    return key if hasattr(whole, key) else keys_of(type(whole)).get(key)


UNITLESS: Final[ConfigDict] = {"extra": "forbid", "alias_generator": key_of}
"""Configuration of dataclasses and mappings that are the schema of a part of a file."""


@dataclass(frozen=True, slots=True)
class Form:
    """A dataclass whose fields are the keys of a mapping; those without a value are left out."""

    owner: type

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of the mapping."""
        from pydantic_core.core_schema import no_info_after_validator_function

        return no_info_after_validator_function(self.mapping, handler.generate_schema(self.owner))

    def mapping(self, whole: object) -> dict[str, object]:
        """Return the given values."""
        return {name: value for name in fields_of(self.owner) if (value := getattr(whole, name)) is not None}


def fields_of(owner: type) -> Mapping[str, object]:
    """Return the types of the fields of a dataclass or named tuple by their keys; none of another type."""
    if not hasattr(owner, "__dataclass_fields__") and not hasattr(owner, "_fields"):
        return {}
    return {key_of(name): annotation for name, annotation in get_type_hints(owner, include_extras=True).items()}
