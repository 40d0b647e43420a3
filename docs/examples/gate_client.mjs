// Your agent's messages through Plumbline's gate: check, write again, send, hand in. Yours: PERSONA, RULES, CHANNEL, `write`, `send`.
// PLUMBLINE_URL=http://localhost:8000 PLUMBLINE_TOKEN=… node gate_client.mjs; needs Node 20, plumbline-client (docs/clients/typescript),
// and the set-up of docs/reference/api.md.

import { randomUUID } from "node:crypto";
import { Client, Refused } from "plumbline-client";

const PATIENCE = Number(process.env.PLUMBLINE_SECONDS ?? "10"); // for checking one message, all its drafts together
const PERSONA = { name: "Ada", system_prompt: "You are Ada, a dry and careful clerk. You never cheer." };
const RULES = [{ id: "calm", claim: "Ada is calm", rule: { contains_none: ["!"] } }]; // checked without a model, too
const CHANNEL = "shop-floor";
const HEARD = [{ name: "Bob", text: "Where is my file?", kind: "stimulus" }];

/** The next draft; here your model reads the feedback. */
async function write(feedback) {
  return feedback ? "Your file is in the second cabinet." : "Hooray, I found your file!!!";
}

const client = Client.fromEnvironment();
const { text, check } = await client.gate(write, {
  seconds: PATIENCE,
  persona: PERSONA,
  trajectory: HEARD,
  dimensions: ["adherence"],
  propositions: [{ dimension: "adherence", level: "evaluation", propositions: RULES }], // beside what a model is asked
});
const sent_at = new Date().toISOString(); // send: here your channel takes the text
const message = { external_id: randomUUID(), outsider: "Ada", text, sent_at, tags: { check: check.verdict } };
let refused = check.refused;
let received = 0;
try { // what fails is sent again with the next ones, for repeats are no-ops
  ({ received } = await client.ingest([message], { channel: CHANNEL, seconds: 5 }));
} catch (error) {
  refused ||= error instanceof Refused;
  console.error(`not handed in: ${error.message}`);
}
console.log(JSON.stringify({ text, check: check.verdict, handed_in: received === 1 }));
process.exitCode = refused ? 1 : 0; // yours: an alarm
