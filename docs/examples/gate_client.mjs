// Your agent's messages through Plumbline's gate: check, write again, send, hand in. Yours: PERSONA, RULES, CHANNEL, `write`, `send`.
// PLUMBLINE_URL=http://localhost:8000 PLUMBLINE_TOKEN=… node gate_client.mjs; needs Node 20, and the set-up of docs/reference/api.md.

import { randomUUID } from "node:crypto";

const { PLUMBLINE_URL: URL = "http://localhost:8000", PLUMBLINE_TOKEN: TOKEN = "", PLUMBLINE_SECONDS = "10" } = process.env;
const PATIENCE = Number(PLUMBLINE_SECONDS) * 1000; // for checking one message, all its attempts together
const PERSONA = { name: "Ada", system_prompt: "You are Ada, a dry and careful clerk. You never cheer." };
const RULES = [ // exact, free, and checked without a model, too
  { id: "calm", claim: "Ada is calm", rule: { contains_none: ["!"] } },
];
const CHANNEL = "shop-floor", DRAFTS = ["Hooray, I found your file!!!", "Your file is in the second cabinet."];

const refused = []; // answers that no retry will change: a wrong token, address or body

/** The answer, within so many milliseconds in all, its body included. */
async function post(path, body, milliseconds) {
  const headers = { Authorization: `Token ${TOKEN}`, "Content-Type": "application/json", "Idempotency-Key": randomUUID() };
  const signal = AbortSignal.timeout(Math.floor(milliseconds));
  const answer = await fetch(URL + path, { method: "POST", headers, body: JSON.stringify(body), signal });
  if (!answer.ok) {
    const why = `${answer.status} ${(await answer.text()).slice(0, 300)}`;
    if (answer.status < 429) refused.push(`PLUMBLINE REFUSED THIS, NOTHING IS CHECKED: ${why}`);
    throw new Error(why);
  }
  return await answer.json();
}

/** What to say, and passed, rejected (no attempt passed: the best one), or unchecked (Plumbline is slow, down or has no model). */
async function checked(write, trajectory) {
  const until = performance.now() + PATIENCE, drafts = {};
  const propositions = [{ dimension: "adherence", level: "evaluation", propositions: RULES }]; // beside what a model is asked
  const asked = { persona: PERSONA, trajectory, dimensions: ["adherence"], propositions };
  for (let session, feedback = ""; ; ) {
    const draft = await write(feedback), left = Math.max(100, until - performance.now());
    try {
      const deadline_seconds = Math.min(60, Math.max(0.1, Math.round(left / 100 - 5) / 10));
      const answer = await post("/api/quality-checks/", { ...asked, draft, session, deadline_seconds }, left);
      drafts[answer.attempt] = draft;
      if (answer.verdict === "passed") return [draft, answer.fully_judged ? "passed" : "unchecked"];
      if (!answer.attempts_left) return [drafts[answer.best_attempt ?? answer.attempt], "rejected"];
      ({ session, feedback } = answer);
    } catch (problem) { // a message must not wait for its judge
      console.error("sent unchecked:", problem);
      return [draft, "unchecked"];
    }
  }
}

const write = async (feedback) => DRAFTS[feedback ? 1 : 0]; // here your model reads the feedback
const [text, check] = await checked(write, [{ name: "Bob", text: "Where is my file?", kind: "stimulus" }]);
const sent_at = new Date().toISOString(); // send(text) stands here
const said = { external_id: randomUUID(), outsider: "Ada", text, sent_at, tags: { check } };
const handed_in = await post("/api/messages/ingest/", { channel: CHANNEL, messages: [said] }, 5000)
  .then(() => true) // at most 1,000 at a time; what fails is sent again with the next ones, for repeats are no-ops
  .catch((problem) => (console.error("not handed in:", problem), false));
console.log(JSON.stringify({ text, check, handed_in }));
for (const problem of refused) console.error(problem); // yours: an alarm
process.exitCode = refused.length ? 1 : 0;
