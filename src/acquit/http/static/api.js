// The requests of the console, all to the host that it came from.

const ROOT = "api/v1";

export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

async function ask(method, path, body, signal) {
  const options = { method, signal, cache: "no-store", headers: { accept: "application/json" } };
  if (method !== "GET") options.headers["x-requested-with"] = "console";
  if (body !== undefined) {
    options.headers["content-type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let answer, text;
  try {
    answer = await fetch(`${ROOT}/${path}`, options);
    text = await answer.text();
  } catch (error) {
    throw signal?.aborted ? error : new Refused(503, "the broker does not answer");
  }
  let value = null;
  try {
    value = text ? exactly(text) : null;
  } catch {
    throw new Refused(answer.status, `the broker answered with status ${answer.status}, and what is no JSON`);
  }
  if (!answer.ok) throw new Refused(answer.status, value?.detail ?? value?.title ?? `status ${answer.status}`);
  return value;
}

// JavaScript rounds whole numbers from 2^53 on, and ids are as large: these become texts of all their digits.
const LEXEME = /"(?:[^"\\]+|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?/g;
const exactly = (text) => JSON.parse(text.replace(LEXEME, (found) => (/^-?\d{16,}$/.test(found) && !Number.isSafeInteger(Number(found)) ? `"${found}"` : found)));

const query = (values) => new URLSearchParams(Object.entries(values).filter(([, value]) => value !== "" && value != null)).toString();

// The path of a queue. A browser takes the names . and .. out of a path, however they are written.
function at(name, rest = "", values = {}) {
  const hidden = name === "." || name === "..";
  const asked = query({ ...values, exact_name: hidden ? name : null });
  return `queues/${hidden ? "-" : encodeURIComponent(name)}${rest}${asked && `?${asked}`}`;
}

export const broker = (signal) => ask("GET", "broker", undefined, signal);
export const queues = (values, signal) => ask("GET", `queues?${query(values)}`, undefined, signal);
export const queue = (of, signal) => ask("GET", at(of), undefined, signal);
export const history = (of, signal) => ask("GET", at(of, "/history"), undefined, signal);
export const messages = (of, values, signal) => ask("GET", at(of, "/messages", values), undefined, signal);
export const message = (of, sequence, signal) => ask("GET", at(of, "/message", { sequence }), undefined, signal);
export const story = (values, signal) => ask("GET", `history?${query(values)}`, undefined, signal);
export const connections = (values, signal) => ask("GET", `connections?${query(values)}`, undefined, signal);
export const links = (values, signal) => ask("GET", `links?${query(values)}`, undefined, signal);
export const termini = (signal) => ask("GET", "termini", undefined, signal);

export const purge = (of, body) => ask("POST", at(of, "/purge"), body);
export const move = (of, body) => ask("POST", at(of, "/move"), body);
export const redrive = (of, body) => ask("POST", at(of, "/redrive"), body);
export const pause = (of, paused) => ask("PATCH", at(of), { paused });
export const remove = (of) => ask("DELETE", at(of));
export const close = (id, reason) => ask("DELETE", `connections/${id}?${query({ reason })}`);
