"""Declared settings: type, unit, default, description and needs of each key, for the scenario and for lowering.

A value that was left out is None until it is completed with what follows from model and machine; it is then of its declared type.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeGuard, TypeVar

from pydantic import BaseModel, Field, GetCoreSchemaHandler, JsonValue, model_validator
from pydantic.config import JsonDict
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema
from pydantic_core.core_schema import no_info_after_validator_function, plain_serializer_function_ser_schema

from clustersim.units.fields import mistake

T = TypeVar("T")


class Settings(BaseModel, frozen=True, extra="forbid"):
    """A section of settings, as written or completed; unknown keys are mistakes."""

    __slots__ = ("_hash",)

    _open: ClassVar[frozenset[str]] = frozenset()
    """Keys that may stand without a value."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: object) -> None:
        """Note the keys that may stand without a value."""
        cls._open = frozenset(key_of(name, field) for name, field in cls.model_fields.items() if field.default is None)

    @model_validator(mode="before")
    @classmethod
    def _leave_out(cls, data: object) -> object:
        return {key: value for key, value in data.items() if value is not None or key not in cls._open} if _is_dict(data) else data

    def __hash__(self) -> int:
        """Return the hash of all values, cached because settings are keys of many caches."""
        try:
            return self._hash
        except AttributeError:
            found = hash(tuple(self.__dict__[name] for name in type(self).model_fields))
            object.__setattr__(self, "_hash", found)
            return found

    def gives(self, name: str) -> bool:
        """Return whether a setting was written and not left to its default."""
        return name in self.model_fields_set and getattr(self, name) is not None

    def changed(self, **changes: object) -> Self:
        """Return the same settings with other values, which are not checked."""
        assert changes.keys() <= type(self).model_fields.keys(), changes
        return self.model_copy(update=changes)

    def completed(self, **values: object) -> Self:
        """Return the same settings with values for those that were left out."""
        return self.changed(**{name: value for name, value in values.items() if not self.gives(name)})

    def without(self, names: Collection[str]) -> Self:
        """Return the same settings with some left out."""
        kept = {name: getattr(self, name) for name in self.model_fields_set if name not in names}
        return self.model_construct(set(kept), **kept)

    @classmethod
    def of(cls, asked: Settings, **values: object) -> Self:
        """Return settings that have further fields, with values for these and for some of the settings."""
        return cls.model_construct(None, **{**asked.__dict__, **values})


@dataclass(frozen=True, slots=True)
class Needs:
    """Condition without which a setting does nothing, by its name in the table of ``needs.py``."""

    condition: str


@dataclass(frozen=True, slots=True)
class Written:
    """The form in which a setting stands in a file, where that is not the form of its value."""

    form: object
    """Type that the text is checked against."""
    read: Callable[[Any], object]
    write: Callable[[Any], object] = lambda value: value

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return a schema that checks the form and then reads the value."""
        writing = plain_serializer_function_ser_schema(lambda value: None if value is None else self.write(value))
        return no_info_after_validator_function(self.read, handler.generate_schema(self.form), serialization=writing)


def setting(default: T, description: str, *needs: str, alias: str | None = None, shown: JsonValue = None) -> T:
    """Return the default of a setting.

    Parameters
    ----------
    needs
        Conditions without which the setting does nothing; the first that is not met is the reason.
    alias
        Key in a file, where that is not the name.
    shown
        Default as it stands in a file, where that is not its value.
    """
    extra: JsonDict | None = None if shown is None else {"default": shown}
    return _declared(Field(default=default, description=description, alias=alias, json_schema_extra=extra), needs)


def auto(description: str, *needs: str) -> Any:  # noqa: ANN401 - the value of a setting of any type, which is completed later
    """Return the default of a setting that is completed with what follows from model and machine; needs as for :func:`setting`."""
    return _declared(Field(default=None, description=description, json_schema_extra=_without_default), needs)


def _declared(field: object, needs: Sequence[str]) -> Any:  # noqa: ANN401 - pydantic puts the value in place of the field
    assert isinstance(field, FieldInfo)
    field.metadata.extend(Needs(need) for need in needs)
    return field


def _without_default(schema: JsonDict) -> None:
    schema.pop("default", None)


def refuse_boolean(value: object) -> object:
    """Return a value that is no boolean: to Python ``true`` is 1, and a choice of numbers would take it."""
    if isinstance(value, bool):
        raise mistake(f"{str(value).lower()} is not a number", "write a number")
    return value


def key_of(name: str, field: FieldInfo) -> str:
    """Return the key of a field in a file."""
    return field.alias or name


def _is_dict(value: object) -> TypeGuard[dict[str, object]]:
    return isinstance(value, dict)
