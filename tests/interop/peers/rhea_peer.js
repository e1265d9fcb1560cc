// AMQP 1.0 by rhea, driven by lines of JSON: see README.md beside this file.
'use strict';

const crypto = require('crypto');
const fs = require('fs');
const path = require('path');
const readline = require('readline');
const rhea = require(path.join(process.env.ACQUIT_INTEROP_NODE_MODULES, 'rhea'));
const scram = require('./scram.js');

const BODY_BYTES_SHOWN = 4096;
const container = rhea.create_container({ id: 'rhea-peer' });
const sessions = new Map();
const links = new Map();
let connection;
let leaving = false;
let server;
let refused = {};

function report(event, fields) {
    process.stdout.write(JSON.stringify(Object.assign({ event: event }, fields)) + '\n');
}

function described(error) {
    return error ? { condition: error.condition, description: error.description } : {};
}

// ---- values

function bodyToRhea(body) {
    if (body === undefined) return null;
    return body.data === undefined ? body.value : rhea.message.data_section(Buffer.from(body.data, 'base64'));
}

function bodyToJson(body) {
    if (!body || body.typecode !== 0x75) return { value: body === undefined ? null : body };
    const bytes = body.multiple ? Buffer.concat(body.content) : body.content;
    if (bytes.length <= BODY_BYTES_SHOWN) return { data: bytes.toString('base64') };
    return { data_bytes: bytes.length, sha256: crypto.createHash('sha256').update(bytes).digest('hex') };
}

function plain(map) {
    // Annotation values may be buffers or timestamps; the tests look at texts and numbers.
    const result = {};
    for (const key of Object.keys(map || {})) {
        const value = map[key];
        if (['string', 'number', 'boolean'].includes(typeof value)) result[key] = value;
    }
    return result;
}

// ---- links

function remember(name, link) {
    links.set(name, { link: link, deliveries: [], count: 0 });
    link.peer_name = name;
}

function entryOf(context) {
    const link = context.sender || context.receiver;
    if (link.peer_name === undefined) remember(link.name, link);
    return links.get(link.peer_name);
}

function listOf(value) {
    // A field that may be one symbol or many.
    if (value === undefined || value === null) return [];
    return Array.isArray(value) ? value : [value];
}

function terminusOf(link) {
    // What the other side says of its end of the link.
    const terminus = link.is_sender() ? link.remote.attach.target : link.remote.attach.source;
    return {
        dynamic: Boolean(terminus?.dynamic),
        capabilities: listOf(terminus?.capabilities),
        filters: Object.keys(terminus?.filter || {}),
        durability: terminus?.durable || 0,
        node: Boolean(terminus?.constructor.descriptor), // rhea keeps a null it was sent as an object
    };
}

function linkOpened(context) {
    const link = context.sender || context.receiver;
    entryOf(context);
    const attach = link.remote.attach;
    report('link_open', Object.assign(terminusOf(link), {
        link: link.peer_name,
        source: attach.source?.address ?? null,
        target: attach.target?.address ?? null,
        snd_settle_mode: attach.snd_settle_mode,
        rcv_settle_mode: attach.rcv_settle_mode,
        max_message_size: attach.max_message_size,
        distribution_mode: attach.source?.distribution_mode ?? null,
    }));
}

function linkClosed(context) {
    const link = context.sender || context.receiver;
    const event = link.remote.detach.closed ? 'link_close' : 'link_detach';
    report(event, Object.assign({ link: link.peer_name }, described(link.error)));
}

function answerAttach(link, address, copyTerminus) {
    // As a server: answer with the terminus and the modes that were asked for, or refuse (2.6.3).
    link.local.attach.snd_settle_mode = link.remote.attach.snd_settle_mode;
    link.local.attach.rcv_settle_mode = link.remote.attach.rcv_settle_mode;
    if (refused[address] === undefined) {
        copyTerminus();
    } else {
        link.close({ condition: refused[address], description: 'refused by the test' });
    }
}

container.on('sender_open', function (context) {
    const sender = context.sender;
    if (server) {
        const source = sender.source;
        answerAttach(sender, source.address, () => sender.set_source({
            address: source.address,
            distribution_mode: source.distribution_mode,
        }));
    }
    linkOpened(context);
});
container.on('receiver_open', function (context) {
    const receiver = context.receiver;
    if (server) {
        const address = receiver.target.address;
        answerAttach(receiver, address, () => receiver.set_target({ address: address }));
    }
    linkOpened(context);
});
container.on('sender_close', linkClosed);
container.on('receiver_close', linkClosed);
container.on('sender_error', function () {});
container.on('receiver_error', function () {});

container.on('sender_flow', function (context) {
    entryOf(context);
    const link = context.sender;
    report('credit', { link: link.peer_name, credit: link.credit, drain: Boolean(link._draining) });
});
container.on('sender_draining', function (context) { context.sender.set_drained(true); });
container.on('receiver_drained', function (context) {
    context.receiver.drain = false;
    report('drained', { link: context.receiver.peer_name });
});

// ---- deliveries

