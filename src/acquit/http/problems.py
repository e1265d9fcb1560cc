"""Failures, as RFC 9457 has them: ``application/problem+json``."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse

MEDIA_TYPE: Final = "application/problem+json"


class Problem(BaseModel):
    """The reason why a request failed (RFC 9457)."""

    model_config = ConfigDict(json_schema_extra={"additionalProperties": True})

    type: str = Field("about:blank", description="A URI of the kind of problem; about:blank: the status says it.")
    title: str = Field(description="The status in words.")
    status: int = Field(description="The status code.")
    detail: str = Field("", description="What was wrong, for people.")


class ProblemResponse(JSONResponse):
    """An answer that says what is wrong."""

    media_type = MEDIA_TYPE

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        try:
            title = HTTPStatus(status).phrase
        except ValueError:
            title = "Error"
        content = {"type": "about:blank", "title": title, "status": status, "detail": detail}
        super().__init__(content, status, headers)


__all__ = ["MEDIA_TYPE", "Problem", "ProblemResponse"]
