// A durable subscription with rhea: rhea_subscriber.js PORT TOPIC CONTAINER NAME COUNT [unsubscribe]
'use strict';

const path = require('path');
const container = require(path.join(process.env.ACQUIT_INTEROP_NODE_MODULES, 'rhea'));

const [port, topic, id, name, count, unsubscribe] = process.argv.slice(2);
let left = Number(count);

function leave(context) {
    // A link that is closed ends the subscription, one that is detached does not.
    if (unsubscribe) context.receiver.close();
    else context.receiver.detach();
    context.connection.close();
}

container.on('receiver_open', (context) => {
    if (left === 0) leave(context);
});
container.on('message', (context) => {
    console.log(context.message.message_id);
    left -= 1;
    if (left === 0) leave(context);
});
container.connect({ host: '127.0.0.1', port: port, container_id: id, reconnect: false }).open_receiver({
    name: name,
    source: { address: topic, capabilities: ['topic'], durable: 2, expiry_policy: 'never' },
});
