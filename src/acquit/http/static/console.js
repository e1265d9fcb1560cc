// The console: a page for each part of the broker, drawn anew from fresh figures every two seconds.

import * as api from "./api.js";
import { bytes, cards, chart, clock, facts, h, number, plain, rate, span, svg, table } from "./dom.js";

const EVERY_MS = 2000;
const KEPT_POINTS = 1800;
const SEEN_MS = 60000;
const PAGE_ROWS = 100;

const main = document.getElementById("main");
const state = document.getElementById("state");
const notes = document.getElementById("notes");
const dialog = document.getElementById("dialog");

// -- figures over time, as far as this page has seen them -------------------------------------------------------------

const seen = new Map();

// Adds to each queue its rates since it was last seen here.
function noted(queues) {
  const now = Date.now();
  for (const queue of queues) {
    const out = gone(queue);
    const before = seen.get(queue.name);
    const s = before ? (now - before.at) / 1000 : 0;
    if (!before || s > 0.5) {
      const rates = s > 0.5 && s < SEEN_MS / 1000 ? { in_rate: Math.max(0, queue.entered - before.entered) / s, out_rate: Math.max(0, out - before.out) / s } : {};
      seen.set(queue.name, { at: now, entered: queue.entered, out, ...rates });
    }
    const { in_rate, out_rate } = seen.get(queue.name);
    Object.assign(queue, { in_rate, out_rate });
  }
  for (const [name, known] of seen) if (now - known.at > SEEN_MS) seen.delete(name);
}

// The sums over all queues, as far as this page has seen them.
const points = [];

function notedSums({ depth, entered, retired }) {
  const last = points[points.length - 1];
  const now = Date.now();
  if (last && now - last.at <= EVERY_MS / 2) return;
  const s = last ? (now - last.at) / 1000 : 0;
  points.push({ at: now, entered, retired, depth, in: s ? Math.max(0, entered - last.entered) / s : 0, out: s ? Math.max(0, retired - last.retired) / s : 0 });
  if (points.length > KEPT_POINTS) points.shift();
}

const ENDS = ["accepted", "consumed", "dead_lettered", "expired", "dropped", "displaced", "moved_out", "purged", "lost_volatile"];
const gone = (queue) => ENDS.reduce((sum, name) => sum + (queue[name] ?? 0), 0);
const isTopic = (queue) => queue.kind.includes("topic");

// What the broker calls a trouble, in words; it sorts by them, the worst first.
const TROUBLES = {
  "undeliverable": ["bad", (queue) => `${number(queue.undeliverable)} that no consumer may have`],
  "dead-letters": ["bad", (queue) => `${number(queue.depth)} dead letters`],
  "no-consumer": ["warn", () => "nobody consumes"],
  "paused": ["warn", (queue) => `paused: ${queue.paused}`],
  "old": ["warn", (queue) => `the oldest is ${span(queue.oldest_age_ms)} old`],
  "suspended": ["warn", (queue) => `${number(queue.suspended)} held for a link that is away`],
};
const troubles = (queue) => queue.troubles.map((name) => (TROUBLES[name] ? [TROUBLES[name][0], TROUBLES[name][1](queue)] : ["warn", name]));

const tags = (queue) => troubles(queue).map(([kind, text]) => [h(`span.tag.${kind}`, {}, text), " "]);
const to = (...parts) => `#/${parts.map(encodeURIComponent).join("/")}`;
const queueLink = (name) => h("a", { href: to("queue", name) }, name);

// -- pages ------------------------------------------------------------------------------------------------------------

