"""Made-up programs with many effects, for what is said of programs before they run."""

from __future__ import annotations

import random

TOOLS = ("ta", "tb")
"""What the programs call; each gives a list of numbers."""
LISTS = ("xs", "ys")
"""Names of the lists that they are given."""


def effectful_program(rng: random.Random) -> str:
    """A program that calls tools in loops, recursions and procedures it passes around, and mostly ends."""
    maker = _Maker(rng)
    forms = [maker.definition() for _ in range(rng.randrange(3))]
    return "\n".join([*forms, maker.any(rng.randrange(2, 5))])


class _Maker:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.numbers: list[str] = []
        self.lists: list[str] = [*LISTS]
        self.procedures: list[str] = []
        self.count = 0

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def definition(self) -> str:
        kind = self.rng.randrange(8)
        if kind == 0:
            return self._over_list()
        if kind == 6:
            return self._rebuilt()
        if kind == 7:
            return self._merges()
        if kind == 1:
            return self._counter()
        if kind == 5:
            return self._halves()
        if kind == 2:
            name = self.name("g")
            text = f"(define {name} {self.number(1)})"
            self.numbers.append(name)
            return text
        if kind == 3:
            name = self.name("q")
            text = f"(define {name} {self.procedure(2)})"
            self.procedures.append(name)
            return text
        name, parameter = self.name("p"), self.name("a")
        self.numbers.append(parameter)
        text = f"(define ({name} {parameter}) {self.any(2)})"
        self.numbers.remove(parameter)
        self.procedures.append(name)
        return text

    def _over_list(self) -> str:
        """A procedure that goes along a list, mostly well."""
        name, xs, acc = self.name("walk"), self.name("l"), self.name("acc")
        self.lists.append(xs)
        step = self.rng.choice(
            [f"(rest {xs})", f"(rest {xs})", f"(cddr {xs})", f"(filter (lambda (e) {self.any(1)}) (rest {xs}))"]
        )
        test = self.rng.choice(
            [f"(null? {xs})", f"(null? {xs})", f"(not (pair? {xs}))", f"(= (length {xs}) 0)", f"(< (length {xs}) 2)"]
        )
        grown = self.rng.choice(
            [acc, f"(cons {self.number(1)} {acc})", f"(append {acc} (list 1 2))", f"(list {self.number(1)})"]
        )
        here = self.any(2)
        again = f"({name} {step} {grown})"
        going = self.rng.choice(
            [
                again,
                f"(begin {here} {again})",
                f"(begin {again} {here})",
                f"(if {self.any(1)} {again} {here})",
                f"(append (list {self.number(1)}) {again})",
                f"(parallel {here} {again})",
            ]
        )
        self.lists.remove(xs)
        end = self.rng.choice([acc, f"(map {self.procedure(1)} {acc})", self.any(1)])
        self.procedures.append(f"(lambda (z) ({name} xs (list)))")
        return f"(define ({name} {xs} {acc}) (if {test} {end} {going}))"

    def _counter(self) -> str:
        """A procedure that counts, mostly well."""
        name, n = self.name("count"), self.name("n")
        self.numbers.append(n)
        if self.rng.random() < 0.2:
            test = self.rng.choice([f"(> {n} 0)", f"(>= {n} 1)", f"(not (zero? {n}))", f"(> {n} 2)"])
            less = f"({self.rng.choice(['quotient', 'quotient', '/'])} {n} {self.rng.choice('23')})"
            again = self.rng.choice([f"({name} {less})", f"({name} {less})", f"({name} {less}) ({name} {less})"])
            text = f"(define ({name} {n}) (if {test} (begin {self.any(2)} {again})))"
            self.numbers.remove(n)
            self.procedures.append(name)
            return text
        down = self.rng.random() < 0.5
        here = self.any(2)
        step = self.rng.choice(["1", "1", "2"])
        if down:
            test = self.rng.choice([f"(= {n} 0)", f"(<= {n} 0)", f"(< {n} 1)", f"(zero? {n})", f"(not (> {n} 0))"])
            again = f"({name} (- {n} {step}))"
        else:
            end = self.rng.choice(["4", "(length xs)"])
            test = self.rng.choice([f"(= {n} {end})", f"(>= {n} {end})", f"(> {n} {end})", f"(not (< {n} {end}))"])
            again = f"({name} (+ {n} {step}))"
        going = self.rng.choice(
            [
                again,
                f"(begin {here} {again})",
                f"(begin {again} {here})",
                f"(if {self.any(1)} {again} {here})",
                f"(parallel {again} {here} {again})",
            ]
        )
        self.numbers.remove(n)
        self.procedures.append(name)
        return f"(define ({name} {n}) (if {test} {self.any(1)} {going}))"

    def _halves(self) -> str:
        """A procedure that goes on with a part of its list."""
        name, xs, i = self.name("half"), self.name("l"), self.name("i")
        self.lists.append(xs)
        test = self.rng.choice(
            [f"(null? {xs})", f"(< (length {xs}) 2)", f"(<= (length {xs}) 1)", f"(= (length {xs}) 0)"]
        )
        count = self.rng.choice(
            [f"(quotient (length {xs}) 2)", f"(quotient (+ (length {xs}) 1) 2)", f"(/ (length {xs}) 2)"]
        )
        taken = self.rng.choice(
            [f"(map (lambda ({i}) (nth {xs} {i} 0)) (range {count}))", f"(take{name} {xs} {count})"]
        )
        here, again = self.any(2), f"({name} {taken})"
        going = self.rng.choice(
            [f"(begin {here} {again})", f"(begin {again} {again})", f"(parallel {again} {here} {again})"]
        )
        self.lists.remove(xs)
        self.procedures.append(f"(lambda (z) ({name} {self.rng.choice(LISTS)}))")
        take = (
            f"(define (take{name} l n) (if (or (<= n 0) (null? l)) nil (cons (first l) (take{name} (rest l) (- n 1)))))"
        )
        return f"{take}\n(define ({name} {xs}) (if {test} {self.any(1)} {going}))"

    def _rebuilt(self) -> str:
        """A procedure that goes on with another list made of the one it has, so many times."""
        rng, name, xs, n = self.rng, self.name("grow"), self.name("l"), self.name("n")
        self.lists.append(xs)
        self.numbers.append(n)
        made = rng.choice(
            [f"(append {xs} {xs})", f"(append {xs} ys)", f"(cons {n} {xs})", f"(append (rest {xs}) {xs})", self.list(2)]
        )
        again = f"({name} {made} (- {n} 1))"
        here = rng.choice([self.any(2), f"(for-each {self.procedure(1)} {xs})"])
        going = rng.choice([again, f"(begin {here} {again})", f"(cons {n} {again})", f"(append {again} {xs})"])
        end = rng.choice([xs, f"(map {self.procedure(1)} {xs})"])
        self.lists.remove(xs)
        self.numbers.remove(n)
        self.procedures.append(f"(lambda (z) (map {self.procedure(0)} ({name} {self.list(1)} {rng.randrange(4)})))")
        return f"(define ({name} {xs} {n}) (if (<= {n} 0) {end} {going}))"

    def _merges(self) -> str:
        """A procedure that merges two lists, mostly well, and one that sorts with it."""
        rng, name, sort = self.rng, self.name("merge"), self.name("sort")
        longer = rng.choice([f"(cons (first a) ({name} (rest a) b))"] * 3 + [f"(append (list 1) ({name} (rest a) b))"])
        other = rng.choice(
            [f"(cons (first b) ({name} a (rest b)))"] * 3
            + [f"({name} a (rest b))", f"(cons 1 ({name} a b))", f"(cons 1 (cons 2 ({name} a (rest b))))", f"(append a ({name} a (rest b)))"]
        )  # fmt: skip
        test = rng.choice([self.any(1), f"(ta (x (first {rng.choice('ab')})))"])
        merge = f"(define ({name} a b) (cond ((null? a) b) ((null? b) a) ({test} {longer}) (else {other})))"
        if rng.random() < 0.3:
            self.procedures.append(f"(lambda (z) (map {self.procedure(0)} ({name} {self.list(1)} {self.list(1)})))")
            return merge
        half = rng.choice(["(quotient (length l) 2)", "(quotient (+ (length l) 1) 2)", "1"])
        left, right = rng.choice(
            [("(t{0} l h)", "(d{0} l h)")] * 3 + [("(d{0} l h)", "(t{0} l h)"), ("(d{0} l h)", "(d{0} l h)")]
        )
        both = f"({name} ({sort} {left.format(sort)}) ({sort} {right.format(sort)}))"
        less = rng.choice(["(< (length l) 2)", "(<= (length l) 1)", "(null? l)"])
        take = f"(define (t{sort} l n) (if (or (= n 0) (null? l)) nil (cons (first l) (t{sort} (rest l) (- n 1)))))"
        drop = f"(define (d{sort} l n) (if (or (= n 0) (null? l)) l (d{sort} (rest l) (- n 1))))"
        end = rng.choice(["l", "l", "(list 1)", f"(begin {self.tool()} l)"])
        self.procedures.append(f"(lambda (z) (map {self.procedure(0)} ({sort} {self.list(1)})))")
        return "\n".join([take, drop, merge, f"(define ({sort} l) (if {less} {end} (let ((h {half})) {both})))"])

    def any(self, depth: int) -> str:
        """An expression of any kind, mostly with effects."""
        rng = self.rng
        if depth <= 0:
            return rng.choice([self.tool(), self.number(0), self.number(0)])
        choices = [
            lambda: self.tool(),
            lambda: self.tool(),
            lambda: f"(begin {self.any(depth - 1)} {self.any(depth - 1)})",
            lambda: f"(if {self.any(depth - 1)} {self.any(depth - 1)} {self.any(depth - 1)})",
            lambda: f"(if (< {self.number(1)} {self.number(1)}) {self.any(depth - 1)} {self.any(depth - 1)})",
            lambda: (
                f"(cond ({self.any(depth - 2)} {self.any(depth - 1)}) ((> {self.number(1)} 2) {self.any(depth - 1)}) (else {self.any(depth - 1)}))"
            ),
            lambda: f"({rng.choice(['and', 'or'])} {self.any(depth - 1)} {self.any(depth - 1)})",
            lambda: (
                f"({rng.choice(['map', 'for-each', 'filter', 'pmap'])} {self.procedure(depth - 1)} {self.list(depth - 1)})"
            ),
            lambda: f"(pmap {self.procedure(depth - 1)} {self.list(depth - 1)} {rng.randrange(1, 4)})",
            lambda: f"(reduce (lambda (u v) {self.any(depth - 1)}) {self.number(0)} {self.list(depth - 1)})",
            lambda: f"({rng.choice(['parallel', 'parallel', 'race'])} {self.any(depth - 1)} {self.any(depth - 1)})",
            lambda: f"(loop {self.number(1)} {self.any(depth - 1)})",
            lambda: f"(retry {rng.randrange(1, 4)} {self.any(depth - 1)})",
            lambda: f'(retry {self.number(1)} (begin {self.any(depth - 1)} (error "no")))',
            lambda: f"(timeout 5 {self.any(depth - 1)})",
            lambda: f"(try {self.any(depth - 1)} (catch (e) {self.any(depth - 1)}) (finally {self.any(depth - 2)}))",
            lambda: f'(try (begin {self.any(depth - 1)} (error "no")) (catch (e) {self.any(depth - 1)}))',
            lambda: f"(try (raise {self.procedure(depth - 1)}) (catch (e) ((get-field e 'value) {self.number(0)})))",
            lambda: f'((eval-program "(lambda (x) (ta (x 1)))" (allow ta)) {self.number(0)})',
            lambda: f"({self.procedure(depth - 1)} {self.number(1)})",
            lambda: f"(apply {self.procedure(depth - 1)} (list {self.number(0)}))",
            lambda: f"(sort {self.list(depth - 1)} (lambda (u v) {self.any(depth - 2)}))",
            lambda: f'((get {{"a" {self.procedure(depth - 1)} "b" {self.procedure(depth - 1)}}} "a") 1)',
            lambda: f"((first (list {self.procedure(depth - 1)} {self.procedure(depth - 1)})) 1)",
            lambda: self._named_let(depth),
            lambda: self._do(depth),
            lambda: self._let(depth),
            lambda: self._set(depth),
            lambda: self._while(depth),
            lambda: self._inner(depth - 1),
        ]
        return rng.choice(choices)()

    def tool(self) -> str:
        return f"({self.rng.choice(TOOLS)} (x {self.number(0)}))"

    def number(self, depth: int) -> str:
        rng = self.rng
        if depth <= 0 or rng.random() < 0.5:
            return rng.choice([str(rng.randrange(5)), *self.numbers[-3:]])
        return rng.choice(
            [
                f"(+ {self.number(depth - 1)} {rng.randrange(3)})",
                f"(- {self.number(depth - 1)} {rng.randrange(3)})",
                f"(* {self.number(depth - 1)} 2)",
                f"(min {self.number(depth - 1)} 3)",
                f"(max {self.number(depth - 1)} 1)",
                f"(modulo {self.number(depth - 1)} 3)",
                f"(quotient {self.number(depth - 1)} 2)",
                f"(/ {self.number(depth - 1)} {rng.choice('23')})",
                f"(abs {self.number(depth - 1)})",
                f"(length {self.list(depth - 1)})",
                f'(length (get {self.tool()} "content"))',
            ]
        )

    def list(self, depth: int) -> str:
        rng = self.rng
        if depth <= 0 or rng.random() < 0.4:
            return rng.choice([*self.lists[-3:], "(list 1 2)", "'(1 2 3)"])
        return rng.choice(
            [
                f"(cons {self.number(1)} {self.list(depth - 1)})",
                f"(append {self.list(depth - 1)} {self.list(depth - 1)})",
                f"(rest {self.list(depth - 1)})",
                f"(reverse {self.list(depth - 1)})",
                f"(range {self.number(1)})",
                f"(range {rng.randrange(4)} {self.number(1)})",
                f"(range {self.number(1)} 0 -1)",
                f"(zip {self.list(depth - 1)} {self.list(depth - 1)})",
                f"(filter (lambda (e) {self.any(1)}) {self.list(depth - 1)})",
                f"(map {self.procedure(1)} {self.list(depth - 1)})",
                f"(sort {self.list(depth - 1)})",
                f"(value-of {self.tool()})",
                f'(get {self.tool()} "parsedContent")',
                f"(value-of (if {self.number(0)} {self.tool()} {self.tool()}))",
                f"(member {rng.randrange(4)} {self.list(depth - 1)})",
                f'(values (dict "a" {self.number(0)} "b" 2))',
            ]
        )

    def procedure(self, depth: int) -> str:
        rng = self.rng
        if depth <= 0 or (self.procedures and rng.random() < 0.4):
            return rng.choice([*self.procedures[-3:], "(lambda (w) (tb (x w)))", "abs"])
        parameter = self.name("v")
        self.numbers.append(parameter)
        body = self.any(depth - 1)
        self.numbers.remove(parameter)
        made = f"(lambda ({parameter}) {body})"
        if rng.random() < 0.2:
            return f"((lambda (h) (lambda (y) (h y))) {made})"
        return made

    def _named_let(self, depth: int) -> str:
        name, n, xs = self.name("go"), self.name("i"), self.name("l")
        start = self.list(1)
        first = self.number(0)
        self.numbers.append(n)
        self.lists.append(xs)
        body = self.any(depth - 1)
        again = f"({name} (+ {n} 1) (rest {xs}))"
        going = self.rng.choice(
            [again, f"(begin {body} {again})", f"(cons 1 {again})", f"(begin (set! {n} 0) {again})"]
        )
        test = self.rng.choice(
            [f"(null? {xs})", f"(> {n} 3)", f"(or (null? {xs}) (= {n} 5))", f"(and (null? {xs}) (= {n} 5))"]
        )
        self.numbers.remove(n)
        self.lists.remove(xs)
        return f"(let {name} (({n} {first}) ({xs} {start})) (if {test} {self.any(depth - 2)} {going}))"

    def _do(self, depth: int) -> str:
        n = self.name("i")
        start, end = self.number(0), self.number(1)
        self.numbers.append(n)
        body = self.any(depth - 1)
        self.numbers.remove(n)
        test = self.rng.choice([f"(>= {n} {end})", f"(= {n} {end})", f"(> {n} {end})"])
        return f"(do (({n} {start} (+ {n} 1))) ({test} {self.number(0)}) {body})"

    def _let(self, depth: int) -> str:
        kind = self.rng.randrange(3)
        if kind == 0:
            name, value, names = self.name("n"), self.number(depth - 1), self.numbers
        elif kind == 1:
            name, value, names = self.name("l"), self.list(depth - 1), self.lists
        else:
            name, value, names = self.name("f"), self.procedure(depth - 1), self.procedures
        names.append(name)
        body = self.any(depth - 1)
        names.remove(name)
        return f"({self.rng.choice(['let', 'let*', 'letrec'])} (({name} {value})) {body})"

    def _set(self, depth: int) -> str:
        name = self.name("s")
        self.procedures.append(name)
        body = self.any(depth - 1)
        self.procedures.remove(name)
        return f"(let (({name} {self.procedure(depth - 1)})) (begin (if {self.any(0)} (set! {name} {self.procedure(depth - 1)})) {body}))"

    def _while(self, depth: int) -> str:
        name = self.name("c")
        self.numbers.append(name)
        body = self.any(depth - 1)
        self.numbers.remove(name)
        test = self.rng.choice(
            [f"(< {name} {self.number(0)})", f"(<= {name} {self.number(1)})", f"(not (>= {name} 2.5))"]
        )
        step = f"(set! {name} (+ {name} {self.rng.choice('112')}))"
        ending = self.rng.choice(
            [f"{body} {step}", f"{step} {body}", f"(let ((z {body})) {step})", f"(if {self.any(0)} {step}) {body}"]
        )
        return f"(let (({name} {self.number(0)})) (while {test} {ending}))"

    def _inner(self, depth: int) -> str:
        kept = self.numbers, self.lists, self.procedures
        self.numbers, self.lists, self.procedures = [], ["ws"], []
        body = self.any(min(depth, 2))
        self.numbers, self.lists, self.procedures = kept
        return f'(eval-program \'{body} (bindings {{"ws" {self.list(1)}}}) (allow ta tb))'


__all__ = ["LISTS", "TOOLS", "effectful_program"]
