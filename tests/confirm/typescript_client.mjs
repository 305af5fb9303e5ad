// Uses the JavaScript client against the service of test_typescript.py, and prints what came of each step.
import { ConfirmClient, ConfirmationRefused, requestDigest } from "../../clients/typescript/index.js";

const [url, submit, approve, request] = process.argv.slice(2);
const agent = new ConfirmClient({ url, token: submit });
const owner = new ConfirmClient({ url, token: approve });
const refusal = async (work) => { try { await work; return "none"; } catch (error) {
  return error instanceof ConfirmationRefused ? error.status : `${error.name} ${error.status ?? error.message}`; } };
const decide = async (verb, fields) => {
  for (;;) for (const record of await owner.list()) return owner[verb](record.id, { digest: record.digest, ...fields });
};
const results = {};
const details = { b: [1, 2.5, 1e-7, "é\u2028"], a: { "\u20ac": true, "\ud83d\ude00": null }, when: new Date(0) };
const [approved, decision] = await Promise.all([agent.confirm(" deploy ", "Deploy", details), decide("approve")]);
results.approved = [approved.resolvedBy, approved.grant.length > 50, decision.status];
await agent.report(approved.id, "executed", "fine");
results.execution = (await owner.status(approved.id)).execution;
results.again = await refusal(agent.consume(approved.id, approved.digest));
results.denied = await Promise.all([refusal(agent.confirm("deploy", "Deploy")), decide("deny", { reason: "no" })]);
results.inexact = await refusal(agent.confirm("deploy", "Deploy", { n: 2 ** 60 }));
results.down = await refusal(new ConfirmClient({ url: "http://127.0.0.1:9", token: "t" }).confirm("a", "b"));
results.stranger = await refusal(new ConfirmClient({ url, token: "wrong" }).confirm("a", "b"));
const stop = new AbortController();
const waiting = refusal(agent.confirm("left", "Left", {}, { signal: stop.signal }));
while ((await owner.list()).length === 0);
const [left] = await owner.list();
stop.abort();
results.stopped = [await waiting, (await owner.status(left.id)).status];
const early = new AbortController();
const losing = (answers) => async (address, init) => {  // the answer to the submission is lost on the way
  if (answers.length === 0 || !String(address).endsWith("/confirm")) return fetch(address, init);
  await fetch(address, { ...init, signal: undefined });
  return answers.shift()(init.signal);
};
const stopped = async (signal, ...answers) => {
  const client = new ConfirmClient({ url, token: submit, fetch: losing(answers) });
  try { await client.confirm("lost", "Lost", {}, { signal }); } catch (error) { return [error.status, error.message]; }
};
results.aborted = await stopped(early.signal, (signal) => { early.abort(); signal.throwIfAborted(); });
results.neverSent = await stopped(early.signal);
results.cut = (await stopped(undefined, () => { throw new TypeError("the connection was cut"); }))[0];
results.lost = (await owner.list("")).filter((record) => record.action === "lost").map((record) => record.status);
const first = await agent.submit("same", "Same", {}, { idempotencyKey: "k", sessionKey: "s" });
results.same = first.id === (await agent.submit("same", "Same", {}, { idempotencyKey: "k", sessionKey: "s" })).id;
results.deliveries = Array.isArray(await owner.deliveries(first.id));
results.digest = await requestDigest(JSON.parse(request));
console.log(JSON.stringify(results));