container.on('message', function (context) {
    const entry = entryOf(context);
    const message = context.message;
    const delivery = context.delivery;
    delivery.peer_number = entry.count++;
    entry.deliveries.push(delivery);
    report('message', {
        link: context.receiver.peer_name,
        delivery: delivery.peer_number,
        id: message.message_id === undefined ? null : message.message_id,
        body: bodyToJson(message.body),
        durable: Boolean(message.durable),
        subject: message.subject === undefined ? null : message.subject,
        delivery_count: message.delivery_count || 0,
        first_acquirer: message.first_acquirer === undefined ? null : message.first_acquirer,
        annotations: plain(message.message_annotations),
        application_properties: plain(message.application_properties),
        settled: Boolean(delivery.remote_settled),
        group_id: message.group_id ?? null,
        priority: message.priority === undefined ? 4 : message.priority,
        to: message.to ?? null,
        reply_to: message.reply_to ?? null,
        correlation_id: message.correlation_id ?? null,
    });
});

function outcome(name) {
    return function (context) {
        const state = context.delivery.remote_state;
        report('outcome', Object.assign(
            {
                link: context.sender.peer_name,
                delivery: context.delivery.peer_number,
                outcome: name,
                settled: Boolean(context.delivery.remote_settled),
                failed: Boolean(state.delivery_failed),
                undeliverable: Boolean(state.undeliverable_here),
                annotations: plain(state.message_annotations),
            },
            described(state.error)
        ));
    };
}
for (const name of ['accepted', 'rejected', 'released', 'modified']) container.on(name, outcome(name));
container.on('settled', function (context) {
    if (context.receiver) {
        report('settled', { link: context.receiver.peer_name, delivery: context.delivery.peer_number });
    }
});

// ---- sessions and connections

container.on('session_open', function (context) {
    if (server) sessions.set('default', context.session);
});
container.on('session_error', function () {});
container.on('session_close', function (context) {
    report('session_close', Object.assign({ session: context.session.peer_name }, described(context.session.error)));
});
container.on('connection_open', function (context) {
    connection = context.connection;
    report('connection_open', {
        container_id: connection.container_id,
        max_frame_size: connection.remote.open.max_frame_size,
        idle_time_out: connection.remote.open.idle_time_out,
    });
});
container.on('connection_error', function () {});
container.on('connection_close', function (context) {
    if (leaving) left();
    else report('connection_close', described(context.connection.error));
});
container.on('disconnected', function (context) {
    if (context.connection === connection) report('disconnected', described(context.error));
});
container.on('error', function (error) { report('disconnected', described(error)); });

function left() {
    connection = undefined;
    leaving = false;
    report('reset');
}

function openSession(name) {
    const session = connection.create_session();
    session.peer_name = name;
    sessions.set(name, session);
    session.open();
    return session;
}

function given(options) {
    return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined && value !== null));
}

function errorOf(command) {
    return command.condition ? { condition: command.condition, description: command.description } : undefined;
}

function mechanismsOf(command) {
    // undefined: what rhea takes by itself, PLAIN where there is a password.
    if (command.mechanisms === undefined) return undefined;
    const enabled = rhea.sasl.client_mechanisms();
    for (const name of command.mechanisms) {
        if (name === 'PLAIN') enabled.enable_plain(command.user, command.password);
        else if (name === 'EXTERNAL') enabled.enable_external();
        else if (name === 'ANONYMOUS') enabled.enable_anonymous();
        else enabled[name] = () => scram.client(command.user, command.password);
    }
    return enabled;
}

function tlsOf(command) {
    if (command.authority === undefined) return {};
    const certificate = command.certificate && fs.readFileSync(command.certificate);
    return { transport: 'tls', ca: fs.readFileSync(command.authority), cert: certificate, key: certificate };
}

function nodeOf(command) {
    // What a command says of the broker's end of a link.
    return given({
        address: command.address,
        dynamic: command.dynamic,
        capabilities: command.capabilities,
        dynamic_node_properties: command.lifetime && {
            'lifetime-policy': rhea.types.wrap_described([], command.lifetime),
        },
    });
}

function filterOf(command) {
    const filter = {};
    if (command.selector !== undefined) Object.assign(filter, rhea.filter.selector(command.selector));
    if (command.no_local) filter['no-local'] = rhea.types.wrap_described([], 'apache.org:no-local-filter:list');
    return Object.keys(filter).length ? filter : undefined;
}

function annotationsOf(message) {
    const annotations = Object.assign({}, message.annotations);
    if (message.deliver_after_ms !== undefined) annotations['x-opt-delivery-delay'] = message.deliver_after_ms;
    if (message.deliver_at_ms !== undefined) annotations['x-opt-delivery-time'] = new Date(message.deliver_at_ms);
    return Object.keys(annotations).length ? annotations : undefined;
}

// ---- commands

