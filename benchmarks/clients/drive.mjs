// Runs beside the npm packages: `node drive.mjs FRAMEWORK FEATURE...` prints {"said": ...}, {"none": why} or
// {"error": ...} as a line of JSON for each.

const URL_ = process.env.WHET_URL;
const TOKEN = process.env.WHET_TOKEN;
const DOT = process.env.WHET_DOT;
const SCHEMA = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};
const ASKED = {
  tools: "what is the weather in Rome?",
  parallel: "what is the weather in two cities?",
  form: "fill in a form",
  stop: "count, please",
  image: "what is in this?",
  too_long: "far too much",
  turns: "what have I began with?",
};
class Absent extends Error {}
const asked = (feature) => ASKED[feature] ?? "hello";
const weather = (city) => `21 degrees in ${city}`;

async function refused(call) {
  try {
    await call();
  } catch (error) {
    const inner = error.lastError ?? error;
    return `${inner.status ?? inner.statusCode ?? ""} ${inner.code ?? ""} ${inner.message} ${inner.responseBody ?? ""}`;
  }
  return "nothing was refused";
}

async function openai(feature) {
  const { default: OpenAI } = await import("openai");
  const client = new OpenAI({ baseURL: `${URL_}/v1`, apiKey: TOKEN, maxRetries: 0 });
  const create = (more) => client.chat.completions.create({ model: "whet", ...more });
  const messages = [{ role: "user", content: asked(feature) }];
  if (feature === "stream") {
    const pieces = [];
    for await (const chunk of await create({ messages, stream: true })) {
      const text = chunk.choices[0]?.delta?.content;
      if (text) pieces.push(text);
    }
    return [pieces.join(""), pieces.length];
  }
  if (feature === "tools" || feature === "parallel") {
    const tools = [{ type: "function", function: { name: "get_weather", description: "Weather", parameters: SCHEMA } }];
    const answer = (await create({ messages, tools })).choices[0].message;
    messages.push(answer);
    for (const call of answer.tool_calls) {
      const { city } = JSON.parse(call.function.arguments);
      messages.push({ role: "tool", tool_call_id: call.id, content: weather(city) });
    }
    return (await create({ messages, tools })).choices[0].message.content;
  }
  if (feature === "form") {
    const response_format = { type: "json_schema", json_schema: { name: "place", schema: SCHEMA, strict: true } };
    return JSON.parse((await create({ messages, response_format })).choices[0].message.content);
  }
  if (feature === "stop") return (await create({ messages, stop: ["three"] })).choices[0].message.content;
  if (feature === "image") {
    const image_url = { url: `data:image/png;base64,${DOT}` };
    messages[0].content = [{ type: "text", text: asked(feature) }, { type: "image_url", image_url }];
  }
  if (feature === "too_long") return refused(() => create({ messages }));
  if (feature === "turns") {
    messages[0].content = "green tea";
    const first = (await create({ messages })).choices[0].message;
    messages.push(first, { role: "user", content: asked(feature) });
  }
  const answer = await create({ messages });
  if (feature === "usage") return [answer.usage.prompt_tokens, answer.usage.completion_tokens];
  return answer.choices[0].message.content;
}

async function responses(feature) {
  const { default: OpenAI } = await import("openai");
  const client = new OpenAI({ baseURL: `${URL_}/v1`, apiKey: TOKEN, maxRetries: 0 });
  const create = (more) => client.responses.create({ model: "whet", ...more });
  const input = [{ role: "user", content: asked(feature) }];
  if (feature === "stream") {
    const pieces = [];
    for await (const event of await create({ input, stream: true })) {
      if (event.type === "response.output_text.delta") pieces.push(event.delta);
    }
    return [pieces.join(""), pieces.length];
  }
  if (feature === "tools" || feature === "parallel") {
    const tools = [{ type: "function", name: "get_weather", parameters: SCHEMA, strict: true }];
    const answer = await create({ input, tools });
    input.push(...answer.output);
    for (const call of answer.output.filter((one) => one.type === "function_call")) {
      const { city } = JSON.parse(call.arguments);
      input.push({ type: "function_call_output", call_id: call.call_id, output: weather(city) });
    }
    return (await create({ input, tools })).output_text;
  }
  if (feature === "form") {
    const format = { type: "json_schema", name: "place", schema: SCHEMA, strict: true };
    return JSON.parse((await create({ input, text: { format } })).output_text);
  }
  if (feature === "stop") throw new Absent("the protocol has no stop");
  if (feature === "image") {
    const picture = { type: "input_image", image_url: `data:image/png;base64,${DOT}`, detail: "auto" };
    input[0].content = [{ type: "input_text", text: asked(feature) }, picture];
  }
  if (feature === "too_long") return refused(() => create({ input }));
  if (feature === "turns") {
    const first = await create({ input: "green tea" });
    return (await create({ input: asked(feature), previous_response_id: first.id })).output_text;
  }
  const answer = await create({ input });
  return feature === "usage" ? [answer.usage.input_tokens, answer.usage.output_tokens] : answer.output_text;
}

