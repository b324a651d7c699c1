"""The API as the official client sees it. The model is the parrot, which repeats what the user says."""
import concurrent.futures
import hashlib
import json
import math
import os
import re
import time
import unittest

import invalid_requests
import openai
import pydantic
from openai.types.responses import ResponseStreamEvent
from server import Server

NAME = "m"
EVENT = pydantic.TypeAdapter(ResponseStreamEvent)
TOOLS = [
    {"type": "function", "function": {"name": "weather", "description": "Weather of a city",
                                      "parameters": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}},
                                                     "required": ["city"], "additionalProperties": False}}},
    {"type": "function", "function": {"name": "clock"}},
]
CALLS = 'Let me see.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Köln"}}\n</tool_call>\n<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>'


def say(text):
    return [{"role": "user", "content": text}]


class Conformance(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--served-model-name", NAME, "--max-waiting", 64, "--max-num-seqs", 16)
        cls.client = openai.OpenAI(base_url=f"http://127.0.0.1:{cls.server.port}/v1", api_key="none", max_retries=0, timeout=60)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def chat(self, text, **fields):
        return self.client.chat.completions.create(model=NAME, messages=say(text), **fields)

    def collect(self, stream):
        """The sum of a chat stream, by choice, checked on the way; and its usage."""
        choices, usage, finished = {}, None, set()
        for chunk in stream:
            self.assertEqual(chunk.object, "chat.completion.chunk")
            if chunk.usage is not None:
                self.assertEqual(chunk.choices, [])
                usage = chunk.usage
            for choice in chunk.choices:
                self.assertNotIn(choice.index, finished, "nothing follows a finish reason")
                sum_ = choices.setdefault(choice.index, {"role": "", "content": "", "calls": [], "logprobs": [], "finish": None})
                sum_["role"] += choice.delta.role or ""
                sum_["content"] += choice.delta.content or ""
                for call in choice.delta.tool_calls or []:
                    while len(sum_["calls"]) <= call.index:
                        sum_["calls"].append({"id": "", "name": "", "arguments": ""})
                    into = sum_["calls"][call.index]
                    into["id"] += call.id or ""
                    into["name"] += call.function.name or ""
                    into["arguments"] += call.function.arguments or ""
                if choice.logprobs:
                    sum_["logprobs"] += choice.logprobs.content
                if choice.finish_reason:
                    sum_["finish"] = choice.finish_reason
                    finished.add(choice.index)
        return choices, usage

    def test_models(self):
        self.assertEqual([m.id for m in self.client.models.list()][0], NAME)
        self.assertEqual(self.client.models.retrieve(NAME).owned_by, "rosellm")
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("other")

    def test_a_chat_answer(self):
        answer = self.chat("A rose is a rose.")
        self.assertEqual(answer.object, "chat.completion")
        self.assertEqual(answer.choices[0].message.content, "A rose is a rose.")
        self.assertEqual((answer.choices[0].message.role, answer.choices[0].finish_reason), ("assistant", "stop"))
        u = answer.usage
        self.assertEqual(u.total_tokens, u.prompt_tokens + u.completion_tokens)
        counted = self.server.post("/tokenize", {"messages": say("A rose is a rose.")})[1]["count"]
        self.assertEqual(u.prompt_tokens, counted)
        self.assertEqual(u.completion_tokens, self.server.post("/tokenize", {"prompt": "A rose is a rose."})[1]["count"] + 1)

    def test_law_1_for_text_tools_and_logprobs(self):
        texts = ["Grüße, 👍🏽 fünf 中文 ไทย!", "x", " leading and trailing  ", "a\n\nb", CALLS, "<tool_call>not json</tool_call>", "<think>hm</think>yes"]
        for text in texts:
            for fields in ({}, {"tools": TOOLS}, {"logprobs": True, "top_logprobs": 2}, {"n": 3, "seed": 7}, {"stop": ["ü", "ing"]}, {"max_tokens": 4}):
                with self.subTest(text=text, fields=list(fields)):
                    whole = self.chat(text, temperature=1.0, **{"seed": 1, **fields})
                    streamed, usage = self.collect(self.chat(text, temperature=1.0, stream=True, stream_options={"include_usage": True}, **{"seed": 1, **fields}))
                    self.assertEqual(usage.completion_tokens, whole.usage.completion_tokens)
                    self.assertEqual(usage.prompt_tokens, whole.usage.prompt_tokens)
                    self.assertEqual(len(streamed), len(whole.choices))
                    for choice in whole.choices:
                        s = streamed[choice.index]
                        self.assertEqual(s["role"], "assistant")
                        self.assertEqual(s["content"], choice.message.content or "")
                        self.assertEqual(s["finish"], choice.finish_reason)
                        calls = choice.message.tool_calls or []
                        self.assertEqual([(c["name"], c["arguments"]) for c in s["calls"]], [(c.function.name, c.function.arguments) for c in calls])
                        self.assertEqual([l.model_dump() for l in s["logprobs"]], [l.model_dump() for l in (choice.logprobs.content if choice.logprobs else [])])

    def test_tool_calls(self):
        answer = self.chat(CALLS, tools=TOOLS).choices[0]
        self.assertEqual(answer.finish_reason, "tool_calls")
        self.assertEqual(answer.message.content, "Let me see.")
        self.assertEqual([(c.function.name, json.loads(c.function.arguments)) for c in answer.message.tool_calls], [("weather", {"city": "Köln"}), ("clock", {})])
        self.assertEqual(len({c.id for c in answer.message.tool_calls}), 2)
        one = self.chat(CALLS, tools=TOOLS, parallel_tool_calls=False).choices[0]
        self.assertEqual(len(one.message.tool_calls), 1)
        none = self.chat(CALLS, tools=TOOLS, tool_choice="none").choices[0]
        self.assertEqual(none.message.content, CALLS)
        history = [*say("How warm?"), {"role": "assistant", "tool_calls": [c.model_dump() for c in answer.message.tool_calls]},
                   {"role": "tool", "tool_call_id": answer.message.tool_calls[0].id, "content": "20"}]
        self.assertIn("20", self.client.chat.completions.create(model=NAME, messages=history, tools=TOOLS).choices[0].message.content)

    def test_a_call_that_must_be_made(self):
        for choice in ("required", {"type": "function", "function": {"name": "weather"}}):
            answer = self.chat("no", tools=TOOLS[:1], tool_choice=choice, max_tokens=200, seed=3).choices[0]
            self.assertEqual(answer.message.tool_calls[0].function.name, "weather")
            if answer.finish_reason == "tool_calls":
                self.assertIn("city", json.loads(answer.message.tool_calls[0].function.arguments))

    def test_shapes(self):
        schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}, "b": {"enum": ["x", "y"]}}, "required": ["a", "b"], "additionalProperties": False}
        for seed in range(3):
            answer = self.chat("no", seed=seed, max_tokens=200, response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": schema, "strict": True}})
            value = json.loads(answer.choices[0].message.content)
            self.assertIn(value["b"], ("x", "y"))
        answer = self.chat('{"k": [1, 2]}', response_format={"type": "json_object"}, max_tokens=100)
        self.assertEqual(json.loads(answer.choices[0].message.content), {"k": [1, 2]})

    def test_completions(self):
        make = self.client.completions.create
        one = make(model=NAME, prompt="Once", max_tokens=5, seed=1)
        self.assertEqual((one.object, one.usage.completion_tokens, one.choices[0].finish_reason), ("text_completion", 5, "length"))
        many = make(model=NAME, prompt=["Once", "upon"], n=2, max_tokens=5, seed=1)
        self.assertEqual([c.index for c in many.choices], [0, 1, 2, 3])
        self.assertEqual(many.choices[0].text, one.choices[0].text)
        self.assertEqual(len({c.text for c in many.choices}), 4)
        ids = self.server.post("/tokenize", {"prompt": "Once"})[1]["tokens"]
        self.assertEqual(make(model=NAME, prompt=ids, max_tokens=5, seed=1).choices[0].text, one.choices[0].text)
        streamed = "".join(c.choices[0].text for c in make(model=NAME, prompt="Once", max_tokens=5, seed=1, stream=True))
        self.assertEqual(streamed, one.choices[0].text)
        best = make(model=NAME, prompt="Once", n=1, best_of=3, max_tokens=3, seed=1)
        self.assertEqual((len(best.choices), best.usage.completion_tokens), (1, 9))

    def test_logprobs_of_completions(self):
        answer = self.client.completions.create(model=NAME, prompt="Once upon", max_tokens=3, seed=1, logprobs=2, echo=True)
        l = answer.choices[0].logprobs
        self.assertEqual(len({len(l.tokens), len(l.token_logprobs), len(l.top_logprobs), len(l.text_offset)}), 1)
        self.assertTrue(answer.choices[0].text.startswith("Once upon"))
        self.assertIsNone(l.token_logprobs[0])
        self.assertEqual(l.text_offset[:2], [0, len(l.tokens[0])])
        for chosen, top in zip(l.token_logprobs[1:], l.top_logprobs[1:]):
            self.assertEqual(len(top), 2)
            self.assertLessEqual(chosen, max(top.values()) + 1e-6)
        score = self.client.completions.create(model=NAME, prompt="Once upon", max_tokens=0, logprobs=0, echo=True)
        self.assertEqual((score.choices[0].text, score.usage.completion_tokens), ("Once upon", 0))
        self.assertEqual(score.choices[0].logprobs.token_logprobs, l.token_logprobs[: len(score.choices[0].logprobs.token_logprobs)])

    def test_sampling_fields(self):
        ids = self.server.post("/tokenize", {"prompt": " never"})[1]["tokens"]
        always = self.client.completions.create(model=NAME, prompt="x", max_tokens=3, logit_bias={str(ids[0]): 100}).choices[0].text
        self.assertEqual(always, " never" * 3)
        self.assertEqual(self.chat("one two three", stop="three").choices[0].message.content, "one two ")
        kept = self.chat("one two three", stop="two", extra_body={"include_stop_str_in_output": True})
        self.assertEqual(kept.choices[0].message.content, "one two")
        a, b = (self.client.completions.create(model=NAME, prompt="x", max_tokens=8, seed=5).choices[0].text for _ in range(2))
        self.assertEqual(a, b)

    def test_invalid_requests(self):
        self.assertGreaterEqual(len(invalid_requests.CASES), 80)
        for path, body, status, kind, param, code in invalid_requests.CASES:
            with self.subTest(path=path, body=str(body)[:120]):
                got, answer = self.server.post(path, body)
                error = answer["error"]
                self.assertEqual((got, error["type"], error["param"], error["code"]), (status, kind, param, code), error["message"])
                self.assertEqual(set(error), {"message", "type", "param", "code"})
                self.assertTrue(error["message"])
        self.assertEqual(self.server.get("/health")[0], 200)

    def test_errors_are_the_clients_exceptions(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat("x", temperature=3)
        self.assertEqual((caught.exception.param, caught.exception.code), ("temperature", "decimal_above_max_value"))
        with self.assertRaises(openai.NotFoundError):
            self.client.chat.completions.create(model="other", messages=say("x"))

    def test_tokens_and_text(self):
        status, cut = self.server.post("/tokenize", {"prompt": "naïve 👍", "add_special_tokens": False, "return_token_strs": True})
        self.assertEqual((status, cut["count"]), (200, len(cut["tokens"])))
        self.assertEqual(len(cut["token_strs"]), cut["count"])
        self.assertEqual(self.server.post("/detokenize", {"tokens": cut["tokens"]})[1]["prompt"], "naïve 👍")

    def test_scores(self):
        score = lambda **body: self.client.post("/score", body=body, cast_to=object)
        texts = ["Once upon a time", "a rose is a rose"]
        answer = score(prompt=texts)
        for text, one in zip(texts, answer["data"]):
            echo = self.client.completions.create(model=NAME, prompt=text, max_tokens=0, logprobs=0, echo=True).choices[0].logprobs
            self.assertEqual(one["token_logprobs"], echo.token_logprobs[1:])
            self.assertAlmostEqual(one["logprob"], sum(one["token_logprobs"]), places=9)
        count = lambda t: self.server.post("/tokenize", {"prompt": t})[1]["count"]
        self.assertEqual(answer["usage"]["prompt_tokens"], sum(map(count, texts)))
        ids = lambda t: self.server.post("/tokenize", {"prompt": t})[1]["tokens"]
        after = score(query="Once upon", items=[" a time", " the"])["data"]
        self.assertEqual(after[0]["tokens"], ids(" a time"))
        self.assertEqual(after[0]["token_logprobs"], score(prompt=[ids("Once upon") + ids(" a time")])["data"][0]["token_logprobs"][-len(after[0]["tokens"]):])
        # of the next token the engine itself tells the likeliest few: labels must have their probabilities
        top = self.client.completions.create(model=NAME, prompt=ids("Once upon") + ids(" a"), max_tokens=1, logprobs=5).choices[0].logprobs.top_logprobs[0]
        labels = [ids(t)[0] for t in top]
        if all(len(ids(t)) == 1 for t in top):
            told = score(query="Once upon", items=[" a"], label_token_ids=labels)["scores"][0]
            for p, logprob in zip(told, top.values()):
                self.assertAlmostEqual(p, math.exp(logprob), delta=1e-5)
        share = score(query="Once upon", items=[" a", " the"], label_token_ids=[5, 6, 7], apply_softmax=True)["scores"]
        self.assertEqual([len(s) for s in share], [3, 3])
        self.assertAlmostEqual(sum(share[1]), 1, places=6)

    def test_embeddings(self):
        ask = lambda text, **fields: self.client.embeddings.create(model=NAME, input=text, **fields)
        texts = ["a bird", "another bird", "a bird"]
        packed = ask(texts)  # this client asks for base64 unless told otherwise
        plain = ask(texts, encoding_format="float")
        self.assertEqual([d.embedding for d in packed.data], [d.embedding for d in plain.data])
        self.assertEqual([d.index for d in packed.data], [0, 1, 2])
        self.assertEqual(packed.data[0].embedding, packed.data[2].embedding)
        self.assertAlmostEqual(sum(x * x for x in packed.data[1].embedding), 1, delta=1e-6)
        counts = [self.server.post("/tokenize", {"prompt": t})[1]["count"] for t in texts]
        self.assertEqual((packed.usage.prompt_tokens, packed.usage.total_tokens), (sum(counts), sum(counts)))
        mean = ask([[5, 6, 7]], encoding_format="float", extra_body={"pooling": "mean", "normalize": False}).data[0].embedding
        each = [ask([[t]], encoding_format="float", extra_body={"normalize": False}).data[0].embedding for t in (5, 6, 7)]
        for i, x in enumerate(mean):
            self.assertAlmostEqual(x, sum(v[i] for v in each) / 3, delta=1e-6)
        for fields, param in (({"input": []}, "input"), ({"input": ""}, "input"), ({"input": "x", "dimensions": 2}, "dimensions"),
                              ({"input": "x", "encoding_format": "int8"}, "encoding_format"), ({}, "input"), ({"input": [[-1]]}, "input[0]")):
            status, answer = self.server.post("/v1/embeddings", fields)
            self.assertEqual((status, answer["error"]["param"]), (400, param), fields)

    def response(self, items, **fields):
        return self.client.responses.create(model=NAME, input=items, store=False, **fields)

    def events(self, items, **fields):
        """A streamed response: its deltas by item, and the response of its last event, checked on the way."""
        grown, closed, last = {}, {}, None
        for number, event in enumerate(self.response(items, stream=True, **fields)):
            EVENT.validate_python(event.model_dump(by_alias=True, warnings=False))  # whatever the type asks for is there
            self.assertEqual(event.sequence_number, number)
            if event.type.endswith(".delta"):
                self.assertNotIn(event.item_id, closed)
                grown[event.item_id] = grown.get(event.item_id, "") + event.delta
            elif event.type == "response.output_item.added":
                self.assertEqual(event.output_index, len(closed), "one item is closed before the next")
                grown[event.item.id] = ""
            elif event.type == "response.output_item.done":
                closed[event.item.id] = event.item
            last = event
        self.assertIn(last.type, ("response.completed", "response.incomplete"))
        self.assertEqual([i.id for i in last.response.output], list(closed))
        for item in last.response.output:
            whole = item.arguments if item.type == "function_call" else item.content[0].text
            self.assertEqual(grown[item.id], whole)
        return last.response

    def test_responses(self):
        answer = self.response("A rose is a rose.")
        self.assertEqual((answer.object, answer.status, answer.output_text), ("response", "completed", "A rose is a rose."))
        self.assertEqual((answer.output[0].type, answer.output[0].status), ("message", "completed"))
        chat = self.chat("A rose is a rose.")
        self.assertEqual((answer.usage.input_tokens, answer.usage.output_tokens), (chat.usage.prompt_tokens, chat.usage.completion_tokens))
        short = self.response("one two three four five", max_output_tokens=2)
        self.assertEqual((short.status, short.incomplete_details.reason, short.output[0].status), ("incomplete", "max_output_tokens", "incomplete"))
        openai.types.responses.Response.model_validate(answer.model_dump(by_alias=True))
        repeated = self.response("x", instructions="Be brief.", temperature=0.5, metadata={"a": "b"}, max_output_tokens=9, reasoning={"effort": "low"})
        self.assertEqual((repeated.instructions, repeated.temperature, repeated.metadata, repeated.max_output_tokens, repeated.reasoning.effort),
                         ("Be brief.", 0.5, {"a": "b"}, 9, "low"))

    def test_law_1_for_responses(self):
        tools = [{"type": "function", "strict": None, **t["function"], "parameters": t["function"].get("parameters")} for t in TOOLS]
        for text in ("Grüße, 👍🏽 fünf 中文!", "x", CALLS, CALLS + "\nand", "<think>hm, so</think>yes", "<think>endless", "<tool_call>{\"nam"):
            for fields in ({}, {"tools": tools}, {"include": ["message.output_text.logprobs"], "top_logprobs": 2}, {"max_output_tokens": 4}):
                with self.subTest(text=text, fields=list(fields)):
                    whole, streamed = self.response(text, temperature=0, **fields), self.events(text, temperature=0, **fields)
                    plain = lambda r: [{k: v for k, v in i.model_dump().items() if k not in ("id", "call_id")} for i in r.output]
                    self.assertEqual(plain(streamed), plain(whole))
                    self.assertEqual((streamed.status, streamed.usage.output_tokens, streamed.usage.output_tokens_details.reasoning_tokens > 0),
                                     (whole.status, whole.usage.output_tokens, text.startswith("<think>")))

    def test_response_items(self):
        tools = [{"type": "function", "strict": None, **t["function"], "parameters": t["function"].get("parameters")} for t in TOOLS]
        answer = self.response(CALLS, tools=tools)
        self.assertEqual([i.type for i in answer.output], ["message", "function_call", "function_call"])
        self.assertEqual([(i.name, json.loads(i.arguments)) for i in answer.output[1:]], [("weather", {"city": "Köln"}), ("clock", {})])
        history = [{"role": "user", "content": "How warm?"}, *[i.model_dump(exclude_none=True) for i in answer.output],
                   *[{"type": "function_call_output", "call_id": i.call_id, "output": "20"} for i in answer.output[1:]]]
        self.assertIn("20", self.response(history, tools=tools).output_text)
        self.assertEqual(self.response([{"role": "user", "content": [{"type": "input_text", "text": "one "}, {"type": "input_text", "text": "two"}]}]).output_text, "one two")
        self.assertEqual([i.type for i in self.response("<think>hm</think>yes").output], ["reasoning", "message"])
        for choice in ("required", {"type": "function", "name": "weather"}):
            call = self.response("no", tools=tools[:1], tool_choice=choice, max_output_tokens=200).output[0]
            self.assertEqual((call.type, call.name), ("function_call", "weather"))
        shaped = self.response("no", max_output_tokens=200, text={"format": {"type": "json_schema", "name": "s", "strict": True, "schema": {"enum": [7]}}})
        self.assertEqual(json.loads(shaped.output_text), 7)

    def test_golden_streams(self):
        self.golden("chat.sse", "/v1/chat/completions", {"messages": say("Hi you"), "stream_options": {"include_usage": True}})
        self.golden("response.sse", "/v1/responses", {"input": "<think>hm</think>Hi you"})

    def golden(self, name, path, body):
        """Every byte of a stream, except what names this answer."""
        _, headers, body = self.server.request("POST", path, {"cache_salt": name, "stream": True, **body}, {"x-request-id": "golden"})
        self.assertEqual(headers["content-type"], "text/event-stream; charset=utf-8")
        self.assertEqual(headers["x-request-id"], "golden")
        here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", name)
        got = re.sub(r'"(created|created_at|completed_at)":\d+', r'"\1":CREATED', body.decode())
        if os.environ.get("ROSE_GOLDEN"):
            os.makedirs(os.path.dirname(here), exist_ok=True)
            with open(here, "w", encoding="utf-8") as file:
                file.write(got)
        with open(here, encoding="utf-8") as file:
            self.assertEqual(got, file.read())

    def test_many_at_once_and_each_right(self):
        texts = [f"{hashlib.sha256(str(i).encode()).hexdigest()} number {i}" for i in range(60)]
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            answers = list(pool.map(lambda t: self.chat(t).choices[0].message.content, texts))
        self.assertEqual(answers, texts)
        time.sleep(0.6)
        self.assertEqual(self.server.metric("rose_kv_pages_referenced"), 0)

    def test_metrics_and_state(self):
        self.chat("count me")
        self.assertGreater(self.server.metric("rose_answer_tokens_total"), 0)
        self.assertGreaterEqual(self.server.metric("rose_time_to_first_token_seconds_count"), 1)
        state = json.loads(self.server.get("/debug/state")[1])
        self.assertEqual(state["runner"], "parrot")
        (engine,) = state["engines"]
        self.assertEqual(engine["page_states"][0], ["scratch", 1])
        self.assertEqual(sum(n for _, n in engine["page_states"]), state["total_pages"] + 1)
        self.assertEqual(set(engine), {"steps", "sequences", "page_states"})
        self.assertEqual(self.server.get("/version")[0], 200)


if __name__ == "__main__":
    unittest.main()