const commands = {
    connect(command) {
        connection = container.connect(given({
            host: '127.0.0.1',
            port: command.port,
            username: command.user,
            password: command.password,
            container_id: command.container_id,
            idle_time_out: command.idle_time_out,
            max_frame_size: command.max_frame_size,
            reconnect: Boolean(command.reconnect),
            initial_reconnect_delay: 20,
            max_reconnect_delay: 20,
            sasl_mechanisms: mechanismsOf(command),
            ...tlsOf(command),
        }));
        openSession('default');
    },
    listen(command) {
        refused = command.refuse || {};
        const offered = container.sasl_server_mechanisms;
        if (command.user) {
            offered.enable_plain((user, password) => user === command.user && password === command.password);
        } else {
            offered.enable_anonymous();
        }
        server = container.listen(given({
            host: '127.0.0.1',
            port: 0,
            idle_time_out: command.idle_time_out,
            max_frame_size: command.max_frame_size,
            receiver_options: { autoaccept: false, credit_window: 0 },
            sender_options: { treat_modified_as_released: false },
        }));
        server.on('listening', () => report('listening', { port: server.address().port }));
    },
    reset() {
        leaving = Boolean(connection && connection.is_open());
        if (leaving) connection.close();
        else left();
    },
    session(command) {
        openSession(command.session);
    },
    sender(command) {
        const session = sessions.get(command.session || 'default');
        remember(command.link, session.open_sender(given({
            name: command.link,
            target: nodeOf(command),
            properties: command.properties,
            snd_settle_mode: command.snd_settle_mode,
            rcv_settle_mode: command.rcv_settle_mode,
            treat_modified_as_released: false,
        })));
    },
    receiver(command) {
        const session = sessions.get(command.session || 'default');
        const receiver = session.open_receiver(given({
            name: command.link,
            source: given({
                ...nodeOf(command),
                distribution_mode: command.distribution_mode,
                filter: filterOf(command),
                durable: command.durable_subscription ? 2 : undefined,
                expiry_policy: command.durable_subscription ? 'never' : undefined,
            }),
            target: command.target && { address: command.target },
            properties: command.properties,
            snd_settle_mode: command.snd_settle_mode,
            rcv_settle_mode: command.rcv_settle_mode,
            credit_window: 0,
            autoaccept: false,
            autosettle: true,
        }));
        remember(command.link, receiver);
        if (command.credit) receiver.add_credit(command.credit);
    },
    send(command) {
        const entry = links.get(command.link);
        for (const message of command.messages) {
            const delivery = entry.link.send(given({
                message_id: message.id,
                durable: message.durable,
                subject: message.subject,
                application_properties: message.application_properties,
                body: bodyToRhea(message.body),
                message_annotations: annotationsOf(message),
                ttl: message.ttl_s && message.ttl_s * 1000,
                priority: message.priority,
                to: message.to,
                reply_to: message.reply_to,
                correlation_id: message.correlation_id,
                group_id: message.group_id,
                group_sequence: message.group_sequence,
            }));
            delivery.peer_number = entry.count++;
            entry.deliveries.push(delivery);
        }
    },
    confirm(command) {
        for (const number of command.deliveries) links.get(command.link).deliveries[number].update(true);
    },
    settle(command) {
        const entry = links.get(command.link);
        for (const number of command.deliveries) {
            const delivery = entry.deliveries[number];
            const state = {
                received: () => rhea.message.received({ section_number: 0, section_offset: 0 }),
                accepted: () => rhea.message.accepted(),
                released: () => rhea.message.released(),
                rejected: () => rhea.message.rejected(given({ error: errorOf(command) })),
                modified: () => rhea.message.modified(given({
                    delivery_failed: command.failed,
                    undeliverable_here: command.undeliverable,
                    message_annotations: command.annotations,
                })),
            }[command.outcome];
            delivery.update(command.settled, state === undefined ? undefined : state().described());
        }
    },
    state(command) {
        const delivery = links.get(command.link).deliveries[command.delivery];
        const state = delivery.remote_state;
        report('state', {
            link: command.link,
            delivery: command.delivery,
            outcome: state?.constructor.composite_type ?? null,
            failed: Boolean(state?.delivery_failed),
            settled: Boolean(delivery.remote_settled),
        });
    },
    credit(command) {
        links.get(command.link).link.add_credit(command.credit);
    },
    drain(command) {
        links.get(command.link).link.drain_credit();
    },
    detach(command) {
        const link = links.get(command.link).link;
        if (command.closed === false) link.detach();
        else link.close(errorOf(command));
    },
    end(command) {
        sessions.get(command.session || 'default').close(errorOf(command));
    },
    close(command) {
        connection.close(errorOf(command));
    },
};

// One command a turn of the event loop: rhea gathers the dispositions of a turn into ranges, and takes a second delivery
// into the first one's range without comparing their outcomes.
const waiting = [];

function obey() {
    const command = waiting.shift();
    commands[command.do](command);
    if (waiting.length) setImmediate(obey);
}

readline.createInterface({ input: process.stdin })
    .on('line', (line) => {
        waiting.push(JSON.parse(line));
        if (waiting.length === 1) setImmediate(obey);
    })
    .on('close', () => process.exit(0));