async function anthropic(feature) {
  const { default: Anthropic } = await import("@anthropic-ai/sdk");
  const client = new Anthropic({ baseURL: URL_, apiKey: TOKEN, maxRetries: 0 });
  const create = (more) => client.messages.create({ model: "whet", max_tokens: 999, ...more });
  const messages = [{ role: "user", content: asked(feature) }];
  if (feature === "stream") {
    const pieces = [];
    const stream = client.messages.stream({ model: "whet", max_tokens: 999, messages });
    stream.on("text", (text) => pieces.push(text));
    await stream.finalMessage();
    return [pieces.join(""), pieces.length];
  }
  const more = {};
  if (feature === "tools" || feature === "parallel") {
    more.tools = [{ name: "get_weather", description: "Weather", input_schema: SCHEMA }];
    const answer = await create({ messages, ...more });
    const content = answer.content
      .filter((one) => one.type === "tool_use")
      .map((one) => ({ type: "tool_result", tool_use_id: one.id, content: weather(one.input.city) }));
    messages.push({ role: "assistant", content: answer.content }, { role: "user", content });
  }
  if (feature === "form") {
    const output_config = { format: { type: "json_schema", schema: SCHEMA } };
    return JSON.parse((await create({ messages, output_config })).content[0].text);
  }
  if (feature === "stop") more.stop_sequences = ["three"];
  if (feature === "image") {
    const source = { type: "base64", media_type: "image/png", data: DOT };
    messages[0].content = [{ type: "image", source }, { type: "text", text: asked(feature) }];
  }
  if (feature === "too_long") return refused(() => create({ messages }));
  if (feature === "turns") {
    messages[0].content = "green tea";
    const first = await create({ messages });
    messages.push({ role: "assistant", content: first.content }, { role: "user", content: asked(feature) });
  }
  const answer = await create({ messages, ...more });
  if (feature !== "usage") return answer.content[0].text;
  const used = answer.usage; // what a cache held is counted apart
  const held = (used.cache_read_input_tokens ?? 0) + (used.cache_creation_input_tokens ?? 0);
  return [used.input_tokens + held, used.output_tokens];
}

async function ai(feature, wire) {
  const kit = await import("ai");
  let model;
  if (wire === "chat") {
    const { createOpenAICompatible } = await import("@ai-sdk/openai-compatible");
    const options = { name: "whet", baseURL: `${URL_}/v1`, apiKey: TOKEN, supportsStructuredOutputs: true };
    model = createOpenAICompatible(options)("whet");
  } else if (wire === "responses") {
    const { createOpenAI } = await import("@ai-sdk/openai");
    model = createOpenAI({ baseURL: `${URL_}/v1`, apiKey: TOKEN })("whet");
  } else {
    const { createAnthropic } = await import("@ai-sdk/anthropic");
    model = createAnthropic({ baseURL: `${URL_}/v1`, apiKey: TOKEN })("whet");
  }
  const more = { model, maxRetries: 0 };
  const prompt = asked(feature);
  if (feature === "stream") {
    const pieces = [];
    for await (const piece of kit.streamText({ ...more, prompt }).textStream) if (piece) pieces.push(piece);
    return [pieces.join(""), pieces.length];
  }
  if (feature === "tools" || feature === "parallel") {
    const inputSchema = kit.jsonSchema(SCHEMA);
    const get_weather = kit.tool({ description: "Weather", inputSchema, execute: ({ city }) => weather(city) });
    const stopWhen = kit.stepCountIs(5);
    return (await kit.generateText({ ...more, prompt, tools: { get_weather }, stopWhen })).text;
  }
  if (feature === "form") {
    const output = kit.Output.object({ schema: kit.jsonSchema(SCHEMA), name: "place" });
    const answer = await kit.generateText({ ...more, prompt, output, experimental_output: output });
    return answer.output ?? answer.experimental_output;
  }
  if (feature === "stop") {
    if (wire === "responses") throw new Absent("the protocol has no stop");
    return (await kit.generateText({ ...more, prompt, stopSequences: ["three"] })).text;
  }
  if (feature === "image") {
    const content = [{ type: "text", text: prompt }, { type: "image", image: DOT, mediaType: "image/png" }];
    return (await kit.generateText({ ...more, messages: [{ role: "user", content }] })).text;
  }
  if (feature === "too_long") return refused(() => kit.generateText({ ...more, prompt }));
  if (feature === "turns") {
    const messages = [{ role: "user", content: "green tea" }];
    const first = await kit.generateText({ ...more, messages });
    messages.push(...(first.response.messages ?? []), { role: "user", content: prompt });
    return (await kit.generateText({ ...more, messages })).text;
  }
  const answer = await kit.generateText({ ...more, prompt });
  return feature === "usage" ? [answer.usage.inputTokens, answer.usage.outputTokens] : answer.text;
}

const FRAMEWORKS = {
  openai,
  "openai-responses": responses,
  anthropic,
  ai: (feature) => ai(feature, "chat"),
  "ai-responses": (feature) => ai(feature, "responses"),
  "ai-anthropic": (feature) => ai(feature, "anthropic"),
};

for (const feature of process.argv.slice(3)) {
  let said;
  try {
    said = { said: await FRAMEWORKS[process.argv[2]](feature) };
  } catch (error) {
    said = error instanceof Absent ? { none: error.message } : { error: `${error.name}: ${error.message}`.slice(0, 400) };
  }
  console.log(JSON.stringify({ feature, ...said }));
}
