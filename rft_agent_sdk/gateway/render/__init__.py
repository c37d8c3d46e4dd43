"""Messages to token ids and back.

Three ways, in this order: the `renderers` library for models it knows (`library`), verified healing of any
other chat template (`healing`), and a whole render, which begins a branch.
"""

from rft_agent_sdk.gateway.parse import ParseStatus
from rft_agent_sdk.gateway.render.base import ExtensionMode, Parsed, Renderer
from rft_agent_sdk.gateway.render.load import load_renderer

__all__ = ["ExtensionMode", "ParseStatus", "Parsed", "Renderer", "load_renderer"]
