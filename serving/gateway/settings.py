"""The limits and habits of the gateway: the same model is a section of the config. Imports without a web framework."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class GatewaySettings(BaseModel):
    """One checkpoint behind the vendors' APIs (`callwright serve`). Its key, if any, is in CALLWRIGHT_API_KEY."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    host: str = Field(
        default="127.0.0.1", description="Address to listen on; this machine alone, unless told otherwise."
    )
    port: int = Field(default=8000, ge=0, le=65535, description="Port; 0 takes a free one, which is printed.")
    name: str | None = Field(default=None, description="The model's name in replies; null takes the checkpoint's own.")
    record: str | None = Field(
        default=None, description="Folder for the token-exact record of every conversation, and its events."
    )
    temperature: float = Field(default=1.0, ge=0, description="Temperature where the client asks for none.")
    max_tokens: int | None = Field(
        default=None, gt=0, description="Tokens that a reply may ask for; null leaves it to the context."
    )
    max_messages: int = Field(default=2048, gt=0, description="Messages of one request.")
    max_tools: int = Field(default=128, gt=0, description="Tools of one request.")
    max_body_kb: int = Field(default=16384, gt=0, description="Size of one request's body.")
    at_once: int = Field(default=256, gt=0, description="Replies in the making; more are turned away as overload.")
    conversations: int = Field(
        default=1024, gt=0, description="Turns remembered, whose tokens are spliced when the client goes on from them."
    )
    flush_ms: int = Field(
        default=25,
        ge=0,
        description="Tokens of a stream that come within this time share a chunk; longer where there are many.",
    )
