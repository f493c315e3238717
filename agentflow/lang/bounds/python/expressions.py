"""Abstract interpretation of the expressions of a text in Python."""

from __future__ import annotations

import ast
from collections.abc import Callable, Hashable, Mapping
from types import MappingProxyType
from typing import Any

from agentflow.core.data.frozen import frozen
from agentflow.lang.bounds.cost import FREE, Cost
from agentflow.lang.bounds.gathering import left_of
from agentflow.lang.bounds.interpret import Outcome
from agentflow.lang.bounds.polynomial import ONE, Bound
from agentflow.lang.bounds.primitives import RULES as SIZES
from agentflow.lang.bounds.primitives import like
from agentflow.lang.bounds.python.facts import Body
from agentflow.lang.bounds.python.heap import NOWHERE, scalar, size_of_texts
from agentflow.lang.bounds.python.interpret import Named, Python, either
from agentflow.lang.bounds.values import (
    DATA,
    NEVER,
    NIL,
    PLAIN,
    TEXT,
    AbstractClosure,
    AbstractScope,
    Value,
    constant,
    joined,
    number,
    sequence,
)
from agentflow.lang.bounds.values import text as one_of

SHORT = 12
"""The most elements of a list display to analyse one by one."""
_TRUTH = scalar(PLAIN)
_TEXT = scalar(TEXT)


def _constant(i: Python, node: ast.Constant, scope: AbstractScope) -> Outcome:
    value = i.constants.get(node)
    if value is None:
        value = i.constants[node] = scalar(constant(node.value))
    return value, FREE


def _f_string(i: Python, node: ast.JoinedStr, scope: AbstractScope) -> Outcome:
    return _TEXT, i.values(node.values, scope)[1]


def _placeholder(i: Python, node: ast.FormattedValue, scope: AbstractScope) -> Outcome:
    spec = [node.format_spec] if node.format_spec is not None else []
    return _TEXT, i.values([node.value, *spec], scope)[1]


# -- operators ----------------------------------------------------------------------------------------------------


def _binary(i: Python, node: ast.BinOp, scope: AbstractScope) -> Outcome:
    (left, right), cost = i.values([node.left, node.right], scope)
    return operated(i, node, node.op, left, right), cost


def operated(i: Python, site: ast.AST, op: ast.operator, left: Value, right: Value) -> Value:
    """The abstract value of ``left op right``: a number, a text or a new container."""
    if left.never or right.never:
        return NEVER
    sign = _SIGNS.get(type(op))
    total = scalar(number(None, None, whole=False)) if sign is None else scalar(SIZES[sign]([left, right]))
    if isinstance(op, ast.FloorDiv | ast.Mod) and not (left.whole and right.whole):
        total = total.but(whole=False)
    if is_number(left) and is_number(right):
        return total
    size, item = None, DATA
    if isinstance(op, ast.Add | ast.BitOr):
        lengths = left.elements, right.elements
        size = lengths[0] + lengths[1] if lengths[0] is not None and lengths[1] is not None else None
        item = joined([left.element(), right.element()])
    elif isinstance(op, ast.Sub | ast.BitAnd | ast.BitXor):
        size, item = left.elements, joined([left.element(), right.element()])
        size = None if isinstance(op, ast.BitXor) else size
    elif isinstance(op, ast.Mult):
        size, item = _repeated(left, right), joined([left.element(), right.element()])
    result = i.made(Keyed(site) if isinstance(op, ast.BitOr) else site, sequence(size, item))
    return result.but(texts=None, low=total.low, high=total.high, whole=total.whole, marks=total.marks)


def _repeated(left: Value, right: Value) -> Bound | None:
    """The length of a list times a number, in either order."""
    for listed, times in ((left, right), (right, left)):
        if is_number(times):
            length = listed.elements
            return length * times.high if length is not None and times.high is not None else None
    return None


_SIGNS: Mapping[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "quotient",
    ast.Mod: "modulo",
}


def is_number(value: Value) -> bool:
    """Whether a value is certainly a number."""
    bounded = value.low is not None or value.high is not None or value.exactly is not None
    return bounded and value.sites == NOWHERE and value.texts == frozenset() and value.size is None


def _unary(i: Python, node: ast.UnaryOp, scope: AbstractScope) -> Outcome:
    value, cost = i.value(node.operand, scope)
    if isinstance(node.op, ast.Not):
        return _TRUTH, cost
    if isinstance(node.op, ast.USub):
        exactly = -value.exactly if value.exactly is not None else None
        negative = constant(exactly) if exactly is not None else SIZES["-"]([value])
        return scalar(negative), cost
    return (value if isinstance(node.op, ast.UAdd) else scalar(number(None, None, whole=True))), cost


