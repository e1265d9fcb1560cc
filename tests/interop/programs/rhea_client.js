// Asks, one request after the other, with rhea: rhea_client.js PORT ADDRESS TEXT...
'use strict';

const path = require('path');
const container = require(path.join(process.env.ACQUIT_INTEROP_NODE_MODULES, 'rhea'));

const [port, address] = [process.argv[2], process.argv[3]];
const requests = process.argv.slice(4);
let sender;

function ask(receiver) {
    sender.send({ reply_to: receiver.source.address, correlation_id: requests.length, body: requests[0] });
}

container.on('connection_open', (context) => {
    sender = context.connection.open_sender(address);
    context.connection.open_receiver({ source: { dynamic: true } });
});
container.on('receiver_open', (context) => ask(context.receiver));
container.on('message', (context) => {
    console.log(requests.shift() + ' => ' + context.message.body);
    if (requests.length) ask(context.receiver);
    else context.connection.close();
});
container.connect({ host: '127.0.0.1', port: port, reconnect: false });
