// Asks a Plumbline server over HTTP: checks drafts, hands in what was said, sets up OpenTelemetry. Needs fetch alone.
// Its twin in Python: docs/clients/python. Types and what each thing does: index.d.ts.

const LONGEST_ATTEMPT = 30; // seconds; then the same request is sent again, with the same Idempotency-Key
const SHORTEST_PAUSE = 0.1; // seconds
const LONGEST_PAUSE = 30; // seconds, where the server does not say how long to wait
const LONGEST_REASON = 1000; // characters
const MOST_MESSAGES = 1000; // of a batch
const COUNTS = ["received", "imported", "duplicates", "sampled_out", "observed"];

export class PlumblineError extends Error {}

export class Refused extends PlumblineError {
  constructor(reason, status, errors = {}) {
    super(reason);
    this.name = "Refused";
    this.status = status;
    this.errors = errors;
  }
}

export class Unavailable extends PlumblineError {
  constructor(reason, retryAfter = null) {
    super(reason);
    this.name = "Unavailable";
    this.retryAfter = retryAfter;
  }
}

export class Client {
  #authorization;
  #token;
  #log;

  constructor(baseUrl, token, { log = console } = {}) {
    const url = URL.canParse(baseUrl) ? new URL(baseUrl) : null;
    if (!url || !["http:", "https:"].includes(url.protocol) || url.username || url.password || url.search || url.hash) {
      throw new TypeError("baseUrl: allowed: http:// or https:// with host, port and path, and no user or query");
    }
    if (!/^[\x21-\x7e]+$/.test(token)) throw new TypeError("token: allowed: visible ASCII characters without spaces");
    this.baseUrl = baseUrl.replace(/\/+$/, "");
    this.#token = token;
    this.#authorization = `Token ${token}`;
    this.#log = log;
  }

  static fromEnvironment(environment = process.env) {
    const { PLUMBLINE_URL, PLUMBLINE_TOKEN } = environment;
    if (!PLUMBLINE_URL) throw new TypeError("PLUMBLINE_URL is not set; allowed: the server's address");
    if (!PLUMBLINE_TOKEN) throw new TypeError("PLUMBLINE_TOKEN is not set; allowed: an API token");
    return new Client(PLUMBLINE_URL, PLUMBLINE_TOKEN);
  }

  async check(draft, { persona, agent, trajectory = [], session, seconds = 10, ...fields } = {}) {
    if ((persona === undefined) === (agent === undefined)) throw new TypeError("persona, agent: allowed: exactly one of the two");
    if (!(seconds > 0)) throw new TypeError(`seconds ${seconds}: allowed: more than 0`);
    const deadline_seconds = Math.min(60, Math.max(0.1, Math.round((seconds - 0.5) * 10) / 10)); // the rest is for the way
    const body = { ...fields, persona, agent, draft, trajectory, session: session || undefined, deadline_seconds };
    let answer;
    try {
      answer = await this.#request("POST", "/api/quality-checks/", body, seconds, crypto.randomUUID());
      if (!answer?.verdict) throw new Refused("this is no answer of Plumbline's gate; is the address right?", 200);
    } catch (error) {
      if (!(error instanceof PlumblineError)) throw error;
      const refused = error instanceof Refused;
      if (refused) this.#log.error(`Plumbline refuses this, nothing is checked: ${error.message}`);
      else this.#log.warn(`unchecked: ${error.message}`);
      return { verdict: "unchecked", reason: error.message, refused, answer: {} };
    }
    if (answer.verdict === "passed" && !answer.fully_judged) {
      return { verdict: "unchecked", reason: answer.outcome, refused: false, answer };
    }
    return { verdict: answer.verdict, reason: "", refused: false, answer };
  }

  async gate(write, { seconds = 10, ...fields } = {}) {
    const drafts = new Map();
    let left = seconds;
    let session = "";
    let feedback = "";
    for (;;) {
      const draft = await write(feedback);
      const began = performance.now();
      const check = await this.check(draft, { ...fields, session, seconds: Math.max(0.1, left) });
      left -= (performance.now() - began) / 1000;
      if (check.verdict !== "rejected") return { text: draft, check };
      drafts.set(check.answer.attempt, draft);
      if (check.answer.attempts_left <= 0) return { text: drafts.get(check.answer.best_attempt) ?? draft, check };
      session = check.answer.session;
      feedback = check.answer.feedback;
    }
  }