def _logic(i: Python, node: ast.BoolOp, scope: AbstractScope) -> Outcome:
    every = isinstance(node.op, ast.And)
    count = len(i.guards)
    value, cost, before = NEVER, None, FREE
    try:
        for each in node.values:
            result, more = i.value(each, scope)
            value, before = value.join(result), before.then(more)
            cost = either(cost, before)
            if_true, if_false = i.guards_in(each, scope)
            i.guards.extend(if_true if every else if_false)
    finally:
        del i.guards[count:]
    return value, FREE if cost is None else cost


def _choice(i: Python, node: ast.IfExp, scope: AbstractScope) -> Outcome:
    _, cost = i.value(node.test, scope)
    if_true, if_false = i.guards_in(node.test, scope)
    with i.told(if_true):
        value, then = i.value(node.body, scope)
    with i.told(if_false):
        other, otherwise = i.value(node.orelse, scope)
    return value.join(other), cost.then(then.otherwise(otherwise))


def _comparison(i: Python, node: ast.Compare, scope: AbstractScope) -> Outcome:
    return _TRUTH, i.values([node.left, *node.comparators], scope)[1]


# -- collections --------------------------------------------------------------------------------------------------


def _listed(i: Python, node: ast.List | ast.Tuple | ast.Set, scope: AbstractScope) -> Outcome:
    values: list[Value] = []
    size: Bound | None = Bound.of(0)
    cost, absent = FREE, False
    for each in node.elts:
        value, more = i.value(each.value if isinstance(each, ast.Starred) else each, scope)
        cost = cost.then(more)
        length = iterations(i, value) if isinstance(each, ast.Starred) else ONE
        size = size + length if size is not None and length is not None else None
        values.append(element_of(i, value) if isinstance(each, ast.Starred) else value)
        absent = absent or value.never
    if absent:  # an element that never has a value means that the list is never built
        return NEVER, cost
    starred = any(isinstance(each, ast.Starred) for each in node.elts)
    if starred or isinstance(node, ast.Set) or len(values) > SHORT or not values:
        return i.made(node, sequence(size, joined(values)) if values else NIL), cost
    return i.made(node, Value(size=size, fields={f"{at}": value for at, value in enumerate(values)})), cost


def _dict(i: Python, node: ast.Dict, scope: AbstractScope) -> Outcome:
    cost, spread = FREE, list[Value]()
    fields: dict[str, Value] | None = {}
    values: list[Value] = []
    for key, each in zip(node.keys, node.values, strict=True):
        if key is not None:
            cost = cost.then(i.value(key, scope)[1])
        value, more = i.value(each, scope)
        cost = cost.then(more)
        if key is None:
            spread.append(value)
            continue
        values.append(value)
        name: Any = key.value if isinstance(key, ast.Constant) else None
        if fields is not None and isinstance(name, str):
            fields[name] = value
        else:
            fields = None
    if not spread and fields is not None:
        return i.made(node, Value(size=Bound.of(len(values)), fields=fields)), cost
    size: Bound | None = Bound.of(len(values))
    for each in spread:
        size = size + each.length if size is not None and each.length is not None else None
    item = joined([*values, *(each.element() for each in spread)])
    return i.made(node, sequence(size, item) if values or spread else NIL), cost


def element_of(i: Python, value: Value) -> Value:
    """The items of an iteration over a value: elements, the keys of a dict, the characters of a text."""
    if value.never:
        return NEVER
    if value.fields is not None and is_keyed(value):
        return scalar(one_of(*value.fields)) if value.fields else NEVER
    if _is_empty(value):
        return NEVER
    element = value.element()
    return element if value.origins or not _may_be_dict(value) else element.join(DATA)


def is_positional(value: Value) -> bool:
    """Whether ``fields`` holds the elements of a list, by index."""
    return value.sites is not None and all(isinstance(each, ast.List | ast.Tuple | PairSite) for each in value.sites)


def _is_empty(value: Value) -> bool:
    """Whether a value is certainly a container without elements."""
    return value.is_nil and not value.origins and value.sites is not None


def is_keyed(value: Value) -> bool:
    """Whether ``fields`` holds the values of a dict, by key."""
    return value.sites is not None and not any(map(_makes_lists, value.sites))


def _may_be_dict(value: Value) -> bool:
    return value.sites is None or not all(map(_makes_lists, value.sites))


def _makes_lists(site: Hashable) -> bool:
    """Whether a site never makes a dict."""
    return isinstance(site, PairSite) or (isinstance(site, ast.AST) and not isinstance(site, ast.Dict | ast.DictComp))


