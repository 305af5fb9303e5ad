/** The status of a request. */
export type Status = "pending" | "approved" | "denied" | "expired" | "cancelled" | "auto_approved";
export type GrantKind = "session" | "hour" | "host" | "times";
export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

export interface ClientOptions {
  /** The service's address for browsers and Node; else WHET_CONFIRM_URL, or http://127.0.0.1:6080. */
  url?: string;
  /** A token of role submit (or approve, to decide); else CONFIRMATION_TOKEN. */
  token?: string;
  fetch?: typeof globalThis.fetch;
}
export interface WaitOptions {
  /** Cancel the request if this program stops waiting (default true). */
  isAttended?: boolean;
  signal?: AbortSignal;
}
export interface AskOptions extends WaitOptions {
  requester?: string;
  sessionKey?: string;
  /** 30 to 3600, default 300. */
  timeoutSeconds?: number;
  idempotencyKey?: string;
  callbackUrl?: string;
  acceptsEdits?: boolean;
}
export interface Submitted {
  id: string;
  action: string;
  digest: string;
  status: "pending" | "auto_approved";
  message: string;
  timeout_seconds?: number;
  expires_at?: number;
  page_url?: string;
}
/** An approval that is used up by now: run the action once. */
export interface Approved {
  id: string;
  digest: string;
  /** The signed statement that exactly this was approved. */
  grant: string;
  resolvedBy: string;
}
export interface GrantOffer { kind: GrantKind; text: string; seconds: number; uses: number; host: string }
export interface Vote { by: string; verdict: "approve" | "deny"; at: number; reason?: string }
export interface Risk { level: "safe" | "normal" | "dangerous" | "unread"; reasons: string[]; text: string }
export interface RequestRecord {
  id: string;
  action: string;
  description: string;
  details: { [name: string]: Json };
  requester: string;
  principal: string;
  session_key: string;
  status: Status;
  resolved_by: string;
  resolved_at: number | null;
  resolved_at_iso: string | null;
  created_at: number;
  created_at_iso: string;
  expires_at: number;
  timeout_seconds: number;
  digest: string;
  reason?: string;
  high_risk: boolean;
  policy_version: string;
  quorum?: string;
  missing?: string;
  votes?: Vote[];
  risk?: Risk;
  /** The grants that an approver may give with an approval. */
  grants?: GrantOffer[];
  grant_id?: number;
  unclear?: string[];
}
export interface Decision {
  id: string;
  action: string;
  status: Status;
  digest?: string;
  resolved_by?: string;
  resolved_at?: number | null;
  reason?: string;
  grant_id?: number;
  message?: string;
  quorum?: string;
}
export interface Delivery {
  channel: string;
  label?: string;
  kind: string;
  state: "queued" | "failed" | "sent" | "delivered" | "seen" | "dead" | "dropped";
  updated_at: number;
  attempts: number;
  /** For what a queued one waits: quiet hours, or devices that may answer first. */
  waits?: string;
  error?: string;
  delivered_at?: number;
  seen_at?: number;
}

/** Raised if the action may not run. */
export class ConfirmationRefused extends Error {
  readonly status: "denied" | "expired" | "cancelled" | "pending" | "unavailable" | "refused";
  readonly requestId: string;
}
/** Raised if the service refuses a call. */
export class Failed extends Error {
  readonly status: number;
  readonly body: { [name: string]: Json };
}
/** Raised if the service can't be reached. */
export class Unreachable extends Error {}

export class ConfirmClient {
  constructor(options?: ClientOptions);
  /** Ask, wait and use the approval up. Resolves only if the action may run now, once; else ConfirmationRefused. */
  confirm(action: string, description: string, details?: object, options?: AskOptions): Promise<Approved>;
  /** Submit and return at once. */
  submit(action: string, description: string, details?: object, options?: AskOptions): Promise<Submitted>;
  /** Return the record once the request has ended, or as it is after so many seconds. */
  wait(requestId: string, seconds: number, options?: WaitOptions): Promise<RequestRecord>;
  status(requestId: string): Promise<RequestRecord>;
  /** Use an approval up, once. With the same idempotencyKey the answer is the same. */
  consume(
    requestId: string, digest: string, options?: { idempotencyKey?: string },
  ): Promise<{ id: string; action: string; status: "consumed"; digest: string; grant: string }>;
  report(requestId: string, result: "executed" | "failed", note?: string): Promise<void>;
  cancel(requestId: string, reason?: string): Promise<Decision>;
  list(status?: Status | "", limit?: number): Promise<RequestRecord[]>;
  /** Approve. `digest` is that of the record that was shown; `grant` a kind of its grants, or times:N. */
  approve(
    requestId: string, fields?: { digest?: string; reason?: string; code?: string; grant?: string },
  ): Promise<Decision>;
  deny(requestId: string, fields?: { digest?: string; reason?: string }): Promise<Decision>;
  /** How far each channel and device is. Takes a token of role approve or audit. */
  deliveries(requestId: string): Promise<Delivery[]>;
  /** Make any other call of the API. */
  call(
    method: string, path: string, body?: object,
    options?: { key?: string; seconds?: number; signal?: AbortSignal },
  ): Promise<{ [name: string]: any }>;
}

/** Return the digest that binds a decision to an action. */
export function requestDigest(request: {
  action: string; details: object; requester: string; session_key: string; id: string; expiry: number;
}): Promise<string>;
