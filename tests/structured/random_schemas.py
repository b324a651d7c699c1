"""Random JSON schemas, for the tests of structured output."""
import random


class Random:
    """Schemas made of all keywords, mostly satisfiable."""

    def __init__(self, seed):
        self.r = random.Random(seed)

    def maybe(self, schema, **keywords):
        for key, value in keywords.items():
            if self.r.random() < 0.4:
                schema[key] = value
        return schema

    def schema(self, depth):
        r = self.r
        kind = r.choice(["string", "integer", "number", "boolean", "null", "enum", "array", "object", "anyOf", "any", "types"]
                        if depth > 0 else ["string", "integer", "number", "boolean", "enum"])
        if kind == "string":
            low = r.randrange(4)
            s = self.maybe({"type": "string"}, minLength=low, maxLength=low + r.randrange(12))
            if r.random() < 0.4:
                s["pattern"] = r.choice(["^[a-z]+$", "\\d", "^(é|[^a-m\"]){2,5}", "x+y$", "^\\S+@\\w+$", "[\\s\\\\]", "^.*$"])
            return s
        if kind in ("integer", "number"):
            low = r.choice([r.randrange(-200, 200), round(r.uniform(-5, 5), r.randrange(4))])
            high = low + r.choice([0, 1, 7, 0.5, 1234])
            s = self.maybe({"type": kind}, minimum=low, maximum=high, multipleOf=r.choice([1, 2, 7, 100]))
            if "minimum" not in s and r.random() < 0.3:
                s["exclusiveMinimum"] = low
            if "maximum" not in s and r.random() < 0.3:
                s["exclusiveMaximum"] = high
            return s
        if kind == "enum":
            values = r.sample([1, -2.5, "a", "ü\n", None, True, [1, "x"], {"k": 1}, "", 1e20], r.randrange(1, 5))
            return {"const": values[0]} if r.random() < 0.3 else {"enum": values}
        if kind == "array":
            low = r.randrange(3)
            s = self.maybe({"type": "array", "items": self.schema(depth - 1)}, minItems=low, maxItems=low + r.randrange(3))
            if r.random() < 0.3:
                s["prefixItems"] = [self.schema(depth - 1) for _ in range(r.randrange(1, 3))]
                if r.random() < 0.3:
                    s["items"] = False
            return s
        if kind == "object":
            names = r.sample(["a", "b", "ab", "é\"", "x y", ""], r.randrange(1, 5))
            s = {"type": "object", "properties": {n: self.schema(depth - 1) for n in names}}
            s["required"] = [n for n in names if r.random() < 0.5]
            if r.random() < 0.5:
                s["additionalProperties"] = r.choice([False, True, self.schema(0)])
            return s
        if kind == "anyOf":
            return {"anyOf": [self.schema(depth - 1) for _ in range(r.randrange(1, 4))]}
        if kind == "types":
            return self.maybe({"type": r.sample(["string", "integer", "null", "array"], 2)}, minLength=2, maximum=9, maxItems=1)
        if kind == "any":
            return self.maybe({}, minLength=1, minimum=3, maxItems=2)
        return {"type": kind}