  async ingest(messages, { channel = "", tags = {}, seconds = 60 } = {}) {
    const waiting = [...messages];
    const total = { ...Object.fromEntries(COUNTS.map((name) => [name, 0])), notes: [] };
    for (let start = 0; start < waiting.length; start += MOST_MESSAGES) {
      const body = { channel, tags, messages: waiting.slice(start, start + MOST_MESSAGES) };
      const answer = await this.#requestUntilDone("POST", "/api/messages/ingest/", body, seconds);
      for (const name of COUNTS) total[name] += answer[name];
      total.notes.push(...answer.notes.filter((note) => !total.notes.includes(note)));
    }
    return total;
  }

  async ingestTranscript(content, { seconds = 120, ...fields } = {}) {
    return await this.#requestUntilDone("POST", "/api/transcripts/", { ...fields, content }, seconds);
  }

  otlpEnvironment({ agent = "" } = {}) {
    const environment = {
      OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: `${this.baseUrl}/api/otlp/v1/traces`,
      OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: "http/protobuf",
      OTEL_EXPORTER_OTLP_TRACES_HEADERS: `authorization=Token%20${encodeURIComponent(this.#token)}`,
    };
    if (agent) environment.OTEL_RESOURCE_ATTRIBUTES = `gen_ai.agent.name=${encodeURIComponent(agent)}`;
    return environment;
  }

  /** Sends one request; the whole answer comes within so many seconds. */
  async #request(method, path, body, seconds, key) {
    const headers = { Authorization: this.#authorization, Accept: "application/json", "Content-Type": "application/json", "Idempotency-Key": key };
    const signal = AbortSignal.timeout(Math.ceil(seconds * 1000));
    let response;
    let text;
    try {
      // A redirect would carry the token to another host, or make a GET of a POST.
      response = await fetch(this.baseUrl + path, { method, headers, body: JSON.stringify(body), signal, redirect: "manual" });
      text = await response.text();
    } catch (error) {
      if (error.name === "TimeoutError") throw new Unavailable(`no answer within ${seconds.toFixed(1)} seconds`);
      throw new Unavailable(`${error.name}: ${error.message} ${error.cause?.code ?? ""}`.trim());
    }
    if (!response.ok) throw errorOf(response.status, response.headers.get("Retry-After") ?? "", text);
    try {
      return JSON.parse(text);
    } catch {
      throw new Unavailable(`the answer to ${method} ${path} is no JSON: is a Plumbline server there?`);
    }
  }

  /** Sends it again and again while the server is away or busy; it acts once, because its key stays the same. */
  async #requestUntilDone(method, path, body, seconds) {
    const deadline = performance.now() + seconds * 1000;
    const key = crypto.randomUUID();
    let pause = 0.5;
    for (let sentBefore = false; ; sentBefore = true) {
      const left = Math.max(0.1, (deadline - performance.now()) / 1000);
      try {
        return await this.#request(method, path, body, Math.min(left, LONGEST_ATTEMPT), key);
      } catch (error) {
        const isStillAnswered = error instanceof Refused && error.status === 409 && sentBefore;
        if (!(error instanceof Unavailable) && !isStillAnswered) throw error;
        const wait = Math.max(error.retryAfter ?? pause, SHORTEST_PAUSE) * 1000;
        if (performance.now() + wait >= deadline) throw error;
        await new Promise((resolve) => setTimeout(resolve, wait * (1 + Math.random() / 5)));
        pause = Math.min(2 * pause, LONGEST_PAUSE);
      }
    }
  }
}

/** What to throw for an answer that is no success, with the words of its problem details. */
function errorOf(status, retryAfter, text) {
  if (status < 400) return new Refused(`${status}: redirects are not followed; allowed: the address that answers itself`, status);
  let problem = {};
  try {
    problem = JSON.parse(text) ?? {};
  } catch {
    // a proxy's page
  }
  const errors = problem.errors ?? {};
  const detail = problem.detail ?? "without a reason";
  const fields = Object.entries(errors)
    .map(([field, texts]) => [field, [texts].flat().join(" ")])
    .filter(([, words]) => !detail.includes(words))
    .map(([field, words]) => `; ${field}: ${words}`);
  const reason = `${status} ${detail}${fields.join("")}`.slice(0, LONGEST_REASON);
  if (status === 408 || status === 429 || status >= 500) return new Unavailable(reason, /^\d+$/.test(retryAfter) ? Number(retryAfter) : null);
  return new Refused(reason, status, errors);
}