@frozen
class PairSite:
    """The site of the pairs that a call produces, for example of ``enumerate``."""

    node: ast.AST


@frozen
class Keyed:
    """The site of a node that may make a dict."""

    node: ast.AST


def _may_be_text(value: Value) -> bool:
    return value.texts is None or bool(value.texts)


def iterations(i: Python, value: Value) -> Bound | None:
    """The most rounds of an iteration over a value; None if unknown."""
    length = value.elements
    return size_of_texts(value) if length is None and value.sites == NOWHERE else length


def _subscript(i: Python, node: ast.Subscript, scope: AbstractScope) -> Outcome:
    value, cost = i.value(node.value, scope)
    if isinstance(node.slice, ast.Slice):
        parts = [each for each in (node.slice.lower, node.slice.upper, node.slice.step) if each is not None]
        bounds, more = i.values(parts, scope)
        by_part = dict(zip(map(id, parts), bounds, strict=True))
        lower, upper = by_part.get(id(node.slice.lower)), by_part.get(id(node.slice.upper))
        return i.made(node, part(i, value, lower, upper, stepped=node.slice.step is not None)), cost.then(more)
    key, more = i.value(node.slice, scope)
    return at_key(value, key), cost.then(more)


def at_key(value: Value, key: Value) -> Value:
    """``value[key]``."""
    if value.never or key.never or _is_empty(value):
        return NEVER
    if key.texts is not None and len(key.texts) == 1 and key.sites == NOWHERE and not is_number(key):
        return value.part(next(iter(key.texts)))
    if key.exactly is not None and value.fields is not None and is_positional(value):
        if key.exactly >= 0:
            return value.fields.get(f"{key.exactly}", NEVER)
        if len(value.sites or ()) == 1:  # every list from this site has the same length, so the last index is fixed
            return value.fields.get(f"{len(value.fields) + key.exactly}", NEVER)
    element = value.element()
    return element if value.origins or not _may_be_text(value) else element.join(_TEXT)


def part(i: Python, value: Value, lower: Value | None, upper: Value | None, *, stepped: bool) -> Value:
    """``value[lower:upper]``: a new list, or a text."""
    whole = value if value.fields is None else sequence(value.size, value.element())
    drop = _dropped_by(lower, upper) if not stepped else 0
    rest = SIZES["rest"]([whole]) if drop else whole.but(length_of={}, marks=like(whole, None, NEVER).marks)
    for _ in range(min(drop, SHORT) - 1):
        rest = SIZES["rest"]([rest])
    rest = rest.but(texts=None if _may_be_text(value) else frozenset())
    left = None if lower is None or upper is not None or stepped or not i.heap.keeps(value) else left_of(whole, lower)
    if left is not None:
        return rest.unmarked().but(size=left, origins={}, item=whole.element())
    most = upper.high if upper is not None and upper.low is not None and upper.low >= 0 else None
    if stepped or most is None:
        return rest
    size = rest.length
    if size is None or size.number is None or (most.number is not None and most.number < size.number):
        size = most
    listed = rest.but(size=size, origins={}, item=whole.element())
    return listed if drop else listed.unmarked()


def _dropped_by(lower: Value | None, upper: Value | None) -> int:
    """The least number of elements that a slice leaves out."""
    first = lower.exactly if lower is not None and lower.exactly is not None else 0
    last = upper.exactly if upper is not None and upper.exactly is not None else 0
    return max(0, first) + max(0, -last)


def _attribute(i: Python, node: ast.Attribute, scope: AbstractScope) -> Outcome:
    if isinstance(node.value, ast.Name) and node.value not in i.text.variables:
        return scalar(number(None, None, whole=False)), FREE
    if isinstance(node.value, ast.Name) and node.value.id == "math" and i.text.variables[node.value] is None:
        return scalar(number(None, None, whole=False)), FREE
    value, cost = i.value(node.value, scope)
    return value.part(node.attr), cost


def _awaited(i: Python, node: ast.Await, scope: AbstractScope) -> Outcome:
    return i.value(node.value, scope)


def _named(i: Python, node: ast.NamedExpr, scope: AbstractScope) -> Outcome:
    value, cost = i.value(node.value, scope)
    var = i.text.variables.get(node.target)
    before = NEVER if var is None else scope.value(var)
    i.assign(node.target, value.join(before), scope)
    return value, cost


