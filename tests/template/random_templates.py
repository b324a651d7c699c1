#!/usr/bin/env python3
"""Property: on random templates, Python's Jinja and ours render the same text, or both refuse.

    random_templates.py [seed] [count]
"""
import random
import sys
import warnings

import oracle

CONTEXT = {
    "i": 7, "n": -3, "zero": 0, "f": 2.5, "g": -0.1, "big": 1e17, "t": True, "u": False, "none_value": None,
    "s": "Hello, World", "e": "", "w": "  two words\n", "x": "naïve café ß Σ 東京 🙂", "q": "it's <b>\"&\" \\ \t\x07\u200b",
    "d": {"role": "user", "content": "hi", "items": [1, 2], "n": None, "deep": {"k": [1.5, "z", {"a": True}]}},
    "l": [3, 1, 2], "m": [], "names": ["bob", "Alice", "carol", "Bob"], "mixed": [1, "a", None, 2.5, True, [1], {"k": 1}],
    "rows": [{"a": 1, "b": "x", "c": {"d": 3}}, {"a": 2, "b": "Y"}, {"a": 1, "b": "y", "on": True}],
    "messages": [{"role": "system", "content": "be <kind>"}, {"role": "user", "content": "¿qué?"},
                 {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {"x": [1, "é"]}}}]}],
}
NAMES = list(CONTEXT) + ["missing", "missing"]
TEXTS = ["a", "", " ", "o", "ll", "\\n", "x=y", "é", "%s", "%d-%s", "{} {}", "<", "role", "content", "user", ",", "1", "42", "3.7", "-5", " 12 ", "1e3", "nan", "0x1F", "ABC", "Title Case", "a-b_c d"]
METHODS = ["strip", "lstrip", "rstrip", "split", "rsplit", "upper", "lower", "title", "capitalize", "startswith", "endswith", "replace",
           "find", "rfind", "count", "join", "items", "keys", "values", "get", "format", "splitlines", "index", "isdigit", "isupper", "islower",
           "isspace", "center", "ljust", "rjust", "zfill", "partition", "rpartition", "removeprefix", "removesuffix", "copy", "append", "pop", "nosuch"]
FILTERS = ["trim", "length", "count", "tojson", "join", "first", "last", "default", "d", "upper", "lower", "capitalize", "title", "replace", "list",
           "string", "int", "float", "selectattr", "rejectattr", "select", "reject", "map", "items", "dictsort", "sort", "unique", "reverse",
           "indent", "round", "abs", "min", "max", "sum", "batch", "slice", "truncate", "center", "format", "attr"]
TESTS = ["defined", "undefined", "none", "string", "number", "mapping", "iterable", "sequence", "boolean", "integer", "float", "true", "false",
         "odd", "even", "upper", "lower", "callable"]
TESTS1 = ["equalto", "eq", "ne", "lt", "gt", "le", "ge", "in", "divisibleby", "sameas", "==", "greaterthan"]
ATTRS = ["role", "content", "a", "b", "c", "c.d", "n", "items", "deep", "deep.k", "0", "k", "nosuch", "keys"]