async function overview(signal) {
  const wanted = { sort: "trouble", descending: true, limit: 20, totals: true };
  const [broker, { items, total, totals }] = await Promise.all([api.broker(signal), api.queues(wanted, signal)]);
  notedSums(totals);
  const now = points[points.length - 1] ?? {};
  const worst = items.filter((queue) => queue.troubles.length);
  const disk = broker.disk ?? {};
  return [
    h("h1", {}, "Overview"),
    broker.warnings.map((text) => h("p.box.bad", { role: "alert" }, text)),
    cards([
      ["Takes messages", broker.accepting ? "yes" : "no", broker.accepting ? "good" : "bad"],
      ["Queues", number(total)],
      ["Messages", number(totals.depth)],
      ["Held by consumers", number(totals.acquired)],
      ["In", rate(now.in)],
      ["Out", rate(now.out)],
      ["Connections", number(broker.connections)],
      ["Memory", broker.memory_bytes == null ? "" : bytes(broker.memory_bytes)],
      ["Room on disk", bytes(disk.free_bytes)],
      ["Sync, p99", broker.sync?.p99_ms == null ? "" : `${broker.sync.p99_ms} ms`],
      ["Up", span(broker.uptime_ms)],
    ].filter(([, value]) => value !== "")),
    h("h2", {}, "Messages a second, in and out (dashed), while this page is open"),
    chart("Messages a second", points.slice(1).map((point) => [point.at, point.in, point.out]), rate),
    chart("Messages in all queues", points.map((point) => [point.at, point.depth]), number),
    h("h2", {}, "What somebody should look at"),
    table("Queues in trouble", [
      ["name", "queue", queueLink],
      ["depth", "messages", number, "number"],
      ["why", "why", (_, queue) => tags(queue)],
    ], worst, { empty: "No queue is in trouble." }),
    worst.length < total && worst.length === items.length ? h("p", {}, h("a", { href: "#/queues" }, "All queues, by trouble")) : null,
    h("p.faint", {}, `Broker ${broker.broker_id}${broker.version ? `, acquit ${broker.version}` : ""}, last sequence ${number(broker.last_sequence)}.`),
  ];
}

async function queues(signal, view) {
  view.sort ??= { key: "trouble", descending: true };
  view.contains ??= "";
  view.offset ??= 0;
  const { key, descending } = view.sort;
  const { items, total } = await api.queues({ sort: key, descending, contains: view.contains, offset: view.offset, limit: PAGE_ROWS }, signal);
  noted(items);
  const onsort = (wanted) => {
    view.sort = { key: wanted, descending: wanted === key ? !descending : !["name", "kind"].includes(wanted) };
    view.offset = 0;
    draw();
  };
  const go = (offset) => () => { view.offset = offset; draw(); };
  const filter = h("input", { type: "search", id: "contains", value: view.contains, oninput: (event) => { view.contains = event.target.value; view.offset = 0; draw(); } });
  return [
    h("h1", {}, "Queues"),
    h("label", { for: "contains" }, "Only those with this in their name ", filter),
    table(items.length < total ? `${number(view.offset + 1)} to ${number(view.offset + items.length)} of ${number(total)} queues` : `${number(total)} queues`, [
      ["name", "name", queueLink],
      ["trouble", "trouble", (_, queue) => tags(queue)],
      ["depth", "messages", number, "number"],
      ["available", "available", number, "number"],
      ["acquired", "held", number, "number"],
      ["oldest_age_ms", "oldest", span, "number"],
      ["in_rate", "in", rate, "number"],
      ["out_rate", "out", rate, "number"],
      ["consumers", "consumers", number, "number"],
      ["producers", "producers", number, "number"],
      ["body_bytes", "size", bytes, "number"],
      ["kind", "kind"],
    ], items, { sort: view.sort, onsort, unsorted: ["in_rate", "out_rate"], empty: view.offset ? "There are no more." : "No queue has such a name." }),
    h("div.actions", {},
      view.offset ? h("button", { type: "button", onclick: go(Math.max(0, view.offset - PAGE_ROWS)) }, "Back") : null,
      view.offset + items.length < total ? h("button", { type: "button", onclick: go(view.offset + PAGE_ROWS) }, "Further") : null),
  ];
}

