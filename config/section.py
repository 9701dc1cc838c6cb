"""What a section of settings is made of: fields that carry their path in tierd.toml, their kind and their meaning."""

from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema


class Readable(Protocol):
    """What a daemon setting needs of its kind; topic settings need more (`kinds.Kind`)."""

    @property
    def allowed(self) -> str: ...

    def read(self, raw: object) -> Any: ...

    def show(self, value: Any) -> str: ...


@dataclass(frozen=True, slots=True)
class Setting:
    """Marks a field: its dotted path in tierd.toml, its kind and its meaning. None = not set."""

    path: str
    kind: Readable
    doc: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._read)

    def _read(self, raw: object) -> object:
        return None if raw is None else self.kind.read(raw)


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)
