// The client of Whet's confirmation service for JavaScript: fetch and Web Crypto, no dependency.
// Everything fails closed: `confirm` returns only if the action may run now, once.

/** Raised if the action may not run. `status` is denied, expired, cancelled, unavailable or refused. */
export class ConfirmationRefused extends Error {
  constructor(message, status, requestId = "", options = undefined) {
    super(message, options);
    this.name = "ConfirmationRefused";
    this.status = status;
    this.requestId = requestId;
  }
}

/** Raised if the service refuses a call. `status` is the HTTP status, `body` its answer. */
export class Failed extends Error {
  constructor(message, status, body = {}) {
    super(message);
    this.name = "Failed";
    this.status = status;
    this.body = body;
  }
}

/** Raised if the service can't be reached. */
export class Unreachable extends Error {
  constructor(message, options = undefined) {
    super(message, options);
    this.name = "Unreachable";
  }
}

const WAIT_S = 60;
const CALL_S = 15;
const RETRY_S = 2;
const pause = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

export class ConfirmClient {
  #url;
  #token;
  #fetch;

  constructor({ url, token, fetch: own } = {}) {
    const environment = globalThis.process?.env ?? {};
    this.#url = (url ?? environment.WHET_CONFIRM_URL ?? "http://127.0.0.1:6080").replace(/\/+$/, "");
    this.#token = token ?? environment.CONFIRMATION_TOKEN ?? "";
    this.#fetch = own ?? globalThis.fetch;
  }

  async confirm(action, description, details = {}, options = {}) {
    let requestId = "";
    try {
      const submitted = await this.#submitOrCancel(action, description, details, options);
      requestId = submitted.id;
      let isOpen = true;
      try {
        const record = await this.wait(submitted.id, (options.timeoutSeconds ?? 300) + 10, options);
        isOpen = record.status === "pending";
        if (record.status !== "approved" && record.status !== "auto_approved") {
          const reason = record.reason ? `: ${record.reason}` : "";
          const word = isOpen ? "nobody decided in time" : record.status;
          throw new ConfirmationRefused(`not confirmed: ${word}${reason}`, record.status, submitted.id);
        }
        const used = await this.consume(submitted.id, submitted.digest);
        return { id: submitted.id, digest: submitted.digest, grant: used.grant, resolvedBy: record.resolved_by };
      } finally {
        if (isOpen) await this.cancel(submitted.id, "the caller stopped waiting").catch(() => {});
      }
    } catch (error) {
      if (error instanceof ConfirmationRefused) throw error;
      if (options.signal?.aborted) {
        const cause = options.signal.reason;
        throw new ConfirmationRefused("aborted: the caller stopped waiting", "cancelled", requestId, { cause });
      }
      const isDown = error instanceof Unreachable || error.status >= 500;
      throw new ConfirmationRefused(error.message, isDown ? "unavailable" : "refused", "", { cause: error });
    }
  }

  async submit(action, description, details = {}, options = {}) {
    const sent = plain(details);
    const requester = options.requester ?? "agent";
    const sessionKey = options.sessionKey ?? "";
    const answer = await this.call("POST", "/confirm", {
      action, description, details: sent, requester, session_key: sessionKey,
      timeout_seconds: options.timeoutSeconds ?? 300,
      ...(options.callbackUrl ? { callback_url: options.callbackUrl } : {}),
      ...(options.acceptsEdits ? { accepts_edits: true } : {}),
    }, { key: options.idempotencyKey, signal: options.signal });
    if (!answer.id || !answer.status || !answer.digest) throw new Failed("this is not the confirmation service", 0);
    if (answer.expires_at !== undefined) {
      const expected = await requestDigest({
        action: action.trim(), details: sent, requester, session_key: sessionKey,
        id: answer.id, expiry: answer.expires_at,
      });
      if (expected !== answer.digest) throw new ConfirmationRefused("the service recorded something else", "refused");
    }
    return answer;
  }