async function queue(signal, view, name) {
  const [one, past, linked] = await Promise.all([api.queue(name, signal), api.history(name, signal).catch(optional), api.links({ node: name, limit: 200 }, signal).catch(optional)]);
  noted([one]);
  view.state ??= one.dead_letters ? "available" : "all";
  const page = isTopic(one) ? null : await api.messages(name, { state: view.state, after: view.after ?? 0, limit: 50, selector: view.selector ?? "" }, signal).catch(told);
  const hours = past?.points ?? [];
  const step = (past?.step_ms ?? 60000) / 1000;
  return [
    h("h1", {}, `${one.kind[0].toUpperCase()}${one.kind.slice(1)} ${one.name}`),
    h("p", {}, tags(one)),
    !isTopic(one) && actions(one, page?.items?.some((row) => row.origin_queue)),
    cards([
      ["Messages", number(one.depth)],
      ["Available", number(one.available)],
      ["Held", number(one.acquired)],
      ["Scheduled", number(one.scheduled)],
      ["Suspended", number(one.suspended)],
      ["Oldest", span(one.oldest_age_ms) || "none"],
      ["In", rate(one.in_rate)],
      ["Out", rate(one.out_rate)],
      ["Size", bytes(one.body_bytes)],
      ["In memory", bytes(one.memory_bytes)],
    ]),
    h("h2", {}, "The balance"),
    balance(one),
    h("h2", {}, "The last hours"),
    chart("Messages", hours.map((point) => [point[0], point[1]]), number),
    chart("Messages a second, in and out (dashed)", hours.map((point) => [point[0], point[2] / step, point[3] / step]), rate),
    h("h2", {}, "Who is there"),
    table("Links", [
      ["container", "container"],
      ["name", "link"],
      ["user", "user", (user) => user ?? ""],
      ["role", "its peer", (role) => (role === "sender" ? "sends" : "receives")],
      ["mode", "mode"],
      ["credit", "credit", number, "number"],
      ["unsettled", "holds", number, "number"],
      ["oldest_unsettled_ms", "longest", span, "number"],
    ], linked?.items ?? [], { empty: linked ? "Nobody." : "Who is there cannot be told." }),
    !isTopic(one) && [h("h2", {}, "Messages"), messagesOf(one, page, view)],
  ];
}

function balance(one) {
  const ends = ENDS.filter((name) => one[name]);
  const live = ["pending", "available", "acquired", "scheduled", "suspended"].reduce((sum, name) => sum + (one[name] ?? 0), 0);
  const holds = one.entered === live + gone(one);
  return h(holds ? "div.box.good" : "div.box.bad", {},
    h("p.sum", {}, h("span", {}, h("b", {}, number(one.entered)), " entered"), " = ", h("span", {}, h("b", {}, number(live)), " here"),
      ends.map((name) => [" + ", h("span", {}, h("b", {}, number(one[name])), ` ${name.replaceAll("_", " ")}`)])),
    h(holds ? "p.good" : "p.bad", {}, holds ? "The sum holds: every message is accounted for." : `The sum does not hold: ${number(one.entered - live - gone(one))} are missing.`));
}

function messagesOf(one, page, view) {
  const states = ["all", "available", "acquired", "scheduled", "suspended"];
  const choose = h("form.row", { onsubmit: (event) => { event.preventDefault(); view.selector = event.target.selector.value; view.after = 0; draw(); } },
    h("label", {}, "State", h("select", { name: "state", onchange: (event) => { view.state = event.target.value; view.after = 0; draw(); } },
      states.map((name) => h("option", { value: name, selected: name === view.state }, name)))),
    h("label", {}, "Selector", h("input", { name: "selector", value: view.selector ?? "", placeholder: "colour = 'red'", spellcheck: "false" })),
    h("button", {}, "Show"));
  if (page instanceof Error) return [choose, h("p.box.bad", {}, page.message)];
  const dead = page.items.some((row) => row.reason || row.origin_queue);
  return [
    choose,
    dead && reasons(page.items),
    table("Messages, by sequence", [
      ["sequence", "sequence", (sequence) => h("a", { href: to("message", one.name, String(sequence)) }, String(sequence)), "number"],
      ["state", "state"],
      ["message_id", "message id", idText],
      ["size_bytes", "size", bytes, "number"],
      ["delivery_count", "attempts", number, "number"],
      ["posted_at_ms", "posted", clock, "time"],
      ...(dead ? [["origin_queue", "from", (from) => (from ? queueLink(from) : "")], ["reason", "why"]] : [["holder", "held by"]]),
    ], page.items, { empty: "No message." }),
    h("div.actions", {},
      view.after ? h("button", { type: "button", onclick: () => { view.after = 0; draw(); } }, "From the beginning") : null,
      page.next_after != null ? h("button", { type: "button", onclick: () => { view.after = page.next_after; draw(); } }, "Further") : null),
  ];
}

