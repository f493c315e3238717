"""Texts in Python lowered: calls, forms, and the whole. The meanings of names and calls were found while the text was checked (``Emitter.meanings``)."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from agentflow.core.data.known_names import RecordInfo
from agentflow.core.data.source import Span
from agentflow.core.events.effects import CallTool, CallWorkflow, Draw, GetContext, LogMessage
from agentflow.lang.kernel import nodes
from agentflow.lang.kernel.inline import as_dict, as_list
from agentflow.lang.kernel.lower_texts import TextLowering, name_of
from agentflow.lang.kernel.lowered_functions import (
    call_main,
    call_method,
    call_with_names,
    endorsed,
    itself,
    log_text,
)
from agentflow.lang.kernel.nodes import Const, Env, FrameLayout, LoweredInfo, Node, Prim, Ref, Seq
from agentflow.lang.python import methods, requests, support
from agentflow.lang.python.builtins import BUILTINS, KINDS, is_instance, sort
from agentflow.lang.python.declarations import answer_schema, declared
from agentflow.lang.python.forms import FORMS
from agentflow.lang.python.methods import SORT
from agentflow.lang.python.names import parameters
from agentflow.lang.python.world import DIRECTOR


class PythonLowering(TextLowering):
    """One lowering of a text."""

    # -- calls ----------------------------------------------------------------------------------------------------

    def call(self, node: ast.Call, at: Span) -> Node:
        kind, what = self.g.meanings[node]
        match kind:
            case "generic" | "direct":
                args, names = self.arguments(node)
                return nodes.Call(at, self.value(node.func), args, names)
            case "builtin":
                return self.builtin(node, at, what)
            case "method":
                return self.method(node, at, what)
            case "record":
                return self.record(node, at, what)
            case "effect":
                return self.effect(node, at, what)
            case _:
                return self.form(node, at, what)

    def arguments(self, node: ast.Call) -> tuple[list[Node], tuple[str, ...]]:
        args = [*self.values(node.args), *[self.value(each.value) for each in node.keywords]]
        return args, tuple(each.arg for each in node.keywords if each.arg is not None)

    def builtin(self, node: ast.Call, at: Span, title: str) -> Node:
        if title == "isinstance":
            listed = node.args[1]
            types = listed.elts if isinstance(listed, ast.Tuple) else [listed]
            kinds = tuple(kind for each in types for kind in KINDS[name_of(each)])
            return Prim(at, is_instance, [self.value(node.args[0]), Const(None, kinds)])
        inner = node.args[0] if len(node.args) == 1 and not node.keywords else None
        if title in ("any", "all") and isinstance(inner, ast.GeneratorExp | ast.ListComp):
            return self.comprehension(inner, title)
        args, names = self.arguments(node)
        row = BUILTINS[title]
        if row.is_async:
            return Prim(at, row.function, args, names, waits=0, row=row)
        function = partial(call_with_names, row.function, names) if names else row.function
        return Prim(at, function, args, takes_rt=True, row=row)

    def method(self, node: ast.Call, at: Span, name: str) -> Node:
        assert isinstance(node.func, ast.Attribute)
        receiver = self.value(node.func.value)
        args, names = self.arguments(node)
        if name == "sort":
            return Prim(at, sort, [receiver, *args], names, waits=0, row=SORT)
        if name == "append" and len(args) == 1 and not names:
            return Prim(at, methods.append, [receiver, *args], takes_rt=True)
        return Prim(at, partial(call_method, name, names), [receiver, *args], takes_rt=True)

    def record(self, node: ast.Call, at: Span, name: str) -> Node:
        columns = self.g.records[name]
        written = dict(zip(columns, node.args, strict=False))
        written |= {each.arg: each.value for each in node.keywords if each.arg is not None}
        entries = [(each, written.get(each) or default) for each, default in columns.items()]
        return Prim(at, partial(as_dict, tuple(columns)), [self.value(each) for _, each in entries if each is not None])

    def effect(self, node: ast.Call, at: Span, name: str, gives: Any = "data") -> Node:
        function = node.func.id if isinstance(node.func, ast.Name) else ""
        if function in ("ask", "remember", "recall") and self.g.kind(self.g.callable_name(function)) not in (
            "task",
            "tool",
        ):
            if function == "ask":
                return nodes.Effect(at, name, ("prompt",), [self.value(node.args[0])])
            return self.note(node, at, name, "text" if function == "remember" else "query")
        positional = list(self.g.info(name).parameters or ())[: len(node.args)]
        named = [each for each in node.keywords if each.arg is not None]
        args = [*self.values(node.args)]
        spread: list[Node] = []
        for each in node.keywords:
            (args if each.arg is not None else spread).append(self.value(each.value))
        names = (*positional, *[str(each.arg) for each in named])
        return nodes.Effect(at, name, names, args, spread, gives)

    def note(self, node: ast.Call, at: Span, tool: str, first: str) -> Node:
        names = (first, *[str(each.arg) for each in node.keywords])

        def made(env: Any, *args: Any) -> Any:
            return CallTool(tool, dict(zip(names, args, strict=True)))

        args = [self.value(node.args[0]), *[self.value(each.value) for each in node.keywords]]
        return Prim(at, requests.unwrapped, [nodes.Perform(at, made, args)])

    # -- forms ----------------------------------------------------------------------------------------------------

    def form(self, node: ast.Call, at: Span, name: str) -> Node:
        lower: Callable[[ast.Call, Span], Node] = getattr(self, f"form_{FORMS[name].write.__name__.rstrip('_')}")
        return lower(node, at)

    def option(self, node: ast.Call, at: int, name: str) -> ast.expr | None:
        """An argument by position or by name."""
        if len(node.args) > at:
            return node.args[at]
        return next((each.value for each in node.keywords if each.arg == name), None)

    def thunk(self, node: ast.expr) -> nodes.Thunk:
        at = self.span(node)
        if isinstance(node, ast.Lambda) and not parameters(node.args):
            inner = node.body
            frame, body = self.within(node, lambda: self.value(inner))
            return nodes.Thunk(at, body, frame)
        saved, self.checks = self.checks, []
        frame = self.frame = FrameLayout(self.frame)
        body = self.value(node)
        body = Seq(None, [*self.checks, body]) if self.checks else body
        assert frame.parent is not None
        self.frame, self.checks = frame.parent, saved
        return nodes.Thunk(at, body, frame)

    def thunks(self, items: list[ast.expr]) -> Node:
        return Prim(None, as_list, [self.thunk(each) for each in items])

    def listed(self, node: ast.expr, at: Span) -> Node:
        return Prim(at, support.listed, [self.value(node)], takes_rt=True)

    def is_sent(self, node: ast.Call) -> bool:
        return any(each.arg == "on" for each in node.keywords)

    def form_parallel(self, node: ast.Call, at: Span) -> Node:
        if self.is_sent(node):
            return nodes.Op(at, "parallel-on", [], self.values(node.args))
        only = node.args[0] if len(node.args) == 1 else None
        if not isinstance(only, ast.Starred):
            return nodes.Op(at, "parallel", [], [self.thunks(node.args)])
        over = only.value
        assert isinstance(over, ast.ListComp | ast.GeneratorExp)
        items, span = self.listed(over.generators[0].iter, at), self.span(over)
        target = over.generators[0].target
        assert isinstance(target, ast.Name)
        frame, body = self.within(over, lambda: self.value(over.elt))
        frame.is_function = True
        ends = (span.start, span.end)
        info = LoweredInfo(None, (target.id,), None, self.g.source, *ends, ends, False, follows="strict")
        variable = self.variables[self.g.scopes.scopes[over].vars[target.id]]
        procedure = nodes.Lambda(span, info, [variable], [None], frame, body, None, gives_body=True, by_position=1)
        return nodes.Op(at, "pmap", [], [procedure, items])

    def form_pmap(self, node: ast.Call, at: Span) -> Node:
        function = self.value(node.args[0])
        items = self.listed(node.args[1], at)
        if self.is_sent(node):
            return nodes.Op(at, "pmap-on", [], [function, items])
        limit = self.option(node, 2, "limit")
        return nodes.Op(at, "pmap", [], [function, items, Const(at, None) if limit is None else self.value(limit)])

    def form_race(self, node: ast.Call, at: Span) -> Node:
        if self.is_sent(node):
            return nodes.Op(at, "race-on", [], self.values(node.args))
        return nodes.Op(at, "race", [], [self.thunks(node.args)])

    def form_timeout(self, node: ast.Call, at: Span) -> Node:
        return nodes.Op(at, "timeout", [], [self.value(node.args[0]), self.thunk(node.args[1])])

    def form_wait_for(self, node: ast.Call, at: Span) -> Node:
        seconds = self.option(node, 1, "timeout")
        assert seconds is not None
        return nodes.Op(at, "timeout", [], [self.value(seconds), self.thunk(node.args[0])])

    def form_retry(self, node: ast.Call, at: Span) -> Node:
        return nodes.Op(at, "retry", [], [self.value(node.args[0]), self.thunk(node.args[1])])

    def form_outcome(self, node: ast.Call, at: Span) -> Node:
        inner = node.args[0].value if isinstance(node.args[0], ast.Await) else node.args[0]
        assert isinstance(inner, ast.Call)
        kind, what = self.g.meanings[inner]
        if kind == "form":
            return self.workflow(inner, self.span(inner))
        return self.effect(inner, self.span(inner), what, "outcome")

    def form_print(self, node: ast.Call, at: Span) -> Node:
        separator = next((each.value for each in node.keywords if each.arg == "sep"), None)
        items = self.value(ast.copy_location(ast.List(node.args, ast.Load()), node))
        args = [Const(None, " ") if separator is None else self.value(separator), items]
        message = Prim(at, log_text, args, waits=0)

        def made(env: Any, text: Any) -> Any:
            return LogMessage(text)

        return Seq(at, [nodes.Perform(at, made, [message]), Const(None, None)])

    def workflow(self, node: ast.Call, at: Span) -> Node:
        assert isinstance(node.args[0], ast.Constant)
        name, keys = node.args[0].value, tuple([str(each.arg) for each in node.keywords])

        def made(env: Any, *args: Any) -> Any:
            return CallWorkflow(str(name), dict(zip(keys, args, strict=True)))

        return nodes.Perform(at, made, [self.value(each.value) for each in node.keywords])

    def form_call_workflow(self, node: ast.Call, at: Span) -> Node:
        return Prim(at, requests.unwrapped, [self.workflow(node, at)])

    def form_get_context(self, node: ast.Call, at: Span) -> Node:
        keys = (*(["query"] if node.args else []), *[str(each.arg) for each in node.keywords])

        def made(env: Any, *args: Any) -> Any:
            return GetContext(dict(zip(keys, args, strict=True)))

        args = [*self.values(node.args), *[self.value(each.value) for each in node.keywords]]
        return Prim(at, support.context_paths, [nodes.Perform(at, made, args)])

    def form_remember(self, node: ast.Call, at: Span) -> Node:
        return self.note(node, at, "remember", "text")

    def form_recall(self, node: ast.Call, at: Span) -> Node:
        return self.note(node, at, "recall", "query")

    def inner_program(self, node: ast.Call, at: Span, operation: Any, first: Node) -> Node:
        options = {str(each.arg): each.value for each in node.keywords}
        allow = options.pop("allow", None)
        listed = allow.elts if isinstance(allow, ast.List | ast.Tuple) else []
        names = tuple(str(each.value) for each in listed if isinstance(each, ast.Constant))
        keys = tuple(each.replace("_", "-") for each in options)
        return nodes.Op(at, operation, [names, keys], [Env(None), first, *map(self.value, options.values())])

    def form_eval_program(self, node: ast.Call, at: Span) -> Node:
        text = Prim(at, requests.program_text, [self.value(node.args[0])])
        return self.inner_program(node, at, "eval-program", text)

    def form_solve(self, node: ast.Call, at: Span) -> Node:
        return self.inner_program(node, at, "solve", self.value(node.args[0]))

    def form_director_loop(self, node: ast.Call, at: Span) -> Node:
        clauses = dict(zip(DIRECTOR, node.args, strict=False)) | {str(each.arg): each.value for each in node.keywords}
        names = tuple([DIRECTOR[each] for each in clauses])
        return nodes.Op(at, "director-loop", [names], [self.value(each) for each in clauses.values()])

    def form_endorse(self, node: ast.Call, at: Span) -> Node:
        value, reason = self.values(node.args)
        return Prim(at, endorsed, [value, reason, Const(None, at)], waits=0)

    def form_sources(self, node: ast.Call, at: Span) -> Node:
        return Prim(at, requests.sources_of, [self.value(node.args[0])], takes_rt=True)

    def form_ask_human(self, node: ast.Call, at: Span) -> Node:
        return self.from_outside(node, at, requests.asked)

    def form_wait_for_signal(self, node: ast.Call, at: Span) -> Node:
        return self.from_outside(node, at, requests.signal)

    def form_publish_state(self, node: ast.Call, at: Span) -> Node:
        published = Prim(at, requests.published, self.values(node.args))
        return Seq(at, [nodes.Perform(at, itself, [published]), Const(None, None)])

    def from_outside(self, node: ast.Call, at: Span, effect: Callable[..., Any]) -> Node:
        output = self.option(node, 1, "output")
        held = None if output is None else answer_schema(self.g, output, text=True)
        schema = Const(None, None if held is None else held["schema"])
        asked = Prim(at, effect, [self.value(node.args[0]), schema])
        return nodes.Perform(at, itself, [asked])

    def form_sleep(self, node: ast.Call, at: Span) -> Node:
        waiting = Prim(at, requests.waiting, [self.value(node.args[0])])
        return Seq(at, [nodes.Perform(at, itself, [waiting]), Const(None, None)])

    def drawn(self, at: Span, source: Literal["now", "random", "uuid"], *args: Node) -> Node:
        def made(env: Any, *args: Any) -> Any:
            return Draw(source, *args)

        return nodes.Perform(at, made, list(args))

    def form_now(self, node: ast.Call, at: Span) -> Node:
        return self.drawn(at, "now")

    def form_uuid(self, node: ast.Call, at: Span) -> Node:
        return self.drawn(at, "uuid")

    def form_random(self, node: ast.Call, at: Span) -> Node:
        return self.drawn(at, "random", *[Prim(at, requests.below, [self.value(each)]) for each in node.args])

    # -- the whole ------------------------------------------------------------------------------------------------

    def started(self) -> list[Node]:
        """The first nodes of a text: they define its classes and the tasks of its questions."""
        classes = {each.name: each for each in self.g.tree.body if isinstance(each, ast.ClassDef)}
        first: list[Node] = []
        for name in self.g.at_start:
            if name.startswith("class "):
                own = name.removeprefix("class ")
                record = RecordInfo(ast.unparse(classes[own]), self.g.schemas[own])
                first.append(Prim(None, declared, [Env(None), Const(None, own), Const(None, record)]))
            else:
                first.append(nodes.Op(None, "define-task", [self.templates[name][0], ()], [Env(None)]))
        return first

    def whole(self) -> Node:
        """The text; its value is that of its last expression, or of ``main``."""
        body = self.g.tree.body
        if not body:
            return Const(None, None)
        items = [*self.started(), self.suite(body[:-1])]
        last = body[-1]
        if isinstance(last, ast.Expr):
            value = self.value(last.value)
            return Seq(None, [*items, *self.flushed(), nodes.Leave(self.span(last), "return", value)])
        items.append(self.suite([last]))
        main = self.g.scopes.function("main")
        if main is not None and not isinstance(last, ast.Return):
            at, args = self.span(main), main.args
            needed = {each.arg for each in (*args.posonlyargs, *args.args)[: -len(args.defaults) or None]}
            needed |= {
                each.arg for each, default in zip(args.kwonlyargs, args.kw_defaults, strict=True) if default is None
            }
            bound: list[Node] = [
                Prim(at, support.binding, [Env(None), Const(None, each), Const(None, each in needed)])
                for each in parameters(args)
            ]
            self.free.add("main")
            items.append(nodes.Leave(at, "return", Prim(at, call_main, [Ref(at, "main"), *bound], waits=0)))
        return Seq(None, items)
