"""Requests that must be refused, each with the status, type, param and code that it gets."""

BAD = "invalid_request_error"
HELLO = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


def chat(param, code, status=400, messages=HELLO, **fields):
    return ("/v1/chat/completions", {"model": "m", "messages": messages, **fields}, status, BAD, param, code)


def text(param, code, status=400, prompt="hi", **fields):
    return ("/v1/completions", {"model": "m", "prompt": prompt, **fields}, status, BAD, param, code)


def message(param, code, *messages):
    return chat(param, code, messages=list(messages))


def respond(param, code, status=400, input="hi", **fields):
    return ("/v1/responses", {"model": "m", "input": input, **fields}, status, BAD, param, code)


def user(content):
    return {"role": "user", "content": content}


def schema(value):
    return {"type": "json_schema", "json_schema": {"name": "s", "schema": value}}


CASES = [
    # the body
    ("/v1/chat/completions", b"", 400, BAD, None, "invalid_json"),
    ("/v1/chat/completions", b"{", 400, BAD, None, "invalid_json"),
    ("/v1/chat/completions", b"[]", 400, BAD, None, "invalid_json"),
    ("/v1/chat/completions", b"null", 400, BAD, None, "invalid_json"),
    ("/v1/chat/completions", b'{"model": "m", "messages": "\xff\xfe"}', 400, BAD, None, "invalid_json"),
    ("/v1/chat/completions", b'{"a": ' * 200, 400, BAD, None, "invalid_json"),
    ("/v1/chat/completions", b"[" * 100000, 400, BAD, None, "invalid_json"),
    ("/v1/chat/completions", b'{"model": "m",}', 400, BAD, None, "invalid_json"),
    ("/v1/chat/completions", b'{"n": NaN}', 400, BAD, None, "invalid_json"),
    ("/v1/chat/completions", b'{"n": 1} x', 400, BAD, None, "invalid_json"),
    ("/v1/chat/completions", {}, 400, BAD, "messages", "missing_required_parameter"),
    ("/v1/completions", {}, 400, BAD, "prompt", "missing_required_parameter"),
    ("/v1/nothing", {}, 404, BAD, None, "unknown_url"),
    ("/nothing", {}, 404, BAD, None, "unknown_url"),
    ("/v1/models", {}, 405, BAD, None, "method_not_supported"),
    # the model
    chat("model", "model_not_found", 404, model="gpt-4"),
    chat("model", "invalid_type", model=7),
    text("model", "model_not_found", 404, model=""),
    # fields that do not exist
    chat("temprature", "unknown_parameter", temprature=1),
    chat("foo", "unknown_parameter", foo=None),
    text("messages", "unknown_parameter", messages=HELLO),
    chat("stream_options.include_usages", "unknown_parameter", stream=True, stream_options={"include_usages": True}),
    # numbers
    chat("temperature", "decimal_above_max_value", temperature=2.1),
    chat("temperature", "decimal_below_min_value", temperature=-0.1),
    chat("temperature", "invalid_type", temperature="warm"),
    chat("temperature", "invalid_type", temperature=True),
    chat("top_p", "decimal_above_max_value", top_p=1.5),
    chat("top_p", "decimal_below_min_value", top_p=-1),
    chat("presence_penalty", "decimal_above_max_value", presence_penalty=2.5),
    chat("frequency_penalty", "decimal_below_min_value", frequency_penalty=-3),
    chat("repetition_penalty", "decimal_below_min_value", repetition_penalty=0),
    chat("min_p", "decimal_above_max_value", min_p=2),
    chat("top_k", "integer_below_min_value", top_k=-2),
    chat("top_k", "invalid_type", top_k=1.5),
    chat("n", "integer_below_min_value", n=0),
    chat("n", "integer_above_max_value", n=129),
    chat("n", "invalid_type", n="2"),
    chat("n", "invalid_value", n=2, temperature=0),
    chat("seed", "invalid_type", seed="x"),
    chat("seed", "invalid_type", seed=0.5),
    chat("seed", "integer_above_max_value", seed=2**64 - 1),
    chat("max_tokens", "integer_below_min_value", max_tokens=0),
    chat("max_completion_tokens", "integer_below_min_value", max_completion_tokens=-5),
    chat("messages", "context_length_exceeded", max_tokens=10**9),
    chat("min_tokens", "invalid_value", min_tokens=9, max_tokens=3),
    chat("min_tokens", "integer_below_min_value", min_tokens=-1),
    chat("top_logprobs", "invalid_value", top_logprobs=2),
    chat("top_logprobs", "integer_above_max_value", logprobs=True, top_logprobs=21),
    chat("logprobs", "invalid_type", logprobs=3),
    # stops, biases
    chat("stop", "array_above_max_length", stop=["a", "b", "c", "d", "e"]),
    chat("stop", "array_above_max_length", stop=["a"] * 5000),
    chat("stop", "empty_array", stop=[]),
    chat("stop", "empty_string", stop=""),
    chat("stop[1]", "empty_string", stop=["a", ""]),
    chat("stop[0]", "invalid_type", stop=[1]),
    chat("stop", "invalid_type", stop=3),
    chat("logit_bias", "invalid_type", logit_bias=[1]),
    chat("logit_bias", "invalid_value", logit_bias={"x": 1}),
    chat("logit_bias", "invalid_value", logit_bias={"-1": 1}),
    chat("logit_bias", "invalid_value", logit_bias={"99999999": 1}),
    chat("logit_bias", "invalid_value", logit_bias={"5": 101}),
    chat("logit_bias", "invalid_type", logit_bias={"5": "x"}),
    # streams
    chat("stream", "invalid_type", stream="yes"),
    chat("stream_options", "invalid_value", stream_options={"include_usage": True}),
    chat("stream_options", "invalid_type", stream=True, stream_options=1),
    # messages
    chat("messages", "empty_array", messages=[]),
    chat("messages", "invalid_type", messages="hi"),
    message("messages[0]", "invalid_type", "hi"),
    message("messages[0].role", "missing_required_parameter", {"content": "x"}),
    message("messages[0].role", "invalid_value", {"role": "robot", "content": "x"}),
    message("messages[1].content", "missing_required_parameter", user("a"), {"role": "user"}),
    message("messages[0].content", "invalid_type", user(3)),
    message("messages[0].content", "empty_array", user([])),
    message("messages[0].content[0]", "invalid_type", user(["a"])),
    message("messages[0].content[0].type", "missing_required_parameter", user([{"text": "a"}])),
    message("messages[0].content[0].type", "unsupported_content", user([{"type": "image_url", "image_url": {"url": "x"}}])),
    message("messages[0].content[0].type", "invalid_value", user([{"type": "smell", "smell": "x"}])),
    message("messages[0].content[0].text", "missing_required_parameter", user([{"type": "text"}])),
    message("messages[1].tool_call_id", "missing_required_parameter", user("a"), {"role": "tool", "content": "x"}),
    message("messages[0].tool_calls", "unknown_parameter", {"role": "user", "content": "x", "tool_calls": []}),
    message("messages[0].tool_calls[0].function", "missing_required_parameter",
            {"role": "assistant", "tool_calls": [{"id": "1", "type": "function"}]}),
    message("messages[0].tool_calls[0].function.arguments", "missing_required_parameter",
            {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f"}}]}),
    # tools
    chat("tools", "empty_array", tools=[]),
    chat("tools", "invalid_type", tools={}),
    chat("tools[0]", "invalid_type", tools=["f"]),
    chat("tools[0].type", "missing_required_parameter", tools=[{}]),
    chat("tools[0].type", "invalid_value", tools=[{"type": "retrieval"}]),
    chat("tools[0].function", "missing_required_parameter", tools=[{"type": "function"}]),
    chat("tools[0].function.name", "missing_required_parameter", tools=[{"type": "function", "function": {}}]),
    chat("tools[0].function.name", "invalid_value", tools=[{"type": "function", "function": {"name": "a b"}}]),
    chat("tool_choice", "invalid_value", tool_choice="required"),
    chat("tool_choice", "invalid_value", tools=[TOOL], tool_choice="sometimes"),
    chat("tool_choice.function.name", "invalid_value", tools=[TOOL], tool_choice={"type": "function", "function": {"name": "g"}}),
    chat("tool_choice", "invalid_value", tools=[TOOL], tool_choice="required", response_format={"type": "json_object"}),
    chat("functions", "unsupported_parameter", functions=[{"name": "f"}]),
    # shapes
    chat("response_format", "invalid_type", response_format="json"),
    chat("response_format.type", "missing_required_parameter", response_format={}),
    chat("response_format.type", "invalid_value", response_format={"type": "xml"}),
    chat("response_format.json_schema", "missing_required_parameter", response_format={"type": "json_schema"}),
    chat("response_format.json_schema.schema", "missing_required_parameter",
         response_format={"type": "json_schema", "json_schema": {"name": "s"}}),
    chat("response_format", "invalid_value", response_format=schema({"type": "nonsense"})),
    chat("response_format", "invalid_value", response_format=schema({"type": "object", "unevaluatedProperties": False, "$dynamicRef": "#x"})),
    chat("structured_outputs", "invalid_value", structured_outputs={"regex": "a", "grammar": "b"}),
    chat("response_format", "invalid_value", structured_outputs={"regex": "(" * 50}),
    # completions
    text("prompt", "invalid_type", prompt=5),
    text("prompt", "empty_array", prompt=[]),
    text("prompt", "empty_prompt", prompt=""),
    text("prompt[1]", "invalid_type", prompt=["a", 3]),
    text("prompt[1]", "invalid_type", prompt=[1, "a"]),
    text("prompt", "invalid_value", prompt=[99999999]),
    text("prompt", "invalid_value", prompt=[-1]),
    text("prompt", "context_length_exceeded", prompt="word " * 20000),
    text("suffix", "unsupported_parameter", suffix="end"),
    text("logprobs", "integer_above_max_value", logprobs=21),
    text("logprobs", "invalid_type", logprobs=True),
    text("best_of", "invalid_value", n=3, best_of=2),
    text("best_of", "invalid_value", best_of=2, stream=True),
    text("echo", "invalid_type", echo=1),
    text("max_tokens", "integer_below_min_value", max_tokens=0),
    # responses
    ("/v1/responses", {}, 400, BAD, "input", "missing_required_parameter"),
    ("/v1/responses", b"[]", 400, BAD, None, "invalid_json"),
    respond("model", "model_not_found", 404, model="gpt-5"),
    respond("input", "invalid_type", input=3),
    respond("input", "empty_array", input=[]),
    respond("input[0]", "invalid_type", input=["hi"]),
    respond("input[0].role", "missing_required_parameter", input=[{"content": "x"}]),
    respond("input[0].role", "invalid_value", input=[{"role": "tool", "content": "x"}]),
    respond("input[0].content", "missing_required_parameter", input=[{"role": "user"}]),
    respond("input[0].content[0].type", "unsupported_content", input=[user([{"type": "input_image", "image_url": "x"}])]),
    respond("input[0].content[0].type", "invalid_value", input=[user([{"type": "smell"}])]),
    respond("input[0].content[0].text", "missing_required_parameter", input=[user([{"type": "input_text"}])]),
    respond("input[0].type", "unsupported_value", input=[{"type": "item_reference", "id": "msg_1"}]),
    respond("input[0].type", "invalid_value", input=[{"type": "web_search_call"}]),
    respond("input[0].arguments", "missing_required_parameter", input=[{"type": "function_call", "call_id": "c", "name": "f"}]),
    respond("input[0].call_id", "invalid_value", input=[{"type": "function_call_output", "call_id": "c", "output": "x"}]),
    respond("input[0].encrypted_content", "unsupported_value", input=[{"type": "reasoning", "summary": [], "encrypted_content": "x"}]),
    respond("input[0].colour", "unknown_parameter", input=[{**user("x"), "colour": "red"}]),
    respond("store", "unsupported_value", store=True),
    respond("background", "unsupported_value", background=True),
    respond("truncation", "unsupported_value", truncation="auto"),
    respond("truncation", "invalid_value", truncation="some"),
    respond("previous_response_id", "unsupported_parameter", previous_response_id="resp_1"),
    respond("conversation", "unsupported_parameter", conversation="c"),
    respond("prompt", "unsupported_parameter", prompt={"id": "p"}),
    respond("max_tool_calls", "unsupported_parameter", max_tool_calls=3),
    respond("max_output_tokens", "integer_below_min_value", max_output_tokens=0),
    respond("input", "context_length_exceeded", max_output_tokens=10**9),
    respond("input", "context_length_exceeded", input="word " * 20000),
    respond("temperature", "decimal_above_max_value", temperature=3),
    respond("messages", "unknown_parameter", messages=HELLO),
    respond("max_tokens", "unknown_parameter", max_tokens=3),
    respond("tools[0].type", "invalid_value", tools=[{"type": "web_search"}]),
    respond("tools[0].name", "missing_required_parameter", tools=[{"type": "function"}]),
    respond("tools[0].name", "invalid_value", tools=[{"type": "function", "name": "a b"}]),
    respond("tools[0].function", "unknown_parameter", tools=[{"type": "function", "name": "f", "function": {}}]),
    respond("tool_choice", "invalid_value", tool_choice="required"),
    respond("tool_choice.name", "invalid_value", tools=[{"type": "function", "name": "f"}], tool_choice={"type": "function", "name": "g"}),
    respond("tool_choice.type", "invalid_value", tool_choice={"type": "web_search_preview"}),
    respond("tool_choice", "invalid_value", tools=[{"type": "function", "name": "f"}], tool_choice="required", text={"format": {"type": "json_object"}}),
    respond("text.format.type", "missing_required_parameter", text={"format": {}}),
    respond("text.format.schema", "missing_required_parameter", text={"format": {"type": "json_schema", "name": "s"}}),
    respond("text.format", "invalid_value", text={"format": {"type": "json_schema", "name": "s", "schema": {"type": "nonsense"}}}),
    respond("include[0]", "unsupported_value", include=["reasoning.encrypted_content"]),
    respond("top_logprobs", "integer_above_max_value", top_logprobs=21),
    respond("top_logprobs", "unsupported_value", top_logprobs=1, tools=[{"type": "function", "name": "f"}]),
    respond("reasoning.summary", "unsupported_value", reasoning={"summary": "auto"}),
    respond("stream_options", "invalid_value", stream_options={"include_obfuscation": False}),
    # the rest
    ("/tokenize", {}, 400, BAD, "prompt", "missing_required_parameter"),
    ("/tokenize", {"prompt": 3}, 400, BAD, "prompt", "invalid_type"),
    ("/detokenize", {}, 400, BAD, "tokens", "missing_required_parameter"),
    ("/detokenize", {"tokens": [10**9]}, 400, BAD, "tokens", "invalid_value"),
    ("/detokenize", {"tokens": ["a"]}, 400, BAD, "tokens", "invalid_type"),
    ("/generate", {"prompt": ["a", "b"]}, 400, BAD, "prompt", "invalid_value"),
    ("/generate", {"prompt": "a", "n": 2}, 400, BAD, "n", "invalid_value"),
]