function reasons(rows) {
  const groups = new Map();
  for (const row of rows) {
    const key = `${row.origin_queue || "?"}: ${row.reason || "no reason"}`;
    groups.set(key, (groups.get(key) ?? 0) + 1);
  }
  const list = [...groups].sort((a, b) => b[1] - a[1]).map(([why, count]) => ({ why, count }));
  return table("Why, of those shown", [["why", "from, and why"], ["count", "messages", number, "number"]], list);
}

const idText = (id) => (id == null || id === "" ? "" : typeof id === "object" ? Object.values(id)[0] : String(id));

function actions(one, letters) {
  const paused = one.paused && one.paused !== "none";
  const button = (text, grave, act) => h(grave ? "button.grave" : "button", { type: "button", onclick: act }, text);
  return h("div.actions", { role: "group", "aria-label": "What can be done" },
    one.paused !== undefined && button(paused ? "Resume" : "Pause consumers", false, () => paused ? perform(api.pause(one.name, "none"), () => `${one.name} goes on.`) : pauseDialog(one)),
    (one.dead_letters || letters) && button("Redrive…", false, () => redriveDialog(one)),
    button("Move…", false, () => moveDialog(one)),
    button("Purge…", true, () => purgeDialog(one)),
    button("Delete…", true, () => deleteDialog(one)));
}

const LETTER_QUEUES = 10;

async function deadLetters(signal) {
  const { items, total } = await api.queues({ dead_letters: true, sort: "depth", descending: true, limit: LETTER_QUEUES }, signal);
  const rows = [];
  for (const one of items) rows.push({ one, page: await api.messages(one.name, { state: "available", limit: 200 }, signal).catch(optional) });
  return [
    h("h1", {}, "Dead letters"),
    items.length ? null : h("p.faint", {}, "There is no queue that dead or expired letters have gone to."),
    rows.map(({ one, page }) => [
      h("h2", {}, queueLink(one.name), ` ${number(one.depth)}`),
      !page ? h("p.box.bad", {}, "Its messages may not be shown.") : page.items.length ? reasons(page.items) : h("p.faint", {}, "Empty."),
      one.depth ? h("div.actions", {}, h("button", { type: "button", onclick: () => redriveDialog(one) }, "Redrive…")) : null,
    ]),
    total > items.length ? h("p.faint", {}, `And ${number(total - items.length)} more with fewer messages.`) : null,
  ];
}

// What the journal tells is read from the disk, so it is asked for anew only when something has become of the message.
async function storyOf(view, asked, standing, signal) {
  const key = JSON.stringify([asked, standing]);
  if (view.life_of !== key) {
    view.life = await api.story(asked, signal).catch(told);
    view.life_of = key;
  }
  return view.life;
}

async function message(signal, view, name, sequence) {
  const one = await api.message(name, sequence, signal).catch(told);
  const life = await storyOf(view, { sequence }, one instanceof Error ? one.message : [one.state, one.delivery_count, one.holder], signal);
  const parts = one instanceof Error ? h("p.box", {}, one.message) : [
    facts([
      ["State", one.state],
      ["Held by", one.holder],
      ["Attempts", number(one.delivery_count)],
      ["Posted", clock(one.posted_at_ms)],
      ["Due", clock(one.due_at_ms)],
      ["Expires", clock(one.expires_at_ms)],
      ["Size", bytes(one.size_bytes)],
      ["Reason", one.reason],
      ["From", one.origin_queue ? h("a", { href: to("message", one.origin_queue, String(one.origin)) }, `${one.origin_queue}, ${one.origin}`) : ""],
    ]),
    one.attempts?.length ? [h("h2", {}, "Attempts"), table("Attempts that failed", [
      ["when", "when", (when) => (typeof when === "object" && when ? clock(when.timestamp_ms) : when)],
      ["consumer", "consumer"],
      ["outcome", "outcome"],
      ["cause", "cause"],
      ["condition", "condition"],
      ["description", "said"],
    ], one.attempts)] : null,
    h("h2", {}, "Content"),
    content(one.content),
  ];
  return [h("h1", {}, `Message ${sequence} in ${name}`), parts, h("h2", {}, "Its life"), story(life)];
}

