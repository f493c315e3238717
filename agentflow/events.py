"""All event classes, by name."""

from agentflow.core.events import *  # noqa: F403
from agentflow.core.events import __all__ as __all__
