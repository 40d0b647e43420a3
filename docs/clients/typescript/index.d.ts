/** The server did not do what was asked for; `Refused` and `Unavailable` say why. */
export class PlumblineError extends Error {}

/** No retry will change this: a wrong token, address, field or permission. */
export class Refused extends PlumblineError {
  /** The HTTP status. */
  readonly status: number;
  /** Per field what is wrong and what is allowed. */
  readonly errors: Record<string, string[]>;
}

/** The server is slow, away or busy. */
export class Unavailable extends PlumblineError {
  /** Seconds that the server asks to wait, where it says so. */
  readonly retryAfter: number | null;
}

export interface Persona {
  system_prompt: string;
  name?: string;
  traits?: object[];
}

/** What was said before; an `action` is by the one whose draft it is. */
export interface Event {
  name: string;
  text: string;
  kind: "action" | "stimulus";
}

/** Exactly one of `persona` and `agent`, and any other field of `POST /api/quality-checks/`. */
export interface Draft {
  /** Who would say it. */
  persona?: string | Persona;
  /** Slug of an agent of the server, in place of `persona`. */
  agent?: string;
  /** Oldest first. */
  trajectory?: Event[];
  dimensions?: ("adherence" | "consistency" | "fluency")[];
  thresholds?: Record<string, number>;
  propositions?: object[];
  rules?: boolean;
  tags?: Record<string, string>;
  /** Within which it answers (default: 10). `gate`: all checks of the message together, without the writing. */
  seconds?: number;
}

/** What the server said; `feedback` is for the prompt of the next draft, which is sent with `session`. */
export interface Answer {
  verdict: "passed" | "rejected";
  fully_judged: boolean;
  outcome: string;
  feedback: string;
  session: string;
  attempt: number;
  attempts_left: number;
  best_attempt: number | null;
  dimensions: Record<string, { score: number | null; threshold: number; passed: boolean; reasoning: string }>;
  [field: string]: unknown;
}

export interface Check {
  /** `unchecked`: nobody judged it, and it may be said. */
  verdict: "passed" | "rejected" | "unchecked";
  /** Why it is unchecked. */
  reason: string;
  /** It is unchecked because of a mistake that no retry changes, such as a wrong token: raise an alarm. */
  refused: boolean;
  /** Empty where the server said nothing. */
  answer: Partial<Answer>;
}

/** A message that was said elsewhere: by exactly one of `agent`, `user`, `outsider`. */
export interface Spoken {
  external_id: string;
  text: string;
  agent?: string;
  user?: string;
  outsider?: string;
  channel?: string;
  sent_at?: string;
  parent?: string;
  tags?: Record<string, string>;
  payload?: Record<string, unknown>;
}

/** Sums of what the server counted. */
export interface Ingested {
  received: number;
  imported: number;
  duplicates: number;
  sampled_out: number;
  observed: number;
  notes: string[];
}

/** A Plumbline server and a token for it. */
export class Client {
  readonly baseUrl: string;

  /** `log` gets what is unchecked, and why (default: console). */
  constructor(baseUrl: string, token: string, options?: { log?: Pick<Console, "warn" | "error"> });

  /** A client of PLUMBLINE_URL and PLUMBLINE_TOKEN. */
  static fromEnvironment(environment?: Record<string, string | undefined>): Client;

  /** Asks the gate about a draft. A message does not wait for its judge: what fails or takes too long is `unchecked`. */
  check(draft: string, options: Draft & { session?: string }): Promise<Check>;

  /**
   * Has a message written until a draft passes. Where none does, the text is the best draft and the verdict `rejected`.
   * `write` gets the feedback on the draft before, at first an empty text.
   */
  gate(write: (feedback: string) => string | Promise<string>, options: Draft): Promise<{ text: string; check: Check }>;

  /** Hands in what was said, in batches of 1,000. A message is stored once: after an error send all again. `seconds` are for a batch. */
  ingest(
    messages: Iterable<Spoken>,
    options?: { channel?: string; tags?: Record<string, string>; seconds?: number },
  ): Promise<Ingested>;

  /** Hands in the text of a file of conversations, with fields of `POST /api/transcripts/`, and returns the server's report. */
  ingestTranscript(content: string, options?: { seconds?: number; [field: string]: unknown }): Promise<Record<string, unknown>>;

  /** The environment with which OpenTelemetry's exporter sends GenAI spans to the server. It holds the token. */
  otlpEnvironment(options?: { agent?: string }): Record<string, string>;
}