function content(sections) {
  if (!sections) return h("p.faint", {}, "It is too large to be shown here, or is none that can be read.");
  return Object.entries(sections).filter(([, value]) => value != null && (typeof value !== "object" || Object.keys(value).length)).map(([name, value]) => [
    h("h3", {}, name.replaceAll("_", " ")),
    h("pre", {}, typeof value === "string" ? value : JSON.stringify(value, null, 2)),
  ]);
}

// -- one message's life as a picture ----------------------------------------------------------------------------------

const STORY_BAD = new Set(["modified", "dead-lettered", "dropped", "expired", "lost-volatile"]);

function story(life) {
  if (life instanceof Error) return h("p.box", {}, life.message);
  const lives = life?.lives ?? [];
  if (!lives.length) return h("p.faint", {}, "Nothing is known of it: it was not durable, or the segments that told of it are gone.");
  return [
    life.complete === false && h("p.box", {}, `The journal was not read to its end (${life.stopped}): there may be more.`),
    life.hidden ? h("p.box", {}, `${number(life.hidden)} copies are in queues that you may not see.`) : null,
    lives.map(pictured),
  ];
}

const STEP_HEIGHT = 36;

function pictured(one) {
  const steps = one.steps ?? [];
  const queues = new Map(steps.map((step) => [step.queue, true]));
  const name = [...queues.keys()].filter(Boolean).join(", ");
  const told = steps.map((step) => step.event).join(", then ");
  const rows = steps.flatMap((step, at) => {
    const y = 20 + at * STEP_HEIGHT;
    const kind = STORY_BAD.has(step.event) ? "bad" : at === steps.length - 1 && one.standing !== "live" ? "good" : "";
    const said = [step.who, step.cause, step.condition, step.description].filter(Boolean).join(", ");
    return [
      at ? svg("line", { x1: 14, x2: 14, y1: y - STEP_HEIGHT + 7, y2: y - 7 }) : null,
      svg("circle", { cx: 14, cy: y, r: 7, class: kind }),
      svg("text", { x: 32, y: y + 1 }, `${step.event}${step.delivery_count ? `, count ${step.delivery_count}` : ""}`),
      svg("text", { x: 32, y: y + 15, class: "faint" }, `${clock(step.time_us / 1000)}  ${said.slice(0, 100)}`),
    ].filter(Boolean);
  });
  const others = (heading, sequences) => (sequences?.length ? [heading, sequences.map((sequence) => [h("a", { href: to("find", String(sequence)) }, String(sequence)), " "])] : null);
  return h("figure", {},
    h("figcaption", {}, `${name}, sequence ${one.sequence}, ${one.standing}: ${told}. `, others("It came from ", [one.came_from].flat().filter(Boolean)), others("It became ", [one.became].flat().filter(Boolean))),
    svg("svg", { class: "life", viewBox: `0 0 640 ${Math.max(40, 30 + steps.length * STEP_HEIGHT)}`, role: "img", "aria-label": plain(told) }, rows));
}

async function find(signal, view, sequence) {
  if (sequence) view.text ??= sequence;
  const by = view.by ?? "sequence";
  const form = h("form", { onsubmit: (event) => { event.preventDefault(); view.by = event.target.by.value; view.text = event.target.text.value.trim(); view.asked = Date.now(); draw(); } },
    h("label", {}, "Find by", h("select", { name: "by" }, [["sequence", "sequence"], ["message_id", "message id"], ["duplicate_id", "duplicate id"]].map(([value, text]) => h("option", { value, selected: value === by }, text)))),
    h("label", {}, "Which", h("input", { name: "text", value: view.text ?? "", required: true, spellcheck: "false" })),
    h("button", {}, "What became of it?"));
  const life = view.text ? await storyOf(view, { [by]: view.text }, view.asked, signal) : null;
  return [h("h1", {}, "What became of a message"), form, life && story(life)];
}

