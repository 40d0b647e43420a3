// `PLUMBLINE_URL=… PLUMBLINE_TOKEN=… node --test`: against a server of Plumbline, and one that answers what a test says.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, test } from "node:test";
import { inspect } from "node:util";
import { Client, Refused, Unavailable } from "./index.js";

const TOKEN = "0123456789abcdef";
const QUIET = { warn() {}, error() {} };
const MESSAGE = { external_id: "m-1", outsider: "Ada", text: "Noted." };
const INGESTED = { received: 1, imported: 1, duplicates: 0, sampled_out: 0, observed: 0, notes: [] };
const servers = [];
after(() => servers.forEach((server) => (server.closeAllConnections(), server.close())));

/** A client of a server that gives these answers in their order, and the keys that it was sent. */
async function stub(...answers) {
  const keys = [];
  const server = createServer((request, response) => {
    keys.push(request.headers["idempotency-key"]);
    const [status, headers, body] = answers.shift();
    request.resume().on("end", () => response.writeHead(status, headers).end(JSON.stringify(body)));
  });
  servers.push(server);
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { client: new Client(`http://127.0.0.1:${server.address().port}`, TOKEN, { log: QUIET }), keys };
}

test("a draft out of character is rejected with feedback by a server of Plumbline", { skip: !process.env.PLUMBLINE_URL }, async () => {
  const rules = [{ id: "calm", claim: "Ada is calm", rule: { contains_none: ["!"] } }];
  const propositions = [{ dimension: "adherence", propositions: rules }];
  const persona = { name: "Ada", system_prompt: "You are Ada." };
  const check = await Client.fromEnvironment().check("Hooray!", { persona, propositions, dimensions: ["adherence"] });
  assert.equal(check.verdict, "rejected");
  assert.ok(check.answer.feedback);
});

test("what is handed in is sent again with the same key when the server says so", async () => {
  const again = { "Retry-After": "0" };
  const { client, keys } = await stub([503, again, {}], [429, again, {}], [409, {}, {}], [200, {}, INGESTED]);
  assert.equal((await client.ingest([MESSAGE])).imported, 1);
  assert.equal(keys.length, 4);
  assert.equal(new Set(keys).size, 1);
});

test("what the server refuses is not sent again and names the field", async () => {
  const { client, keys } = await stub([400, {}, { detail: "wrong", errors: { channel: ["allowed: a slug"] } }]);
  await assert.rejects(client.ingest([MESSAGE]), (error) => error instanceof Refused && error.message.includes("allowed: a slug"));
  assert.equal(keys.length, 1);
});

test("what the server refuses is said once", async () => {
  const why = "there is no agent 'mikael'; did you mean michael?";
  const { client } = await stub([400, {}, { detail: why, errors: { agent: [why] } }]);
  await assert.rejects(client.ingest([MESSAGE]), (error) => error.message === `400 ${why}`);
});

test("a server that stays away is given up in time", async () => {
  const { client } = await stub([503, { "Retry-After": "3600" }, { detail: "the database is away" }]);
  await assert.rejects(client.ingest([MESSAGE], { seconds: 5 }), (error) => error instanceof Unavailable && /away/.test(error.message));
});

test("a draft that nobody could check is let through", async () => {
  const answers = [
    [[503, {}, {}], false],
    [[401, {}, { detail: "Invalid token." }], true],
    [[302, { Location: "http://127.0.0.1:9/" }, {}], true],
    [[200, {}, ["not", "Plumbline"]], true],
  ];
  for (const [answer, refused] of answers) {
    const { client } = await stub(answer);
    const check = await client.check("Noted.", { persona: "You are Ada." });
    assert.deepEqual([check.verdict, check.refused], ["unchecked", refused]);
  }
});

test("where no draft passes the best is returned with the verdict", async () => {
  const rejected = { verdict: "rejected", fully_judged: true, outcome: "corrected", feedback: "Again.", session: "s", best_attempt: 1 };
  const { client } = await stub([200, {}, { ...rejected, attempt: 1, attempts_left: 1 }], [200, {}, { ...rejected, attempt: 2, attempts_left: 0 }]);
  const { text, check } = await client.gate((feedback) => feedback || "The first.", { agent: "ada" });
  assert.deepEqual([text, check.verdict], ["The first.", "rejected"]);
});

test("the token is in no error and no representation", async () => {
  const client = new Client("http://127.0.0.1:9", TOKEN, { log: QUIET });
  const away = await client.ingest([MESSAGE], { seconds: 0.1 }).catch((error) => error);
  const unreadable = await (async () => new Client("http://127.0.0.1:9", `${TOKEN}\n`))().catch((error) => error);
  assert.ok(away instanceof Unavailable && unreadable instanceof TypeError);
  for (const shown of [client, away, unreadable]) assert.ok(!inspect(shown, { depth: 9 }).includes(TOKEN));
  assert.ok(!JSON.stringify(client).includes(TOKEN));
});
