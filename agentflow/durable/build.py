"""The build of an application: a digest of everything its runs may call."""

from __future__ import annotations

from agentflow.durable.values.record_values import fingerprint
from agentflow.run.engine import Engine


def build_of(engine: Engine) -> str:
    """A digest of the definitions of an engine's tools, tasks and Python workflows.

    Tools enter it as models see them, without their code, since its path may differ between machines.
    """
    tools = [
        [name, tool.spec.description, tool.spec.input_schema]
        for name in engine.tools.names()
        if (tool := engine.tools.find(name)) is not None
    ]
    tasks = [
        [name, dict(task.fields)]
        for name in engine.tasks.template_names()
        if (task := engine.tasks.find_compiled(name)) is not None
    ]
    functions = sorted([reference, target.digest] for reference, target in engine.functions.items())
    return fingerprint("build", tools, tasks, functions).hex()