async function connections(signal, view) {
  const { items } = await api.connections({ after: view.after ?? 0, limit: PAGE_ROWS }, signal);
  const more = items.length === PAGE_ROWS;
  const go = (after) => () => { view.after = after; draw(); };
  return [
    h("h1", {}, "Connections"),
    table(view.after || more ? `${number(items.length)} of the connections` : `${number(items.length)} ${items.length === 1 ? "connection" : "connections"}`, [
      ["peer", "peer"],
      ["container", "container"],
      ["user", "user", (user) => user ?? ""],
      ["product", "product", (product, one) => [product, one.version].filter(Boolean).join(" ")],
      ["mechanism", "login", (mechanism, one) => [mechanism, one.tls ? "TLS" : ""].filter(Boolean).join(", ")],
      ["sessions", "sessions", number, "number"],
      ["links", "links", number, "number"],
      ["unsettled", "holds", number, "number"],
      ["oldest_unsettled_ms", "longest", span, "number"],
      ["credit_starved", "without credit", number, "number"],
      ["writable", "reads", (writable) => (writable ? "yes" : h("span.bad", {}, "no"))],
      ["since_ms", "for", span, "number"],
      ["id", "", (id, one) => h("button.grave", { type: "button", "aria-label": `Close ${one.peer}`, onclick: () => closeDialog(one) }, "Close…")],
    ], items, { empty: view.after ? "There are no more." : "Nobody is connected." }),
    h("div.actions", {},
      view.after ? h("button", { type: "button", onclick: go(0) }, "From the beginning") : null,
      more ? h("button", { type: "button", onclick: go(items[items.length - 1].id) }, "Further") : null),
  ];
}

async function disk(signal) {
  const [broker, held] = await Promise.all([api.broker(signal), api.termini(signal).catch(optional)]);
  const { disk: room = {}, sync = {} } = broker;
  return [
    h("h1", {}, "Disk and journal"),
    room.refusing ? h("p.box.bad", { role: "alert" }, room.why || "Postings are refused.") : null,
    cards([
      ["Room", bytes(room.free_bytes)],
      ["Journal", bytes(room.journal_bytes)],
      ["Segments", number(room.segments)],
      ["Syncs", number(sync.count)],
      ["Last sync", sync.last_ms == null ? "" : `${sync.last_ms} ms`],
      ["Sync, p50", sync.p50_ms == null ? "" : `${sync.p50_ms} ms`],
      ["Sync, p99", sync.p99_ms == null ? "" : `${sync.p99_ms} ms`],
      ["Loop lag", broker.loop_lag_ms == null ? "" : `${broker.loop_lag_ms} ms`],
      ["Memory", bytes(broker.memory_bytes)],
      ["Memory, at most", bytes(broker.memory_bytes_max)],
    ].filter(([, value]) => value !== "")),
    h("h2", {}, "Links that may come back"),
    table("Termini that outlive their links", [
      ["node", "queue", queueLink],
      ["container", "container"],
      ["link", "link"],
      ["role", "role"],
      ["attached", "attached", (attached) => (attached ? "yes" : "no")],
      ["messages", "holds", number, "number"],
      ["suspended_ms", "away for", span, "number"],
      ["ends_in_ms", "ends in", span, "number"],
    ], held?.items ?? [], { empty: "None." }),
  ];
}

// What the broker refuses is shown in its place; what it does not answer ends the drawing.
const told = (error) => {
  if (error instanceof api.Refused && error.status < 500) return error;
  throw error;
};
const optional = (error) => (told(error), null);

// -- what is done -----------------------------------------------------------------------------------------------------

function say(text, bad = false) {
  const line = h(bad ? "p.bad" : "p", {}, text);
  notes.append(line);
  setTimeout(() => line.remove(), bad ? 20000 : 8000);
}

async function perform(promise, done) {
  try {
    say(done(await promise));
  } catch (error) {
    say(error.message, true);
  }
  draw();
}