  /** Submit. If the answer does not arrive, find the request by its idempotency key, cancel it and throw. */
  async #submitOrCancel(action, description, details, options) {
    options.signal?.throwIfAborted();
    const asked = { ...options, idempotencyKey: options.idempotencyKey ?? globalThis.crypto.randomUUID() };
    try {
      return await this.submit(action, description, details, asked);
    } catch (error) {
      if (error instanceof Unreachable || error.status >= 500) {
        try {
          const lost = await this.submit(action, description, details, { ...asked, signal: undefined });
          await this.cancel(lost.id, "the caller stopped waiting");
        } catch { /* There is no request, or it has ended, or the service is still unreachable. */ }
      }
      throw error;
    }
  }

  async wait(requestId, seconds, options = {}) {
    const deadline = Date.now() + seconds * 1000;
    for (;;) {
      const left = (deadline - Date.now()) / 1000;
      const wait = Math.max(0, Math.min(WAIT_S, left));
      const attended = options.isAttended ?? true ? "&attended=1" : "";
      try {
        const path = `/confirm/${encodeURIComponent(requestId)}?wait=${wait.toFixed(1)}${attended}`;
        const record = await this.call("GET", path, undefined, { seconds: wait + CALL_S, signal: options.signal });
        if (record.status !== "pending" || left <= 0) return record;
      } catch (error) {
        const isBusy = error instanceof Unreachable || error.status === 429;
        if (!isBusy || left <= RETRY_S || options.signal?.aborted) throw error;
        await pause(RETRY_S);
      }
    }
  }

  status(requestId) { return this.call("GET", this.#path(requestId)); }

  consume(requestId, digest, options = {}) {
    return this.call("POST", this.#path(requestId, "consume"), { digest }, { key: options.idempotencyKey });
  }

  async report(requestId, result, note = "") {
    await this.call("POST", this.#path(requestId, "report"), { result, note: note.slice(0, 4000) });
  }

  cancel(requestId, reason = "") { return this.call("POST", this.#path(requestId, "cancel"), { reason }); }

  async list(status = "pending", limit = 50) {
    return (await this.call("GET", `/confirm?status=${status}&limit=${limit}`)).requests;
  }

  approve(requestId, fields = {}) { return this.call("POST", this.#path(requestId, "approve"), fields); }

  deny(requestId, fields = {}) { return this.call("POST", this.#path(requestId, "deny"), fields); }

  async deliveries(requestId) { return (await this.call("GET", this.#path(requestId, "deliveries"))).deliveries; }

  async call(method, path, body = undefined, { key = "", seconds = CALL_S, signal = undefined } = {}) {
    const headers = { accept: "application/json" };
    if (this.#token) headers.authorization = `Bearer ${this.#token}`;
    if (body !== undefined) headers["content-type"] = "application/json";
    if (key) headers["idempotency-key"] = key;
    const stop = new AbortController();
    const giveUp = () => stop.abort(signal?.reason);
    const timer = setTimeout(giveUp, seconds * 1000);
    signal?.addEventListener("abort", giveUp);
    let status, text;
    try {
      if (signal?.aborted) giveUp();
      const init = { method, headers, body: body === undefined ? undefined : JSON.stringify(body) };
      // No redirect is followed: it would take the token elsewhere.
      const answer = await this.#fetch(this.#url + path, { ...init, redirect: "error", signal: stop.signal });
      status = answer.status;
      text = await answer.text();
    } catch (error) {
      const problem = signal?.aborted ? "aborted the call of" : "can't reach";
      throw new Unreachable(`${problem} the confirmation service at ${this.#url}`, { cause: error });
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", giveUp);
    }
    let decoded;
    try { decoded = JSON.parse(text); } catch { decoded = undefined; }
    if (typeof decoded !== "object" || decoded === null) {
      throw new Failed(`${this.#url} did not answer as the confirmation service does`, status);
    }
    if (status >= 400) throw new Failed(String(decoded.error ?? `answered ${status}`), status, decoded);
    return decoded;
  }

  #path(requestId, verb = "") {
    return `/confirm/${encodeURIComponent(requestId)}${verb ? `/${verb}` : ""}`;
  }
}

/** Return the digest that binds a decision to an action: the SHA-256 of its canonical JSON (RFC 8785), in hex. */
export async function requestDigest(request) {
  const bytes = new TextEncoder().encode(canonical(request));
  const hash = new Uint8Array(await globalThis.crypto.subtle.digest("SHA-256", bytes));
  return [...hash].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Return a value as it is sent: without functions, dates as text. Throws for numbers that JSON can't carry exactly. */
function plain(value) {
  const check = (_, inner) => {
    if (typeof inner === "number" && (!Number.isFinite(inner) || (Number.isInteger(inner) && !Number.isSafeInteger(inner)))) {
      throw new TypeError(`the number ${inner} can't be sent exactly`);
    }
    return inner;
  };
  return JSON.parse(JSON.stringify(value, check));
}

function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (typeof value === "object" && value !== null) {
    return `{${Object.keys(value).sort().map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`).join(",")}}`;
  }
  return JSON.stringify(value);
}
