// Manages a queue with rhea: rhea_management.js PORT QUEUE
'use strict';

const path = require('path');
const container = require(path.join(process.env.ACQUIT_INTEROP_NODE_MODULES, 'rhea'));

const [port, name] = [process.argv[2], process.argv[3]];
const operations = ['CREATE', 'READ', 'PURGE', 'DELETE', 'READ'];
let sender;

function ask(receiver) {
    sender.send({
        reply_to: receiver.source.address,
        message_id: operations.length,
        application_properties: { operation: operations[0], type: 'acquit:queue', name: name },
    });
}

container.on('connection_open', (context) => {
    sender = context.connection.open_sender('$management');
    context.connection.open_receiver({ source: { dynamic: true } });
});
container.on('receiver_open', (context) => ask(context.receiver));
container.on('message', (context) => {
    const answer = context.message;
    if (answer.correlation_id !== operations.length) throw new Error('correlation_id ' + answer.correlation_id);
    const depth = answer.body && answer.body.depth !== undefined ? ' ' + answer.body.depth : '';
    console.log(operations.shift() + ' ' + answer.application_properties.statusCode + depth);
    if (operations.length) ask(context.receiver);
    else context.connection.close();
});
container.connect({ host: '127.0.0.1', port: port, reconnect: false });