// A dialog that says what will be done and to how many; `fields` are its inputs, `act` gets their values.
function confirm(title, text, fields, button, act) {
  const form = h("form", { method: "dialog", onsubmit: async (event) => {
    event.preventDefault();
    const values = Object.fromEntries(new FormData(form));
    submit.disabled = true;
    try {
      const answer = await act(values, said);
      if (answer !== undefined) {
        dialog.close();
        say(answer);
        draw();
      }
    } catch (error) {
      said.replaceChildren(h("p.box.bad", { role: "alert" }, error.message));
    }
    submit.disabled = false;
  } });
  const said = h("div", { "aria-live": "polite" });
  const submit = h("button.grave", {}, button);
  form.append(h("h2", { id: "dialog-title" }, title), h("p", {}, text), ...fields, said,
    h("div.actions", {}, submit, h("button", { type: "button", onclick: () => dialog.close() }, "Leave it")));
  dialog.replaceChildren(form);
  dialog.showModal();
}

const field = (label, name, attributes) => h("label", {}, label, h("input", { name, spellcheck: "false", ...attributes }));
const selector = (text) => (text.trim() ? { selector: text.trim() } : {});

const pauseDialog = (one) => confirm(`Pause ${one.name}?`, "Nobody gets a message from it until it is resumed, also over a restart of the broker. Messages that consumers hold stay with them.", [
  h("label", {}, "Who is to wait", h("select", { name: "paused" }, [["consumers", "consumers"], ["producers", "producers"], ["both", "both"]].map(([value, text]) => h("option", { value }, text)))),
], "Pause", async ({ paused }) => {
  await api.pause(one.name, paused);
  return `${one.name} is paused: ${paused}.`;
});

const purgeDialog = (one) => confirm(`Purge ${one.name}?`, `Removes the ${number(one.available + one.scheduled)} messages that wait in it, for good. The ${number(one.acquired)} that consumers hold stay. This cannot be undone.`, [
  field("Only those that this selector takes", "selector", { placeholder: "all" }),
], "Purge", async (values) => {
  const { purged } = await api.purge(one.name, selector(values.selector));
  return `${number(purged)} messages were purged from ${one.name}.`;
});

const moveDialog = (one) => confirm(`Move messages of ${one.name}?`, `Moves those of its ${number(one.available)} available messages that you say. They can be moved back.`, [
  field("To", "to", { required: true }),
  field("Only those that this selector takes", "selector", { placeholder: "all" }),
  field("At most", "max", { type: "number", min: "1", placeholder: "all" }),
], "Move", async (values) => {
  const { moved } = await api.move(one.name, { to: values.to, ...selector(values.selector), ...(values.max ? { max: Number(values.max) } : {}) });
  return `${number(moved)} messages were moved to ${values.to}.`;
});

const deleteDialog = (one) => confirm(`Delete ${one.name}?`, `Ends its ${number(one.consumers + one.producers)} links and removes its ${number(one.depth)} messages, for good. This cannot be undone.`, [
  field(`Its name, to be sure: ${one.name}`, "sure", { required: true, autocomplete: "off" }),
], "Delete", async ({ sure }) => {
  if (sure !== one.name) throw new Error("That is another name: nothing was deleted.");
  const gone = await api.remove(one.name);
  location.hash = "#/queues";
  return `${one.name} was deleted with ${number(gone?.messages ?? one.depth)} messages.`;
});

const closeDialog = (one) => confirm(`Close the connection of ${one.peer}?`, `${one.container || "It"} has ${number(one.links)} links and holds ${number(one.unsettled)} messages, which go back to their queues. It may connect again.`, [
  field("The reason that it is told", "reason", { value: "closed by an administrator", required: true }),
], "Close", async ({ reason }) => {
  await api.close(one.id, reason);
  return `The connection of ${one.peer} was closed.`;
});

// Redriving begins with what it would do.
function redriveDialog(one) {
  let tried = null;
  confirm(`Redrive ${one.name}?`, "Each dead letter goes back to the queue that it came from, and its attempts begin anew. First you are shown what would be done.", [
    field("Only those that this selector takes", "selector", { placeholder: "all" }),
  ], "Show, then redrive", async (values, said) => {
    const body = selector(values.selector);
    if (tried !== JSON.stringify(body)) {
      const plan = await api.redrive(one.name, { ...body, dry_run: true });
      tried = JSON.stringify(body);
      said.replaceChildren(h("div.box", {}, h("p", {}, `${number(plan.redriven)} messages would go back. Press again to do it.`),
        facts(Object.entries(plan.by_origin ?? {}).map(([queue, count]) => [queue, number(count)])),
        plan.without_origin ? h("p", {}, `${number(plan.without_origin)} do not say where they came from, and stay.`) : null));
      return undefined;
    }
    const done = await api.redrive(one.name, body);
    return `${number(done.redriven)} messages went back to where they came from${done.without_origin ? `; ${number(done.without_origin)} do not say where that is, and stay` : ""}.`;
  });
}