def _name(i: Python, node: ast.Name, scope: AbstractScope) -> Outcome:
    meaning = i.text.meaning(node)
    if meaning is not None:
        kind, name = meaning
        return Value(procedures=frozenset({Named(name, kind == "effect")}), sites=NOWHERE), FREE
    var = i.text.variables.get(node)
    return (i.read_global(node.id) if var is None else scope.value(var)), FREE


def _lambda(i: Python, node: ast.Lambda, scope: AbstractScope) -> Outcome:
    return Value(procedures=frozenset({AbstractClosure(i.text.code(node), scope)}), sites=NOWHERE), FREE


# -- comprehensions -----------------------------------------------------------------------------------------------


def _comprehension(i: Python, node: Any, scope: AbstractScope) -> Outcome:
    inner = AbstractScope(scope)
    for var in i.text.own[node]:
        inner.bind(var, NEVER)
    value, cost, count, marked = _rounds(i, node, 0, inner)
    result = sequence(count, value) if count is None or count.number != 0 else NIL
    if len(node.generators) == 1 and marked is not None:
        result = result.but(marks=like(marked, None, NEVER).marks)
    return i.made(node, result), cost


def _rounds(i: Python, node: Any, at: int, scope: AbstractScope) -> tuple[Value, Cost, Bound | None, Value | None]:
    generator: ast.comprehension = node.generators[at]
    listed, cost = i.value(generator.iter, scope)
    count = iterations(i, listed)
    if count is not None and count.number == 0:
        return NEVER, cost, count, listed
    assign_to(i, generator.target, element_of(i, listed), scope)
    guards = len(i.guards)
    each = FREE
    for test in generator.ifs:
        each = each.then(i.value(test, scope)[1])
        i.guards.extend(i.guards_in(test, scope)[0])
    if at + 1 < len(node.generators):
        value, more, inner, _ = _rounds(i, node, at + 1, scope)
    elif isinstance(node, ast.DictComp):
        (_, value), more = i.values([node.key, node.value], scope)
        inner = ONE
    else:
        value, more = i.value(node.elt, scope)
        inner = ONE
    del i.guards[guards:]
    each = each.then(more)
    total = count * inner if count is not None and inner is not None else None
    return value, cost.then(repeated(i, generator.iter, each, count)), total, listed


def repeated(i: Python, node: ast.AST, cost: Cost, count: Bound | None) -> Cost:
    """A cost that occurs ``count`` times (None: unknown how often)."""
    if count is None or count.terms is None:
        return i.loose(i.at(node), "how often this is done depends on a length that is not known", cost)
    return cost.times(count)


def assign_to(i: Python, target: ast.expr, value: Value, scope: AbstractScope) -> Cost:
    """Assign to a name, an element, or several of these at once; return the cost."""
    if isinstance(target, ast.Name):
        i.assign(target, value, scope)
        return FREE
    if isinstance(target, ast.Subscript):
        (whole, _), cost = i.values([target.value, target.slice], scope)
        return cost.then(i.heap.change(whole, value, ONE))
    if not isinstance(target, ast.Tuple | ast.List):
        return FREE
    cost = FREE
    fields = value.fields if value.fields is not None and is_positional(value) else None
    for at, each in enumerate(target.elts):
        if isinstance(each, ast.Starred):
            rest = i.made(each, sequence(value.elements, element_of(i, value)))
            cost = cost.then(assign_to(i, each.value, rest, scope))
            fields = None
            continue
        inner = element_of(i, value) if fields is None else fields.get(f"{at}", NEVER)
        cost = cost.then(assign_to(i, each, inner, scope))
    return cost


def _body(i: Python, node: Body, scope: AbstractScope) -> Outcome:
    return i.body(node, scope)


EXPRESSIONS: Mapping[type[Any], Callable[[Any, Any, AbstractScope], Any]] = MappingProxyType(
    {
        Body: _body,
        ast.Attribute: _attribute,
        ast.Await: _awaited,
        ast.BinOp: _binary,
        ast.BoolOp: _logic,
        ast.Compare: _comparison,
        ast.Constant: _constant,
        ast.Dict: _dict,
        ast.DictComp: _comprehension,
        ast.FormattedValue: _placeholder,
        ast.GeneratorExp: _comprehension,
        ast.IfExp: _choice,
        ast.JoinedStr: _f_string,
        ast.Lambda: _lambda,
        ast.List: _listed,
        ast.ListComp: _comprehension,
        ast.Name: _name,
        ast.NamedExpr: _named,
        ast.Set: _listed,
        ast.SetComp: _comprehension,
        ast.Subscript: _subscript,
        ast.Tuple: _listed,
        ast.UnaryOp: _unary,
    }
)
"""The analysis of expressions, by kind."""