class Generator:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.locals = []

    def pick(self, xs):
        return self.r.choice(xs)

    def text(self):
        t = self.pick(TEXTS)
        return "'" + t + "'" if self.r.random() < 0.8 else '"' + t + '"'

    def number(self):
        return self.pick(["0", "1", "2", "3", "-1", "10", "1.5", "0.1", "1e3", "2.675", "1_000", "1e16", "123456789.125"])

    def atom(self):
        k = self.r.random()
        if k < 0.5:
            return self.pick(NAMES + self.locals * 4)
        if k < 0.7:
            return self.text()
        if k < 0.88:
            return self.number()
        return self.pick(["true", "false", "none", "None", "True"])

    def args(self, depth, at_most=2):
        out = [self.expr(depth - 1) for _ in range(self.r.randint(0, at_most))]
        return out

    def filter(self, depth):
        name = self.pick(FILTERS)
        k = self.r.random()
        if name in ("selectattr", "rejectattr"):
            test = "" if k < 0.3 else ", '" + self.pick(TESTS) + "'" if k < 0.5 else f", '{self.pick(TESTS1)}', {self.expr(depth - 1)}"
            tail = self.pick(["|list", "|list|length", "|map(attribute='a')|list", "|first", "", "|join(',')"])
            return f"{name}('{self.pick(ATTRS)}'{test}){tail}"
        if name in ("select", "reject"):
            test = "" if k < 0.3 else "('" + self.pick(TESTS) + "')" if k < 0.6 else f"('{self.pick(TESTS1)}', {self.expr(depth - 1)})"
            return name + test + self.pick(["|list", "|list", "|join", ""])
        if name == "map":
            inner = f"attribute='{self.pick(ATTRS)}'" + self.pick(["", ", default=0"]) if k < 0.5 else f"'{self.pick(FILTERS)}'"
            return f"map({inner})" + self.pick(["|list", "|list", "|join('/')", "|first"])
        if name == "tojson":
            return "tojson" + self.pick(["", "", "(indent=2)", "(indent=4)", "(ensure_ascii=true)", "(sort_keys=true)", "(separators=(',', ':'))", "(indent=0)", "(indent='\\t')"])
        if name in ("join", "default", "d", "trim", "indent", "center"):
            return name + self.pick(["", f"({self.expr(depth - 1)})"])
        if name == "sort":
            return "sort" + self.pick(["", "(reverse=true)", "(case_sensitive=true)", "(attribute='a')", "(attribute='b,a')"])
        if name in ("min", "max", "unique", "sum"):
            return name + self.pick(["", "", "(attribute='a')"]) + ("|list" if name == "unique" else "")
        if name == "round":
            return "round" + self.pick(["", "(1)", "(2)", "(0, 'ceil')", "(1, 'floor')", "(-1)"])
        if name in ("batch", "slice"):
            return name + self.pick(["(2)", "(3, 'x')"]) + "|list"
        if name in ("items", "reverse"):
            return name + self.pick(["|list", "|list", "|join", ""])
        if name == "dictsort":
            return name + self.pick(["", "(true)", "(by='value')", "(reverse=true)"])
        if name == "replace":
            return f"replace({self.text()}, {self.text()}{self.pick(['', ', 1'])})"
        if name == "truncate":
            return name + self.pick(["", "(5)", "(8, true)", "(9, false, '..', 0)"])
        if name == "attr":
            return f"attr('{self.pick(ATTRS)}')"
        if name == "format":
            return f"format({self.expr(depth - 1)})"
        return name

    def expr(self, depth):
        if depth <= 0:
            return self.atom()
        k = self.r.randint(0, 19)
        e = lambda: self.expr(depth - 1)
        if k <= 2:
            return f"{e()} | {self.filter(depth)}"
        if k == 3:
            return f"({e()} {self.pick(['+', '-', '*', '/', '//', '%', '~', '+', '~'])} {e()})"
        if k == 4:
            return f"{e()} {self.pick(['==', '!=', '<', '>', '<=', '>=', 'in', 'not in'])} {e()}"
        if k == 5:
            return f"({e()} {self.pick(['and', 'or'])} {e()})"
        if k == 6:
            return f"not {e()}"
        if k == 7:
            return f"({e()} is {self.pick(['', 'not '])}{self.pick(TESTS)})"
        if k == 8:
            return f"({e()} is {self.pick([t for t in TESTS1 if t != '=='])} {self.atom()})"
        if k == 9:
            return f"({e()} if {e()} else {e()})" if self.r.random() < 0.8 else f"({e()} if {e()})"
        if k == 10:
            return "[" + ", ".join(self.args(depth, 3)) + "]"
        if k == 11:
            return "{" + ", ".join(f"{self.text()}: {v}" for v in self.args(depth, 3)) + "}"
        if k == 12:
            a = self.args(depth, 3)
            return "(" + ", ".join(a) + (",)" if len(a) == 1 else ")")
        if k <= 14:
            name = self.pick(METHODS)
            args = ", ".join(self.args(depth, 2)) if self.r.random() < 0.5 else ", ".join(self.text() for _ in range(self.r.randint(0, 2)))
            return f"{self.base(depth)}.{name}({args})"
        if k == 15:
            return f"{self.base(depth)}.{self.pick([a for a in ATTRS if '.' not in a])}"
        if k == 16:
            return f"{self.base(depth)}[{e()}]"
        if k == 17:
            b = lambda: self.pick(["", "", "0", "1", "2", "-1", "-2", "5", "i", "n", "none"])
            base = self.pick(["s", "w", "x", "q", "d", "l", "rows", "names", "messages", "mixed", "d.deep"])  # slices of constants are folded by other rules
            return f"{base}[{b()}:{b()}{self.pick(['', ':' + b(), ':-1', ':2'])}]"
        if k == 18:
            return self.pick([f"range({self.number()})|list", f"range(1, 8, {self.pick(['2', '3', '-1', '0'])})|list", f"dict(a={e()}, b=1)", f"-{self.atom()}", f"{self.number()} ** {self.pick(['2', '-1', '0'])}", "loop.index", "loop.last", "loop.length", "loop.previtem", "loop.cycle('a', 'b')"])
        return f"{e()}, {e()}" if self.r.random() < 0.1 else e()

    def base(self, depth):
        b = self.expr(depth - 1) if self.r.random() < 0.4 else self.pick(["s", "w", "x", "q", "d", "l", "rows", "names", "messages", "mixed", "d.deep"])
        return b if b.replace(".", "").replace("_", "").isalnum() and not b[0].isdigit() else f"({b})"

    def tag(self, body):
        left, right = self.pick(["{%", "{%", "{%-", "{%+"]), self.pick(["%}", "%}", "-%}"])
        return f"{left} {body} {right}"

    def out(self, depth):
        return self.pick(["{{ ", "{{ ", "{{- "]) + self.expr(depth) + self.pick([" }}", " }}", " -}}"])

    def block(self, depth, size=3):
        return "".join(self.statement(depth) for _ in range(self.r.randint(1, size)))

    def statement(self, depth):
        k = self.r.randint(0, 15)
        space = self.pick(["", "", " ", "\n", "  \n ", "text", "\n\n"])
        if depth <= 0 or k <= 4:
            return space + self.out(2)
        if k == 5:
            return space + self.tag(f"if {self.expr(2)}") + self.block(depth - 1) + (self.tag("elif " + self.expr(1)) + self.block(depth - 1) if self.r.random() < 0.3 else "") + (self.tag("else") + self.block(depth - 1) if self.r.random() < 0.5 else "") + self.tag("endif")
        if k <= 8:
            name = self.pick(["v", "k, v", "v"])
            saved = list(self.locals)
            self.locals += ["v", "loop.index0", "loop.first"] + (["k"] if "k" in name else [])
            over = self.pick(["l", "names", "messages", "rows", "d.items()", "d", "s", "range(3)", "rows|map(attribute='a')", self.expr(1)])
            body = self.block(depth - 1)
            if self.r.random() < 0.2:
                body += self.tag(f"if {self.expr(1)}") + self.tag(self.pick(["break", "continue"])) + self.tag("endif") + self.out(1)
            result = space + self.tag(f"for {name} in {over}" + (f" if {self.expr(1)}" if self.r.random() < 0.2 else "")) + body + (self.tag("else") + self.out(1) if self.r.random() < 0.2 else "") + self.tag("endfor")
            self.locals = saved
            return result
        if k == 9:
            name = self.pick(["p", "r", "ii", "s"])
            self.locals.append(name)
            return space + self.tag(f"set {name} = {self.expr(2)}")
        if k == 10:
            self.locals.append("blk")
            return self.tag("set blk" + self.pick(["", " | upper", " | trim | title"])) + self.block(depth - 1) + self.tag("endset")
        if k == 11:
            self.locals.append("ns.c")
            return self.tag(f"set ns = namespace(c={self.expr(1)})") + self.tag("for v in l") + self.tag(f"set ns.c = {self.pick(['ns.c + v', 'v', 'ns.c ~ v', self.expr(1)])}") + self.tag("endfor")
        if k == 12:
            name = self.pick(["mac", "mac2"])
            call = f"{name}({', '.join(self.args(1, 3))}{self.pick(['', '', ''])})"
            body = self.out(1) + self.pick(["{{ a }}", "{{ b }}", "{{ varargs }}", "{{ kwargs }}", ""])
            return self.tag(f"macro {name}(a, b={self.expr(1)})") + body + self.tag("endmacro") + "{{ " + call + " }}"
        if k == 13:
            return "{# comment " + self.pick(["#}", "-#}\n ", "#}\n"])
        if k == 14:
            return self.tag("filter " + self.pick(["upper", "trim", "indent(2)", "title"])) + self.block(depth - 1) + self.tag("endfilter")
        return self.pick([self.tag("raw") + "{{ raw }}" + self.tag("endraw"), self.tag("generation") + self.block(depth - 1) + self.tag("endgeneration"), self.tag(f"with p = {self.expr(1)}") + "{{ p }}" + self.tag("endwith"), self.tag("call(a) mac3()") + "{{ a }}" + self.tag("endcall")])


def generate(seed):
    g = Generator(seed)
    if g.r.random() < 0.5:
        return "{{ " + g.expr(g.r.randint(1, 3)) + " }}"
    head = "{% macro mac3() %}[{{ caller(1) }}]{% endmacro %}" if g.r.random() < 0.1 else ""
    return head + g.block(3, 4)


def main():
    warnings.simplefilter("ignore", SyntaxWarning)  # the generator subscripts numbers on purpose
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 4000
    cases = [(generate(s), CONTEXT) for s in range(seed * 1_000_000, seed * 1_000_000 + count)]
    texts, errors, differing = oracle.compare(cases)
    print(f"{count} random templates: {texts} rendered alike, {errors} refused by both, {len(differing)} differ")
    if texts < count // 8:
        sys.exit("too few templates render: the generator proves little")
    sys.exit(1 if differing else 0)


if __name__ == "__main__":
    main()