// -- drawing ----------------------------------------------------------------------------------------------------------

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // typed by hand
  }
}

const PAGES = { "": overview, queues, queue, "dead-letters": deadLetters, message, find, connections, disk };
const views = new Map();
let under_way = null;
let timer = null;
let good_at = null;

async function draw() {
  clearTimeout(timer);
  under_way?.abort();
  const control = (under_way = new AbortController());
  const hash = location.hash || "#/";
  const [page, ...rest] = hash.slice(2).split("/").map(decoded);
  const view = views.get(hash) ?? {};
  views.set(hash, view);
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === `#/${page}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  try {
    const made = await (PAGES[page] ?? overview)(control.signal, view, ...rest);
    if (control.signal.aborted) return;
    replace(hash, made);
    good_at = Date.now();
    state.className = "";
    state.textContent = `as of ${new Date(good_at).toLocaleTimeString("en-GB")}`;
  } catch (error) {
    if (control.signal.aborted) return;
    if (error instanceof api.Refused && error.status < 500) {
      replace(hash, [h("h1", {}, error.status === 404 ? "Not there" : "This may not be shown"), h("p.box.bad", { role: "alert" }, error.message)]);
      state.className = "";
      state.textContent = "";
    } else {
      if (!(error instanceof api.Refused)) reportError(error); // of this page: seen where its author looks
      if (state.className !== "lost") say("The broker does not answer: the figures stay as they were.", true);
      state.className = "lost";
      state.textContent = good_at ? `no answer from the broker; the figures are of ${new Date(good_at).toLocaleTimeString("en-GB")}` : "no answer from the broker";
    }
  }
  timer = setTimeout(draw, document.hidden ? EVERY_MS * 10 : EVERY_MS);
}

const isChanged = (input) => (input.tagName === "SELECT" ? !input.selectedOptions[0]?.defaultSelected : input.value !== input.defaultValue);

// The new page in place of the old one, with the focus, what is typed and how far it was scrolled as they were.
function replace(hash, made) {
  const same = main.dataset.page === hash;
  const active = same && main.contains(document.activeElement) ? document.activeElement : null;
  const at = active && [...main.querySelectorAll("input, select, button, a, [tabindex]")].indexOf(active);
  const [typed, begin, end] = active?.tagName === "INPUT" ? [active.value, active.selectionStart, active.selectionEnd] : [];
  const entered = same ? [...main.querySelectorAll("input[name], select[name]")].filter(isChanged).map((input) => [input.name, input.value]) : [];
  const scrolled = [...main.querySelectorAll(".wide")].map((box) => box.scrollLeft);
  main.replaceChildren(...made.flat(Infinity).filter((part) => part != null && part !== false && part !== true && part !== ""));
  main.dataset.page = hash;
  document.title = `${main.querySelector("h1")?.textContent ?? "acquit"} - acquit`;
  if (!same) {
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
    return;
  }
  main.querySelectorAll(".wide").forEach((box, index) => { box.scrollLeft = scrolled[index] ?? 0; });
  for (const [name, value] of entered) {
    const input = main.querySelector(`input[name="${name}"], select[name="${name}"]`);
    if (input) input.value = value;
  }
  const again = at != null && at >= 0 ? main.querySelectorAll("input, select, button, a, [tabindex]")[at] : null;
  if (!again || again.tagName !== active.tagName) return;
  again.focus({ preventScroll: true });
  if (typed !== undefined) {
    again.value = typed;
    try {
      again.setSelectionRange(begin, end);
    } catch {
      // of a kind that has no selection
    }
  }
}

addEventListener("hashchange", draw);
document.addEventListener("visibilitychange", () => document.hidden || draw());
draw();
